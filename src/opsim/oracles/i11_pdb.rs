//! I11: exactly one PDB is over each pod of a member that was not let go. One that counts
//! keeps at least a quorum of the voters available at every moment, so it is raised before a voter
//! comes, and is lowered only when the pods of all who were removed are gone.

use super::{Of, Step};
use crate::opsim::harness::ground_truth::ClusterTruth;

pub(super) fn moment(of: &Of<'_>) -> Option<String> {
    let cluster = of.cluster;
    if !cluster.exists {
        return None;
    }
    if let Some((pod, over)) = &cluster.pdbs.wrong {
        return Some(format!("{over} PDBs are over {pod}"));
    }
    let min_available = cluster.pdbs.min_available?;
    let voters = cluster.voters.len();
    (voters > 0 && min_available < cluster.quorum())
        .then(|| format!("evictions may leave {min_available} of {voters} voters available"))
}

pub(super) fn deed(step: &Step<'_>) -> Option<String> {
    let (before, after) = (&step.before.pdbs, &step.after.pdbs);
    let counts = after.max_unavailable.filter(|pods| *pods != 0);
    if let Some(pods) = counts.filter(|_| before.max_unavailable != counts) {
        return Some(format!(
            "{pods} pods may be unavailable, whichever are there"
        ));
    }
    let opened = before.max_unavailable == Some(0) && opens(step.after);
    let before = match opened {
        true => usize::MAX,
        false => before.min_available?,
    };
    let lowered = step.after.exists
        && after
            .min_available
            .is_some_and(|min_available| min_available < before);
    let mut pods = after.pods.iter().filter(|_| lowered);
    let left = pods.find(|name| step.after.removed.contains(*name))?;
    Some(format!(
        "the PDB was lowered, and the pod of {left} is still there"
    ))
}

/// Whether the PDB keeps all members but one, as one that is open at rest does.
fn opens(cluster: &ClusterTruth) -> bool {
    cluster.pdbs.min_available == Some(cluster.voters.len().saturating_sub(1))
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{cluster, of, step};
    use super::*;

    #[test]
    fn detects_wrong_pdbs() {
        let mut three = cluster(3);
        three.pdbs.min_available = Some(2);
        assert_eq!(moment(&of(&three, 0)), None);
        let mut four = cluster(4);
        four.pdbs.min_available = Some(2);
        assert!(moment(&of(&four, 0)).is_some());
        for over in [0, 2] {
            three.pdbs.wrong = Some(("demo-1-0".into(), over));
            assert!(moment(&of(&three, 0)).is_some());
        }
    }

    #[test]
    fn detects_a_pdb_lowered_too_early() {
        let mut before = cluster(3);
        before.pdbs.min_available = Some(3);
        before.removed.insert("demo-4".into());
        before.pdbs.pods.insert("demo-4".into());
        let mut after = before.clone();
        after.pdbs.min_available = Some(2);
        assert!(deed(&step(&before, &after, 0)).is_some());
        after.pdbs.pods.clear();
        assert_eq!(deed(&step(&before, &after, 0)), None);
        assert_eq!(deed(&step(&before, &before, 0)), None);
    }

    #[test]
    fn detects_a_pdb_opened_too_early() {
        let mut before = cluster(3);
        before.pdbs.max_unavailable = Some(0);
        before.removed.insert("demo-4".into());
        before.pdbs.pods.insert("demo-4".into());
        let mut after = before.clone();
        (after.pdbs.max_unavailable, after.pdbs.min_available) = (None, Some(2));
        assert!(deed(&step(&before, &after, 0)).is_some());
        after.pdbs.pods.clear();
        assert_eq!(deed(&step(&before, &after, 0)), None);
        after.pdbs.max_unavailable = Some(1);
        assert!(deed(&step(&before, &after, 0)).is_some());
    }
}
