//! Why an action is not carried out. Nothing has changed then.

/// Why an action is refused, as the API server or a member would report it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// Another owner has an object of that name.
    #[error("{0} belongs to another owner")]
    Taken(String),
    /// An object with that name is being deleted.
    #[error("{0} is still being deleted")]
    Terminating(String),
    /// A precondition does not hold: a UID, a fence, a disk.
    #[error("the situation changed: {0}")]
    Changed(String),
    /// No member leads with a quorum.
    #[error("no member leads with a quorum")]
    NoQuorum,
    /// The PodDisruptionBudget does not allow it now.
    #[error("the PodDisruptionBudget does not allow the eviction of {0}")]
    Disruption(String),
}

impl Refused {
    pub(super) fn changed<T>(why: impl Into<String>) -> Result<T, Self> {
        Err(Self::Changed(why.into()))
    }
}
