//! Election safety (paper, figure 3): at most one leader a term.

use std::collections::BTreeMap;

use crate::mutants::mutant;
use crate::raft::{MemberId, Term};

use super::{Verdict, Violation};

/// Who led in which term.
#[derive(Debug, Default)]
pub(in crate::sim) struct Elections {
    leaders: BTreeMap<Term, MemberId>,
}

impl Elections {
    /// A member reports that it leads.
    pub(in crate::sim) fn leads(&mut self, term: Term, member: MemberId) -> Verdict {
        match self.leaders.insert(term, member) {
            Some(other) if other != member && !mutant!(BlindElections) => Err(Violation::new(
                "election safety",
                format!("{other:x} and {member:x} both lead in term {term}"),
            )),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn detects_two_leaders_in_one_term() {
        let mut elections = Elections::default();
        assert_eq!(elections.leads(2, 1), Ok(()));
        assert_eq!(elections.leads(2, 1), Ok(()));
        assert_eq!(elections.leads(3, 2), Ok(()));
        assert!(elections.leads(2, 3).is_err());
    }
}
