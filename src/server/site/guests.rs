//! Members that this server does not know yet: those that joined while it was away. How many of
//! them are let in at once, and where they may be dialled.
//!
//! Without certificates whoever reaches the port can call itself a member, so nothing of a guest
//! is written down, the oldest make room for new ones, and a guest is dialled at the address that
//! it came from and nowhere else. Never touches a socket or a file.

use std::collections::BTreeMap;
use std::net::IpAddr;

use crate::server::link::accept::Seen;
use crate::server::link::hello::{Hello, Refusal, Verdict};
use crate::server::link::outbound::Peer;
use crate::server::url::Endpoint;

/// Guests at once: a cluster of today that shares no member with the one this server knows.
const GUESTS: usize = 16;

/// One of them.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Guest {
    disk_uuid: String,
    urls: Vec<Endpoint>,
    seen: Seen,
    /// Larger for whoever came later.
    order: u64,
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Guests {
    known: BTreeMap<u64, Guest>,
    order: u64,
}

impl Guests {
    /// Lets whoever says this hello in; `Ok(true)` where links are to be made anew for it. `leader`,
    /// who leads now (0: nobody), makes room for nobody.
    pub(super) fn admit(
        &mut self,
        hello: &Hello,
        seen: Seen,
        leader: u64,
    ) -> Result<bool, (Refusal, String)> {
        let id = hello.member_id;
        if let Some(guest) = self.known.get(&id)
            && guest.disk_uuid != hello.disk_uuid
        {
            let text = format!("member {id:x} speaks from another disk already");
            return Err((Refusal::Disk, text));
        }
        self.order += 1;
        let guest = Guest {
            disk_uuid: hello.disk_uuid.clone(),
            urls: hello
                .peer_urls
                .iter()
                .filter_map(|url| reached_at(&Endpoint::parse(url).ok()?, seen))
                .collect(),
            seen,
            order: self.order,
        };
        if !self.known.contains_key(&id) && self.known.len() >= GUESTS {
            self.make_room(leader);
        }
        let before = self.known.insert(id, guest);
        let urls = |guest: &Guest| guest.urls.clone();
        Ok(before.as_ref().map(urls) != self.known.get(&id).map(urls))
    }

    /// Forgets one: without a certificate rather than with, and then the oldest of the address
    /// that most of them came from, so that a stranger takes its own places alone.
    fn make_room(&mut self, leader: u64) {
        let of = |address: IpAddr| {
            let same = |guest: &&Guest| guest.seen.address == address;
            self.known.values().filter(same).count()
        };
        let others = self.known.iter().filter(|(id, _)| **id != leader);
        let leaves = others.min_by_key(|(_, guest)| {
            let same = std::cmp::Reverse(of(guest.seen.address));
            (guest.seen.certified, same, guest.order)
        });
        if let Some(id) = leaves.map(|(id, _)| *id) {
            self.known.remove(&id);
        }
    }

    /// Keeps those that are still unknown.
    pub(super) fn retain(&mut self, unknown: impl Fn(u64) -> bool) {
        self.known.retain(|id, _| unknown(*id));
    }

    /// Which disk each speaks from.
    pub(super) fn disks(&self) -> impl Iterator<Item = (u64, &String)> {
        self.known.iter().map(|(id, guest)| (*id, &guest.disk_uuid))
    }

    /// Whom to link to, so that they are answered.
    pub(super) fn peers(&self) -> impl Iterator<Item = Peer> {
        self.known.iter().map(|(id, guest)| Peer {
            id: *id,
            urls: guest.urls.clone(),
            guest: true,
        })
    }
}

/// Where a guest with this URL is dialled: whoever has shown a certificate, at its URL; whoever
/// has not, at the address that it came from, and without asking DNS. Everything at a loopback
/// address is this host.
fn reached_at(url: &Endpoint, seen: Seen) -> Option<Endpoint> {
    let loopback = |host: &str| host.parse().is_ok_and(|ip: IpAddr| ip.is_loopback());
    if seen.certified || (seen.address.is_loopback() && loopback(&url.host)) {
        return Some(url.clone());
    }
    (!seen.address.is_unspecified()).then(|| Endpoint {
        host: seen.address.to_string(),
        ..url.clone()
    })
}

/// What is said to an unknown member while this server follows a leader that it knows: that leader
/// has told, or will tell, who else belongs to the cluster.
pub(super) fn nobody_waits_for(hello: &Hello) -> Verdict {
    let text = format!(
        "member {:x} ({}) is not in this server's list of members: it is let in once the leader has \
         told of it",
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

    fn seen(address: &str, certified: bool) -> Seen {
        Seen {
            address: address.parse().expect("an address"),
            certified,
        }
    }

    fn dialled(guests: &Guests, id: u64) -> Vec<String> {
        let peers = guests.peers().filter(|peer| peer.id == id);
        peers
            .flat_map(|peer| peer.urls)
            .map(|url| url.authority())
            .collect()
    }

    /// Every stranger's URLs used to be dialled, wherever they pointed: whoever reached the peer
    /// port had this server connect to any address of its choice, and ask DNS for any name.
    #[test]
    fn without_a_certificate_a_guest_is_dialled_where_it_came_from() {
        let mut guests = Guests::default();
        let metadata = hello(1, "http://169.254.169.254:80");
        assert_eq!(
            guests.admit(&metadata, seen("10.0.0.9", false), 0),
            Ok(true)
        );
        assert_eq!(dialled(&guests, 1), ["10.0.0.9:80"]);
        let name = hello(2, "http://secrets.internal:2380");
        assert_eq!(guests.admit(&name, seen("10.0.0.9", false), 0), Ok(true));
        assert_eq!(dialled(&guests, 2), ["10.0.0.9:2380"]);
        let local = hello(3, "http://127.0.0.1:2379");
        assert_eq!(guests.admit(&local, seen("10.0.0.9", false), 0), Ok(true));
        assert_eq!(dialled(&guests, 3), ["10.0.0.9:2379"]);
        let member = hello(4, "https://demo-4.demo.svc:2380");
        assert_eq!(guests.admit(&member, seen("10.0.0.9", true), 0), Ok(true));
        assert_eq!(dialled(&guests, 4), ["demo-4.demo.svc:2380"]);
        let neighbour = hello(5, "http://127.3.2.1:2380");
        assert_eq!(
            guests.admit(&neighbour, seen("127.0.0.1", false), 0),
            Ok(true)
        );
        assert_eq!(dialled(&guests, 5), ["127.3.2.1:2380"]);
        assert_eq!(
            guests.admit(&neighbour, seen("127.0.0.1", false), 0),
            Ok(false),
            "nothing new"
        );
    }

    #[test]
    fn a_flood_takes_no_place_but_its_own() {
        let mut guests = Guests::default();
        let quiet = hello(1, "http://10.0.0.1:2380");
        let certified = hello(2, "http://10.0.0.2:2380");
        guests
            .admit(&quiet, seen("10.0.0.1", false), 0)
            .expect("in");
        guests
            .admit(&certified, seen("10.9.9.9", true), 0)
            .expect("in");
        for id in 100..10_000 {
            let stranger = hello(id, "http://10.9.9.9:1");
            guests
                .admit(&stranger, seen("10.9.9.9", false), 0)
                .expect("in");
        }
        assert_eq!(guests.known.len(), GUESTS);
        assert!(guests.known.contains_key(&1) && guests.known.contains_key(&2));
        assert!(guests.known.contains_key(&9_999), "the newest is heard");

        // Nor that of whoever leads, at the same address.
        for id in 20_000..20_100 {
            let stranger = hello(id, "http://10.9.9.9:1");
            guests
                .admit(&stranger, seen("10.9.9.9", false), 9_999)
                .expect("in");
        }
        assert!(guests.known.contains_key(&9_999), "it leads");
    }

    #[test]
    fn a_guest_keeps_its_disk() {
        let mut guests = Guests::default();
        let url = "http://10.0.0.1:2380";
        guests
            .admit(&hello(1, url), seen("10.0.0.1", false), 0)
            .expect("in");
        let other = Hello {
            disk_uuid: "another".to_owned(),
            ..hello(1, url)
        };
        let refused = guests.admit(&other, seen("10.0.0.2", false), 0);
        assert_eq!(refused.map_err(|(why, _)| why), Err(Refusal::Disk));
    }
}
