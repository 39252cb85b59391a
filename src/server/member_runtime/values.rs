//! When a member that is not told otherwise begins to have values in files: once every member of its cluster is of a
//! release that can read such files. Until then each of them can go back to the release before, which could not read
//! its disk.
//!
//! Never moves a value itself. What it has allowed it takes back as long as there is no file: a member may go back to the
//! release before, and the others after it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::time::sleep;

use super::MemberRuntime;
use crate::disk::Start;

/// How often it is judged.
const JUDGE: Duration = Duration::from_secs(1);

/// Ends once there are files of values.
pub(super) async fn allow_files(local: &MemberRuntime) {
    let (mut current, mut told) = (false, false);
    loop {
        sleep(JUDGE).await;
        let Some(saver) = local.saver.get() else {
            continue;
        };
        if saver.checkpoints().values().are_there() {
            return saver.allow_files(true);
        }
        // After a start the membership is the checkpoint's until the log is applied: there may have been one member then.
        current = current || local.handle.linearizable().await.is_ok();
        let members = &local.handle.latest().membership.members;
        let members = members.keys().copied().collect();
        let can = current && all_can(&members, local.who().member_id, &local.standing());
        saver.allow_files(can);
        if can && !told {
            told = true;
            tracing::info!(
                "every member can read values from files: from the next checkpoint on they are there, which release 0.1.0 cannot read"
            );
        }
    }
}

/// Whether each member but this one is connected in a start that it shows: 0.1.0 shows none. A member that is away may
/// be of any release when it comes back.
fn all_can(members: &BTreeSet<u64>, own: u64, standing: &BTreeMap<u64, Start>) -> bool {
    let mut others = members.iter().filter(|id| **id != own);
    members.contains(&own) && others.all(|id| standing.contains_key(id))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_member_has_to_show_its_start() {
        let shown = |ids: &[u64]| -> BTreeMap<u64, Start> {
            ids.iter().map(|id| (*id, Start::default())).collect()
        };
        let three = BTreeSet::from([1, 2, 3]);
        assert!(!all_can(&BTreeSet::new(), 1, &shown(&[])), "no state yet");
        assert!(all_can(&BTreeSet::from([1]), 1, &shown(&[])), "alone");
        assert!(!all_can(&three, 1, &shown(&[2])));
        assert!(!all_can(&three, 1, &shown(&[2, 4])), "it is no member");
        assert!(all_can(&three, 1, &shown(&[2, 3])));
        assert!(!all_can(&three, 4, &shown(&[1, 2, 3])), "not added yet");
    }
}
