//! How a server becomes a member: founding a cluster with others, joining by hand, or waiting as a
//! standby.
//!
//! Each flow may be interrupted at any point and starts over from the identity file. A disk votes
//! only once it is certain that its member never voted from another one.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

use super::found::{Became, drop_staged};
use super::{Happening, MemberRuntime, peer};
use crate::disk::{self, Class};
use crate::node::{InitialMember, Membership, StateMachine};
use crate::server::core::disk_stop;
use crate::server::core::handle::Phase;
use crate::server::core::state::Who;
use crate::server::flags::config::{ClusterState, Formation};
use crate::server::flags::url::Endpoint;
use crate::server::link::dial::{DialError, Target, within};
use crate::server::link::frame;
use crate::server::link::hello::{
    Join, List, Listed, PeerRequest, PeerResponse, Purpose, Refusal, RequestKind,
};
use crate::server::link::outbound::{Listener, Peer, check_reply};
use crate::server::process::exit::Stop;

/// Retry interval of a server that waits for others.
const AGAIN: Duration = Duration::from_millis(300);
/// Largest response, in bytes: the server that answers is not known yet.
pub(super) const ANSWER_LIMIT: usize = 8 << 20;
/// Time for one round of requests.
pub(super) const ROUND: Duration = Duration::from_secs(8);
/// Rounds in which no server knows this member before that counts as final.
const LAGGING: usize = 5;
/// What a standby does.
const WAITS: &str = "standing by: waits to be bootstrapped or to be added as a learner";
/// The peer port when `--join-from` names none.
const PEER_PORT: u16 = 2380;

/// The initial membership of a new cluster from its flags; `None` under an operator.
pub(super) fn initial(config: &crate::server::flags::config::Config) -> Option<Membership> {
    let Formation::InitialCluster { members, token, .. } = &config.formation else {
        return None;
    };
    let initial: Vec<InitialMember> = members
        .iter()
        .map(|(name, urls)| InitialMember {
            name: name.clone(),
            peer_urls: urls.clone(),
            ..InitialMember::default()
        })
        .collect();
    Membership::bootstrap("", 0, token, &initial).ok()
}

impl MemberRuntime {
    /// Makes this server a member, however long that takes.
    pub(super) async fn become_member(
        self: &Arc<Self>,
        happenings: &mut mpsc::UnboundedReceiver<Happening>,
    ) -> Result<Became, Stop> {
        match &self.config.formation {
            Formation::InitialCluster {
                state: ClusterState::New,
                ..
            } => self.form().await,
            Formation::InitialCluster {
                state: ClusterState::Existing,
                members,
                ..
            } => {
                let own = &self.config.name;
                let others = members.iter().filter(|(name, _)| *name != own);
                let urls: Vec<String> = others.flat_map(|(_, urls)| urls.clone()).collect();
                self.join_by_hand(&urls).await
            }
            Formation::AwaitMembership { join_from } => self.stand_by(join_from, happenings).await,
        }
    }

    /// A new cluster by flags: meet all other members, then found the same state as they do.
    async fn form(self: &Arc<Self>) -> Result<Became, Stop> {
        let membership = initial(&self.config).ok_or_else(|| {
            Stop::usage("--initial-cluster: members must differ in name and peer URLs")
        })?;
        let own = membership
            .members
            .values()
            .find(|member| member.name == self.config.name)
            .map(|member| member.id)
            .ok_or_else(|| {
                Stop::usage(format!(
                    "--initial-cluster does not contain {:?}, the --name of this server",
                    self.config.name
                ))
            })?;
        let who = Who {
            cluster_id: membership.cluster_id,
            member_id: own,
        };
        self.forming(&who)?;
        self.shared.become_phase(Phase::Joining, who.clone());
        let others: Vec<Peer> = membership
            .members
            .values()
            .filter(|member| member.id != own)
            .map(|member| peer(member.id, &member.peer_urls))
            .collect();
        self.meet_all(&membership, others).await?;
        self.shared
            .doing("every initial member was met: founding the cluster");
        let machine = StateMachine::founded(membership);
        self.create_founded(machine, who).await
    }

    /// Stores the member that is being formed, and refuses a disk of another attempt.
    fn forming(&self, who: &Who) -> Result<(), Stop> {
        let identity = self.identity();
        let before = (identity.cluster_id, identity.member_id);
        if before != (0, 0) && before != (who.cluster_id, who.member_id) {
            return Err(identity_stop(format!(
                "cluster ID mismatch: the data directory began as member {:x} of cluster {:x} and \
                 the flags describe member {:x} of cluster {:x}; start it with the flags of before, or \
                 with an empty data directory if no other member has met it",
                before.1, before.0, who.member_id, who.cluster_id
            )));
        }
        self.change_identity(|identity| {
            identity.cluster_id = who.cluster_id;
            identity.member_id = who.member_id;
        })
        .map_err(|error| disk_stop(&error))
    }

    /// Sends a hello to every other initial member until each has welcomed this disk.
    async fn meet_all(self: &Arc<Self>, all: &Membership, others: Vec<Peer>) -> Result<(), Stop> {
        let all_others: BTreeSet<u64> = others.iter().map(|peer| peer.id).collect();
        let mut missing = all_others.clone();
        loop {
            for other in &others {
                if !missing.contains(&other.id) {
                    continue;
                }
                match self.meet(other).await {
                    Ok(()) => {
                        tracing::info!(peer = %format!("{:x}", other.id), "met an initial member");
                        missing.remove(&other.id);
                    }
                    Err(error) if passes(&error) => {}
                    Err(error) => self.turned_away(&all_others, other.id, &error)?,
                }
            }
            if missing.is_empty() {
                return Ok(());
            }
            let names: Vec<&str> = missing
                .iter()
                .filter_map(|id| all.member(*id))
                .map(|member| member.name.as_str())
                .collect();
            self.shared.doing(&format!(
                "waiting to meet every initial member before the first vote; missing: {}",
                names.join(", ")
            ));
            sleep(AGAIN).await;
        }
    }

    async fn meet(&self, other: &Peer) -> Result<(), DialError> {
        let mut failure = DialError::Io(std::io::ErrorKind::NotFound.into());
        for url in &other.urls {
            let hello = self.hello(other.id, Purpose::Introduction);
            match self.dialler.greet(url, &hello).await {
                Ok((_, reply)) => {
                    check_reply(&self.known(), other.id, &reply)?;
                    self.met(other.id, &reply.name, &reply.disk_uuid)
                        .and_then(|()| self.note_start(other.id, &reply))
                        .map_err(|(refusal, reason)| DialError::ours(&reply, refusal, &reason))?;
                    self.is_taken_for_the_member(other.id);
                    return Ok(());
                }
                Err(error) => failure = error,
            }
        }
        Err(failure)
    }

    /// `--initial-cluster-state=existing`: find the entry that `member add` created, and bind it.
    async fn join_by_hand(self: &Arc<Self>, urls: &[String]) -> Result<Became, Stop> {
        let endpoints: Vec<Target> = urls
            .iter()
            .filter_map(|url| Some(Endpoint::parse(url).ok()?.into()))
            .collect();
        if endpoints.is_empty() {
            return Err(Stop::usage(
                "--initial-cluster-state=existing needs the peer URLs of other members in \
                 --initial-cluster",
            ));
        }
        self.shared
            .doing("asking the members of --initial-cluster for this member's entry");
        let mut unknown = 0;
        loop {
            for endpoint in &endpoints {
                let answer = match self.ask(endpoint, RequestKind::List(List {})).await {
                    Ok(answer) if answer.error.is_empty() => answer,
                    Ok(_) | Err(_) => continue,
                };
                let own = match self.own_entry(&answer) {
                    Ok(own) => own,
                    // The answering server may be behind the one that added this member.
                    Err(_) if unknown < LAGGING * endpoints.len() => {
                        unknown += 1;
                        continue;
                    }
                    Err(stop) => return Err(stop),
                };
                let join = Join {
                    id: own.id,
                    disk_uuid: self.disk_uuid.clone(),
                    name: self.config.name.clone(),
                    client_urls: self.config.advertise_client_urls.clone(),
                };
                match self.ask(endpoint, RequestKind::Join(join)).await {
                    Ok(joined) if joined.error.is_empty() => {
                        return self.join_as(own.id, &joined).await;
                    }
                    Ok(refused) => tracing::warn!("cannot join yet: {}", refused.error),
                    Err(error) => tracing::warn!("cannot join yet: {error}"),
                }
                if self.known_to_all(own.id, &answer).await? {
                    return self.join_as(own.id, &answer).await;
                }
            }
            sleep(AGAIN).await;
        }
    }

    /// Where a second voter joins a single one, there is no leader before it votes, so its disk
    /// cannot be bound through the log. It may start nevertheless once every other member has
    /// pinned its disk, as at a first start: from then on no other disk is accepted as this member,
    /// and the next leader binds it.
    async fn known_to_all(self: &Arc<Self>, id: u64, answer: &PeerResponse) -> Result<bool, Stop> {
        let who = Who {
            cluster_id: answer.cluster_id,
            member_id: id,
        };
        self.forming(&who)?;
        self.shared.become_phase(Phase::Joining, who);
        let others = || answer.members.iter().filter(move |member| member.id != id);
        let voters = others().filter(|member| !member.learner);
        let voters: BTreeSet<u64> = voters.map(|voter| voter.id).collect();
        let mut known = true;
        for member in others() {
            match self.meet(&peer(member.id, &member.peer_urls)).await {
                Ok(()) => {}
                Err(error) if passes(&error) => {
                    tracing::info!(peer = %format!("{:x}", member.id), "not met yet: {error}");
                    return Ok(false);
                }
                Err(error) => {
                    self.turned_away(&voters, member.id, &error)?;
                    known = false;
                }
            }
        }
        Ok(known)
    }

    /// The entry with this server's peer URLs.
    fn own_entry<'a>(&self, answer: &'a PeerResponse) -> Result<&'a Listed, Stop> {
        let wanted: BTreeSet<&String> = self.config.advertise_peer_urls.iter().collect();
        let found = answer.members.iter().find(|member| {
            let urls: BTreeSet<&String> = member.peer_urls.iter().collect();
            urls == wanted
        });
        let own = found.ok_or_else(|| {
            identity_stop(format!(
                "cluster {:x} has no member with the peer URLs {}: add it first (`etcdctl member \
                 add {} --peer-urls=...`), with exactly these URLs",
                answer.cluster_id,
                self.config.advertise_peer_urls.join(","),
                self.config.name
            ))
        })?;
        if !own.disk_uuid.is_empty() && own.disk_uuid != self.disk_uuid {
            return Err(identity_stop(format!(
                "member {:x} of cluster {:x} is bound to disk {} and this is disk {}: its data \
                 directory was lost or exchanged; remove the member and add a new one",
                own.id, answer.cluster_id, own.disk_uuid, self.disk_uuid
            )));
        }
        Ok(own)
    }

    /// The standby of an operator: founds a cluster on a call, or joins once its disk is on a list
    /// of members.
    async fn stand_by(
        self: &Arc<Self>,
        join_from: &[String],
        happenings: &mut mpsc::UnboundedReceiver<Happening>,
    ) -> Result<Became, Stop> {
        let identity = self.identity();
        if !identity.bootstrap_nonce.is_empty() && identity.cluster_id != 0 {
            return self.found_again(&identity).await;
        }
        self.shared.doing(WAITS);
        loop {
            let asked = timeout(ROUND, self.find_list(join_from));
            tokio::select! {
                biased;
                happening = happenings.recv() => match happening {
                    Some(Happening::Bootstrap(founding, answer)) => {
                        if let Some(became) = self.bootstrap(*founding, answer).await? {
                            return Ok(became);
                        }
                        self.shared.doing(WAITS);
                    }
                    Some(Happening::Removed(_) | Happening::Copied(_)) => {}
                    Some(Happening::Met) => self.reported_unknown_peers.store(false, Ordering::Release),
                    None => std::future::pending().await,
                },
                found = asked => {
                    if let Ok(Some((id, answer))) = found {
                        return self.join_as(id, &answer).await;
                    }
                    sleep(AGAIN).await;
                }
            }
        }
    }

    /// The first list of members that contains this disk.
    async fn find_list(&self, join_from: &[String]) -> Option<(u64, PeerResponse)> {
        for target in join_from {
            let authority = authority_of(target);
            let host = authority.rsplit_once(':').map_or("", |(host, _)| host);
            let name = host.trim_start_matches('[').trim_end_matches(']');
            let resolved = within("resolving", tokio::net::lookup_host(authority.clone())).await;
            let Ok(addresses) = resolved else { continue };
            for address in addresses {
                let Some(answer) = self.ask_at(address, name).await else {
                    continue;
                };
                let wanted = self
                    .config
                    .operated
                    .cluster_uid
                    .as_deref()
                    .unwrap_or_default();
                if !wanted.is_empty() && answer.cluster_uid != wanted {
                    continue;
                }
                let own = |member: &&Listed| member.disk_uuid == self.disk_uuid;
                if let Some(member) = answer.members.iter().find(own) {
                    return Some((member.id, answer));
                }
            }
        }
        None
    }

    /// The list of the server at this address; with TLS its certificate must carry the name. During
    /// a change of the cluster to or from TLS, TLS is tried first, then plaintext.
    async fn ask_at(&self, address: SocketAddr, name: &str) -> Option<PeerResponse> {
        let ways: &[bool] = match (&self.config.peer_tls, self.config.peer_tls_transition) {
            (None, _) => &[false],
            (Some(_), false) => &[true],
            (Some(_), true) => &[true, false],
        };
        for tls in ways {
            let endpoint = Endpoint {
                tls: *tls,
                host: address.ip().to_string(),
                port: address.port(),
            };
            let target = Target {
                at: endpoint.clone(),
                name: name.to_owned(),
            };
            match self.ask(&target, RequestKind::List(List {})).await {
                Ok(answer) => return Some(answer),
                Err(error) => {
                    tracing::debug!(%endpoint, name, "no list of members here: {error}")
                }
            }
        }
        None
    }

    /// Becomes a member that waits for its first checkpoint.
    async fn join_as(self: &Arc<Self>, id: u64, answer: &PeerResponse) -> Result<Became, Stop> {
        let who = Who {
            cluster_id: answer.cluster_id,
            member_id: id,
        };
        // Its data come from its leader, and not from a snapshot that it may have received.
        let mut staging = Arc::clone(&self.staging).lock_owned().await;
        self.change_identity(|identity| {
            identity.cluster_id = who.cluster_id;
            identity.member_id = id;
            identity.cluster_uid.clone_from(&answer.cluster_uid);
            identity.incarnation = answer.incarnation;
            identity.peer_pins.clear();
            for member in &answer.members {
                if let Ok(uuid) = uuid::Uuid::parse_str(&member.disk_uuid) {
                    identity
                        .peer_pins
                        .insert(member.id, uuid.as_bytes().to_vec());
                }
            }
        })
        .map_err(|error| disk_stop(&error))?;
        tracing::info!(member = %format!("{id:x}"), cluster = %format!("{:x}", who.cluster_id), "joining");
        let saver = self.new_saver();
        let created = self.create(None, disk::Phase::Joining, (who, saver), |_| {});
        let became = created.await?;
        drop_staged(&mut staging);
        let others = answer.members.iter().filter(|member| member.id != id);
        self.link(
            others
                .map(|member| peer(member.id, &member.peer_urls))
                .collect(),
        );
        Ok(became)
    }

    async fn ask(&self, target: &Target, kind: RequestKind) -> Result<PeerResponse, DialError> {
        self.ask_member(0, target, kind, (ROUND, ANSWER_LIMIT))
            .await
    }

    /// Asks one member; 0: whichever answers. Waits for the answer up to `patience`, and takes one of up to `most` bytes.
    pub(super) async fn ask_member(
        &self,
        id: u64,
        target: &Target,
        kind: RequestKind,
        (patience, most): (Duration, usize),
    ) -> Result<PeerResponse, DialError> {
        let hello = self.hello(id, Purpose::Requests);
        let (mut io, reply) = self.dialler.greet(target, &hello).await?;
        if id != 0 && reply.member_id != id {
            let text = format!("member {:x} answers in place of {id:x}", reply.member_id);
            return Err(DialError::Io(std::io::Error::other(text)));
        }
        let request = PeerRequest { kind: Some(kind) };
        within("the request", frame::write(&mut io, &request)).await?;
        let answer = timeout(patience, frame::read(&mut io, most));
        let answer = answer
            .await
            .map_err(|_| std::io::Error::from(std::io::ErrorKind::TimedOut))??;
        answer.ok_or_else(|| DialError::Io(std::io::ErrorKind::UnexpectedEof.into()))
    }
}

/// Whether a failed hello is worth retrying: the other side is not there, or not yet ready to check
/// it. Any other refusal persists until an administrator acts.
fn passes(error: &DialError) -> bool {
    matches!(
        error,
        DialError::Io(_)
            | DialError::Refused {
                refusal: Refusal::NotYet | Refusal::Busy | Refusal::Certificate,
                ..
            }
    )
}

/// `host:port` of an address in `--join-from`; an IPv6 address without brackets has no port.
fn authority_of(target: &str) -> String {
    match target.rsplit_once(':') {
        _ if target.parse::<std::net::Ipv6Addr>().is_ok() => format!("[{target}]:{PEER_PORT}"),
        Some((_, port)) if port.parse::<u16>().is_ok() => target.to_owned(),
        _ => format!("{target}:{PEER_PORT}"),
    }
}

/// The handle's phase for that of the identity file.
pub(super) fn public_phase(phase: disk::Phase) -> Phase {
    match phase {
        disk::Phase::Standby => Phase::Standby,
        disk::Phase::Joining => Phase::Joining,
        disk::Phase::Member => Phase::Member,
        disk::Phase::Removed => Phase::Removed,
    }
}

/// The stop for a contradiction between the identity of this disk and the requested one.
pub(super) fn identity_stop(message: String) -> Stop {
    Stop {
        code: Class::Identity.exit_code(),
        class: Class::Identity.name(),
        message,
    }
}

#[cfg(test)]
mod tests {
    use super::authority_of;

    /// The last group of `fd98::1` was parsed as a port, so no server was ever found there.
    #[test]
    fn join_from_needs_a_port() {
        for (target, authority) in [
            ("demo.tenants.svc", "demo.tenants.svc:2380"),
            ("demo.tenants.svc:23800", "demo.tenants.svc:23800"),
            ("10.0.0.1", "10.0.0.1:2380"),
            ("10.0.0.1:23800", "10.0.0.1:23800"),
            ("fd98::1", "[fd98::1]:2380"),
            ("[fd98::1]", "[fd98::1]:2380"),
            ("[fd98::1]:23800", "[fd98::1]:23800"),
        ] {
            assert_eq!(authority_of(target), authority);
        }
    }
}
