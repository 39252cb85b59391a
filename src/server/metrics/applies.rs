//! How long entries take to be applied, by operation, and ranges to be read, and whether it succeeded, under the names and with
//! the words that etcd has.
//!
//! Changes of the membership have no such time, as in etcd. Written by whoever applies, one at a time, so that nobody waits.

use std::time::Duration;

use super::{Histogram, Text};
use crate::node::{LogPayload, Outcome, PayloadBody};
use crate::store::{AuthOperation, Error, Operation};

/// Upper bounds of the buckets, in seconds; etcd's.
const APPLY_BUCKETS: &[f64] = &[
    0.000_1, 0.000_2, 0.000_4, 0.000_8, 0.001_6, 0.003_2, 0.006_4, 0.012_8, 0.025_6, 0.051_2,
    0.102_4, 0.204_8, 0.409_6, 0.819_2, 1.638_4, 3.276_8, 6.553_6, 13.107_2, 26.214_4, 52.428_8,
];

/// The operations: etcd's words, and two that only this server has.
const NAMES: [&str; 22] = [
    "Put",
    "DeleteRange",
    "Txn",
    "Compaction",
    "LeaseGrant",
    "LeaseRevoke",
    "LeaseExpire",
    "LeaseCheckpoint",
    "Alarm",
    "Follow",
    "AuthEnable",
    "AuthDisable",
    "Authenticate",
    "AuthUserAdd",
    "AuthUserDelete",
    "AuthUserChangePassword",
    "AuthUserGrantRole",
    "AuthUserRevokeRole",
    "AuthRoleAdd",
    "AuthRoleDelete",
    "AuthRoleGrantPermission",
    "AuthRoleRevokePermission",
];

/// The times: of each operation those that failed, and those that did not.
#[derive(Debug)]
pub struct Applies([[Histogram; 2]; NAMES.len()]);

impl Default for Applies {
    fn default() -> Self {
        Applies(NAMES.map(|_| [false, true].map(|_| Histogram::new(APPLY_BUCKETS))))
    }
}

impl Applies {
    /// An entry with this payload was applied.
    pub fn applied(&self, payload: Option<&LogPayload>, outcome: &Outcome, took: Duration) {
        let times = payload
            .and_then(number)
            .and_then(|number| self.0.get(number));
        if let Some(times) = times {
            times[usize::from(succeeded(outcome))].observe(took);
        }
    }

    /// As in etcd, what has not happened has no samples.
    pub(super) fn write(&self, text: &mut Text) {
        let name = "etcd_server_apply_duration_seconds";
        let help = "Seconds that applying an entry took, by operation, those of the log at the start included.";
        text.head(name, "histogram", help);
        for (op, times) in NAMES.iter().zip(&self.0) {
            for (success, times) in [false, true].iter().zip(times) {
                if !times.is_empty() {
                    let labels = format!("op=\"{op}\",success=\"{success}\",version=\"v3\"");
                    times.write(text, name, &labels);
                }
            }
        }
    }
}

/// The times of ranges: those that failed, and those that did not.
#[derive(Debug)]
pub struct Ranges([Histogram; 2]);

impl Default for Ranges {
    fn default() -> Self {
        Ranges([false, true].map(|_| Histogram::new(APPLY_BUCKETS)))
    }
}

impl Ranges {
    /// A range was read for a client, or could not be.
    pub fn read(&self, success: bool, took: Duration) {
        self.0[usize::from(success)].observe(took);
    }

    /// As in etcd, what has not happened has no samples.
    pub(super) fn write(&self, text: &mut Text) {
        let name = "etcd_server_range_duration_seconds";
        let help = "Seconds that reading a range for a client took, the wait for its turn included; not in transactions.";
        text.head(name, "histogram", help);
        for (success, times) in [false, true].iter().zip(&self.0) {
            if !times.is_empty() {
                times.write(text, name, &format!("success=\"{success}\""));
            }
        }
    }
}

/// As in etcd, a revision that is compacted already is no failure.
fn succeeded(outcome: &Outcome) -> bool {
    !matches!(outcome, Outcome::Store(Err(error)) if !matches!(error, Error::Compacted { .. }))
}

/// The place of an operation among the names.
fn number(payload: &LogPayload) -> Option<usize> {
    let Some(PayloadBody::Command(command)) = &payload.body else {
        return None;
    };
    Some(match command.operation.as_ref()? {
        Operation::Put(_) => 0,
        Operation::DeleteRange(_) => 1,
        Operation::Txn(_) => 2,
        Operation::Compact(_) => 3,
        Operation::LeaseGrant(_) => 4,
        Operation::LeaseRevoke(_) => 5,
        Operation::LeaseExpire(_) => 6,
        Operation::LeaseCheckpoint(_) => 7,
        Operation::SetAlarm(_) => 8,
        Operation::Follow(_) => 9,
        Operation::Auth(command) => match command.operation.as_ref()? {
            AuthOperation::Enable(_) => 10,
            AuthOperation::Disable(_) => 11,
            AuthOperation::Authenticate(_) => 12,
            AuthOperation::UserAdd(_) => 13,
            AuthOperation::UserDelete(_) => 14,
            AuthOperation::UserChangePassword(_) => 15,
            AuthOperation::UserGrantRole(_) => 16,
            AuthOperation::UserRevokeRole(_) => 17,
            AuthOperation::RoleAdd(_) => 18,
            AuthOperation::RoleDelete(_) => 19,
            AuthOperation::RoleGrantPermission(_) => 20,
            AuthOperation::RoleRevokePermission(_) => 21,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{AuthEnable, Command, Compact, Put, Response};

    fn payload(operation: Operation) -> LogPayload {
        let command = Command {
            operation: Some(operation),
            ..Command::default()
        };
        LogPayload {
            body: Some(PayloadBody::Command(command)),
            ..LogPayload::default()
        }
    }

    fn counts(applies: &Applies) -> Vec<String> {
        let mut text = Text::default();
        applies.write(&mut text);
        let text = text.finish();
        let counts = text.lines().filter(|line| line.contains("_count"));
        let counts =
            counts.map(|line| line.replace("etcd_server_apply_duration_seconds_count", ""));
        counts.collect()
    }

    #[test]
    fn entries_are_told_by_operation_and_success() {
        let applies = Applies::default();
        let put = payload(Operation::Put(Put::default()));
        let took = Duration::from_millis(1);
        let done = Outcome::Store(Ok(Response::Put(Default::default())));
        applies.applied(Some(&put), &done, took);
        applies.applied(Some(&put), &done, took);
        let refused = Outcome::Store(Err(Error::NoSpace));
        applies.applied(Some(&put), &refused, took);
        let compact = payload(Operation::Compact(Compact { revision: 2 }));
        let compacted = Outcome::Store(Err(Error::Compacted { compacted: 3 }));
        applies.applied(Some(&compact), &compacted, took);
        // The first entry of a term has none.
        applies.applied(None, &Outcome::Started, took);
        let wanted = [
            r#"{op="Put",success="false",version="v3"} 1"#,
            r#"{op="Put",success="true",version="v3"} 2"#,
            r#"{op="Compaction",success="true",version="v3"} 1"#,
        ];
        assert_eq!(counts(&applies), wanted);
    }

    #[test]
    fn users_and_roles_have_etcds_words() {
        let applies = Applies::default();
        let enable = AuthOperation::Enable(AuthEnable {});
        let enable = payload(Operation::Auth(enable.into()));
        let refused = Outcome::Store(Err(Error::NoSpace));
        applies.applied(Some(&enable), &refused, Duration::ZERO);
        let wanted = [r#"{op="AuthEnable",success="false",version="v3"} 1"#];
        assert_eq!(counts(&applies), wanted);
    }
}
