//! Which members report that this one was removed from the cluster, and whether they suffice.
//!
//! A member that accepts such reports ends for good and its disk is discarded. One report does not
//! suffice, whichever member sends it: a majority of the other voters that this member knows is
//! needed. That is a quorum of what remains after its removal, so wherever the cluster continues
//! there are enough members to report it: the other two of three, and the other one of two. A
//! member that does not answer counts as no report. A member whose last known membership is so old
//! that most of it is gone as well stays in doubt.

use std::collections::BTreeSet;

use crate::mutants::mutant;
use crate::raft::MemberId;

/// The reports so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PeerReports {
    reported: BTreeSet<MemberId>,
}

impl PeerReports {
    /// A member reports that this one was removed; false if it had reported that before.
    pub fn add(&mut self, id: MemberId) -> bool {
        self.reported.insert(id)
    }

    /// A member treats this one as a member again.
    pub fn withdraw(&mut self, id: MemberId) {
        self.reported.remove(&id);
    }

    /// The number of reports, and the number needed. `others` are the voters that this member knew
    /// last, without itself.
    pub fn count(&self, others: &BTreeSet<MemberId>) -> (usize, usize) {
        let needed = others.len() / 2 + 1;
        (self.reported.intersection(others).count(), needed)
    }

    /// Whether a majority of `others` reports it.
    pub fn is_majority(&self, others: &BTreeSet<MemberId>) -> bool {
        let (reported, needed) = self.count(others);
        reported >= needed || (reported > 0 && mutant!(OneEndsAMember))
    }

    /// Whether it is enough to give up a disk that the cluster still counts on, as one that was
    /// rolled back or copied. That takes two reports, for the one other voter may itself be the one
    /// with the wrong disk: a cluster of two would lose its quorum for good by one false report.
    pub fn condemns(&self, others: &BTreeSet<MemberId>) -> bool {
        others.len() > 1 && self.is_majority(others)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn believed(others: &[MemberId], reported: &[MemberId]) -> bool {
        let mut removal_reports = PeerReports::default();
        for id in reported {
            removal_reports.add(*id);
        }
        removal_reports.is_majority(&others.iter().copied().collect())
    }

    /// A single frame used to end a member for good, whatever its sender.
    #[test]
    fn removal_needs_reports_of_a_majority() {
        assert!(believed(&[1], &[1]), "two members became one");
        assert!(!believed(&[1, 2], &[1]));
        assert!(believed(&[1, 2], &[1, 2]), "it alone was down");
        assert!(!believed(&[1, 2, 3, 4], &[1, 2]));
        assert!(believed(&[1, 2, 3, 4], &[1, 2, 4]), "two were removed");
        assert!(!believed(&[1, 2], &[7, 8, 9]), "strangers");
        assert!(!believed(&[], &[7, 8, 9]), "it knows no other member");
    }

    /// In a cluster of two, one report of the other member, possibly the one that was rolled back
    /// itself, had a disk written off for good.
    #[test]
    fn one_report_condemns_no_disk() {
        let condemned = |others: &[MemberId], reported: &[MemberId]| {
            let mut copied = PeerReports::default();
            for id in reported {
                copied.add(*id);
            }
            copied.condemns(&others.iter().copied().collect())
        };
        assert!(!condemned(&[1], &[1]), "the only other voter");
        assert!(!condemned(&[1, 2], &[1]));
        assert!(condemned(&[1, 2], &[1, 2]));
        assert!(condemned(&[1, 2, 3], &[1, 3]));
        assert!(!condemned(&[1, 2], &[7, 8, 9]), "strangers");
        assert!(!condemned(&[], &[]));
    }

    #[test]
    fn report_counts_once_and_can_be_withdrawn() {
        let others = [1, 2].into();
        let mut removal_reports = PeerReports::default();
        assert!(removal_reports.add(1) && !removal_reports.add(1));
        assert_eq!(removal_reports.count(&others), (1, 2));
        removal_reports.withdraw(1);
        removal_reports.add(2);
        assert_eq!(removal_reports.count(&others), (1, 2));
    }
}
