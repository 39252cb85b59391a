//! From the members' descriptions and exit states to the facts for a plan.

use std::collections::{BTreeMap, BTreeSet};

use super::members::Described;
use crate::crd::TlsPort;
use crate::disk::Class;
use crate::plan::{
    Archived, Comparison, Description, Exit, Following, MemberView, Phase, PortSecurity, Space,
    Staged,
};
use crate::wire::member as proto;

/// Messages of all releases for a disk or an entry of a newer version, whatever their exit code.
const NEWER: [&str; 4] = [
    "this binary reads formats up to",
    "this version knows up to",
    "run the version that wrote it",
    "a newer version wrote it",
];
/// Messages of all releases for a foreign file.
const STRAY: [&str; 2] = [
    "this file is not a log segment",
    "this file is not a checkpoint",
];

/// A description as received `age_ms` ago.
pub fn description(described: &Described, age_ms: u64) -> Description {
    let response = &described.description;
    Description {
        age_ms,
        unsigned: described.unsigned,
        pod_uid: response.pod_uid.clone(),
        version: response.version.clone(),
        readable_since: some(&response.readable_since),
        disk_uuid: response.disk_uuid.clone(),
        disk_empty: response.disk_empty,
        phase: phase(response.phase()),
        staged: response.staged.as_ref().map(staged),
        nonce: some(&response.nonce),
        cluster_uid: some(&response.cluster_uid),
        incarnation: response.incarnation,
        cluster_id: response.cluster_id,
        member_id: response.member_id,
        leads: described.leads,
        term: response.term,
        leader_id: response.leader_id,
        last_term: response.last_term,
        last_index: response.last_index,
        last_append_ms: u64::try_from(response.last_append_ms)
            .ok()
            .filter(|at| *at > 0),
        archived: response.archived.as_ref().and_then(archived),
        following: response.following.as_ref().map(following),
        revision: response.revision,
        commit: response.commit,
        applied: response.applied,
        ready: response.ready,
        retiring_ms: (response.retiring_ms > 0).then_some(response.retiring_ms),
        security: security(response),
        alarms: response.alarms.clone(),
        space: space(response),
        comparisons: response.comparisons.iter().map(comparison).collect(),
        configuration_index: response.configuration_index,
        members: response.members.iter().map(member).collect(),
        tombstones: response
            .tombstones
            .iter()
            .map(|gone| (gone.id, gone.name.clone()))
            .collect(),
        never_voted: never_voted(response),
    }
}

/// What it was told of the archive; nothing without a time, which is what the archive is judged by.
fn archived(told: &proto::Archived) -> Option<Archived> {
    let as_of_ms = u64::try_from(told.as_of_unix_ms).ok();
    Some(Archived {
        location: told.location.clone(),
        as_of_ms: as_of_ms.filter(|at| *at > 0)?,
        index: told.index,
    })
}

/// What it says of the cluster that is followed.
fn following(told: &proto::Following) -> Following {
    let time = |ms: i64| u64::try_from(ms).ok().filter(|ms| *ms > 0);
    Following {
        source_cluster: told.source_cluster,
        frozen_ms: time(told.frozen_unix_ms),
        source_revision: told.source_revision,
        as_of_ms: time(told.as_of_unix_ms),
        told_ms: (told.told_ms > 0).then_some(told.told_ms),
        problem: some(&told.problem),
    }
}

/// The removed members that are known to have been learners until their removal: the record of changes includes their
/// addition, and no promotion. If it does not go back that far, a member counts as one that voted.
fn never_voted(response: &proto::DescribeResponse) -> BTreeSet<u64> {
    let is = |kind: &str, id: u64| {
        let mut changes = response.changes.iter();
        changes.any(|change| change.id == id && change.kind == kind)
    };
    let removed = response.tombstones.iter().map(|gone| gone.id);
    removed
        .filter(|id| is("AddLearner", *id) && !is("Promote", *id))
        .collect()
}

fn space(response: &proto::DescribeResponse) -> Option<Space> {
    let space = response.space.as_ref()?;
    Some(Space {
        used: u64::try_from(response.db_size).unwrap_or(0),
        quota: space.quota_bytes,
        free: space.volume_free_bytes,
        needed: space.volume_needed_bytes,
        in_memory: space.in_memory_bytes,
        in_memory_most: space.in_memory_most_bytes,
    })
}

fn staged(reported: &proto::StagedSnapshot) -> Staged {
    Staged {
        sha256: reported.sha256.clone(),
        length: reported.length,
        received: reported.received,
        complete: reported.complete,
        revision: reported.revision,
        keys: reported.keys,
        elapsed_ms: reported.elapsed_ms,
        resumed_at: reported.resumed_at,
        problem: some(&reported.problem),
        source_cluster: reported.source_cluster,
    }
}

fn comparison(reported: &proto::Comparison) -> Comparison {
    let all = |ids: &[u64]| ids.iter().copied().collect();
    Comparison {
        agree: all(&reported.agree),
        differ: all(&reported.differ),
        silent: all(&reported.silent),
        age_ms: reported.age_ms,
    }
}

fn security(reported: &proto::DescribeResponse) -> BTreeMap<TlsPort, PortSecurity> {
    let ports = [
        (TlsPort::Client, &reported.client_security),
        (TlsPort::Peer, &reported.peer_security),
    ];
    let facts = |reported: &proto::PortSecurity| PortSecurity {
        tls: reported.tls,
        plaintext: reported.plaintext_accepted,
        fingerprint: reported.certificate_sha256.clone(),
        trusted: reported.trusted_sha256.clone(),
    };
    ports
        .into_iter()
        .filter_map(|(port, reported)| Some((port, facts(reported.as_ref()?))))
        .collect()
}

fn member(view: &proto::MemberView) -> MemberView {
    MemberView {
        id: view.id,
        name: view.name.clone(),
        peer_urls: view.peer_urls.clone(),
        learner: view.learner,
        disk_uuid: view.disk_uuid.clone(),
        match_index: view.match_index,
        // -1: never.
        last_contact_ms: u64::try_from(view.last_contact_age_ms).ok(),
        unsynced_ms: view.unsynced_ms,
        promotable: view.learner && view.in_sync,
        not_promotable: view.not_in_sync_reason.clone(),
    }
}

/// An unknown phase is not treated as a known one: `Joining` allows no decision.
fn phase(phase: proto::Phase) -> Phase {
    match phase {
        proto::Phase::Standby => Phase::Standby,
        proto::Phase::Member => Phase::Member,
        proto::Phase::Removed => Phase::Removed,
        proto::Phase::Joining | proto::Phase::Unspecified => Phase::Joining,
    }
}

fn some(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

/// How a server exited, from its exit code and its termination message. `None`: a platform without termination
/// messages, whose servers are of the operator's own release.
pub fn exit(code: i32, termination_message: Option<&str>) -> Exit {
    let Some(words) = termination_message else {
        return by_code(code);
    };
    let report = serde_json::from_str::<serde_json::Value>(words.trim()).ok();
    let field = |name: &str| report.as_ref()?.get(name)?.as_str();
    let (class, message) = (field("class"), field("message").unwrap_or_default());
    // The release that exited is not known: 0.1.0 reported a newer release's disk as damaged, and a foreign file as a
    // foreign disk. Its messages distinguish them.
    if NEWER.iter().any(|words| message.contains(words)) {
        return Exit::TooNew;
    }
    if STRAY.iter().any(|words| message.contains(words)) {
        return Exit::Stray;
    }
    match class {
        Some("too_new" | "unknown_entry") => Exit::TooNew,
        Some("stray_file") => Exit::Stray,
        Some("copied_disk") => Exit::Copied,
        Some("log_lost" | "lost_log") => Exit::LostLog,
        Some("corrupt") => Exit::Corrupt,
        Some("foreign_disk") => Exit::ForeignDisk,
        Some("disk_full") => Exit::DiskFull,
        Some("fsync") => Exit::Fsync,
        _ => match by_code(code) {
            // It was not reported explicitly, and a member is removed for it.
            Exit::Corrupt | Exit::ForeignDisk | Exit::Copied => Exit::Other(code),
            exit => exit,
        },
    }
}

/// How a server of this release ended.
fn by_code(code: i32) -> Exit {
    let is = |class: Class| code == i32::from(class.exit_code());
    match code {
        _ if is(Class::Corrupt) => Exit::Corrupt,
        _ if is(Class::ForeignDisk) => Exit::ForeignDisk,
        _ if is(Class::DiskFull) => Exit::DiskFull,
        _ if is(Class::Fsync) => Exit::Fsync,
        _ if is(Class::TooNew) => Exit::TooNew,
        _ if is(Class::Stray) => Exit::Stray,
        _ if is(Class::Copied) => Exit::Copied,
        code => Exit::Other(code),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operator::clock::Clock;

    fn described(description: proto::DescribeResponse) -> Described {
        Described {
            description,
            leads: false,
            unsigned: false,
            at: Clock::machine().now(),
        }
    }

    #[test]
    fn ends_are_classified_by_code_or_message() {
        assert_eq!(exit(20, None), Exit::Corrupt);
        assert_eq!(exit(28, None), Exit::TooNew);
        assert_eq!(exit(29, None), Exit::Stray);
        assert_eq!(exit(30, None), Exit::Copied);
        assert_eq!(exit(1, Some("{\"class\":\"copied_disk\"}")), Exit::Copied);
        assert_eq!(
            exit(1, Some("{\"class\":\"foreign_disk\",\"exitCode\":1}\n")),
            Exit::ForeignDisk
        );
        assert_eq!(exit(1, Some("{\"class\":\"log_lost\"}")), Exit::LostLog);
        assert_eq!(exit(22, Some("")), Exit::DiskFull);
        assert_eq!(exit(137, Some("no JSON")), Exit::Other(137));
    }

    /// After a rollback by `spec.image` to 0.1.0 the operator removed the member and deleted its disk: that release
    /// exits on a newer one's disk with the code and the class of damage. Its message is the only difference, so a
    /// damage code without a message is not evidence either.
    #[test]
    fn newer_disk_format_is_not_damage() {
        let exit_of = |class: &str, code: i32, message: &str| {
            let line = serde_json::json!({"class": class, "exitCode": code, "message": message});
            exit(code, Some(&format!("{line}\n")))
        };
        let newer = "/data/identity has format 2, this binary reads formats up to 1; start the \
                     release that wrote it, or a newer one";
        assert_eq!(exit_of("corrupt", 20, newer), Exit::TooNew);
        assert_eq!(exit_of("too_new", 28, newer), Exit::TooNew);
        let entry = "entry 7 cannot be applied: it is of an unknown kind; run the version that \
                     wrote it";
        assert_eq!(exit_of("unknown_entry", 20, entry), Exit::TooNew);
        assert_eq!(exit_of("unknown_entry", 28, "..."), Exit::TooNew);
        let checkpoint = "the checkpoint is of format 2, this version knows up to 1";
        assert_eq!(exit_of("corrupt", 20, checkpoint), Exit::TooNew);
        let stray = "/data/log/notes.txt: this file is not a log segment; move it out of the data \
                     directory if you put it there";
        assert_eq!(exit_of("foreign_disk", 21, stray), Exit::Stray);
        assert_eq!(exit_of("stray_file", 29, stray), Exit::Stray);
        assert_eq!(
            exit_of("corrupt", 20, "... is damaged at offset 7"),
            Exit::Corrupt
        );
        for code in [20, 21, 30] {
            assert_eq!(exit(code, Some("")), Exit::Other(code));
            assert_eq!(exit(code, Some("cut off {\"class")), Exit::Other(code));
        }
    }

    #[test]
    fn never_voted_needs_a_record_since_the_join() {
        let change = |kind: &str, id| proto::Change {
            kind: kind.into(),
            id,
            ..Default::default()
        };
        let response = proto::DescribeResponse {
            tombstones: [2, 3, 4]
                .map(|id| proto::Tombstone {
                    id,
                    name: format!("demo-{id}"),
                })
                .into(),
            changes: vec![
                // 2 came before the record begins, 5 is still there.
                change("AddLearner", 3),
                change("Promote", 3),
                change("Remove", 3),
                change("AddLearner", 4),
                change("Join", 4),
                change("Remove", 4),
                change("AddLearner", 5),
            ],
            ..Default::default()
        };
        assert_eq!(description(&described(response), 0).never_voted, [4].into());
    }

    #[test]
    fn what_is_followed_is_told_as_it_was_described() {
        let response = proto::DescribeResponse {
            revision: 180,
            following: Some(proto::Following {
                source_cluster: 7,
                source_revision: 200,
                told_ms: 300,
                ..Default::default()
            }),
            staged: Some(proto::StagedSnapshot {
                source_cluster: 7,
                ..Default::default()
            }),
            ..Default::default()
        };
        let facts = description(&described(response), 0);
        let told = Following {
            source_cluster: 7,
            source_revision: 200,
            told_ms: Some(300),
            ..Following::default()
        };
        assert_eq!((facts.revision, facts.following), (180, Some(told)));
        let staged = facts.staged.map(|staged| staged.source_cluster);
        assert_eq!(staged, Some(7));
    }

    #[test]
    fn silence_on_the_wire_is_no_fact() {
        let response = proto::DescribeResponse {
            members: vec![proto::MemberView {
                last_contact_age_ms: -1,
                ..Default::default()
            }],
            ..Default::default()
        };
        let facts = description(&described(response), 3);
        assert_eq!((facts.nonce, facts.cluster_uid), (None, None));
        assert_eq!(facts.members[0].last_contact_ms, None);
        assert_eq!(
            facts.phase,
            Phase::Joining,
            "an unknown phase allows nothing"
        );
    }
}
