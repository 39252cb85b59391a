//! Members that this server does not know yet, since they joined while it was away: how many of
//! them are accepted at once, and where they may be dialled.
//!
//! Without certificates any host that reaches the port can claim to be a member, so nothing about
//! an unknown peer is stored on disk, the oldest make room for new ones, its hello is only valid
//! while it is connected, and it is dialled at the address that it came from and nowhere else.
//! Never touches a socket or a file.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use crate::server::flags::url::Endpoint;
use crate::server::link::accept::ObservedPeer;
use crate::server::link::dial::Target;
use crate::server::link::hello::{Hello, Refusal, Verdict};
use crate::server::link::outbound::{Peer, SILENCE};
use crate::server::scheduling::hosts::Host;

/// Unknown peers at once: enough for a present cluster that shares no member with the known one.
const MOST: usize = 16;
/// An unknown peer that was silent for longer is gone: links carry a heartbeat once a second.
const ABSENT: Duration = SILENCE;

/// An unknown peer.
#[derive(Clone, Debug, PartialEq, Eq)]
struct UnknownPeer {
    disk_uuid: String,
    urls: Vec<Target>,
    observed: ObservedPeer,
    /// Larger for peers that came later.
    order: u64,
    heard: Instant,
}

/// The result of admitting an unknown peer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Came {
    /// The links have to be updated.
    pub(super) links_change: bool,
    /// The peer that made room for it, or that it replaced, which is no longer an unknown peer.
    pub(super) gone: Option<u64>,
}

/// All unknown peers.
#[derive(Debug, Default)]
pub(super) struct UnknownPeers {
    known: BTreeMap<u64, UnknownPeer>,
    order: u64,
}

impl UnknownPeers {
    /// Admits the sender of this hello. `leader`, the present leader (0: none), never has to make
    /// room.
    ///
    /// If two disks claim to be the same unknown peer, the one with a certificate is accepted;
    /// otherwise the one that came first, as long as it is connected.
    pub(super) fn admit(
        &mut self,
        hello: &Hello,
        observed: ObservedPeer,
        leader: u64,
        now: Instant,
    ) -> Result<Came, (Refusal, String)> {
        let id = hello.member_id;
        let mut came = Came::default();
        if let Some(unknown) = self.known.get(&id)
            && unknown.disk_uuid != hello.disk_uuid
        {
            let there = now.duration_since(unknown.heard) <= ABSENT;
            let stays = match (unknown.observed.certified, observed.certified) {
                (true, false) => true,
                (false, true) => false,
                _ => there,
            };
            if stays {
                let text = format!("member {id:x} speaks from another disk already");
                return Err((Refusal::Disk, text));
            }
            self.known.remove(&id);
            came.gone = Some(id);
        }
        self.order += 1;
        let urls = hello.peer_urls.iter();
        let unknown = UnknownPeer {
            disk_uuid: hello.disk_uuid.clone(),
            urls: urls
                .filter_map(|url| reached_at(Endpoint::parse(url).ok()?, observed))
                .collect(),
            observed,
            order: self.order,
            heard: now,
        };
        if !self.known.contains_key(&id) && self.known.len() >= MOST {
            came.gone = self.make_room(leader);
        }
        let before = self.known.insert(id, unknown);
        let urls = |unknown: &UnknownPeer| unknown.urls.clone();
        came.links_change = before.as_ref().map(urls) != self.known.get(&id).map(urls);
        Ok(came)
    }

    /// Removes one: without a certificate rather than with, and then the oldest of the host from
    /// which most of them came, so that a foreign host displaces only its own.
    fn make_room(&mut self, leader: u64) -> Option<u64> {
        let of = |address: IpAddr| {
            let same =
                |unknown: &&UnknownPeer| Host::of(unknown.observed.address) == Host::of(address);
            self.known.values().filter(same).count()
        };
        let others = self.known.iter().filter(|(id, _)| **id != leader);
        let leaves = others.min_by_key(|(_, unknown)| {
            let same = std::cmp::Reverse(of(unknown.observed.address));
            (unknown.observed.certified, same, unknown.order)
        });
        let leaves = leaves.map(|(id, _)| *id)?;
        self.known.remove(&leaves);
        Some(leaves)
    }

    /// Whether a link of this peer from this disk is still that of an unknown peer; records that it
    /// is connected.
    pub(super) fn hears(&mut self, id: u64, disk_uuid: &str, now: Instant) -> bool {
        match self.known.get_mut(&id) {
            Some(unknown) if unknown.disk_uuid == disk_uuid => {
                unknown.heard = now;
                true
            }
            _ => false,
        }
    }

    /// Keeps the peers that are still unknown.
    pub(super) fn retain(&mut self, unknown: impl Fn(u64) -> bool) {
        self.known.retain(|id, _| unknown(*id));
    }

    /// The disk of each unknown peer.
    pub(super) fn disks(&self) -> impl Iterator<Item = (u64, &String)> {
        self.known
            .iter()
            .map(|(id, unknown)| (*id, &unknown.disk_uuid))
    }

    /// The peers to link to, so that they can be answered.
    pub(super) fn peers(&self) -> impl Iterator<Item = Peer> {
        self.known.iter().map(|(id, unknown)| Peer {
            id: *id,
            urls: unknown.urls.clone(),
            unknown: true,
        })
    }
}

/// Where an unknown peer with this URL is dialled: with a certificate, at its URL; without, at the
/// address that it came from, and without DNS. With TLS it has to present a certificate for its
/// URL's name there. All loopback addresses are this host.
fn reached_at(url: Endpoint, observed: ObservedPeer) -> Option<Target> {
    let loopback = |host: &str| host.parse().is_ok_and(|ip: IpAddr| ip.is_loopback());
    if observed.certified || (observed.address.is_loopback() && loopback(&url.host)) {
        return Some(url.into());
    }
    let at = Endpoint {
        host: observed.address.to_string(),
        ..url
    };
    let name = url.host;
    (!observed.address.is_unspecified()).then_some(Target { at, name })
}

/// The refusal of an unknown member while this server follows a leader that it knows: if it is a
/// member, the log of that leader will contain its addition.
pub(super) fn refuse_unexpected(hello: &Hello) -> Verdict {
    let text = format!(
        "member {:x} ({}) is not in this server's list of members: it is let in once the leader has \
         reported it",
        hello.member_id, hello.name
    );
    Err((Refusal::NotYet, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello(id: u64, url: &str) -> Hello {
        Hello {
            member_id: id,
            disk_uuid: format!("disk-{id}"),
            peer_urls: vec![url.to_owned()],
            ..Hello::default()
        }
    }

    fn observed(address: &str, certified: bool) -> ObservedPeer {
        ObservedPeer {
            address: address.parse().expect("an address"),
            certified,
        }
    }

    fn came(links_change: bool, gone: Option<u64>) -> Came {
        Came { links_change, gone }
    }

    fn dialled(unknown_peers: &UnknownPeers, id: u64) -> Vec<(String, String)> {
        let peers = unknown_peers.peers().filter(|peer| peer.id == id);
        peers
            .flat_map(|peer| peer.urls)
            .map(|target| (target.at.authority(), target.name))
            .collect()
    }

    fn one(at: &str, name: &str) -> Vec<(String, String)> {
        vec![(at.to_owned(), name.to_owned())]
    }

    /// Any URL in a hello used to be dialled: a host that reached the peer port had this server
    /// connect to any address of its choice, and query DNS for any name.
    ///
    /// Then the address replaced the name altogether, and no certificate is issued for it: with TLS
    /// such an unknown peer was never answered.
    #[test]
    fn unknown_peer_is_dialled_where_it_came_from() {
        let mut unknown_peers = UnknownPeers::default();
        let now = Instant::now();
        let admit = |unknown_peers: &mut UnknownPeers, hello: &Hello, address: &str, certified| {
            unknown_peers.admit(hello, observed(address, certified), 0, now)
        };
        let new = Ok(came(true, None));
        let metadata = hello(1, "http://169.254.169.254:80");
        assert_eq!(admit(&mut unknown_peers, &metadata, "10.0.0.9", false), new);
        assert_eq!(
            dialled(&unknown_peers, 1),
            one("10.0.0.9:80", "169.254.169.254")
        );
        let name = hello(2, "https://secrets.internal:2380");
        assert_eq!(admit(&mut unknown_peers, &name, "10.0.0.9", false), new);
        assert_eq!(
            dialled(&unknown_peers, 2),
            one("10.0.0.9:2380", "secrets.internal")
        );
        let local = hello(3, "http://127.0.0.1:2379");
        assert_eq!(admit(&mut unknown_peers, &local, "10.0.0.9", false), new);
        assert_eq!(
            dialled(&unknown_peers, 3),
            one("10.0.0.9:2379", "127.0.0.1")
        );
        let member = hello(4, "https://demo-4.demo.svc:2380");
        assert_eq!(admit(&mut unknown_peers, &member, "10.0.0.9", true), new);
        assert_eq!(
            dialled(&unknown_peers, 4),
            one("demo-4.demo.svc:2380", "demo-4.demo.svc")
        );
        let neighbour = hello(5, "http://127.3.2.1:2380");
        assert_eq!(
            admit(&mut unknown_peers, &neighbour, "127.0.0.1", false),
            new
        );
        assert_eq!(
            dialled(&unknown_peers, 5),
            one("127.3.2.1:2380", "127.3.2.1")
        );
        assert_eq!(
            admit(&mut unknown_peers, &neighbour, "127.0.0.1", false),
            Ok(came(false, None)),
            "nothing new"
        );
    }

    #[test]
    fn flood_takes_only_its_own_places() {
        let (mut unknown_peers, now) = (UnknownPeers::default(), Instant::now());
        let mut comes = |id, address: &str, certified, leader| {
            let hello = hello(id, "http://10.9.9.9:1");
            let came = unknown_peers.admit(&hello, observed(address, certified), leader, now);
            let gone = came.expect("in").gone;
            assert!(gone.is_none_or(|gone| !unknown_peers.hears(
                gone,
                &format!("disk-{gone}"),
                now
            )));
            unknown_peers.known.keys().copied().collect::<Vec<u64>>()
        };
        comes(1, "10.0.0.1", false, 0);
        comes(2, "10.9.9.9", true, 0);
        for id in 100..10_000 {
            comes(id, "10.9.9.9", false, 0);
        }
        // Nor does the leader, at the same address.
        for id in 20_000..20_100 {
            comes(id, "10.9.9.9", false, 9_999);
        }
        let there = comes(30_000, "10.9.9.9", false, 9_999);
        assert_eq!(there.len(), MOST);
        for stays in [1, 2, 9_999, 30_000, 20_099] {
            assert!(there.contains(&stays), "{stays}: {there:?}");
        }
        // An IPv6 host has as many addresses as it likes.
        for id in 40_000..40_100 {
            comes(id, &format!("2001:db8::{id:x}"), false, 9_999);
        }
        let there = comes(50_000, "2001:db8::1", false, 9_999);
        for stays in [1, 2, 9_999] {
            assert!(there.contains(&stays), "{stays}: {there:?}");
        }
    }

    /// The first server to use an ID kept it, even long after it was gone, and even against the
    /// member itself with its certificate.
    #[test]
    fn unknown_peer_keeps_its_disk() {
        let (mut unknown_peers, now) = (UnknownPeers::default(), Instant::now());
        let url = "http://10.0.0.1:2380";
        let other = Hello {
            disk_uuid: "another".to_owned(),
            ..hello(1, url)
        };
        let forger = observed("10.0.0.2", false);
        unknown_peers.admit(&other, forger, 0, now).expect("in");
        let refused = |came: Result<Came, (Refusal, String)>| came.map_err(|(why, _)| why);
        let quiet = now + ABSENT + Duration::from_secs(1);
        let honest = observed("10.0.0.1", false);
        let early = unknown_peers.admit(&hello(1, url), honest, 0, now);
        assert_eq!(refused(early), Err(Refusal::Disk));
        assert!(unknown_peers.hears(1, "another", quiet), "it is there");
        let early = unknown_peers.admit(&hello(1, url), honest, 0, quiet);
        assert_eq!(refused(early), Err(Refusal::Disk));
        let gone = quiet + ABSENT + Duration::from_secs(1);
        let came_in = unknown_peers.admit(&hello(1, url), honest, 0, gone);
        assert_eq!(came_in, Ok(came(true, Some(1))));
        assert!(!unknown_peers.hears(1, "another", gone), "its link ends");
        assert!(unknown_peers.hears(1, "disk-1", gone));
        // The one with a certificate is accepted, whichever came first.
        let certified = observed("10.0.0.3", true);
        let came_in = unknown_peers.admit(&other, certified, 0, gone);
        assert_eq!(came_in, Ok(came(true, Some(1))));
        let late = gone + 100 * ABSENT;
        let refused_then = unknown_peers.admit(&hello(1, url), honest, 0, late);
        assert_eq!(refused(refused_then), Err(Refusal::Disk));
    }
}
