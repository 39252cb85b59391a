//! What a platform must be able to do. Small on purpose: look, carry out one act, write down the
//! report. A platform decides nothing: which act, and whether it is safe, is the plan's business.

/// Why a request was not carried out. Nothing was changed, or the change is not known to have
/// happened; the next pass looks again.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// An object of that name belongs to somebody else.
    #[error("{kind} {name} belongs to {owner}: rename the cluster, or remove that object")]
    NameConflict {
        /// Its kind.
        kind: String,
        /// Its name.
        name: String,
        /// Whose it is, as well as can be told.
        owner: String,
    },
    /// An object of that name is still on its way out.
    #[error("{kind} {name} is still being deleted")]
    Terminating {
        /// Its kind.
        kind: String,
        /// Its name.
        name: String,
    },
    /// What the step was decided on is no longer so.
    #[error("the situation changed: {0}")]
    Changed(String),
    /// It will be refused again until somebody changes something: a specification that the
    /// platform does not accept, a right that the operator lacks.
    #[error("refused: {0}")]
    Refused(String),
    /// It may work the next time: a time-out, an overload, a member that does not answer.
    #[error("{0}")]
    Retry(String),
}
