//! Requests that etcdctl cannot send, by users without permission: those of etcd's published security advisories, and
//! every call without a token. Codes and messages must equal etcd's.

use std::path::Path;
use std::thread;

use quorate::wire::etcd::auth_client::AuthClient;
use quorate::wire::etcd::cluster_client::ClusterClient;
use quorate::wire::etcd::kv_client::KvClient;
use quorate::wire::etcd::lease_client::LeaseClient;
use quorate::wire::etcd::maintenance_client::MaintenanceClient;
use quorate::wire::etcd::request_op::Request as Op;
use quorate::wire::etcd::watch_client::WatchClient;
use quorate::wire::etcd::{self, watch_request::RequestUnion};
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status};

use crate::cluster::{Cluster, Kind};
use crate::process::peers;
use crate::story::ours;

/// A client with or without a token that records the responses.
struct Guest<'a> {
    name: &'a str,
    header: &'static str,
    token: String,
    channel: Channel,
    notes: &'a mut Vec<String>,
}

impl Guest<'_> {
    fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        if !self.token.is_empty() {
            let token = self.token.parse().expect("a header");
            request.metadata_mut().insert(self.header, token);
        }
        request
    }

    fn note<T>(&mut self, what: &str, answer: &Result<T, Status>) {
        let result = match answer {
            Ok(_) => "ok".to_owned(),
            Err(status) => format!("{:?} {}", status.code(), status.message()),
        };
        self.notes.push(format!("{} {what}: {result}", self.name));
    }
}

macro_rules! ask {
    ($guest:ident, $client:ident, $call:ident, $message:expr) => {{
        let request = $guest.request($message);
        let answer = $client::new($guest.channel.clone()).$call(request).await;
        $guest.note(stringify!($call), &answer);
    }};
}

fn range(key: &str, range_end: &[u8]) -> etcd::RangeRequest {
    etcd::RangeRequest {
        key: key.as_bytes().to_vec().into(),
        range_end: range_end.to_vec().into(),
        ..Default::default()
    }
}

fn put(key: &str) -> etcd::PutRequest {
    etcd::PutRequest {
        key: key.as_bytes().to_vec().into(),
        value: "v".into(),
        ..Default::default()
    }
}

fn delete(key: &str, prev_kv: bool) -> etcd::DeleteRangeRequest {
    etcd::DeleteRangeRequest {
        key: key.as_bytes().to_vec().into(),
        prev_kv,
        ..Default::default()
    }
}

/// A transaction with the operation in the branch that is taken or in the other one, nested this deep.
fn txn(op: Op, depth: usize, taken: bool) -> etcd::TxnRequest {
    let mut list = vec![etcd::RequestOp { request: Some(op) }];
    for _ in 0..depth {
        let nested = etcd::TxnRequest {
            success: list,
            ..Default::default()
        };
        list = vec![etcd::RequestOp {
            request: Some(Op::RequestTxn(nested)),
        }];
    }
    match taken {
        true => etcd::TxnRequest {
            success: list,
            ..Default::default()
        },
        false => etcd::TxnRequest {
            failure: list,
            ..Default::default()
        },
    }
}

/// Reads and writes: CVE-2026-33343 (nested transactions) and CVE-2026-44283 (the previous value that a put in a
/// transaction reads, and the lease that it uses).
async fn keys(guest: &mut Guest<'_>, lease: i64) {
    let leased = etcd::PutRequest { lease, ..put("b") };
    let prev = etcd::PutRequest {
        prev_kv: true,
        ..put("m")
    };
    for op in [
        Op::RequestRange(range("secret", b"")),
        Op::RequestRange(range("a", b"\0")),
        Op::RequestRange(range("b", b"")),
        Op::RequestPut(put("secret")),
        Op::RequestPut(put("b")),
        Op::RequestPut(leased.clone()),
        Op::RequestPut(prev.clone()),
        Op::RequestDeleteRange(delete("secret", false)),
        Op::RequestDeleteRange(delete("m", true)),
    ] {
        for depth in 0..3 {
            for taken in [true, false] {
                ask!(guest, KvClient, txn, txn(op.clone(), depth, taken));
            }
        }
    }
    let compare = etcd::Compare {
        key: "secret".into(),
        ..Default::default()
    };
    let peek = etcd::TxnRequest {
        compare: vec![compare],
        ..Default::default()
    };
    ask!(guest, KvClient, txn, peek.clone());
    let nested = txn(Op::RequestTxn(peek), 1, true);
    ask!(guest, KvClient, txn, nested);
    ask!(guest, KvClient, put, leased);
    ask!(guest, KvClient, put, prev);
    ask!(guest, KvClient, range, range("secret", b""));
    let local = etcd::RangeRequest {
        serializable: true,
        ..range("secret", b"")
    };
    ask!(guest, KvClient, range, local);
    let request = guest.request(range("a", b"\0"));
    let mut client = KvClient::new(guest.channel.clone());
    let first = match client.range_stream(request).await {
        Ok(stream) => stream.into_inner().message().await,
        Err(error) => Err(error),
    };
    guest.note("range_stream", &first);
}

/// GHSA-xg4h-6gfc-h4m8: watching more than the user may read.
async fn watches(guest: &mut Guest<'_>) {
    for (key, range_end) in [
        ("secret", &b""[..]),
        ("a", b"\0"),
        ("a", b"c"),
        ("a", b"d"),
        ("", b"\0"),
        ("", b""),
    ] {
        let create = etcd::WatchCreateRequest {
            key: key.as_bytes().to_vec().into(),
            range_end: range_end.to_vec().into(),
            ..Default::default()
        };
        let asked = etcd::WatchRequest {
            request_union: Some(RequestUnion::CreateRequest(create)),
        };
        let requests =
            futures::StreamExt::chain(futures::stream::iter([asked]), futures::stream::pending());
        let request = guest.request(requests);
        let first = match WatchClient::new(guest.channel.clone()).watch(request).await {
            Ok(stream) => stream.into_inner().message().await,
            Err(error) => Err(error),
        };
        let first = first.map(|answer| {
            let answer = answer.expect("an answer");
            (answer.created, answer.canceled, answer.cancel_reason)
        });
        guest.notes.push(format!(
            "{} watch {key:?} {range_end:?}: {first:?}",
            guest.name
        ));
    }
}

/// CVE-2026-33413: calls without any permission check.
async fn care(guest: &mut Guest<'_>) {
    ask!(guest, MaintenanceClient, status, etcd::StatusRequest {});
    ask!(guest, MaintenanceClient, hash, etcd::HashRequest {});
    let hash = etcd::HashKvRequest { revision: 0 };
    ask!(guest, MaintenanceClient, hash_kv, hash);
    let defragment = etcd::DefragmentRequest {};
    ask!(guest, MaintenanceClient, defragment, defragment);
    for action in 0..3 {
        let alarm = etcd::AlarmRequest {
            action,
            member_id: 7,
            alarm: 1,
        };
        // Root could activate the alarm, which would change the responses that follow.
        if action != 1 || guest.name != "root" {
            ask!(guest, MaintenanceClient, alarm, alarm);
        }
    }
    let request = guest.request(etcd::SnapshotRequest {});
    let mut client = MaintenanceClient::new(guest.channel.clone());
    let first = match client.snapshot(request).await {
        Ok(stream) => stream.into_inner().message().await,
        Err(error) => Err(error),
    };
    guest.note("snapshot", &first);
    let move_leader = etcd::MoveLeaderRequest { target_id: 7 };
    ask!(guest, MaintenanceClient, move_leader, move_leader);
    let downgrade = etcd::DowngradeRequest {
        action: 0,
        version: "x".to_owned(),
    };
    ask!(guest, MaintenanceClient, downgrade, downgrade);
    ask!(
        guest,
        ClusterClient,
        member_list,
        etcd::MemberListRequest {
            linearizable: false
        }
    );
    let remove = etcd::MemberRemoveRequest { id: 7 };
    ask!(guest, ClusterClient, member_remove, remove);
    let promote = etcd::MemberPromoteRequest { id: 7 };
    ask!(guest, ClusterClient, member_promote, promote);
    let compact = etcd::CompactionRequest {
        revision: 999,
        physical: false,
    };
    ask!(guest, KvClient, compact, compact);
}

async fn management(guest: &mut Guest<'_>) {
    ask!(guest, AuthClient, auth_status, etcd::AuthStatusRequest {});
    ask!(guest, AuthClient, auth_enable, etcd::AuthEnableRequest {});
    ask!(guest, AuthClient, user_list, etcd::AuthUserListRequest {});
    ask!(guest, AuthClient, role_list, etcd::AuthRoleListRequest {});
    let name = || "alice".to_owned();
    let user = etcd::AuthUserGetRequest { name: name() };
    ask!(guest, AuthClient, user_get, user);
    let role = || "some".to_owned();
    let get = etcd::AuthRoleGetRequest { role: role() };
    ask!(guest, AuthClient, role_get, get);
    let add = etcd::AuthUserAddRequest {
        name: name(),
        password: "p".to_owned(),
        ..Default::default()
    };
    ask!(guest, AuthClient, user_add, add);
    let long = etcd::AuthUserAddRequest {
        name: "long".to_owned(),
        password: "p".repeat(73),
        ..Default::default()
    };
    ask!(guest, AuthClient, user_add, long);
    let grant = etcd::AuthRoleGrantPermissionRequest {
        name: role(),
        perm: None,
    };
    ask!(guest, AuthClient, role_grant_permission, grant);
    let revoke = etcd::AuthRoleRevokePermissionRequest {
        role: role(),
        key: "none".into(),
        range_end: "".into(),
    };
    ask!(guest, AuthClient, role_revoke_permission, revoke);
    let grant = etcd::AuthUserGrantRoleRequest {
        user: name(),
        role: "none".to_owned(),
    };
    ask!(guest, AuthClient, user_grant_role, grant);
    let empty = etcd::AuthRoleAddRequest {
        name: String::new(),
    };
    ask!(guest, AuthClient, role_add, empty);
    for (user, password) in [("alice", ""), ("", "pw"), ("badge", "pw"), ("alice", "pw")] {
        let who = etcd::AuthenticateRequest {
            name: user.to_owned(),
            password: password.to_owned(),
        };
        ask!(guest, AuthClient, authenticate, who);
    }
}

async fn leases(guest: &mut Guest<'_>, lease: i64) {
    let grant = etcd::LeaseGrantRequest { ttl: 100, id: 0 };
    ask!(guest, LeaseClient, lease_grant, grant);
    ask!(
        guest,
        LeaseClient,
        lease_leases,
        etcd::LeaseLeasesRequest {}
    );
    for keys in [true, false] {
        let times = etcd::LeaseTimeToLiveRequest { id: lease, keys };
        ask!(guest, LeaseClient, lease_time_to_live, times);
    }
    let asked = futures::stream::iter([etcd::LeaseKeepAliveRequest { id: lease }]);
    let request = guest.request(asked);
    let mut client = LeaseClient::new(guest.channel.clone());
    let first = match client.lease_keep_alive(request).await {
        Ok(stream) => stream.into_inner().message().await,
        Err(error) => Err(error),
    };
    guest.note("lease_keep_alive", &first);
    if guest.name != "root" {
        let revoke = etcd::LeaseRevokeRequest { id: lease };
        ask!(guest, LeaseClient, lease_revoke, revoke);
    }
}

/// Creates users, roles, keys, and a lease with `secret` attached to it.
fn furnish(cluster: &Cluster) -> i64 {
    let granted = cluster.must(0, &["lease", "grant", "600"]);
    let lease = granted.split(' ').nth(1).unwrap_or_default().to_owned();
    for arguments in [
        &["user", "add", "root:pw"][..],
        &["user", "grant-role", "root", "root"],
        &["user", "add", "alice:pw"],
        &["user", "add", "badge", "--no-password"],
        &["role", "add", "some"],
        &["role", "grant-permission", "some", "readwrite", "a", "c"],
        &["role", "grant-permission", "some", "write", "m"],
        &["user", "grant-role", "alice", "some"],
        &["put", "b", "1"],
        &["put", "m", "1"],
        &["put", "secret", "s", "--lease", &lease],
        &["auth", "enable"],
    ] {
        cluster.must(0, arguments);
    }
    i64::from_str_radix(&lease, 16).expect("a lease")
}

async fn token(channel: &Channel, user: &str) -> String {
    let request = etcd::AuthenticateRequest {
        name: user.to_owned(),
        password: "pw".to_owned(),
    };
    let answer = AuthClient::new(channel.clone()).authenticate(request).await;
    answer.expect("a token").into_inner().token
}

async fn run_story(kind: Kind, peers: &Path) -> Vec<String> {
    let cluster = Cluster::start_with(kind, peers, 1, &["--bcrypt-cost=4".to_owned()]);
    let lease = furnish(&cluster);
    let channel = channel(&cluster, 0);
    let mut notes = Vec::new();
    let alice = token(&channel, "alice").await;
    let (letters, index) = alice.split_once('.').expect("letters and an index");
    assert!(
        letters.len() == 16 && index.parse::<u64>().is_ok(),
        "{alice}"
    );
    let root = token(&channel, "root").await;
    for (name, header, token) in [
        ("nobody", "token", String::new()),
        ("stranger", "token", "abc".to_owned()),
        ("forger", "token", format!("abcdefghijklmnop.{index}")),
        ("alice", "token", alice.clone()),
        (
            "alice (authorization)",
            "authorization",
            format!("Bearer {alice}"),
        ),
        ("root", "token", root.clone()),
    ] {
        let mut guest = Guest {
            name,
            header,
            token,
            channel: channel.clone(),
            notes: &mut notes,
        };
        keys(&mut guest, lease).await;
        watches(&mut guest).await;
        leases(&mut guest, lease).await;
        care(&mut guest).await;
        management(&mut guest).await;
    }
    // A changed password invalidates the user's earlier tokens.
    let mut guest = Guest {
        name: "root",
        header: "token",
        token: root,
        channel: channel.clone(),
        notes: &mut notes,
    };
    let change = etcd::AuthUserChangePasswordRequest {
        name: "alice".to_owned(),
        password: "other".to_owned(),
        ..Default::default()
    };
    ask!(guest, AuthClient, user_change_password, change);
    let damaged = etcd::AuthUserChangePasswordRequest {
        name: "alice".to_owned(),
        hashed_password: "%".to_owned(),
        ..Default::default()
    };
    ask!(guest, AuthClient, user_change_password, damaged);
    (guest.name, guest.token) = ("alice, later", alice);
    ask!(guest, KvClient, range, range("b", b""));
    ask!(guest, KvClient, put, put("b"));
    notes
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime")
}

fn channel(cluster: &Cluster, member: usize) -> Channel {
    let address = format!("http://{}", cluster.members[member].client);
    let endpoint = Endpoint::from_shared(address).expect("an address");
    endpoint.connect_lazy()
}

async fn read(channel: &Channel, token: &str) -> Result<(), Status> {
    let mut request = Request::new(range("b", b""));
    let header = token.parse().expect("a header");
    request.metadata_mut().insert("token", header);
    let answer = KvClient::new(channel.clone()).range(request).await;
    answer.map(|_| ())
}

/// A token issued by one member is valid at every other at once, and still after one of them has been killed and has
/// replayed its log.
#[test]
fn a_token_of_one_member_works_on_every_other() {
    let Some(peers) = peers("a_token_of_one_member_works_on_every_other") else {
        return;
    };
    let extra = ["--bcrypt-cost=4".to_owned()];
    let mut cluster = Cluster::start_with(Kind::Quorate, &peers, 3, &extra);
    furnish(&cluster);
    let runtime = runtime();
    let mut last = String::new();
    runtime.block_on(async {
        let channels: Vec<Channel> = (0..3).map(|at| channel(&cluster, at)).collect();
        for round in 0..9 {
            // A member that has not applied the users yet cannot issue a token.
            read(&channels[round % 3], "x").await.expect_err("no token");
            last = token(&channels[round % 3], "alice").await;
            for at in 0..3 {
                let answer = read(&channels[(round + at) % 3], &last).await;
                answer.unwrap_or_else(|error| panic!("round {round}, {at}: {error:?}"));
            }
        }
    });
    cluster.stop(1);
    cluster.run(1, "new");
    let known = crate::process::eventually(|| {
        runtime.block_on(async { read(&channel(&cluster, 1), &last).await.is_ok() })
    });
    assert!(known, "{}", cluster.logs());
}

/// Every signing method of etcd and the type of its key; `None`: a shared secret.
const METHODS: [(&str, Option<&rcgen::SignatureAlgorithm>); 13] = [
    ("ES256", Some(&rcgen::PKCS_ECDSA_P256_SHA256)),
    ("ES384", Some(&rcgen::PKCS_ECDSA_P384_SHA384)),
    ("ES512", Some(&rcgen::PKCS_ECDSA_P521_SHA512)),
    ("EdDSA", Some(&rcgen::PKCS_ED25519)),
    ("RS256", Some(&rcgen::PKCS_RSA_SHA256)),
    ("RS384", Some(&rcgen::PKCS_RSA_SHA384)),
    ("RS512", Some(&rcgen::PKCS_RSA_SHA512)),
    ("PS256", Some(&rcgen::PKCS_RSA_SHA256)),
    ("PS384", Some(&rcgen::PKCS_RSA_SHA384)),
    ("PS512", Some(&rcgen::PKCS_RSA_SHA512)),
    ("HS256", None),
    ("HS384", None),
    ("HS512", None),
];

/// With the same keys, tokens of etcd are valid at ours, and ours at etcd.
#[test]
fn signed_tokens_are_exchanged_with_etcd() {
    let Some(peers) = peers("signed_tokens_are_exchanged_with_etcd") else {
        return;
    };
    let directory = tempfile::tempdir().expect("a directory");
    for (method, algorithm) in METHODS {
        let (private, public) = match algorithm {
            Some(algorithm) => {
                let pair = rcgen::KeyPair::generate_for(algorithm).expect("a pair");
                (pair.serialize_pem(), pair.public_key_pem())
            }
            None => (
                "a secret of more than thirty-two bytes".to_owned(),
                String::new(),
            ),
        };
        let file = |name: &str, text: String| {
            let path = directory.path().join(name);
            std::fs::write(&path, text).expect("written");
            path.display().to_string()
        };
        let mut kind = format!(
            "jwt,sign-method={method},ttl=5m,priv-key={}",
            file("key.pem", private)
        );
        if !public.is_empty() {
            kind += &format!(",pub-key={}", file("pub.pem", public));
        }
        let extra = ["--bcrypt-cost=4".to_owned(), format!("--auth-token={kind}")];
        let both = [ours(), Kind::Etcd].map(|kind| {
            let cluster = Cluster::start_with(kind, &peers, 1, &extra);
            furnish(&cluster);
            cluster
        });
        runtime().block_on(async {
            let [ours, theirs] = [0, 1].map(|at: usize| channel(&both[at], 0));
            for (giver, taker) in [(&ours, &theirs), (&theirs, &ours)] {
                let token = token(giver, "alice").await;
                read(giver, &token).await.unwrap_or_else(|error| {
                    panic!("{method}: refused by the server that issued it: {error:?}")
                });
                read(taker, &token).await.unwrap_or_else(|error| {
                    panic!("{method}: refused by the other server: {error:?}")
                });
                let forged = format!("{token}x");
                let refused = read(taker, &forged).await.expect_err("forged");
                assert_eq!(refused.code(), tonic::Code::Unauthenticated, "{method}");
            }
        });
    }
}

// Shows KV.Txn, KV.Put, Watch.Watch, Auth.AuthStatus, Maintenance.Status: the requests of etcd's published advisories, and calls without a token.
#[test]
fn refusals_have_the_messages_of_etcd() {
    let Some(peers) = peers("refusals_have_the_messages_of_etcd") else {
        return;
    };
    let run = |kind| runtime().block_on(run_story(kind, &peers));
    let (ours, theirs) = thread::scope(|scope| {
        let theirs = scope.spawn(|| run(Kind::Etcd));
        let ours = run(ours());
        (
            ours,
            theirs
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
        )
    });
    assert!(ours.len() > 300, "{}", ours.len());
    let differ: Vec<_> = ours.iter().zip(&theirs).filter(|(a, b)| a != b).collect();
    assert!(differ.is_empty(), "ours, then etcd's: {differ:#?}");
    assert_eq!(ours.len(), theirs.len());
}
