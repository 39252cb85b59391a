//! Data directories written by release 0.1.0: this build serves all keys, history, leases, users and members in them.
//! `tests/data/releases/0.1.0/make.sh` created them; the JSON files are etcdctl's output from that release, so this
//! build is compared with the release and not with itself.

use std::path::{Path, PathBuf};
use std::process::Command;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use quorate::wire::etcd::auth_client::AuthClient;
use quorate::wire::etcd::lease_client::LeaseClient;
use quorate::wire::etcd::maintenance_client::MaintenanceClient;
use quorate::wire::etcd::{
    AuthenticateRequest, HashKvRequest, LeaseLeasesRequest, MemberListRequest, PutRequest,
    RangeRequest,
};
use serde_json::Value;

use crate::fixture::{Server, until};

fn release() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/releases/0.1.0")
}

/// The recorded output of etcdctl from the release.
fn printed(name: &str) -> Value {
    let text = std::fs::read_to_string(release().join(name)).unwrap();
    serde_json::from_str(&text).unwrap()
}

fn number(value: &Value) -> i64 {
    value.as_i64().unwrap()
}

fn bytes(value: &Value) -> Vec<u8> {
    STANDARD.decode(value.as_str().unwrap()).unwrap()
}

/// A server on a data directory of the release, at the address in its peer URL.
fn server(home: &Path, name: &str, host: u8) -> Server {
    let packed = release().join(format!("{name}.tar.gz"));
    let mut unpack = Command::new("tar");
    let status = unpack.arg("-xzf").arg(packed).arg("-C").arg(home).status();
    let status = status.unwrap();
    assert!(status.success(), "tar unpacks {name}");
    Server::at(home, name, &format!("127.230.1.{host}"))
}

/// A request by the release's root user, sent once this server issues a token.
async fn as_root<T>(server: &Server, message: impl Fn() -> T) -> tonic::Request<T> {
    let token = until(&format!("{} knows root", server.name), server, async || {
        let who = AuthenticateRequest {
            name: "root".to_owned(),
            password: "golden".to_owned(),
        };
        let given = AuthClient::new(server.channel()).authenticate(who).await;
        Some(given.ok()?.into_inner().token)
    })
    .await;
    let mut request = tonic::Request::new(message());
    request
        .metadata_mut()
        .insert("token", token.parse().unwrap());
    request
}

async fn holds_every_key(server: &Server) {
    let all = || RangeRequest {
        key: vec![0].into(),
        range_end: vec![0].into(),
        ..RangeRequest::default()
    };
    let found = server.kv().range(as_root(server, all).await).await.unwrap();
    let expected = printed("keys.json");
    let expected = expected["kvs"].as_array().unwrap();
    let found = found.into_inner().kvs;
    assert_eq!(found.len(), expected.len());
    for (kv, expected) in found.iter().zip(expected) {
        assert_eq!(kv.key, bytes(&expected["key"]));
        assert_eq!(kv.value, bytes(&expected["value"]));
        assert_eq!(kv.create_revision, number(&expected["create_revision"]));
        assert_eq!(kv.mod_revision, number(&expected["mod_revision"]));
        assert_eq!(kv.version, number(&expected["version"]));
        assert_eq!(kv.lease, expected["lease"].as_i64().unwrap_or(0));
    }
    let leases = || LeaseLeasesRequest {};
    let found = LeaseClient::new(server.channel())
        .lease_leases(as_root(server, leases).await)
        .await
        .unwrap();
    let mut found: Vec<i64> = found.into_inner().leases.iter().map(|l| l.id).collect();
    let expected = printed("leases.json");
    let expected = expected["leases"].as_array().unwrap();
    let mut expected: Vec<i64> = expected.iter().map(|lease| number(&lease["id"])).collect();
    found.sort_unstable();
    expected.sort_unstable();
    assert_eq!(found, expected);
}

#[tokio::test]
async fn three_members_of_0_1_0_serve_what_they_held() {
    let home = tempfile::tempdir().unwrap();
    let mut servers: Vec<Server> = (1..=3)
        .map(|n| server(home.path(), &format!("m{n}"), n))
        .collect();
    for server in &mut servers {
        // as a unit file passes them at each start; they have no effect on a disk with data
        server.arguments.push(
            "--initial-cluster=m1=http://127.230.1.1:2380,m2=http://127.230.1.2:2380,m3=http://127.230.1.3:2380"
                .to_owned(),
        );
        server.start();
    }
    let (history, hash, members) = (
        printed("history.json"),
        printed("hash.json"),
        printed("members.json"),
    );
    for server in &servers {
        holds_every_key(server).await;
        let then = || RangeRequest {
            key: b"keys/1".to_vec().into(),
            revision: 50,
            ..RangeRequest::default()
        };
        let found = server.kv().range(as_root(server, then).await).await;
        let found = found.unwrap().into_inner().kvs;
        assert_eq!(found[0].value, bytes(&history["kvs"][0]["value"]));
        assert_eq!(
            found[0].mod_revision,
            number(&history["kvs"][0]["mod_revision"])
        );

        let at = number(&hash[0]["HashKV"]["hash_revision"]);
        let ask = || HashKvRequest { revision: at };
        let found = MaintenanceClient::new(server.channel())
            .hash_kv(as_root(server, ask).await)
            .await
            .unwrap()
            .into_inner();
        assert_eq!(i64::from(found.hash), number(&hash[0]["HashKV"]["hash"]));

        let list = || MemberListRequest { linearizable: true };
        let list = as_root(server, list).await;
        let found = server.cluster().member_list(list).await;
        let mut found: Vec<_> = found.unwrap().into_inner().members;
        let mut expected = members["members"].as_array().unwrap().clone();
        found.sort_by(|a, b| a.name.cmp(&b.name));
        expected.sort_by_key(|member| member["name"].as_str().unwrap().to_owned());
        assert_eq!(found.len(), expected.len());
        for (member, expected) in found.iter().zip(&expected) {
            assert_eq!(member.id, expected["ID"].as_u64().unwrap());
            assert_eq!(member.peer_ur_ls[0], expected["peerURLs"][0]);
        }
    }
    let put = || PutRequest {
        key: b"after".to_vec().into(),
        value: b"the upgrade".to_vec().into(),
        ..PutRequest::default()
    };
    let written = servers[1].kv().put(as_root(&servers[1], put).await).await;
    let revision = written.unwrap().into_inner().header.unwrap().revision;
    let before = number(&printed("keys.json")["header"]["revision"]);
    assert_eq!(revision, before + 1, "no revision is used twice or skipped");
}

/// The directory has a checkpoint with all data and an empty log, as a long-running member has.
#[tokio::test]
async fn a_checkpoint_of_0_1_0_is_read() {
    let home = tempfile::tempdir().unwrap();
    let mut server = server(home.path(), "restored", 4);
    server.start();
    holds_every_key(&server).await;
}
