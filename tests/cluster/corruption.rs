//! A member whose data on disk was changed is detected, named in an alarm, and kept from serving.

use std::path::Path;
use std::sync::Arc;

use prost::Message as _;
use quorate::disk::{DataDirectory, FileDisk, LogOptions, Position, open_member};
use quorate::node::{CheckpointMeta, StateMachine};
use quorate::raft::Entry;
use quorate::wire::etcd::alarm_request::AlarmAction;
use quorate::wire::etcd::maintenance_client::MaintenanceClient;
use quorate::wire::etcd::{AlarmMember, AlarmRequest, AlarmType, CompactionRequest, StatusRequest};
use quorate::wire::member::{AlarmKind, Fence};
use tonic::Code;

use crate::fixture::{SECRET, Server, by_hand, leader, until};
use crate::operated::fence;

/// A value, and the one of equal length that replaces it on the corrupted disk.
const GOOD: &str = "the-right-value";
const EVIL: &str = "the-wrong-value";

/// Replays a stopped member's log with another value and stores the result as its newest checkpoint, as a disk that
/// returns wrong data, or a bug in apply, would leave it.
fn doctor(data: &Path) {
    let disk = Arc::new(FileDisk::new(data).unwrap());
    let directory = DataDirectory::open(disk).unwrap();
    let files = open_member(&directory, LogOptions::default()).unwrap();
    let newest = files.checkpoint.unwrap().position;
    let mut reader = files.checkpoints.open(newest).unwrap();
    let meta = CheckpointMeta::read(reader.meta()).unwrap();
    let chunks: Vec<_> = std::iter::from_fn(|| reader.next_chunk().unwrap()).collect();
    let mut machine = StateMachine::restore(1, 1, meta, chunks).unwrap();
    let commit = files.log.hard_state().commit;
    let entries = files.log.tail(newest.index, u64::MAX).unwrap();
    let mut replaced = 0;
    for entry in entries.into_iter().filter(|entry| entry.index <= commit) {
        let mut data = entry.data.to_vec();
        let place = data
            .windows(GOOD.len())
            .position(|window| window == GOOD.as_bytes());
        if let Some(place) = place {
            data[place..place + EVIL.len()].copy_from_slice(EVIL.as_bytes());
            replaced += 1;
        }
        let entry = Entry {
            data: data.into(),
            ..entry
        };
        machine.apply(&entry).unwrap();
    }
    assert_eq!(replaced, 1, "the entry with the value is committed");
    let checkpoint = machine.checkpoint();
    let position = Position {
        index: checkpoint.meta.index,
        term: checkpoint.meta.term,
    };
    let meta = checkpoint.meta.encode_to_vec();
    files
        .checkpoints
        .write(position, &meta, checkpoint.chunks)
        .unwrap();
}

async fn alarms(server: &Server) -> Option<Vec<AlarmMember>> {
    let get = AlarmRequest {
        action: AlarmAction::Get.into(),
        ..AlarmRequest::default()
    };
    let answer = MaintenanceClient::new(server.channel()).alarm(get).await;
    Some(answer.ok()?.into_inner().alarms)
}

async fn id(server: &Server) -> u64 {
    until("its status is returned", server, async || {
        let mut client = MaintenanceClient::new(server.channel());
        let answer = client.status(StatusRequest {}).await.ok()?;
        Some(answer.into_inner().header?.member_id)
    })
    .await
}

/// Three members with these flags, of which one follower's data is corrupted while it is stopped.
async fn with_a_corrupt_member(home: &Path, flags: &[&str]) -> (Vec<Server>, usize, u64) {
    let mut servers = by_hand(home, &["a", "b", "c"]);
    for server in &mut servers {
        let flags = flags.iter().map(|flag| (*flag).to_owned());
        server.arguments.extend(flags);
        server.start();
    }
    servers[0].serves("first").await;
    servers[0].put("key", GOOD).await.unwrap();
    // Later entries carry the commit index past this one on every member.
    for number in 0..3 {
        servers[0].put("later", &number.to_string()).await.unwrap();
    }
    for server in &servers {
        server.holds("later", "2").await;
    }
    let corrupt = (leader(&servers).await + 1) % 3;
    let corrupt_id = id(&servers[corrupt]).await;
    servers[corrupt].kill();
    doctor(&servers[corrupt].data);
    servers[corrupt].start();
    servers[corrupt].holds("key", EVIL).await;
    (servers, corrupt, corrupt_id)
}

async fn is_named(servers: &[Server], corrupt: usize, corrupt_id: u64) {
    let named = AlarmMember {
        member_id: corrupt_id,
        alarm: AlarmType::Corrupt.into(),
    };
    for server in servers {
        until("the alarm names the corrupt member", server, async || {
            let raised = alarms(server).await?;
            (raised == [named]).then_some(())
        })
        .await;
    }
    let name = &servers[corrupt].name;
    let (id, logs) = (format!("{corrupt_id:x}"), servers.iter().map(Server::log));
    let logged = logs
        .flat_map(|log| log.lines().map(str::to_owned).collect::<Vec<_>>())
        .any(|line| {
            line.contains("differs from the majority")
                && line.contains(&id)
                && line.contains(&format!("\"{name}\""))
        });
    assert!(logged, "no log names {name} ({id})");
}

#[tokio::test]
async fn periodic_check_names_the_corrupt_member() {
    let home = tempfile::tempdir().unwrap();
    let flags = ["--corrupt-check-time=500ms"];
    let (mut servers, corrupt, corrupt_id) = with_a_corrupt_member(home.path(), &flags).await;
    is_named(&servers, corrupt, corrupt_id).await;
    for server in &servers {
        let refused = server.put("key", "x").await.unwrap_err();
        assert_eq!(
            (refused.code(), refused.message()),
            (Code::DataLoss, "etcdserver: corrupt cluster")
        );
        assert!(
            server.get("first", false).await.unwrap().is_some(),
            "reads are still served"
        );
    }
    // Restarted with the feature gate, the member detects the corruption before it serves clients.
    servers[corrupt].kill();
    let gate = "--feature-gates=InitialCorruptCheck=true";
    servers[corrupt].arguments.push(gate.to_owned());
    servers[corrupt].start();
    let status = servers[corrupt].ended().await;
    assert_eq!(status.code(), Some(20), "{}", servers[corrupt].log());
    let log = servers[corrupt].log();
    assert!(log.contains("found data inconsistency with peers"), "{log}");
    // The other members' data is equal, so they start with the same gate.
    let well = (corrupt + 1) % 3;
    servers[well].kill();
    servers[well].arguments.push(gate.to_owned());
    servers[well].start();
    until("a healthy member starts", &servers[well], async || {
        servers[well].get("first", false).await.ok().flatten()
    })
    .await;
    let log = servers[well].log();
    assert!(log.contains("is equal to the others'"), "{log}");
}

#[tokio::test]
async fn compaction_check_names_the_corrupt_member() {
    let home = tempfile::tempdir().unwrap();
    let secret = home.path().join("secret");
    std::fs::write(&secret, SECRET).unwrap();
    let secret = format!("--operator-secret-file={}", secret.display());
    let flags = [
        "--feature-gates=CompactHashCheck=true",
        "--compact-hash-check-time=500ms",
        &secret,
    ];
    let (servers, corrupt, corrupt_id) = with_a_corrupt_member(home.path(), &flags).await;
    assert_eq!(alarms(&servers[0]).await, Some(Vec::new()));
    let revision = servers[0].put("later", "3").await.unwrap();
    let compact = CompactionRequest {
        revision,
        physical: false,
    };
    servers[0].kv().compact(compact).await.unwrap();
    is_named(&servers, corrupt, corrupt_id).await;
    is_proven_and_switched_off(&servers, corrupt_id).await;
}

/// An active alarm refuses writes and compactions, and with them the checks that raised it stopped: `Describe` did not
/// report whether the alarm still applied and to which members, and only etcdctl could disarm it.
async fn is_proven_and_switched_off(servers: &[Server], corrupt_id: u64) {
    let leads = leader(servers).await;
    let mut operator = servers[leads].operator();
    let description = until("two comparisons", &servers[leads], async || {
        let description = servers[leads].operator().describe(true).await.ok()?;
        (description.comparisons.len() >= 2).then_some(description)
    })
    .await;
    for compared in &description.comparisons {
        assert_eq!(compared.differ, [corrupt_id], "{compared:?}");
        assert_eq!(compared.agree.len(), 2, "{compared:?}");
        assert!(compared.silent.is_empty(), "{compared:?}");
    }
    assert!(description.comparisons[0].age_ms < description.comparisons[1].age_ms);
    let space = description
        .space
        .expect("the free space of the volume was measured");
    assert!(space.quota_bytes > 0 && space.volume_free_bytes > 0 && space.volume_needed_bytes > 0);
    let fence = fence(&description);
    let stale = Fence {
        configuration_index: fence.configuration_index + 1,
        ..fence
    };
    let kind = AlarmKind::Corrupt;
    let refused = operator.disarm(stale, kind, corrupt_id).await.unwrap_err();
    assert_eq!(refused.code(), Code::Aborted, "{refused}");
    let nothing = AlarmKind::Unspecified;
    let refused = operator
        .disarm(fence, nothing, corrupt_id)
        .await
        .unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument, "{refused}");
    let follower = servers.iter().enumerate().find(|(at, _)| *at != leads);
    let mut follower = follower.unwrap().1.operator();
    let refused = follower.disarm(fence, kind, corrupt_id).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition, "{refused}");
    assert!(operator.disarm(fence, kind, corrupt_id).await.unwrap());
    assert!(
        !operator.disarm(fence, kind, corrupt_id).await.unwrap(),
        "off"
    );
    let description = operator.describe(true).await.unwrap();
    assert_eq!(description.alarms, Vec::<String>::new());
}
