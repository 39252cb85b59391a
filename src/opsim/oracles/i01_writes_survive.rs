//! I1: an acknowledged write survives any operator action. Every quorum that could be formed of the
//! voters holds a disk with it; a disk that a fault took away counts as if it were still there, for
//! then it was not the operator's doing.

use super::Of;

pub(super) fn moment(of: &Of<'_>) -> Option<String> {
    let cluster = of.cluster;
    let (voters, acknowledged) = (cluster.voters.len(), cluster.acknowledged);
    if !cluster.exists || voters == 0 {
        return None;
    }
    let holds = |held: Option<u64>| held.is_some_and(|held| held >= acknowledged);
    let kept = cluster
        .voters
        .values()
        .filter(|member| holds(member.held) || member.taken.is_some());
    let (kept, needed) = (kept.count(), voters - cluster.quorum() + 1);
    (kept < needed).then(|| {
        format!(
            "entry {acknowledged} is on the disks of {kept} of {voters} voters; {needed} are needed"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{cluster, of};
    use super::*;

    #[test]
    fn detects_discarded_disks() {
        let mut three = cluster(3);
        assert_eq!(moment(&of(&three, 0)), None);
        three.voters.entry(1).and_modify(|m| m.held = None);
        assert_eq!(moment(&of(&three, 0)), None, "two of three hold it");
        three.voters.entry(2).and_modify(|m| m.held = Some(99));
        assert!(moment(&of(&three, 0)).is_some());
        three.voters.entry(1).and_modify(|m| m.taken = Some(100));
        assert_eq!(moment(&of(&three, 0)), None, "a fault took one");
    }
}
