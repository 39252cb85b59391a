//! What was refused for good leaves no trace: a proposal that a member reported as not appended,
//! never to be, is in no entry that any member applies, before or after that answer. And what was
//! not refused is in one entry at most: a proposal that is made again may not be there twice. Looks
//! at identities alone, so that it holds for every kind of proposal.

use std::collections::BTreeSet;

use super::{Verdict, Violation};
use crate::mutants::mutant;
use crate::node::RequestId;

/// The proposals whose end is known.
#[derive(Debug, Default)]
pub(in crate::sim) struct Refusals {
    refused: BTreeSet<RequestId>,
    applied: BTreeSet<RequestId>,
}

impl Refusals {
    /// A member refused a proposal for good.
    pub(in crate::sim) fn refused(&mut self, request: RequestId) -> Verdict {
        if self.applied.contains(&request) {
            return Err(violation(request, "is refused for good and was applied"));
        }
        if !mutant!(BlindRefusals) {
            self.refused.insert(request);
        }
        Ok(())
    }

    /// An entry with a proposal was applied, for the first time anywhere.
    pub(in crate::sim) fn applied(&mut self, request: RequestId) -> Verdict {
        if self.refused.contains(&request) {
            return Err(violation(request, "was refused for good and is applied"));
        }
        let twice = !mutant!(BlindLateRefusal) && !self.applied.insert(request);
        if twice && !mutant!(BlindAppliedTwice) {
            return Err(violation(request, "is applied twice"));
        }
        Ok(())
    }
}

fn violation(request: RequestId, what: &str) -> Violation {
    let RequestId {
        member, counter, ..
    } = request;
    Violation::new(
        "refusals",
        format!("proposal {counter} of {member:x} {what}"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(counter: u64) -> RequestId {
        RequestId {
            member: 1,
            boot_nonce: 1,
            counter,
        }
    }

    #[test]
    fn detects_refused_but_applied_writes() {
        let mut refusals = Refusals::default();
        assert_eq!(refusals.refused(request(1)), Ok(()));
        assert_eq!(refusals.applied(request(2)), Ok(()));
        assert!(refusals.applied(request(1)).is_err());
    }

    #[test]
    fn detects_applied_then_refused() {
        let mut refusals = Refusals::default();
        assert_eq!(refusals.applied(request(1)), Ok(()));
        assert_eq!(refusals.refused(request(2)), Ok(()));
        assert!(refusals.refused(request(1)).is_err());
    }

    /// A delete or a change of the membership that is there twice leaves no value twice.
    #[test]
    fn detects_proposals_applied_twice() {
        let mut refusals = Refusals::default();
        for counter in [1, 2] {
            assert_eq!(refusals.applied(request(counter)), Ok(()));
        }
        let restarted = RequestId {
            boot_nonce: 2,
            ..request(1)
        };
        assert_eq!(refusals.applied(restarted), Ok(()), "another start's");
        assert!(refusals.applied(request(1)).is_err());
    }
}
