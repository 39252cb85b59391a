//! State-machine safety and leader completeness (paper, figure 3): what is applied at an index is
//! the same everywhere, and was committed; when it is first applied it is durable at a quorum of the voters, learners
//! not counted; and the leader of every later term than it was committed in holds it.

use std::collections::BTreeMap;

use crate::mutants::mutant;
use crate::raft::{Configuration, Entry, Index, Term};
use crate::sim::network::HostId;

use super::{Logs, Verdict, Violation};

/// What has been committed: each applied index, from the first one on.
#[derive(Debug, Default)]
pub(in crate::sim) struct Commits {
    first: Index,
    /// The term of each entry.
    terms: Vec<Term>,
    /// How far a member knew of commits while it was in a term. The first one to know of any is the leader that committed it.
    /// The term of an entry may be far earlier than that: who was elected between them, and learns of it late, need not have
    /// it.
    committed: BTreeMap<Term, Index>,
}

impl Commits {
    /// The cluster starts with the state at this index.
    pub(in crate::sim) fn found(index: Index, term: Term) -> Self {
        Self {
            first: index,
            terms: vec![term],
            committed: BTreeMap::from([(term, index)]),
        }
    }

    /// A member that is in this term knows that everything up to this index is committed.
    pub(in crate::sim) fn committed(&mut self, index: Index, term: Term) {
        let term = mutant!(BlindCommitTerm => term + 1, else term);
        let last = self.committed.entry(term).or_default();
        *last = index.max(*last);
    }

    /// The last committed index that is known.
    pub(in crate::sim) fn last(&self) -> Index {
        self.first + self.terms.len() as Index - 1
    }

    /// A host applies an entry. `configurations` are those that the leader may have counted in:
    /// the one in force before the entry, and the one before that; `host_of` returns where a
    /// voter's disk is.
    pub(in crate::sim) fn applied(
        &mut self,
        host: HostId,
        entry: &Entry,
        logs: &Logs,
        configurations: &[&Configuration],
        host_of: impl Fn(u64) -> Option<HostId>,
    ) -> Verdict {
        if let Some(term) = self.term(entry.index) {
            if term == entry.term || mutant!(BlindApplied) {
                return Ok(());
            }
            return Err(Violation::new(
                "state-machine safety",
                format!(
                    "host {host} applies index {} of term {}, another host applied term {term}",
                    entry.index, entry.term
                ),
            ));
        }
        if entry.index != self.last() + 1 {
            return Err(Violation::new(
                "state-machine safety",
                format!("host {host} applies index {} after a gap", entry.index),
            ));
        }
        let committed = self.committed.values().any(|last| *last >= entry.index);
        if !committed && !mutant!(BlindUncommitted) {
            return Err(Violation::new(
                "state-machine safety",
                format!(
                    "host {host} applies index {}, which no member has committed",
                    entry.index
                ),
            ));
        }
        let durable_at_quorum = |configuration: &&Configuration| {
            let holders = configuration.voters.iter().filter(|voter| {
                host_of(**voter).is_some_and(|h| logs.holds(h, entry.index, entry.term))
            });
            holders.count() + usize::from(mutant!(BlindQuorum)) > configuration.voters.len() / 2
        };
        if !configurations.iter().any(durable_at_quorum) {
            return Err(Violation::new(
                "durable before committed",
                format!(
                    "host {host} applies index {} of term {}, which is not durable at a quorum of the voters",
                    entry.index, entry.term
                ),
            ));
        }
        self.terms.push(entry.term);
        Ok(())
    }

    /// A host has become leader of `term`: it must hold every entry that was committed in earlier terms.
    pub(in crate::sim) fn leader(&self, host: HostId, term: Term, logs: &Logs) -> Verdict {
        let before = self.committed.range(..term);
        let last = before.map(|(_, last)| *last).max().unwrap_or_default();
        for (index, of) in (self.first..=last).zip(&self.terms) {
            if !logs.holds(host, index, *of) && !mutant!(BlindCompleteness) {
                return Err(Violation::new(
                    "leader completeness",
                    format!(
                        "host {host} leads term {term} without index {index} of term {of}, which is committed"
                    ),
                ));
            }
        }
        Ok(())
    }

    fn term(&self, index: Index) -> Option<Term> {
        let offset = usize::try_from(index.checked_sub(self.first)?).ok()?;
        self.terms.get(offset).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(index: Index, term: Term) -> Entry {
        Entry {
            index,
            term,
            ..Entry::default()
        }
    }

    fn voters(ids: &[u64]) -> Configuration {
        Configuration {
            voters: ids.iter().copied().collect(),
            ..Configuration::default()
        }
    }

    fn written(hosts: &[HostId]) -> Logs {
        let mut logs = Logs::default();
        for host in hosts {
            logs.reset(*host, (1, 1));
            logs.wrote(*host, &[entry(2, 1)]).expect("matching");
        }
        logs
    }

    fn host(id: u64) -> Option<HostId> {
        usize::try_from(id).ok()
    }

    /// Those of a cluster in which a leader of this term has committed index 2.
    fn committed(term: Term) -> Commits {
        let mut commits = Commits::found(1, 1);
        commits.committed(2, term);
        commits
    }

    #[test]
    fn a_minority_commits_nothing() {
        let three = voters(&[0, 1, 2]);
        let mut commits = committed(1);
        // Host 7 is a learner: its copy does not count.
        let minority = written(&[0, 7]);
        assert!(
            commits
                .applied(0, &entry(2, 1), &minority, &[&three], host)
                .is_err()
        );
        let quorum = written(&[0, 2]);
        assert_eq!(
            commits.applied(0, &entry(2, 1), &quorum, &[&three], host),
            Ok(())
        );
    }

    #[test]
    fn half_of_the_voters_commit_nothing() {
        let four = voters(&[0, 1, 2, 3]);
        let mut commits = committed(1);
        let mut applied =
            |hosts: &[HostId]| commits.applied(0, &entry(2, 1), &written(hosts), &[&four], host);
        assert!(applied(&[0, 1]).is_err());
        assert_eq!(applied(&[0, 1, 2]), Ok(()));
    }

    #[test]
    fn detects_term_conflict_and_incomplete_leader() {
        let three = voters(&[0, 1, 2]);
        let logs = written(&[0, 1]);
        let mut commits = committed(1);
        commits
            .applied(0, &entry(2, 1), &logs, &[&three], host)
            .expect("committed");
        assert!(
            commits
                .applied(1, &entry(2, 2), &logs, &[&three], host)
                .is_err()
        );
        assert_eq!(commits.leader(1, 2, &logs), Ok(()));
        assert!(commits.leader(2, 2, &logs).is_err());
    }

    /// Seed 9: a candidate of term 9 was paused with its last vote on the way, the leader of term 10 committed an entry of
    /// term 2, and then the vote arrived.
    #[test]
    fn leader_that_learns_late_need_not_hold_what_a_later_one_committed() {
        let three = voters(&[0, 1, 2]);
        let mut logs = written(&[0, 1]);
        logs.reset(2, (1, 1));
        let mut commits = committed(4);
        let applied = commits.applied(0, &entry(2, 1), &logs, &[&three], host);
        assert_eq!(applied, Ok(()));
        assert_eq!(commits.leader(2, 4, &logs), Ok(()));
        assert!(commits.leader(2, 5, &logs).is_err());
        // The leader of term 3 learns only now that it has committed the entry before.
        commits.committed(2, 3);
        assert_eq!(commits.leader(2, 3, &logs), Ok(()));
        assert!(commits.leader(2, 4, &logs).is_err());
    }

    /// What was applied by a member that was in a later term already was taken for committed in that one, and a leader of the
    /// terms between could lack it.
    #[test]
    fn leader_holds_what_was_committed_before_its_term() {
        let three = voters(&[0, 1, 2]);
        let mut logs = written(&[0, 1]);
        logs.reset(2, (1, 1));
        let mut commits = committed(3);
        commits.committed(2, 5);
        let applied = commits.applied(0, &entry(2, 1), &logs, &[&three], host);
        assert_eq!(applied, Ok(()));
        assert_eq!(commits.leader(2, 3, &logs), Ok(()));
        assert!(commits.leader(2, 4, &logs).is_err());
    }

    #[test]
    fn nothing_is_applied_that_nobody_has_committed() {
        let three = voters(&[0, 1, 2]);
        let mut commits = Commits::found(1, 1);
        let logs = written(&[0, 1]);
        let mut applied = || commits.applied(0, &entry(2, 1), &logs, &[&three], host);
        assert!(applied().is_err());
    }
}
