//! A server of a cluster that forms, and whoever says hello to it.

use std::collections::BTreeMap;
use std::sync::Barrier;

use super::*;
use crate::server::Machine;
use crate::server::flags::Flags;
use crate::server::ports::PortSecurity;

fn hello(site: &Site, from: u64, disk: u128) -> Hello {
    let who = site.who();
    Hello {
        format: FORMAT,
        cluster_id: who.cluster_id,
        member_id: from,
        disk_uuid: uuid::Uuid::from_u128(disk).to_string(),
        name: "two".to_owned(),
        to: who.member_id,
        purpose: Purpose::Introduction.into(),
        peer_urls: Vec::new(),
    }
}

/// A hello waits for the disk that remembers it, and others are judged meanwhile: two disks were
/// welcomed as one member, and the second took the place of the first in the identity file.
#[test]
fn of_two_disks_that_come_as_one_member_at_once_the_first_stays() {
    let folder = tempfile::tempdir().expect("folder");
    let data = format!("--data-dir={}", folder.path().join("data").display());
    let arguments = [
        "--name=one",
        data.as_str(),
        "--listen-peer-urls=http://127.0.0.1:0",
        "--initial-advertise-peer-urls=http://127.0.0.1:1",
        // Nobody listens there: it waits to meet the other.
        "--initial-cluster=one=http://127.0.0.1:1,two=http://127.0.0.1:2",
    ];
    let arguments = arguments.map(str::to_owned);
    let flags = Flags::parse(&arguments, &BTreeMap::new()).expect("flags");
    let config = Config::from_flags(&flags, Machine::default()).expect("valid");
    let (_handle, guard) = start(&config, Box::new(PortSecurity::default), 8).expect("starts");
    let site = guard.site();
    while site.phase() != Phase::Joining {
        std::thread::yield_now();
    }
    let own = site.who().member_id;
    let other = site.expected().into_iter().find(|id| *id != own);
    let other = other.expect("the other initial member");
    // Neither waits for the disk before both were judged.
    let judged = Barrier::new(2);
    let welcomed = std::thread::scope(|scope| {
        let come = [1, 2].map(|disk| {
            let (site, judged) = (Arc::clone(&site), &judged);
            let hello = hello(&site, other, disk);
            scope.spawn(move || {
                let both = site.judge(&hello);
                judged.wait();
                both.expect("nobody is known yet");
                let met = site.met(other, &hello.name, &hello.disk_uuid);
                met.map_err(|(refusal, _)| refusal)
            })
        });
        come.map(|one| one.join().expect("no panic"))
    });
    let refused = welcomed.iter().filter_map(|answer| answer.err());
    assert_eq!(refused.collect::<Vec<_>>(), [Refusal::Disk]);
    let welcomed = welcomed.map(|answer| answer.is_ok());
    // The one that was welcomed is the one that is remembered, and it alone is let in again.
    for (number, welcomed) in [1_u128, 2].into_iter().zip(welcomed) {
        let pinned = &site.identity().peer_pins[&other];
        assert_eq!(pinned[..] == number.to_be_bytes(), welcomed);
        let text = uuid::Uuid::from_u128(number).to_string();
        assert_eq!(site.met(other, "two", &text).is_ok(), welcomed);
        assert_eq!(site.linked(other, "two", &text).is_ok(), welcomed);
    }
}
