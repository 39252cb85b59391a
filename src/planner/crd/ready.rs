//! The condition Ready, which every resource but a cluster has as its only one.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

/// Its type.
pub const READY: &str = "Ready";

/// Ready with this status, reason and message. Its time is that of its last change of the status, by what was known
/// `before`.
#[must_use]
pub fn ready_condition(
    before: &[Condition],
    (status, reason, message): (&str, &str, String),
    generation: Option<i64>,
    now: Timestamp,
) -> Condition {
    let known = before.iter().find(|known| known.type_ == READY);
    let since = known.filter(|known| known.status == status);
    Condition {
        type_: READY.to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message,
        observed_generation: generation,
        last_transition_time: since.map_or(Time(now), |known| known.last_transition_time.clone()),
    }
}
