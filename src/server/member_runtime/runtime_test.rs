//! A server of a cluster that is being formed, and the hellos that it receives.

use std::collections::BTreeMap;
use std::sync::Barrier;

use super::start::RunningServer;
use super::*;
use crate::server::HostFacts;
use crate::server::flags::Flags;
use crate::server::link::dial::DialError;
use crate::server::tls::ports::PortSecurity;

fn hello(local: &MemberRuntime, from: u64, disk: u128) -> Hello {
    let who = local.who();
    Hello {
        format: FORMAT,
        cluster_id: who.cluster_id,
        member_id: from,
        disk_uuid: uuid::Uuid::from_u128(disk).to_string(),
        name: "two".to_owned(),
        to: who.member_id,
        purpose: Purpose::Introduction.into(),
        peer_urls: Vec::new(),
        starts: None,
    }
}

/// A server of a cluster of two that is being formed, and the other member's ID.
pub(super) fn forming(folder: &std::path::Path) -> (RunningServer, u64) {
    let (guard, others) = forming_with(folder, &["two"]);
    (guard, others[0])
}

/// A server of a cluster that is being formed with these members, and their IDs.
fn forming_with(folder: &std::path::Path, names: &[&str]) -> (RunningServer, Vec<u64>) {
    // No server listens there: it waits to meet the others.
    let all = ["one"].iter().chain(names).zip(1..);
    let all = all.map(|(name, port)| format!("{name}=http://127.0.0.1:{port}"));
    let cluster = format!("--initial-cluster={}", all.collect::<Vec<_>>().join(","));
    let data = format!("--data-dir={}", folder.join("data").display());
    let arguments = [
        "--name=one",
        data.as_str(),
        "--listen-peer-urls=http://127.0.0.1:0",
        "--initial-advertise-peer-urls=http://127.0.0.1:1",
        cluster.as_str(),
    ];
    let arguments = arguments.map(str::to_owned);
    let flags = Flags::parse(&arguments, &BTreeMap::new()).expect("flags");
    let config = Config::from_flags(&flags, HostFacts::default()).expect("valid");
    let (_handle, guard) = start(&config, Box::new(PortSecurity::default), 8).expect("starts");
    let local = guard.local();
    while local.phase() != Phase::Joining {
        std::thread::yield_now();
    }
    let own = local.who().member_id;
    let others = local.expected().into_iter().filter(|id| *id != own);
    let others: Vec<u64> = others.collect();
    assert_eq!(others.len(), names.len(), "the other initial members");
    (guard, others)
}

/// While a hello waited for its disk to be stored, others were checked: two disks were welcomed as
/// one member, and the second replaced the first in the identity file.
#[test]
fn first_of_two_disks_of_one_member_stays() {
    let folder = tempfile::tempdir().expect("folder");
    let (guard, other) = forming(folder.path());
    let local = guard.local();
    // Neither waits for the disk before both were checked.
    let judged = Barrier::new(2);
    let welcomed = std::thread::scope(|scope| {
        let come = [1, 2].map(|disk| {
            let (local, judged) = (Arc::clone(&local), &judged);
            let hello = hello(&local, other, disk);
            scope.spawn(move || {
                let both = local.judge(&hello);
                judged.wait();
                both.expect("no disk is known yet");
                let met = local.met(other, &hello.name, &hello.disk_uuid);
                met.map_err(|(refusal, _)| refusal)
            })
        });
        come.map(|one| one.join().expect("no panic"))
    });
    let refused = welcomed.iter().filter_map(|answer| answer.err());
    assert_eq!(refused.collect::<Vec<_>>(), [Refusal::Disk]);
    let welcomed = welcomed.map(|answer| answer.is_ok());
    // The welcomed one is the stored one, and it alone is accepted again.
    for (number, welcomed) in [1_u128, 2].into_iter().zip(welcomed) {
        let pinned = &local.identity().peer_pins[&other];
        assert_eq!(pinned[..] == number.to_be_bytes(), welcomed);
        let text = uuid::Uuid::from_u128(number).to_string();
        assert_eq!(local.met(other, "two", &text).is_ok(), welcomed);
        let reply = Reply {
            name: "two".to_owned(),
            disk_uuid: text,
            ..Reply::default()
        };
        assert_eq!(local.linked(other, &reply).is_ok(), welcomed);
    }
}

/// The starts of a disk, with these nonces.
fn starts(nonces: &[u64]) -> disk::Lineage {
    let disk: Arc<dyn disk::Disk> = Arc::new(disk::double::MemoryDisk::new());
    let begin = |_, nonce| Some(Starts::begin(&disk, [2; 16], nonce).expect("it starts"));
    let starts = nonces.iter().copied().fold(None, begin);
    starts.expect("one start").own().clone()
}

/// Without certificates a hello can contain anything. A member's starts are stored only from its
/// replies where it is dialled: otherwise one hello with an invented start would have the member
/// refused for good.
#[test]
fn forged_starts_condemn_no_member() {
    let folder = tempfile::tempdir().expect("folder");
    let (guard, other) = forming(folder.path());
    let local = guard.local();
    let hello_with = |nonces: &[u64]| Hello {
        starts: Some(starts(nonces)),
        purpose: Purpose::Messages.into(),
        ..hello(&local, other, 2)
    };
    let answers = |nonces: &[u64]| Reply {
        format: FORMAT,
        member_id: other,
        disk_uuid: hello(&local, other, 2).disk_uuid,
        starts: Some(starts(nonces)),
        ..Reply::default()
    };
    let judged = |nonces: &[u64]| {
        local
            .judge(&hello_with(nonces))
            .map_err(|(refusal, _)| refusal)
    };
    // A foreign server far ahead, before the member was ever seen and afterwards.
    assert_eq!(judged(&[9, 9, 9, 9]), Ok(()));
    assert!(local.linked(other, &answers(&[1, 2])).is_ok());
    assert_eq!(judged(&[1, 2]), Ok(()));
    // While the member is linked no other server is accepted as it, whatever it knows of the
    // member's starts.
    assert_eq!(judged(&[1, 2, 9]), Err(Refusal::NotYet));
    local.parted(other);
    assert_eq!(judged(&[1, 2, 9]), Ok(()));
    assert_eq!(judged(&[1, 9, 9]), Err(Refusal::Copy));
    assert_eq!(judged(&[1]), Err(Refusal::Copy));
    let linked = |nonces: &[u64]| {
        local
            .linked(other, &answers(nonces))
            .map_err(|(why, _)| why)
    };
    assert_eq!(linked(&[1, 9, 9]), Err(Refusal::Copy));
    assert_eq!(linked(&[1, 2, 3]), Ok(()), "the member itself");
    // It is remembered across a restart of this server.
    let known = local.starts.load().seen(other, &hello_with(&[1]).disk_uuid);
    let disk = local.files().disk().clone();
    drop((local, guard));
    let uuid = Identity::load(&*disk).expect("read").expect("one").uuid();
    let again = Starts::begin(&disk, uuid, 7).expect("it starts");
    assert_eq!(
        again.seen(other, &uuid::Uuid::from_u128(2).to_string()),
        known
    );
    assert_eq!(known.map(|start| start.number), Some(3));
}

/// Each new link to a member waited for the data directory to store a start that was already known:
/// one sync that hung delayed all of them.
#[test]
fn known_start_does_not_wait_for_the_disk() {
    let folder = tempfile::tempdir().expect("folder");
    let (guard, other) = forming(folder.path());
    let local = guard.local();
    let reply = Reply {
        format: FORMAT,
        member_id: other,
        disk_uuid: hello(&local, other, 2).disk_uuid,
        starts: Some(starts(&[1, 2])),
        ..Reply::default()
    };
    assert!(local.linked(other, &reply).is_ok());
    let held = lock(&local.directory);
    let (done, linked) = std::sync::mpsc::channel();
    let again = Arc::clone(&local);
    std::thread::spawn(move || done.send(again.linked(other, &reply).is_ok()));
    assert_eq!(linked.recv_timeout(Duration::from_secs(30)), Ok(true));
    drop(held);
}

/// One report ended a server of a cluster that was being formed, and nothing was stored: each
/// restart added a start to its disk, until those that the others had seen were dropped and it was
/// accepted.
#[test]
fn two_votes_condemn_a_disk_while_forming() {
    let folder = tempfile::tempdir().expect("folder");
    let (guard, others) = forming_with(folder.path(), &["two", "three"]);
    let local = guard.local();
    let (first, second) = (others[0], others[1]);
    let all: BTreeSet<u64> = others.into_iter().collect();
    let refusal_by = |member, refusal| DialError::Refused {
        name: "two".to_owned(),
        member,
        cluster: local.who().cluster_id,
        disk: uuid::Uuid::from_u128(2).to_string(),
        refusal,
        reason: "start 9 was seen".to_owned(),
    };
    let refused = |all: &BTreeSet<u64>, peer, error: &DialError| {
        local
            .turned_away(all, peer, error)
            .map_err(|stop| stop.class)
    };
    let file = || std::fs::read(folder.path().join("data/starts")).expect("the file");
    let (before, copy) = (file(), |member| refusal_by(member, Refusal::Copy));
    assert_eq!(refused(&all, first, &copy(first)), Ok(()));
    assert_eq!(refused(&all, first, &copy(first)), Ok(()), "once more");
    let of_two = [first].into();
    assert_eq!(refused(&of_two, first, &copy(first)), Ok(()), "of two");
    assert_eq!(refused(&all, second, &copy(7)), Ok(()), "a stranger");
    local.is_taken_for_the_member(first);
    assert_eq!(refused(&all, second, &copy(second)), Ok(()), "taken back");
    assert_eq!(file(), before, "nothing is written down");
    let doubts = lock(&local.doubts).get(&second).cloned();
    let doubt = doubts.expect("it is recorded");
    assert!(doubt.contains("1 of the 2 members"), "{doubt}");
    let elsewhere = refusal_by(first, Refusal::Cluster);
    assert_eq!(refused(&all, first, &elsewhere), Err("identity"));
    assert_eq!(refused(&all, first, &copy(first)), Err("copied_disk"));
    let disk = local.files().disk().clone();
    let uuid = Identity::load(&*disk).expect("read").expect("one").uuid();
    let error = Starts::begin(&disk, uuid, 7).expect_err("condemned");
    assert_eq!(error.class().name(), "copied_disk");
}
