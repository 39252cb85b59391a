//! What must hold at every step, one property a file. Each oracle is given what happened and
//! answers with a violation in words; none of them knows how a member works inside.

mod commit;
mod election;
mod history;
mod leases;
mod linear;
mod log;
mod reference_model;
mod refusals;
mod rights;
mod roles;
mod state;
mod votes;
mod watched;

pub(super) use commit::Commits;
pub(super) use election::Elections;
pub(super) use history::History;
pub(super) use leases::Leases;
pub(super) use linear::Linear;
pub(super) use log::Logs;
pub(super) use refusals::Refusals;
pub(super) use rights::Rights;
pub(super) use roles::Roles;
pub(super) use state::States;
pub(super) use votes::Votes;
pub(super) use watched::{Progress, Wish};

/// A property that did not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The oracle that saw it.
    pub oracle: &'static str,
    /// What it saw.
    pub text: String,
}

impl Violation {
    pub(super) fn new(oracle: &'static str, text: impl Into<String>) -> Self {
        Self {
            oracle,
            text: text.into(),
        }
    }
}

/// The verdict of an oracle.
pub(super) type Verdict = Result<(), Violation>;
