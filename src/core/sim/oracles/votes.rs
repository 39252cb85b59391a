//! Votes and acknowledgements (paper, figure 2): a member gives one vote a term, and neither a
//! vote nor a term is ever forgotten; a vote is sent once it is durable; and whoever leads has
//! the durable votes of a quorum of the voters, learners not counted.

use std::collections::BTreeMap;

use crate::mutants::mutant;
use crate::raft::{Configuration, HardState, MemberId, Term};
use crate::sim::network::HostId;

use super::{Verdict, Violation};

/// What is durable of votes.
#[derive(Debug, Default)]
pub(in crate::sim) struct Votes {
    durable: BTreeMap<HostId, (Term, MemberId)>,
    given: BTreeMap<(MemberId, Term), MemberId>,
}

impl Votes {
    /// A host's disk holds this hard state since a batch was synced.
    pub(in crate::sim) fn wrote(
        &mut self,
        host: HostId,
        member: MemberId,
        state: &HardState,
    ) -> Verdict {
        let before = self.durable.get(&host).copied().unwrap_or_default();
        if state.term < before.0 {
            return Err(violation(format!(
                "host {host} goes back from term {} to {}",
                before.0, state.term
            )));
        }
        self.durable.insert(host, (state.term, state.vote));
        if state.vote == 0 {
            return Ok(());
        }
        match self.given.insert((member, state.term), state.vote) {
            Some(other) if other != state.vote && !mutant!(BlindVoteTwice) => {
                Err(violation(format!(
                    "host {host} votes for {other:x} and for {:x} in term {}",
                    state.vote, state.term
                )))
            }
            _ => Ok(()),
        }
    }

    /// A host starts with this hard state: what was durable must be there.
    pub(in crate::sim) fn recovered(
        &mut self,
        host: HostId,
        member: MemberId,
        state: &HardState,
    ) -> Verdict {
        let before = self.durable.get(&host).copied().unwrap_or_default();
        let kept = state.term > before.0
            || (state.term == before.0 && (before.1 == 0 || before.1 == state.vote));
        if !kept && !mutant!(BlindForgottenVote) {
            return Err(violation(format!(
                "host {host} voted for {:x} in term {} and starts with {state:?}",
                before.1, before.0
            )));
        }
        self.wrote(host, member, state)
    }

    /// A host sends a vote. Its disk has it, or a later term: then it can give no other any more.
    pub(in crate::sim) fn sends(
        &mut self,
        host: HostId,
        member: MemberId,
        term: Term,
        candidate: MemberId,
    ) -> Verdict {
        let durable = self.durable.get(&host).copied().unwrap_or_default();
        let promised = durable == (term, candidate) || durable.0 > term;
        let given = *self.given.entry((member, term)).or_insert(candidate);
        if (promised && given == candidate) || mutant!(BlindVoteDurable) {
            return Ok(());
        }
        Err(violation(format!(
            "host {host} sends its vote for {candidate:x} in term {term}, which it gave to {given:x}; its disk has {durable:?}"
        )))
    }

    /// A member leads, by the configuration that it has applied.
    pub(in crate::sim) fn leads(
        &self,
        member: MemberId,
        term: Term,
        configuration: &Configuration,
    ) -> Verdict {
        let voters = &configuration.voters;
        let votes = voters
            .iter()
            .filter(|voter| self.given.get(&(**voter, term)) == Some(&member));
        let votes = votes.count();
        if votes > voters.len() / 2 || mutant!(BlindVoteQuorum) {
            return Ok(());
        }
        Err(violation(format!(
            "{member:x} leads term {term} with {votes} durable votes of {} voters",
            voters.len()
        )))
    }
}

fn violation(text: String) -> Violation {
    Violation::new("votes", text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(term: Term, vote: MemberId) -> HardState {
        HardState {
            term,
            vote,
            commit: 0,
        }
    }

    #[test]
    fn detects_double_votes_and_lower_terms() {
        let mut votes = Votes::default();
        assert_eq!(votes.wrote(0, 10, &state(2, 11)), Ok(()));
        assert!(votes.wrote(0, 10, &state(2, 12)).is_err());
        let mut votes = Votes::default();
        assert_eq!(votes.wrote(0, 10, &state(2, 11)), Ok(()));
        assert!(votes.wrote(0, 10, &state(1, 0)).is_err());
    }

    #[test]
    fn detects_a_vote_lost_by_a_restart() {
        let mut votes = Votes::default();
        assert_eq!(votes.wrote(0, 10, &state(2, 11)), Ok(()));
        assert!(votes.recovered(0, 10, &state(2, 0)).is_err());
        assert!(votes.recovered(0, 10, &state(1, 11)).is_err());
        assert_eq!(votes.recovered(0, 10, &state(2, 11)), Ok(()));
        assert_eq!(votes.recovered(0, 10, &state(3, 0)), Ok(()));
    }

    #[test]
    fn detects_votes_before_durability() {
        let mut votes = Votes::default();
        assert!(votes.sends(0, 10, 2, 11).is_err());
        assert_eq!(votes.wrote(0, 10, &state(2, 11)), Ok(()));
        assert_eq!(votes.sends(0, 10, 2, 11), Ok(()));
        assert!(votes.sends(0, 10, 2, 12).is_err());
        // Late, but nothing that it could take back.
        assert_eq!(votes.wrote(0, 10, &state(4, 0)), Ok(()));
        assert_eq!(votes.sends(0, 10, 3, 12), Ok(()));
        assert!(votes.sends(0, 10, 3, 11).is_err());
    }

    #[test]
    fn detects_a_leader_elected_by_a_learner() {
        let three = Configuration {
            voters: [10, 11, 12].into(),
            learners: [13].into(),
        };
        let mut votes = Votes::default();
        for (host, member) in [(0, 10), (3, 13)] {
            assert_eq!(votes.wrote(host, member, &state(2, 10)), Ok(()));
        }
        assert!(votes.leads(10, 2, &three).is_err());
        assert_eq!(votes.wrote(1, 11, &state(2, 10)), Ok(()));
        assert_eq!(votes.leads(10, 2, &three), Ok(()));
    }
}
