//! The comparisons of the members' data that a leader made while the alarm CORRUPT is on, as many
//! as the operator may need. Compares nothing itself, and does not decide which member is wrong.

use std::collections::VecDeque;
use std::time::Instant;

use crate::store::Revision;

use super::verdict::{Hashed, Sides};

/// The number kept: the operator acts on two that agree.
const KEPT: usize = 3;

/// One comparison.
#[derive(Clone, Debug)]
pub(crate) struct Compared {
    /// When it was complete.
    pub at: Instant,
    /// The term of the leader that made it.
    pub term: u64,
    /// The revision that was hashed.
    pub revision: Revision,
    /// The compacted revision: the hash covers the history after it.
    pub compacted: Revision,
    /// The members by hash.
    pub sides: Sides,
}

impl Compared {
    /// A comparison of this hash with those of the others at its revision.
    pub(crate) fn new(at: Instant, term: u64, own: Hashed, sides: Sides) -> Self {
        Self {
            at,
            term,
            revision: own.revision,
            compacted: own.compacted,
            sides,
        }
    }
}

/// The last comparisons, the newest first.
#[derive(Debug, Default)]
pub(crate) struct Comparisons(VecDeque<Compared>);

impl Comparisons {
    /// Adds one.
    pub(crate) fn add(&mut self, compared: Compared) {
        self.0.push_front(compared);
        self.0.truncate(KEPT);
    }

    /// The alarm is off, or another member leads: earlier comparisons do not describe the present
    /// state.
    pub(crate) fn forget(&mut self) {
        self.0.clear();
    }

    /// The comparisons of this term. A leader that lost its leadership and regained it starts over.
    pub(crate) fn of_term(&self, term: u64) -> impl Iterator<Item = &Compared> {
        self.0.iter().filter(move |compared| compared.term == term)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newest_comparisons_of_a_term_are_kept() {
        let own = Hashed {
            hash: 7,
            compacted: 1,
            revision: 9,
        };
        let mut kept = Comparisons::default();
        for term in [1, 2, 2, 2, 2] {
            kept.add(Compared::new(Instant::now(), term, own, Sides::default()));
        }
        assert_eq!(kept.of_term(2).count(), KEPT);
        assert_eq!(kept.of_term(1).count(), 0);
        kept.forget();
        assert_eq!(kept.of_term(2).count(), 0);
    }
}
