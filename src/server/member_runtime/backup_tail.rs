//! Which member gives its data with the log's end, and when: the one that its caller has seen, in a cluster that has no
//! quorum. Never changes the member.

use std::sync::Arc;

use tokio::sync::OwnedSemaphorePermit;
use tonic::Status;

use super::MemberRuntime;
use crate::disk::{LogReader, Position};
use crate::server::core::handle::{Published, Role};
use crate::server::core::tail::{TailError, with_tail};
use crate::wire::member::Tail;

/// The member's state with the log's end, if `wanted` describes this member. The caller has found that no quorum
/// confirms `published`, and holds the permit to open a file.
pub(super) async fn state(
    local: &MemberRuntime,
    wanted: &Tail,
    (published, one): (Arc<Published>, OwnedSemaphorePermit),
) -> Result<(Arc<Published>, OwnedSemaphorePermit), Status> {
    let log = described(local, wanted)?;
    // The permit goes with the work: a caller that waits no longer does not end it.
    let applied = tokio::task::spawn_blocking(move || (with_tail(&published, &log), one));
    let (applied, one) = applied
        .await
        .map_err(|error| Status::internal(error.to_string()))?;
    let applied = applied.map_err(|error| refusal(&error))?;
    // A quorum that came back while the log was read may have replaced its end.
    described(local, wanted)?;
    if leads(local) {
        return Err(quorum());
    }
    let status = local.shared.status();
    // A learner remembers a leader that is gone.
    if status.leader != 0 && status.role != Role::Learner {
        return Err(Status::unavailable(
            "this member follows a leader, so a quorum may be there: ask again once it has none",
        ));
    }
    Ok((Arc::new(applied), one))
}

/// The log of this member, if it is the one that is wanted and holds as much.
pub(super) fn described(local: &MemberRuntime, wanted: &Tail) -> Result<LogReader, Status> {
    let refused = |why: String| Err(Status::failed_precondition(why));
    if !wanted.disk_uuid.eq_ignore_ascii_case(&local.disk_uuid) {
        return refused(format!(
            "this is disk {}, and the data of disk {} are wanted: look which server holds that one, and describe the members again",
            local.disk_uuid, wanted.disk_uuid
        ));
    }
    let Some(log) = local.log.get() else {
        return refused("this member has just started and has not read its log yet".to_owned());
    };
    let last = log.last();
    let least = Position {
        index: wanted.index,
        term: wanted.term,
    };
    if (last.term, last.index) < (least.term, least.index) {
        return refused(format!(
            "the log of this member ends with entry {} of term {}, and was described to end with entry {} of term {}: its disk was set back, or another member is meant; describe the members again and choose the one with the longest log",
            last.index, last.term, least.index, least.term
        ));
    }
    Ok(log.clone())
}

/// Whether this member leads, and a quorum follows it.
pub(super) fn leads(local: &MemberRuntime) -> bool {
    let consensus = local.shared.consensus.load();
    let consensus = consensus.as_ref().as_ref();
    consensus.is_some_and(|status| status.leader_with_quorum)
}

/// Nothing is to be recovered.
pub(super) fn quorum() -> Status {
    Status::failed_precondition(
        "a quorum of the cluster answers, so nothing is lost: take an ordinary backup, or replace the members that are gone",
    )
}

fn refusal(error: &TailError) -> Status {
    match error {
        TailError::Entry(error) => Status::failed_precondition(error.to_string()),
        TailError::Replaced | TailError::Disk(crate::disk::Error::NotInLog { .. }) => {
            Status::unavailable("the log has changed while it was read: ask again")
        }
        TailError::Disk(error) => Status::internal(error.to_string()),
        TailError::Value(_) => Status::data_loss(error.to_string()),
    }
}
