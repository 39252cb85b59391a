//! Who may be what: only one that was a voter leads, one that was removed leads no longer than
//! until that is settled, and a learner is promoted only when its log is nearly as long as the
//! leader's.

use std::collections::BTreeSet;

use crate::mutants::mutant;
use crate::raft::{Configuration, Index, MemberId};

use super::{Verdict, Violation};

/// Entries that a leader may append between its look at a learner and the promotion.
const SLACK: Index = 300;

/// Who was ever a voter.
#[derive(Debug, Default)]
pub(in crate::sim) struct Roles {
    voters: BTreeSet<MemberId>,
}

impl Roles {
    /// A configuration is in force: it was applied for the first time.
    pub(in crate::sim) fn configured(&mut self, configuration: &Configuration) {
        self.voters.extend(&configuration.voters);
    }

    /// A member reports that it leads.
    pub(in crate::sim) fn leads(&self, member: MemberId) -> Verdict {
        if self.voters.contains(&member) || mutant!(BlindLearnerLeads) {
            return Ok(());
        }
        Err(violation(format!("{member:x} leads and was never a voter")))
    }

    /// A member whose own state holds its removal, and that the others know to be removed for good.
    pub(in crate::sim) fn removed(&self, member: MemberId, leads: bool) -> Verdict {
        if !leads || mutant!(BlindRemovedLeads) {
            return Ok(());
        }
        Err(violation(format!(
            "{member:x} leads although it was removed for good"
        )))
    }

    /// A promotion at an index is applied for the first time; the member's log ends at `last`.
    pub(in crate::sim) fn promoted(&self, member: MemberId, index: Index, last: Index) -> Verdict {
        let enough = last * 10 >= index.saturating_sub(SLACK) * 9;
        if enough || mutant!(BlindPromotion) {
            return Ok(());
        }
        Err(violation(format!(
            "{member:x} is promoted at index {index}, its log ends at {last}"
        )))
    }
}

fn violation(text: String) -> Violation {
    Violation::new("roles", text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn roles() -> Roles {
        let mut roles = Roles::default();
        roles.configured(&Configuration::new([1, 2], [3]));
        roles
    }

    #[test]
    fn detects_a_leader_that_never_was_a_voter() {
        let mut roles = roles();
        assert_eq!(roles.leads(2), Ok(()));
        assert!(roles.leads(3).is_err());
        roles.configured(&Configuration::new([1, 3], []));
        assert_eq!(roles.leads(3), Ok(()));
        assert_eq!(roles.leads(2), Ok(()), "it may not know yet");
    }

    #[test]
    fn detects_a_removed_leader_that_stays() {
        assert_eq!(roles().removed(2, false), Ok(()));
        assert!(roles().removed(2, true).is_err());
    }

    #[test]
    fn detects_promotion_of_a_lagging_learner() {
        assert_eq!(roles().promoted(3, 2000, 1990), Ok(()));
        assert_eq!(roles().promoted(3, 200, 0), Ok(()), "too early to judge");
        assert!(roles().promoted(3, 2000, 900).is_err());
    }
}
