//! The peer port's checks by the member runtime: which peers are accepted, which of their messages
//! are delivered, and the answers to servers that are not members yet.

use std::io::Error;
use std::sync::atomic::Ordering;
use std::time::Instant;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;

use super::{MemberRuntime, checkpoint, lock};
use crate::node::{Input, PeerBody, PeerMessage};
use crate::server::core::handle::{Fence, MembershipRequest, Phase};
use crate::server::core::queue::Refused;
use crate::server::link::accept::{Admitted, Host, Linked, ObservedPeer};
use crate::server::link::hello::{
    FORMAT, HashAt, Hello, Join, Listed, PeerResponse, Purpose, Refusal, Reply, RequestKind,
    ValueAt, Verdict,
};
use crate::server::link::{Io, frame};

const ASK_AGAIN: &str = "this server is answering other requests: ask again";

impl Host for MemberRuntime {
    fn handshake_failed(&self) {
        self.shared.metrics.turned_away.handshake();
    }

    fn link_refused(&self, refusal: Refusal) {
        self.shared.metrics.turned_away.link(refusal.into());
    }

    fn admit(&self, hello: Hello, observed: ObservedPeer) -> BoxFuture<'_, Admitted> {
        let (refusal, reason, known) = match self.welcome(&hello, observed) {
            Ok(known) => (Refusal::Welcome, String::new(), known),
            Err((refusal, reason)) => (refusal, reason, false),
        };
        let mut reply = self.refuse(refusal, reason);
        if refusal == Refusal::Welcome && hello.purpose() != Purpose::Requests {
            reply.starts = Some(self.starts.load().own().clone());
        }
        async move { Admitted { reply, known } }.boxed()
    }

    fn refuse(&self, refusal: Refusal, reason: String) -> Reply {
        let who = self.who();
        Reply {
            format: FORMAT,
            cluster_id: who.cluster_id,
            member_id: who.member_id,
            disk_uuid: self.disk_uuid.clone(),
            name: self.shared.name.clone(),
            refusal: refusal.into(),
            reason,
            starts: None,
        }
    }

    fn takes_plaintext(&self) -> bool {
        if !self.config.peer_tls_transition {
            return false;
        }
        match self.phase() {
            Phase::Standby | Phase::Joining => true,
            // The members are not known before the log is read: the peer has to retry.
            Phase::Member => {
                let latest = self.shared.latest.borrow().clone();
                let members = latest.membership.members.values();
                let mut urls = members.flat_map(|member| &member.peer_urls);
                urls.any(|url| !url.starts_with("https://"))
            }
            Phase::Removed => false,
        }
    }

    fn ends(&self, linked: &Linked) -> Option<&'static str> {
        let from = linked.from;
        let latest = self.shared.latest.borrow();
        let membership = &latest.membership;
        if membership.member(from).is_none() && membership.is_removed(from) {
            return Some("a removed member");
        }
        drop(latest);
        if self.is_superseded(linked) {
            return Some("its disk is there in another start");
        }
        let stays = linked.known
            || lock(&self.unknown_peers).hears(from, &linked.disk_uuid, Instant::now());
        (!stays).then_some("an unknown peer that lost its place, or is a member by now")
    }

    fn deliver(&self, linked: &Linked, body: &Bytes) -> Result<bool, Error> {
        let (from, observed) = (linked.from, linked.observed);
        if !self.running.load(Ordering::Relaxed) || self.ignores(from) {
            return Ok(true);
        }
        let message: PeerMessage = frame::decode(body.clone())?;
        // Without a certificate any host can send that. A removed member finds out instead from the
        // peers that it dials at their own URLs: they refuse it with that reason.
        if matches!(message.body, Some(PeerBody::Removed(_))) && !observed.certified {
            return Ok(true);
        }
        let input = Input::Peer { from, message };
        match self.shared.inbox.push(body.len() + 64, input) {
            Err(Refused::Full) => Ok(false),
            Ok(()) | Err(Refused::Closed) => {
                self.shared.metrics.peers.received(from, body.len());
                Ok(true)
            }
        }
    }

    fn answer(&self, kind: RequestKind, known: bool) -> BoxFuture<'_, PeerResponse> {
        match kind {
            RequestKind::List(_) => async move { self.list() }.boxed(),
            RequestKind::Join(join) => self.join(join).boxed(),
            RequestKind::Hash(at) if known => self.hash_in_turn(at).boxed(),
            RequestKind::Hash(_) => {
                let error = "only a member of the cluster may ask for the hash of the keys";
                async move { self.refused(error) }.boxed()
            }
            RequestKind::Value(at) if known => self.value_in_turn(at).boxed(),
            RequestKind::Value(_) => {
                let error = "only a member of the cluster may ask for a value, and where the peer \
                             port uses TLS only with a certificate";
                async move { self.refused(error) }.boxed()
            }
        }
    }

    fn receive(&self, from: u64, io: Io) -> BoxFuture<'_, Result<(), Error>> {
        checkpoint::receive(self, from, io).boxed()
    }
}

impl MemberRuntime {
    /// Checks a hello and accepts its sender. `Ok(true)`: it is a member that was known.
    fn welcome(&self, hello: &Hello, observed: ObservedPeer) -> Result<bool, (Refusal, String)> {
        self.judge(hello)?;
        let known = self.expects(hello.member_id) && self.has_its_disk(hello);
        match hello.purpose() {
            Purpose::Requests => {}
            _ if self.expects(hello.member_id) => {
                self.met(hello.member_id, &hello.name, &hello.disk_uuid)?;
                self.answer_where_it_listens(hello, observed);
            }
            _ => self.take_in(hello, observed)?,
        }
        Ok(known)
    }

    /// Whether a hello, also one for requests, comes from the known disk of its member.
    fn has_its_disk(&self, hello: &Hello) -> bool {
        let known = self.known_members();
        let judged = known.judge_disk(hello.member_id, &hello.name, &hello.disk_uuid);
        hello.cluster_id == known.cluster_id && judged.is_ok()
    }

    /// Whether messages of this peer are dropped: it is unknown, while a known leader leads.
    fn ignores(&self, from: u64) -> bool {
        let consensus = self.shared.consensus.load();
        let led = consensus.as_ref().as_ref().is_some_and(|it| it.led);
        let latest = self.shared.latest.borrow();
        let membership = &latest.membership;
        led && membership.cluster_id != 0
            && membership.member(from).is_none()
            && !membership.is_removed(from)
    }

    pub(super) fn refused(&self, error: &str) -> PeerResponse {
        PeerResponse {
            error: error.to_owned(),
            cluster_id: self.who().cluster_id,
            ..PeerResponse::default()
        }
    }

    async fn hash_in_turn(&self, at: HashAt) -> PeerResponse {
        match self.asked.try_acquire() {
            Ok(_one) => self.hash(at).await,
            Err(_) => self.refused(ASK_AGAIN),
        }
    }

    async fn value_in_turn(&self, at: ValueAt) -> PeerResponse {
        match self.asked.try_acquire() {
            Ok(_one) => self.value_for(at).await,
            Err(_) => self.refused(ASK_AGAIN),
        }
    }

    pub(super) fn judge(&self, hello: &Hello) -> Verdict {
        let verdict = self.known_members().judge(hello);
        if self.phase() == Phase::Removed && !matches!(verdict, Err((Refusal::Removed, _))) {
            let text = "this server was removed from its cluster".to_owned();
            return Err((Refusal::NotYet, text));
        }
        verdict?;
        if hello.purpose() == Purpose::Introduction && !self.expects(hello.member_id) {
            let text = format!(
                "member {:x} ({}) is not in this server's list of members",
                hello.member_id, hello.name
            );
            return Err((Refusal::NotYet, text));
        }
        Ok(())
    }

    /// Whether a member is one of those that this server knows by itself.
    fn expects(&self, id: u64) -> bool {
        self.expected().contains(&id)
    }

    fn list(&self) -> PeerResponse {
        let latest = self.shared.latest.borrow().clone();
        let membership = &latest.membership;
        if self.phase() != Phase::Member || membership.cluster_id == 0 {
            return PeerResponse {
                error: "this server is not a member yet".to_owned(),
                ..PeerResponse::default()
            };
        }
        let listed = membership.members.values().map(|member| Listed {
            id: member.id,
            name: member.name.clone(),
            peer_urls: member.peer_urls.clone(),
            disk_uuid: member.disk_uuid.clone(),
            learner: member.learner,
        });
        PeerResponse {
            error: String::new(),
            cluster_id: membership.cluster_id,
            cluster_uid: membership.cluster_uid.clone(),
            members: listed.collect(),
            incarnation: membership.incarnation,
            removed: membership.tombstones.iter().map(|stone| stone.id).collect(),
            hash: None,
            value: None,
        }
    }

    /// Binds a disk to a member that was added. A member that has joined already is sent the list
    /// of members and changes nothing: each change is an entry of the log, and any host may ask.
    async fn join(&self, join: Join) -> PeerResponse {
        let latest = self.shared.latest.borrow().clone();
        let Some(member) = latest.membership.member(join.id) else {
            return self.refused("this server knows no member of this ID yet, or it was removed");
        };
        let bound = member.disk_uuid.as_str();
        if uuid::Uuid::parse_str(&join.disk_uuid).is_err()
            || !(bound.is_empty() || bound == join.disk_uuid)
        {
            return self.refused(&format!(
                "member {:x} is bound to disk {bound:?}, not to {:?}",
                join.id, join.disk_uuid
            ));
        }
        if member.started {
            return self.list();
        }
        if self.handle.status().leader == 0 {
            // At once: the asking server may be the one whose vote a leader needs.
            return self.refused("no leader");
        }
        let Ok(_one) = self.asked.try_acquire() else {
            return self.refused(ASK_AGAIN);
        };
        let request = MembershipRequest::Join {
            id: join.id,
            disk_uuid: join.disk_uuid,
            name: join.name,
            client_urls: join.client_urls,
        };
        let changed = self.handle.change_membership(request, Fence::default());
        match changed.await {
            Ok(_) => self.list(),
            Err(error) => PeerResponse {
                error: error.to_string(),
                cluster_id: self.who().cluster_id,
                ..PeerResponse::default()
            },
        }
    }
}
