//! What the peer port asks of the site: who is let in, what they say, and answers for servers
//! that are not members yet.

use std::io::Error;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;

use super::{Site, checkpoint};
use crate::node::{Input, PeerMessage};
use crate::server::handle::{Fence, MembershipRequest, Phase};
use crate::server::link::accept::Host;
use crate::server::link::hello::{
    Answer, Ask, FORMAT, Hello, Join, Listed, Purpose, Refusal, Reply, Verdict,
};
use crate::server::link::outbound::Listener;
use crate::server::link::{Io, frame};
use crate::server::queue::Refused;
use crate::server::shared::Event;

impl Host for Site {
    fn admit(&self, hello: Hello) -> BoxFuture<'_, Reply> {
        let (refusal, reason) = match self.judge(&hello) {
            Ok(()) => (Refusal::Welcome, String::new()),
            Err(refused) => refused,
        };
        if refusal == Refusal::Welcome && hello.purpose() != Purpose::Questions {
            self.met(hello.member_id, &hello.disk_uuid);
            if hello.purpose() == Purpose::Messages {
                self.hear_of(hello.member_id, hello.peer_urls);
            }
        }
        let reply = self.refuse(refusal, reason);
        async move { reply }.boxed()
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
        }
    }

    fn takes_plaintext(&self) -> bool {
        if !self.config.peer_tls_transition {
            return false;
        }
        match self.phase() {
            Phase::Standby | Phase::Joining => true,
            // Nothing is known of the members before the log was read: whoever comes tries again.
            Phase::Member => {
                let published = self.shared.published.borrow().clone();
                let members = published.membership.members.values();
                let mut urls = members.flat_map(|member| &member.peer_urls);
                urls.any(|url| !url.starts_with("https://"))
            }
            Phase::Removed => false,
        }
    }

    fn is_out(&self, from: u64) -> bool {
        let published = self.shared.published.borrow();
        let membership = &published.membership;
        membership.member(from).is_none() && membership.is_removed(from)
    }

    fn deliver(&self, from: u64, body: &Bytes) -> Result<bool, Error> {
        if !self.running.load(Ordering::Relaxed) {
            return Ok(true);
        }
        let message: PeerMessage = frame::decode(body.clone())?;
        let input = Input::Peer { from, message };
        match self
            .shared
            .inbox
            .push(body.len() + 64, Event::Input(Box::new(input)))
        {
            Err(Refused::Full) => Ok(false),
            Ok(()) | Err(Refused::Closed) => {
                self.shared.metrics.peer_received(from, body.len());
                Ok(true)
            }
        }
    }

    fn answer(&self, ask: Ask) -> BoxFuture<'_, Answer> {
        match ask {
            Ask::List(_) => async move { self.list() }.boxed(),
            Ask::Join(join) => self.join(join).boxed(),
            Ask::Hash(at) => self.hash(at).boxed(),
        }
    }

    fn receive(&self, from: u64, io: Io) -> BoxFuture<'_, Result<(), Error>> {
        checkpoint::receive(self, from, io).boxed()
    }
}

impl Site {
    fn judge(&self, hello: &Hello) -> Verdict {
        if self.phase() == Phase::Removed {
            let text = "this server was removed from its cluster".to_owned();
            return Err((Refusal::NotYet, text));
        }
        self.known().judge(hello)?;
        if hello.purpose() == Purpose::Introduction && !self.expects(hello.member_id) {
            let text = format!(
                "member {:x} ({}) is not in this server's list of members",
                hello.member_id, hello.name
            );
            return Err((Refusal::NotYet, text));
        }
        Ok(())
    }

    /// Whether a member is one of the initial ones or of the membership.
    fn expects(&self, id: u64) -> bool {
        let published = self.shared.published.borrow().clone();
        let initial = super::flows::initial(&self.config);
        published.membership.member(id).is_some()
            || initial.is_some_and(|membership| membership.member(id).is_some())
    }

    fn list(&self) -> Answer {
        let published = self.shared.published.borrow().clone();
        let membership = &published.membership;
        if self.phase() != Phase::Member || membership.cluster_id == 0 {
            return Answer {
                error: "this server is not a member yet".to_owned(),
                ..Answer::default()
            };
        }
        let listed = membership.members.values().map(|member| Listed {
            id: member.id,
            name: member.name.clone(),
            peer_urls: member.peer_urls.clone(),
            disk_uuid: member.disk_uuid.clone(),
            learner: member.learner,
        });
        Answer {
            error: String::new(),
            cluster_id: membership.cluster_id,
            cluster_uid: membership.cluster_uid.clone(),
            members: listed.collect(),
            incarnation: membership.incarnation,
            removed: membership.tombstones.iter().map(|stone| stone.id).collect(),
            hash: None,
        }
    }

    async fn join(&self, join: Join) -> Answer {
        let request = MembershipRequest::Join {
            id: join.id,
            disk_uuid: join.disk_uuid,
            name: join.name,
            client_urls: join.client_urls,
        };
        let changed = self.handle.change_membership(request, Fence::default());
        match changed.await {
            Ok(_) => self.list(),
            Err(error) => Answer {
                error: error.to_string(),
                cluster_id: self.who().cluster_id,
                ..Answer::default()
            },
        }
    }
}
