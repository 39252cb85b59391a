//! The status of an `EtcdBackupStore`: what the newest Job that used it found.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::result::{FailureClass, JobResult};
use crate::crd::backups::EtcdBackupStoreStatus;
use crate::crd::ready_condition;

/// The end of a Job that used the store.
#[derive(Clone, Debug, PartialEq)]
pub struct StoreFinding {
    /// When.
    pub at: Timestamp,
    /// What it reported.
    pub result: JobResult,
}

/// The status after a Job has used the store; the same as before if that is known already, or if the Job failed for
/// another reason than the store.
#[must_use]
pub fn plan_store(
    before: &EtcdBackupStoreStatus,
    finding: &StoreFinding,
    generation: Option<i64>,
) -> EtcdBackupStoreStatus {
    let known = before.last_use_time.as_ref();
    let known = known.is_some_and(|known| known.0 >= finding.at);
    match verdict(&finding.result).filter(|_| !known) {
        None => before.clone(),
        Some(ready) => EtcdBackupStoreStatus {
            observed_generation: generation,
            last_use_time: Some(Time(finding.at)),
            conditions: vec![ready_condition(
                &before.conditions,
                ready,
                generation,
                finding.at,
            )],
            ..before.clone()
        },
    }
}

fn verdict(result: &JobResult) -> Option<(&'static str, &'static str, String)> {
    let JobResult::Failed { class, message } = result else {
        return Some(("True", "Used", String::new()));
    };
    let reason = match class {
        FailureClass::Credentials => "CredentialsRejected",
        FailureClass::Store => "StoreFailed",
        FailureClass::Key => "KeyRejected",
        FailureClass::Settings => "InvalidSettings",
        FailureClass::NotFound
        | FailureClass::Damaged
        | FailureClass::Source
        | FailureClass::Target
        | FailureClass::TargetFull
        | FailureClass::Other => return None,
    };
    Some(("False", reason, message.clone()))
}
