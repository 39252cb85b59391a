//! The digest of a description: the same as long as nothing changes that an operator acts on or shows. Pure; what it leaves
//! out changes all the time, or is asked for in any case by whoever judges it.

use prost::Message as _;
use sha2::{Digest as _, Sha256};

use crate::mutants::mutant;
use crate::wire::member as proto;

/// A leader without an answer from a member for this long has no contact with it.
pub const CONTACT_MS: i64 = 3_000;
/// A member that has held nothing more durably for this long, although there is more, has a disk that hangs.
pub const SYNC_MS: u64 = 5_000;

/// The digest, never 0.
#[must_use]
pub fn digest(description: &proto::DescribeResponse) -> u64 {
    let hash = Sha256::digest(kept(description.clone()).encode_to_vec());
    let first = hash.iter().take(8);
    first
        .fold(0, |all, byte| all << 8 | u64::from(*byte))
        .max(1)
}

/// A description without what always changes.
fn kept(mut it: proto::DescribeResponse) -> proto::DescribeResponse {
    it.digest = 0;
    (it.commit, it.applied, it.last_index) = (0, 0, 0);
    (it.revision, it.last_append_ms) = (0, 0);
    it.retiring_ms = it.retiring_ms.min(1);
    // Words with numbers in them, for whoever asks.
    it.activity.clear();
    it.unready_reason.clear();
    // Judged under an alarm alone, and then it is asked for. Others write to the same volume: whatever is compared with a bound
    // comes and goes while it is close to it.
    if !mutant!(DigestOfSpace) {
        it.space = None;
    }
    it.db_size = 0;
    if mutant!(DigestWithoutLeader) {
        (it.term, it.leader_id, it.leader_with_quorum) = (0, 0, false);
        it.role = 0;
    }
    for member in &mut it.members {
        *member = of_member(std::mem::take(member));
    }
    for comparison in &mut it.comparisons {
        comparison.age_ms = 0;
    }
    if let Some(staged) = &mut it.staged {
        (staged.received, staged.elapsed_ms) = (0, 0);
    }
    if let Some(archived) = &mut it.archived {
        (archived.index, archived.as_of_unix_ms) = (0, 0);
    }
    if let Some(following) = &mut it.following {
        (following.source_revision, following.as_of_unix_ms) = (0, 0);
        following.told_ms = 0;
    }
    it
}

fn of_member(mut it: proto::MemberView) -> proto::MemberView {
    it.match_index = 0;
    let contact = (0..=CONTACT_MS).contains(&it.last_contact_age_ms);
    it.last_contact_age_ms = i64::from(contact);
    it.unsynced_ms = u64::from(it.unsynced_ms >= SYNC_MS);
    // A follower under load is behind now and then; of a learner it decides whether it is promoted.
    it.in_sync &= it.learner;
    it.snapshot_pending = false;
    it.not_in_sync_reason.clear();
    it
}

#[cfg(test)]
mod tests {
    use super::*;

    fn description() -> proto::DescribeResponse {
        proto::DescribeResponse {
            version: "0.9.0".into(),
            term: 3,
            leader_with_quorum: true,
            ready: true,
            members: vec![proto::MemberView {
                id: 1,
                in_sync: true,
                last_contact_age_ms: 40,
                ..Default::default()
            }],
            space: Some(proto::Space {
                quota_bytes: 8 << 30,
                volume_free_bytes: 4 << 30,
                volume_needed_bytes: 1 << 30,
                in_memory_bytes: 100 << 20,
                in_memory_most_bytes: 1 << 30,
            }),
            comparisons: vec![proto::Comparison::default()],
            staged: Some(proto::StagedSnapshot::default()),
            archived: Some(proto::Archived::default()),
            following: Some(proto::Following::default()),
            ..Default::default()
        }
    }

    /// Whether the digest is another one after this.
    fn differs(change: impl FnOnce(&mut proto::DescribeResponse)) -> bool {
        let before = description();
        let mut after = before.clone();
        change(&mut after);
        assert_ne!(before, after, "it is a change");
        digest(&before) != digest(&after)
    }

    fn member(it: &mut proto::DescribeResponse) -> &mut proto::MemberView {
        &mut it.members[0]
    }

    fn space(it: &mut proto::DescribeResponse) -> &mut proto::Space {
        it.space.as_mut().expect("some")
    }

    /// Free space counted with every byte: a cluster on a volume that another one writes to was reconciled twice a second. Then
    /// it counted as enough or not, and the same happened while it was about as much as is enough.
    #[test]
    fn space_does_not_count() {
        assert!(!differs(|it| space(it).volume_free_bytes -= 4096));
        assert!(!differs(|it| space(it).volume_free_bytes = 0));
        assert!(!differs(|it| space(it).volume_needed_bytes = 8 << 30));
        assert!(!differs(|it| space(it).in_memory_bytes = 1 << 30));
        assert!(!differs(|it| it.db_size += 4096));
        assert!(!differs(|it| it.space = None), "it was not measured");
    }

    #[test]
    fn what_always_changes_does_not_count() {
        assert!(!differs(|it| it.commit = 9));
        assert!(!differs(|it| it.applied = 9));
        assert!(!differs(|it| it.last_index = 9));
        assert!(!differs(|it| it.revision = 9));
        assert!(!differs(|it| it.db_size = 9));
        assert!(!differs(|it| it.last_append_ms = 9));
        assert!(!differs(|it| it.digest = 9));
        assert!(!differs(|it| it.activity = "waits 3 ms".into()));
        assert!(!differs(|it| member(it).last_contact_age_ms = 2_900));
        assert!(!differs(|it| member(it).match_index = 9));
        assert!(!differs(|it| member(it).unsynced_ms = 4_900));
        assert!(!differs(|it| member(it).in_sync = false));
        assert!(!differs(|it| it.comparisons[0].age_ms = 9));
        assert!(!differs(|it| it.staged.as_mut().expect("some").received = 9));
        assert!(!differs(|it| it
            .archived
            .as_mut()
            .expect("some")
            .as_of_unix_ms = 9));
        assert!(!differs(|it| it
            .following
            .as_mut()
            .expect("some")
            .told_ms = 9));
        let mut retiring = description();
        retiring.retiring_ms = 5;
        let first = digest(&retiring);
        retiring.retiring_ms = 5_000;
        assert_eq!(digest(&retiring), first);
    }

    #[test]
    fn what_is_acted_on_counts() {
        assert!(differs(|it| it.ready = false));
        assert!(differs(|it| it.term = 4));
        assert!(differs(|it| it.leader_id = 2));
        assert!(differs(|it| it.role = proto::Role::Leader.into()));
        assert!(differs(|it| it.leader_with_quorum = false));
        assert!(differs(|it| it.retiring_ms = 1));
        assert!(differs(|it| it.alarms = vec!["NOSPACE 1".into()]));
        assert!(differs(|it| it.version = "0.9.1".into()));
        assert!(differs(|it| it.epoch = 9));
        assert!(differs(|it| it.configuration_index = 9));
        assert!(differs(
            |it| it.peer_security = Some(proto::PortSecurity::default())
        ));
        assert!(differs(|it| member(it).last_contact_age_ms = CONTACT_MS + 1));
        assert!(differs(|it| member(it).last_contact_age_ms = -1));
        assert!(differs(|it| member(it).unsynced_ms = SYNC_MS));
        assert!(differs(|it| it.comparisons[0].differ = vec![1]));
        assert!(differs(
            |it| it.staged.as_mut().expect("some").complete = true
        ));
        assert!(differs(
            |it| it.following.as_mut().expect("some").problem = "no".into()
        ));
        let learner = |in_sync| {
            let mut it = description();
            (member(&mut it).learner, member(&mut it).in_sync) = (true, in_sync);
            digest(&it)
        };
        assert_ne!(learner(true), learner(false));
    }
}
