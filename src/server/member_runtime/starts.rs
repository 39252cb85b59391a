//! The starts of this server's disk and of its peers: which are remembered, which peers are
//! connected now, and how a peer's report that this disk is a copy is handled.
//!
//! Never stores the starts of a hello: without certificates any host can send one, and an invented
//! start would have the member itself refused for good.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use super::join::identity_stop;
use super::{Happening, MemberRuntime, blocking, lock};
use crate::disk::{self, Class, Descent, Lineage, Start, Starts};
use crate::server::core::disk_stop;
use crate::server::link::accept::Linked;
use crate::server::link::dial::DialError;
use crate::server::link::hello::{Refusal, Reply, Verdict};
use crate::server::link::outbound::{Listener, SILENCE, refusal_of};
use crate::server::process::exit::Stop;

/// Whether a peer that was last heard then counts as connected.
fn is_there(heard: Instant) -> bool {
    heard.elapsed() <= SILENCE
}

impl MemberRuntime {
    /// Changes the file of starts durably; on a full volume, in memory until the next change. Does
    /// not wait for the disk if nothing changes: most new links are to a member in a start that is
    /// known, and a disk that hangs would delay all of them.
    pub(super) fn change_starts<T>(&self, change: impl Fn(&mut Starts) -> T) -> disk::Result<T> {
        let changed = || {
            let before = self.starts.load_full();
            let mut after = Starts::clone(&before);
            let result = change(&mut after);
            (result, (after != *before).then_some(after))
        };
        if let (result, None) = changed() {
            return Ok(result);
        }
        blocking(|| {
            let directory = lock(&self.directory);
            // Another task may have changed them since.
            let (result, after) = changed();
            let Some(after) = after else {
                return Ok(result);
            };
            match after.replace(directory.disk()) {
                Err(error) if error.class() != Class::DiskFull => return Err(error),
                Err(error) => tracing::warn!("the starts of others are not written down: {error}"),
                Ok(()) => {}
            }
            self.starts.store(Arc::new(after));
            Ok(result)
        })
    }

    /// Stores the start with which a member answered where it is dialled.
    pub(super) fn note_start(&self, id: u64, reply: &Reply) -> Verdict {
        let expected = self.expected();
        let Some(shown) = reply.starts.as_ref().filter(|_| expected.contains(&id)) else {
            return Ok(());
        };
        let noted = self.change_starts(|starts| {
            starts.note(id, &reply.disk_uuid, shown, |id| expected.contains(&id))
        });
        match noted {
            Ok(Descent::TooOld) => tracing::warn!(
                peer = %format!("{id:x}"),
                "its disk was started more often since it was seen than is kept: whether it is a \
                 copy is not known"
            ),
            Ok(Descent::Unknown | Descent::Continues | Descent::Copy(_)) => {}
            Err(error) => {
                self.shared.stop(disk_stop(&error));
                let text = "this server cannot remember the start, and ends".to_owned();
                return Err((Refusal::NotYet, text));
            }
        }
        // Other servers may have answered as this member while this waited for the disk.
        let known = self.known_members();
        known.judge_start(id, &reply.name, &reply.disk_uuid, Some(shown))
    }

    /// A link to this peer is established, in the start of its reply. Not recorded for an unknown
    /// peer, whose identity is not proven.
    pub(super) fn stands(&self, peer: u64, reply: &Reply) {
        let start = reply.starts.as_ref().and_then(Lineage::newest);
        if let Some(start) = start.filter(|_| self.expected().contains(&peer)) {
            lock(&self.standing).insert(peer, (start, Instant::now()));
        }
    }

    /// The peer was heard on that link.
    pub(super) fn still_stands(&self, peer: u64) {
        if let Some((_, heard)) = lock(&self.standing).get_mut(&peer) {
            *heard = Instant::now();
        }
    }

    /// The present start of each peer that is connected.
    pub(super) fn standing(&self) -> BTreeMap<u64, Start> {
        let standing = lock(&self.standing);
        let there = standing.iter().filter(|(_, (_, heard))| is_there(*heard));
        there.map(|(id, (start, _))| (*id, *start)).collect()
    }

    /// Whether this link belongs to a start that has ended: the member was seen in another one
    /// since, where it is dialled.
    pub(super) fn is_superseded(&self, linked: &Linked) -> bool {
        let Some(start) = linked.start else {
            return false;
        };
        let seen = self.starts.load().seen(linked.from, &linked.disk_uuid);
        let older = |seen: Start| start.number <= seen.number && start != seen;
        let standing = lock(&self.standing).get(&linked.from).copied();
        let another = |(standing, heard): (Start, Instant)| is_there(heard) && standing != start;
        seen.is_some_and(older) || standing.is_some_and(another)
    }

    /// A peer reports that this disk is a copy.
    pub(super) fn hears_of_a_copy(&self, peer: u64, reason: &str) {
        if self.is_condemned(&self.others(), peer, reason) {
            // The supervisor is gone when the server is ending already.
            let _ = self.happenings.send(Happening::Copied(reason.to_owned()));
        }
    }

    /// Whether this peer completes the reports needed to decide that this disk is a copy: a
    /// majority of these others, and at least two. Fewer reports are a reason for doubt.
    fn is_condemned(&self, others: &BTreeSet<u64>, peer: u64, reason: &str) -> bool {
        let mut copied = lock(&self.copied);
        if others.contains(&peer) {
            copied.add(peer);
        }
        let ((reports, needed), condemned) = (copied.count(others), copied.condemns(others));
        drop(copied);
        if !condemned {
            let enough = match others.len() {
                1 => "it is the only other voter, and one alone ends no server".to_owned(),
                _ => format!("{reports} of the {needed} members that have to agree do"),
            };
            let text =
                format!("{peer:x} does not take this disk for the member's: {reason}; {enough}");
            self.doubt(peer, text);
        }
        condemned
    }

    /// Handles a refusal that this peer will repeat, while a cluster is being formed or this server
    /// joins one: the server stops. But a report that this disk is a copy needs as many peers as
    /// later. Until there are enough, they are asked again, and this server does not vote
    /// meanwhile.
    pub(super) fn turned_away(
        &self,
        others: &BTreeSet<u64>,
        peer: u64,
        error: &DialError,
    ) -> Result<(), Stop> {
        let DialError::Refused {
            refusal: Refusal::Copy,
            ..
        } = error
        else {
            return Err(identity_stop(error.to_string()));
        };
        match refusal_of(&self.known(), peer, Refusal::Copy, error) {
            Some(reason) if self.is_condemned(others, peer, reason) => {
                Err(self.condemn(reason.to_owned()))
            }
            Some(_) => Ok(()),
            None => {
                self.doubt(peer, format!("in the place of {peer:x} it was {error}"));
                Ok(())
            }
        }
    }

    /// This peer has welcomed the disk.
    pub(super) fn is_taken_for_the_member(&self, peer: u64) {
        lock(&self.copied).withdraw(peer);
        self.trust(peer);
    }

    /// Stops a server whose disk is a copy, and every later start on that disk: each would add a
    /// start to the copy, until the starts that others have seen are dropped. On a full volume that
    /// is not recorded, and a later start asks again.
    pub(super) fn condemn(&self, reason: String) -> Stop {
        match self.change_starts(|starts| starts.condemn(&reason)) {
            Ok(()) => Stop {
                code: Class::Copied.exit_code(),
                class: Class::Copied.name(),
                message: reason,
            },
            Err(error) => disk_stop(&error),
        }
    }
}
