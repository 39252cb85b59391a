//! State-machine safety and leader completeness (paper, figure 3): what is applied at an index is
//! the same everywhere; when it is first applied it is durable at a quorum of the voters, learners
//! not counted; and every later leader holds it.

use crate::mutants::mutant;
use crate::raft::{Configuration, Entry, Index, Term};
use crate::sim::network::HostId;

use super::{Logs, Verdict, Violation};

/// What has been committed: each applied index, from the first one on.
#[derive(Debug, Default)]
pub(in crate::sim) struct Commits {
    first: Index,
    entries: Vec<Committed>,
}

#[derive(Clone, Copy, Debug)]
struct Committed {
    term: Term,
    /// It was committed in this term at the latest. That of the entry may be far earlier: who was elected between them, and
    /// learns of it late, need not have it.
    by: Term,
}

impl Commits {
    /// The cluster starts with the state at this index.
    pub(in crate::sim) fn found(index: Index, term: Term) -> Self {
        Self {
            first: index,
            entries: vec![Committed { term, by: term }],
        }
    }

    /// The last committed index that is known.
    pub(in crate::sim) fn last(&self) -> Index {
        self.first + self.entries.len() as Index - 1
    }

    /// A host that is in term `by` applies an entry. `configurations` are those that the leader may have counted in:
    /// the one in force before the entry, and the one before that; `host_of` returns where a
    /// voter's disk is.
    pub(in crate::sim) fn applied(
        &mut self,
        (host, by): (HostId, Term),
        entry: &Entry,
        logs: &Logs,
        configurations: &[&Configuration],
        host_of: impl Fn(u64) -> Option<HostId>,
    ) -> Verdict {
        if let Some(committed) = self.entry(entry.index) {
            let term = committed.term;
            if term == entry.term || mutant!(BlindApplied) {
                committed.by = committed.by.min(by);
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
        let term = entry.term;
        self.entries.push(Committed { term, by });
        Ok(())
    }

    /// A host has become leader of `term`: it must hold every entry that was committed in earlier terms.
    pub(in crate::sim) fn leader(&self, host: HostId, term: Term, logs: &Logs) -> Verdict {
        for (offset, committed) in self.entries.iter().enumerate().rev() {
            let index = self.first + offset as Index;
            let lacks = committed.by < term && !logs.holds(host, index, committed.term);
            if lacks && !mutant!(BlindCompleteness) {
                let of = committed.term;
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

    fn entry(&mut self, index: Index) -> Option<&mut Committed> {
        let offset = usize::try_from(index.checked_sub(self.first)?).ok()?;
        self.entries.get_mut(offset)
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

    #[test]
    fn a_minority_commits_nothing() {
        let three = voters(&[0, 1, 2]);
        let mut commits = Commits::found(1, 1);
        // Host 7 is a learner: its copy does not count.
        let minority = written(&[0, 7]);
        assert!(
            commits
                .applied((0, 1), &entry(2, 1), &minority, &[&three], host)
                .is_err()
        );
        let quorum = written(&[0, 2]);
        assert_eq!(
            commits.applied((0, 1), &entry(2, 1), &quorum, &[&three], host),
            Ok(())
        );
    }

    #[test]
    fn half_of_the_voters_commit_nothing() {
        let four = voters(&[0, 1, 2, 3]);
        let mut commits = Commits::found(1, 1);
        let mut applied = |hosts: &[HostId]| {
            commits.applied((0, 1), &entry(2, 1), &written(hosts), &[&four], host)
        };
        assert!(applied(&[0, 1]).is_err());
        assert_eq!(applied(&[0, 1, 2]), Ok(()));
    }

    #[test]
    fn detects_term_conflict_and_incomplete_leader() {
        let three = voters(&[0, 1, 2]);
        let logs = written(&[0, 1]);
        let mut commits = Commits::found(1, 1);
        commits
            .applied((0, 1), &entry(2, 1), &logs, &[&three], host)
            .expect("committed");
        assert!(
            commits
                .applied((1, 2), &entry(2, 2), &logs, &[&three], host)
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
        let mut commits = Commits::found(1, 1);
        let mut applied = |by| commits.applied((0, by), &entry(2, 1), &logs, &[&three], host);
        assert_eq!((applied(4), applied(3)), (Ok(()), Ok(())));
        assert_eq!(commits.leader(2, 3, &logs), Ok(()));
        assert!(commits.leader(2, 4, &logs).is_err());
    }
}
