//! Alarms as replicated state: raised and disarmed by commands of the log, and what is refused while one is raised.
//! Never detects a problem: the proposer does.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::check::cost;
use super::{Error, Operation, Revision};

/// What is wrong; the numbers are etcd's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, prost::Enumeration)]
#[repr(i32)]
pub enum AlarmKind {
    /// Nothing: never raised.
    None = 0,
    /// The quota is used up.
    NoSpace = 1,
    /// A member's data differs from the others'.
    Corrupt = 2,
}

/// An alarm that is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Alarm {
    /// What is wrong.
    pub kind: AlarmKind,
    /// The member (etcd lets a client name any).
    pub member: u64,
}

/// Raises an alarm or switches it off.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct SetAlarm {
    /// Which one. [`AlarmKind::None`] changes nothing.
    #[prost(enumeration = "AlarmKind", tag = "1")]
    pub kind: i32,
    /// Of which member.
    #[prost(uint64, tag = "2")]
    pub member: u64,
    /// Whether it is to be on.
    #[prost(bool, tag = "3")]
    pub on: bool,
}

/// Answer to a change of an alarm.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SetAlarmResponse {
    /// The current revision.
    pub revision: Revision,
    /// The alarm that is on, or that was and is off now; none if there was none to switch off.
    pub alarm: Option<Alarm>,
}

/// The alarms that are on. Cloning is O(1).
#[derive(Clone, Debug, Default)]
pub(super) struct Alarms(Arc<BTreeSet<Alarm>>);

impl Alarms {
    /// Carries a change out. A kind that this version does not know must stop the member: it
    /// would diverge otherwise.
    pub(super) fn set(&mut self, change: &SetAlarm) -> Result<Option<Alarm>, Error> {
        let kind = AlarmKind::try_from(change.kind).map_err(|_| Error::UnknownCommand)?;
        let member = change.member;
        let alarm = Alarm { kind, member };
        if kind == AlarmKind::None {
            return Ok(None);
        }
        let was_on = self.0.contains(&alarm);
        if was_on != change.on {
            let alarms = Arc::make_mut(&mut self.0);
            if change.on {
                alarms.insert(alarm);
            } else {
                alarms.remove(&alarm);
            }
        }
        Ok((was_on || change.on).then_some(alarm))
    }

    /// By kind and then by member.
    pub(super) fn all(&self) -> Vec<Alarm> {
        self.0.iter().copied().collect()
    }

    pub(super) fn any(&self, kind: AlarmKind) -> bool {
        self.0.iter().any(|alarm| alarm.kind == kind)
    }

    /// Refuses what must not be carried out while an alarm is on, as etcd does: without space
    /// nothing that adds, on corruption nothing that changes keys or leases.
    pub(super) fn check(&self, operation: &Operation) -> Result<(), Error> {
        if self.0.is_empty() {
            return Ok(());
        }
        if self.any(AlarmKind::Corrupt) {
            match operation {
                // Both keep the leases' clocks; the expiry does nothing, see its own rule.
                Operation::LeaseExpire(_) | Operation::LeaseCheckpoint(_) => {}
                // Neither changes keys or leases.
                Operation::SetAlarm(_) | Operation::Auth(_) => {}
                // Nor does this, and a followed cluster waits for it.
                Operation::Follow(step) if step.only_opens() => {}
                Operation::Put(_)
                | Operation::DeleteRange(_)
                | Operation::Txn(_)
                | Operation::Compact(_)
                | Operation::LeaseGrant(_)
                | Operation::LeaseRevoke(_)
                | Operation::Follow(_) => return Err(Error::Corrupt),
            }
        }
        if self.any(AlarmKind::NoSpace) && cost(operation) > 0 {
            return Err(Error::NoSpace);
        }
        Ok(())
    }
}
