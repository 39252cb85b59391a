//! Events of a cluster, in the driver's syntax. Executes none of them.

use std::fmt;

use crate::raft::*;

/// One thing that happens, to both clusters alike.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// A member starts without any state.
    New(MemberId),
    /// A tick of its clock.
    Tick(MemberId),
    Campaign(MemberId),
    Propose(MemberId, Vec<String>),
    Change(MemberId, ConfigurationChange),
    Transfer(MemberId, MemberId),
    /// Messages one way are lost from now on.
    Cut(MemberId, MemberId),
    /// No way is cut any more.
    Heal,
    /// A snapshot of what is applied, and the log up to an index is dropped.
    Compact(MemberId, Index),
    Crash(MemberId),
    /// From what is durable, of which this is the commit index.
    Restart(MemberId, Index),
}

/// What the change is in a configuration: a promotion adds a voter.
pub(super) fn kind(change: ConfigurationChange) -> &'static str {
    match change {
        ConfigurationChange::AddVoter(_) | ConfigurationChange::Promote(_) => "voter",
        ConfigurationChange::AddLearner(_) => "learner",
        ConfigurationChange::Remove(_) => "remove",
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::New(id) => write!(f, "new {id}"),
            Self::Tick(id) => write!(f, "tick {id}"),
            Self::Campaign(id) => write!(f, "campaign {id}"),
            Self::Propose(id, items) => write!(f, "propose {id} {}", items.join(" ")),
            Self::Change(id, change) => {
                write!(f, "change {id} {} {}", kind(*change), change.member())
            }
            Self::Transfer(id, to) => write!(f, "transfer {id} {to}"),
            Self::Cut(from, to) => write!(f, "cut {from} {to}"),
            Self::Heal => f.write_str("heal"),
            Self::Compact(id, through) => write!(f, "compact {id} {through}"),
            Self::Crash(id) => write!(f, "crash {id}"),
            Self::Restart(id, commit) => write!(f, "restart {id} {commit}"),
        }
    }
}
