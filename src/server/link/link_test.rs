//! Two ends of a link on loopback.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Error;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::net::TcpListener;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, watch};

use super::accept::{self, Admitted, Host, Linked, ObservedPeer, Port, Threads};
use super::dial::{DialError, Dialler, Target};
use super::hello::{
    FORMAT, Hello, Known, List, Listed, PeerRequest, PeerResponse, Purpose, Refusal, Reply,
    RequestKind, ValueAt, Verdict,
};
use super::outbound::{self, Listener, Outbound, Peer};
use super::{Io, frame};
use crate::server::flags::config::{TlsFiles, TlsPolicy};
use crate::server::flags::url::Endpoint;
use crate::server::tls::fixture::Certificates;

const CLUSTER: u64 = 7;

/// Member 1, which accepts, and member 2, which dials.
struct Member {
    id: u64,
    known: Mutex<Known>,
    inbox: mpsc::UnboundedSender<(u64, Listed)>,
    removed: mpsc::UnboundedSender<String>,
    round_trips: watch::Sender<u32>,
    /// How often a peer was reported as gone, and as unreachable.
    gone: watch::Sender<u32>,
    unreachable: watch::Sender<u32>,
    /// Peers that were not known before have to leave.
    displaced: AtomicBool,
    /// The thread on which each step ran.
    threads: Mutex<BTreeSet<String>>,
}

impl Member {
    fn runs(&self, what: &str) {
        let thread = std::thread::current();
        let name = thread.name().unwrap_or_default();
        let ran = format!("{what} by {name}");
        self.threads.lock().expect("no panic holds it").insert(ran);
    }

    fn known(&self) -> Known {
        self.known.lock().expect("no panic holds it").clone()
    }
}

impl Host for Member {
    fn handshake_failed(&self) {}

    fn link_refused(&self, _: Refusal) {}

    fn takes_plaintext(&self) -> bool {
        false
    }

    fn refuse(&self, refusal: Refusal, reason: String) -> Reply {
        Reply {
            format: FORMAT,
            cluster_id: CLUSTER,
            member_id: self.id,
            disk_uuid: format!("disk-{}", self.id),
            name: format!("m{}", self.id),
            refusal: refusal.into(),
            reason,
            starts: None,
        }
    }

    fn admit(&self, hello: Hello, _: ObservedPeer) -> BoxFuture<'_, Admitted> {
        self.runs("admitted");
        let (refusal, reason) = match self.known().judge(&hello) {
            Ok(()) => (Refusal::Welcome, String::new()),
            Err(refused) => refused,
        };
        let reply = Host::refuse(self, refusal, reason);
        let known = self.known().disks.contains_key(&hello.member_id);
        async move { Admitted { reply, known } }.boxed()
    }

    fn ends(&self, linked: &Linked) -> Option<&'static str> {
        let removed = self.known().tombstones.contains(&linked.from);
        let stranger = !linked.known && self.displaced.load(Ordering::Relaxed);
        (removed || stranger).then_some("it has to")
    }

    fn deliver(&self, linked: &Linked, body: &Bytes) -> Result<bool, Error> {
        self.runs("delivered");
        let message = frame::decode(body.clone())?;
        let _ = self.inbox.send((linked.from, message));
        Ok(true)
    }

    fn answer(&self, _: RequestKind, _: bool) -> BoxFuture<'_, PeerResponse> {
        let answer = PeerResponse {
            cluster_id: CLUSTER,
            ..PeerResponse::default()
        };
        async move { answer }.boxed()
    }

    fn receive(&self, _: u64, _: Io) -> BoxFuture<'_, Result<(), Error>> {
        async { Ok(()) }.boxed()
    }
}

impl Listener for Member {
    fn hello(&self, to: u64, purpose: Purpose) -> Hello {
        Hello {
            format: FORMAT,
            cluster_id: CLUSTER,
            member_id: self.id,
            disk_uuid: format!("disk-{}", self.id),
            name: format!("m{}", self.id),
            to,
            purpose: purpose.into(),
            peer_urls: Vec::new(),
            starts: None,
        }
    }

    fn known(&self) -> Known {
        Member::known(self)
    }

    fn linked(&self, _: u64, _: &Reply) -> Verdict {
        Ok(())
    }

    fn parted(&self, _: u64) {}

    fn sent(&self, _: u64, bytes: usize) {
        self.runs("sent");
        assert!(bytes > 0);
    }

    fn round_trip(&self, peer: u64, _: Duration) {
        assert_eq!(peer, 1);
        self.round_trips.send_modify(|count| *count += 1);
    }

    fn gone(&self, peer: u64) {
        assert_eq!(peer, 1);
        self.gone.send_modify(|count| *count += 1);
    }

    fn unreachable(&self, _: u64) {
        self.unreachable.send_modify(|count| *count += 1);
    }

    fn copied(&self, _: u64, _: &str) {}

    fn removed(&self, peer: u64, reason: &str) {
        assert_eq!(peer, 1);
        let _ = self.removed.send(reason.to_owned());
    }

    fn replaced(&self, _: u64, reason: &str) {
        let _ = self.removed.send(format!("replaced: {reason}"));
    }
}

fn member(
    id: u64,
) -> (
    Arc<Member>,
    mpsc::UnboundedReceiver<(u64, Listed)>,
    mpsc::UnboundedReceiver<String>,
) {
    let (inbox, received) = mpsc::unbounded_channel();
    let (removed, removals) = mpsc::unbounded_channel();
    let known = Known {
        cluster_id: CLUSTER,
        member_id: id,
        disks: BTreeMap::from([(1, "disk-1".to_owned()), (2, "disk-2".to_owned())]),
        ..Known::default()
    };
    let member = Member {
        id,
        known: Mutex::new(known),
        inbox,
        removed,
        round_trips: watch::Sender::new(0),
        gone: watch::Sender::new(0),
        unreachable: watch::Sender::new(0),
        displaced: AtomicBool::new(false),
        threads: Mutex::default(),
    };
    (Arc::new(member), received, removals)
}

fn dialler() -> Arc<Dialler> {
    Arc::new(Dialler::new(super::dial::Security::plain()))
}

fn port_of(tls: bool, dialler: Arc<Dialler>, host: Arc<Member>) -> Port {
    let here = tokio::runtime::Handle::current();
    Port {
        tls,
        dialler,
        host,
        grpc: axum::Router::new(),
        unknown_peer_frame: 1 << 20,
        door: Arc::default(),
        threads: Threads {
            raft: here.clone(),
            members: here.clone(),
            strangers: here,
        },
    }
}

async fn listen(host: Arc<Member>) -> Endpoint {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("bound").port();
    tokio::spawn(accept::serve(listener, port_of(false, dialler(), host)));
    Endpoint {
        tls: false,
        host: "127.0.0.1".to_owned(),
        port,
    }
}

/// Member 1, as a link dials it.
fn one_at(url: Endpoint) -> Peer {
    Peer {
        id: 1,
        urls: vec![url.into()],
        unknown: false,
    }
}

fn start(peer: Peer, dialler: Arc<Dialler>, from: Arc<Member>, raft: &Handle) -> Outbound<Listed> {
    outbound::start(peer, dialler, from, Arc::new(|_, _| ()), raft.clone())
}

fn listed(id: u64) -> Listed {
    Listed {
        id,
        ..Listed::default()
    }
}

#[tokio::test]
async fn messages_arrive_in_order_with_their_sender() {
    let (one, mut received, _r1) = member(1);
    let (two, _i2, _r2) = member(2);
    let url = listen(one).await;
    let peer = one_at(url);
    let outbound = start(peer, dialler(), two, &Handle::current());
    // A message sent before the link is established may be dropped, so the first one is repeated.
    loop {
        let _ = outbound.send(listed(u64::MAX));
        let wait = tokio::time::timeout(Duration::from_millis(10), received.recv());
        if let Ok(Some(_)) = wait.await {
            break;
        }
    }
    for id in 1..1000 {
        assert!(outbound.send(listed(id)).is_ok());
    }
    let mut next = 1;
    while next < 1000 {
        let (from, message) = received.recv().await.expect("open");
        assert_eq!(from, 2);
        if message.id != u64::MAX {
            assert_eq!(message.id, next);
            next += 1;
        }
    }
}

/// Each heartbeat is answered, and only heartbeats are: an idle link still measures its round trip.
#[tokio::test]
async fn round_trip_to_a_silent_peer_is_measured() {
    let (one, _i1, _r1) = member(1);
    let (two, _i2, _r2) = member(2);
    let mut round_trips = two.round_trips.subscribe();
    let url = listen(one).await;
    let peer = one_at(url);
    let begun = std::time::Instant::now();
    let _outbound = start(peer, dialler(), two, &Handle::current());
    let twice = round_trips.wait_for(|count| *count == 2).await;
    assert_eq!(twice.map(|count| *count).ok(), Some(2));
    // The second measurement is of the second heartbeat: the other side's own heartbeats do not
    // count.
    assert!(begun.elapsed() >= outbound::PULSE);
}

#[tokio::test]
async fn message_without_a_link_is_returned() {
    let (two, _i2, _r2) = member(2);
    let unused = Endpoint {
        tls: false,
        host: "127.0.0.1".to_owned(),
        port: 1,
    };
    let peer = Peer {
        id: 1,
        urls: vec![unused.into()],
        unknown: false,
    };
    let outbound = start(peer, dialler(), two, &Handle::current());
    assert_eq!(outbound.send(listed(5)), Err(listed(5)));
}

/// A member that was down while two others were replaced at their addresses waited without a
/// warning: none of the members that it knew reported its removal.
#[tokio::test]
async fn wrong_answering_peer_raises_doubt() {
    let (one, _i1, _r1) = member(1);
    one.known.lock().expect("free").tombstones.insert(2);
    let (two, _i2, mut removals) = member(2);
    let url = listen(one).await;
    let peer = Peer {
        id: 7,
        urls: vec![url.into()],
        unknown: false,
    };
    let _outbound = start(peer, dialler(), two, &Handle::current());
    let reason = removals.recv().await.expect("reported");
    assert!(reason.starts_with("replaced: member 2"), "{reason}");
    assert!(reason.contains("was removed from cluster 7"), "{reason}");
}

/// Any server that answered at a member's address could end the one that dialled it. Now only the
/// member itself, on its disk, can report a removal.
#[tokio::test]
async fn only_the_dialled_peer_reports_a_removal() {
    let (one, _i1, _r1) = member(1);
    one.known.lock().expect("free").tombstones.insert(2);
    let (two, _i2, mut removals) = member(2);
    two.known
        .lock()
        .expect("free")
        .disks
        .insert(1, "another".to_owned());
    let url = listen(one).await;
    let peer = one_at(url.clone());
    let _outbound = start(peer, dialler(), two, &Handle::current());
    let (three, _i3, mut removals_of_three) = member(2);
    let peer = one_at(url);
    let _outbound = start(peer, dialler(), three, &Handle::current());
    let reason = removals_of_three.recv().await.expect("reported");
    assert!(reason.contains("was removed from cluster 7"), "{reason}");
    assert!(removals.try_recv().is_err(), "it is on another disk");
}

/// Found by half an hour of faults with five members: a member that followed well was removed, and
/// its leader stopped sending to it before it could send that the removal is committed. The
/// member's own links were open, no member answered on them, and it campaigned for ever: a removal
/// is only reported to a member that dials again.
#[tokio::test]
async fn linked_member_learns_of_its_removal() {
    let (one, mut received, _r1) = member(1);
    let (two, _i2, mut removals) = member(2);
    let url = listen(Arc::clone(&one)).await;
    let peer = one_at(url);
    let outbound = start(peer, dialler(), Arc::clone(&two), &Handle::current());
    while outbound.send(listed(1)).is_err() {
        tokio::task::yield_now().await;
    }
    assert_eq!(received.recv().await, Some((2, listed(1))));
    one.known.lock().expect("free").tombstones.insert(2);
    let reason = removals.recv().await.expect("reported");
    assert!(reason.contains("was removed from cluster 7"), "{reason}");
    assert_eq!(*two.gone.borrow(), 0, "it closed the link, and runs");
}

/// What members elect on: the process at the other end is gone, its host is not.
#[tokio::test]
async fn ended_process_is_reported_with_each_refused_dial() {
    let (one, _i1, _r1) = member(1);
    let (two, _i2, _r2) = member(2);
    let mut round_trips = two.round_trips.subscribe();
    let mut gone = two.gone.subscribe();
    let process = tokio::runtime::Runtime::new().expect("a runtime");
    let url = process.spawn(listen(one)).await.expect("it listens");
    let _outbound = start(one_at(url), dialler(), Arc::clone(&two), &Handle::current());
    let linked = round_trips.wait_for(|count| *count == 1).await;
    assert!(linked.is_ok() && *two.gone.borrow() == 0);
    process.shutdown_background();
    let twice = gone.wait_for(|count| *count == 2).await;
    assert_eq!(twice.map(|count| *count).ok(), Some(2));
}

/// A member that was never there has not ended.
#[tokio::test]
async fn refused_dials_alone_prove_nothing() {
    let (two, _i2, _r2) = member(2);
    let mut unreachable = two.unreachable.subscribe();
    let unused = Endpoint {
        tls: false,
        host: "127.0.0.1".to_owned(),
        port: 1,
    };
    let _outbound = start(
        one_at(unused),
        dialler(),
        Arc::clone(&two),
        &Handle::current(),
    );
    let often = unreachable.wait_for(|count| *count == 3).await;
    assert_eq!(often.map(|count| *count).ok(), Some(3));
    assert_eq!(*two.gone.borrow(), 0);
}

#[tokio::test]
async fn another_disk_is_refused() {
    let (one, _i1, _r1) = member(1);
    let (two, _i2, _r2) = member(2);
    let url = listen(one).await;
    let dialler = dialler();
    let lost = Hello {
        disk_uuid: "new".to_owned(),
        ..two.hello(1, Purpose::Messages)
    };
    match dialler
        .greet(&url.clone().into(), &lost)
        .await
        .map(|(_, reply)| reply)
    {
        Err(DialError::Refused {
            refusal, reason, ..
        }) => {
            assert_eq!(refusal, Refusal::Disk);
            assert!(reason.contains("bound to disk disk-2"), "{reason}");
        }
        other => panic!("{other:?}"),
    }
    let asking = two.hello(0, Purpose::Requests);
    let (mut io, _) = dialler
        .greet(&url.clone().into(), &asking)
        .await
        .expect("welcome");
    let request = PeerRequest {
        kind: Some(RequestKind::List(List {})),
    };
    frame::write(&mut io, &request).await.expect("sent");
    let answer: Option<PeerResponse> = frame::read(&mut io, 1000).await.expect("answered");
    assert_eq!(answer.expect("one answer").cluster_id, CLUSTER);
    // A request that only a later version knows is decoded as none. It is refused and the connection stays, as 0.1.0 does
    // with one for a value.
    for _ in 0..2 {
        let later = PeerRequest { kind: None };
        frame::write(&mut io, &later).await.expect("sent");
        let answer: Option<PeerResponse> = frame::read(&mut io, 1000).await.expect("answered");
        let error = answer.expect("one answer").error;
        assert!(error.contains("does not know the request"), "{error}");
    }
}

/// Whoever knows the name and the disk of a member read what clients have stored, past the certificates of the port.
#[test]
fn values_are_given_to_members_with_certificates() {
    let observed = |certified| ObservedPeer {
        address: std::net::Ipv4Addr::LOCALHOST.into(),
        certified,
    };
    let value = RequestKind::Value(ValueAt::default());
    assert!(accept::may_ask(&value, false, observed(false)));
    assert!(!accept::may_ask(&value, true, observed(false)));
    assert!(accept::may_ask(&value, true, observed(true)));
    let list = RequestKind::List(List {});
    assert!(accept::may_ask(&list, true, observed(false)));
}

#[tokio::test]
async fn only_the_dialled_member_is_accepted() {
    let (one, _i1, _r1) = member(1);
    let (two, _i2, _r2) = member(2);
    let observed = ObservedPeer {
        address: std::net::Ipv4Addr::LOCALHOST.into(),
        certified: false,
    };
    let reply = one
        .admit(two.hello(1, Purpose::Messages), observed)
        .await
        .reply;
    let known = Member::known(&two);
    assert!(outbound::check_reply(&known, 1, &reply).is_ok());
    assert!(outbound::check_reply(&known, 3, &reply).is_err());
    let disk = Reply {
        disk_uuid: "new".to_owned(),
        ..reply.clone()
    };
    assert!(outbound::check_reply(&known, 1, &disk).is_err());
    let cluster = Reply {
        cluster_id: 8,
        ..reply
    };
    assert!(outbound::check_reply(&known, 1, &cluster).is_err());
}

/// An unknown peer that had lost its place, or had become a member, kept its link with the limits
/// of an unknown peer.
#[tokio::test]
async fn unknown_peer_without_a_place_is_unlinked() {
    let (one, mut received, _r1) = member(1);
    one.known.lock().expect("free").disks.remove(&2);
    let (two, _i2, _r2) = member(2);
    let url = listen(Arc::clone(&one)).await;
    let hello = two.hello(1, Purpose::Messages);
    let (mut io, _) = dialler().greet(&url.into(), &hello).await.expect("welcome");
    frame::write(&mut io, &listed(5)).await.expect("sent");
    assert_eq!(received.recv().await, Some((2, listed(5))));
    one.displaced.store(true, Ordering::Relaxed);
    // The heartbeat that any link carries once a second.
    frame::write(&mut io, &()).await.expect("sent");
    let mut heard = Vec::new();
    // EOF or an error: the link has ended.
    let _ = tokio::io::AsyncReadExt::read_to_end(&mut io, &mut heard).await;
    assert!(received.try_recv().is_err());
}

/// An operator's calls are signed and come without a certificate, so the handshake requests one but
/// does not require it. A link requires one: otherwise any host that reaches the port could act as
/// a member.
#[tokio::test]
async fn links_need_certificates_calls_do_not() {
    use tokio::io::AsyncWriteExt as _;
    let certificates = Certificates::new();
    let files = TlsFiles {
        calls_without: true,
        ..certificates.files()
    };
    let policy = TlsPolicy::default();
    let security = || super::dial::Security::of(&files, &policy).expect("certificates");
    let (one, _inbox, _removed) = member(1);
    let (two, _inbox, _removed) = member(2);
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("bound").port();
    let accepts = Arc::new(Dialler::new(security()));
    tokio::spawn(accept::serve(listener, port_of(true, accepts, one)));
    let endpoint = Endpoint {
        tls: true,
        host: "localhost".to_owned(),
        port,
    };
    let hello = two.hello(1, Purpose::Messages);
    let certified = Dialler::new(security())
        .greet(&endpoint.clone().into(), &hello)
        .await;
    assert_eq!(certified.expect("welcome").1.member_id, 1);

    // One of several addresses behind a name presents a certificate for the name.
    let address = Endpoint {
        host: "127.0.0.1".to_owned(),
        ..endpoint.clone()
    };
    let dialler = Dialler::new(security());
    let both = Target {
        at: address.clone(),
        name: "localhost".to_owned(),
    };
    let named = dialler.greet(&both, &hello).await;
    assert_eq!(named.expect("welcome").1.member_id, 1);
    let nameless = dialler.greet(&address.into(), &hello).await;
    let refused = nameless.err().expect("refused").to_string();
    assert!(refused.contains("not valid for name"), "{refused}");

    let dialled = crate::server::tls::peers(&files, &policy).expect("certificates");
    let mut config = (*dialled.current().dialled).clone();
    config.client_auth_cert_resolver = no_certificate();
    let tcp = tokio::net::TcpStream::connect(("127.0.0.1", port)).await;
    let name = rustls_pki_types::ServerName::try_from("localhost").expect("a name");
    let mut hidden = tokio_rustls::TlsConnector::from(Arc::new(config))
        .connect(name, tcp.expect("open"))
        .await
        .expect("the handshake passes");
    hidden.write_all(super::PREFACE).await.expect("sent");
    frame::write(&mut hidden, &hello).await.expect("sent");
    let reply: Option<Reply> = frame::read(&mut hidden, frame::HELLO_LIMIT)
        .await
        .expect("an answer");
    let reply = reply.expect("an answer");
    assert_eq!(reply.refusal(), Refusal::Certificate);
    assert!(reply.reason.contains("needs a certificate"), "{reply:?}");

    // Without TLS there is no answer.
    let plain = Dialler::new(super::dial::Security::plain());
    let endpoint = Endpoint {
        tls: false,
        ..endpoint
    };
    let refused = plain
        .greet(&endpoint.clone().into(), &hello)
        .await
        .err()
        .expect("refused");
    assert!(matches!(refused, DialError::Io(_)), "{refused}");
}

/// Presents no certificate.
fn no_certificate() -> Arc<dyn rustls::client::ResolvesClientCert> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(rustls::RootCertStore::empty())
        .with_no_client_auth()
        .client_auth_cert_resolver
}

/// Handshakes and calls of unknown hosts ran on the threads that carry heartbeats, and delayed
/// them. A link runs beside consensus at both ends, with TLS as well, whichever thread began it.
#[test]
fn links_run_on_their_own_threads() {
    let runtime = |name: &str| {
        tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name(name)
            .enable_all()
            .build()
            .expect("threads")
    };
    let certificates = Certificates::new();
    for tls in [false, true] {
        let (raft, members, strangers) =
            (runtime("raft"), runtime("members"), runtime("strangers"));
        let (one, mut received, _r1) = member(1);
        let (two, _i2, _r2) = member(2);
        let dialler = || match tls {
            true => Arc::new(Dialler::new(
                super::dial::Security::of(&certificates.files(), &TlsPolicy::default())
                    .expect("certificates"),
            )),
            false => dialler(),
        };
        let threads = Threads {
            raft: raft.handle().clone(),
            members: members.handle().clone(),
            strangers: strangers.handle().clone(),
        };
        let (host, from) = (Arc::clone(&one), Arc::clone(&two));
        let (accepts, dials) = (dialler(), dialler());
        members.block_on(async move {
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
            let url = Endpoint {
                tls,
                host: "localhost".to_owned(),
                port: listener.local_addr().expect("bound").port(),
            };
            let raft = threads.raft.clone();
            let port = Port {
                threads,
                ..port_of(tls, accepts, host)
            };
            tokio::spawn(accept::serve(listener, port));
            let outbound = start(one_at(url), dials, from, &raft);
            while outbound.send(listed(1)).is_err() {
                tokio::task::yield_now().await;
            }
            received.recv().await.expect("delivered");
        });
        let ran = |member: &Member| -> Vec<String> {
            let ran = member.threads.lock().expect("free").clone();
            ran.into_iter().collect()
        };
        assert_eq!(ran(&one), ["admitted by strangers", "delivered by raft"]);
        assert_eq!(ran(&two), ["sent by raft"]);
    }
}
