//! A server that starts from a snapshot of an older or the same version of etcd: users, permissions, leases, history
//! and an active alarm are as in that etcd, and a learner in the snapshot does no harm.
//! `tests/data/etcd-snapshots/make.sh` created the snapshots and documents their content.

use quorate::wire::etcd::alarm_request::AlarmAction;
use quorate::wire::etcd::auth_client::AuthClient;
use quorate::wire::etcd::cluster_client::ClusterClient;
use quorate::wire::etcd::kv_client::KvClient;
use quorate::wire::etcd::lease_client::LeaseClient;
use quorate::wire::etcd::maintenance_client::MaintenanceClient;
use quorate::wire::etcd::{self, AlarmMember, AlarmType};
use tonic::transport::Channel;
use tonic::{Code, Request, Status};

use super::fixture::{Server, everything, put};

/// A client with a token, on one connection.
struct Guest {
    channel: Channel,
    token: String,
}

impl Guest {
    async fn new(channel: &Channel, name: &str, password: &str) -> Result<Guest, Status> {
        let who = etcd::AuthenticateRequest {
            name: name.to_owned(),
            password: password.to_owned(),
        };
        let given = AuthClient::new(channel.clone()).authenticate(who).await?;
        Ok(Guest {
            channel: channel.clone(),
            token: given.into_inner().token,
        })
    }

    fn with<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        let token = self.token.parse().expect("letters");
        request.metadata_mut().insert("token", token);
        request
    }

    /// The values of a key at a revision; 0 is the newest.
    async fn get(&self, key: &str, revision: i64) -> Result<Vec<String>, Status> {
        let range = etcd::RangeRequest {
            key: key.to_owned().into(),
            revision,
            ..Default::default()
        };
        let mut kv = KvClient::new(self.channel.clone());
        let found = kv.range(self.with(range)).await?.into_inner();
        let values = found
            .kvs
            .iter()
            .map(|kv| String::from_utf8_lossy(&kv.value));
        Ok(values.map(|value| value.into_owned()).collect())
    }

    async fn put(&self, key: &str) -> Result<(), Status> {
        let mut kv = KvClient::new(self.channel.clone());
        kv.put(self.with(put(key, "new"))).await.map(|_| ())
    }

    async fn alarms(&self, action: AlarmAction, member: u64) -> Vec<AlarmMember> {
        let request = etcd::AlarmRequest {
            action: action.into(),
            member_id: member,
            alarm: AlarmType::Nospace.into(),
        };
        let mut client = MaintenanceClient::new(self.channel.clone());
        let answer = client.alarm(self.with(request)).await.expect("alarms");
        answer.into_inner().alarms
    }

    /// The granted TTL of a lease in seconds, and its keys.
    async fn lease(&self, id: i64) -> (i64, Vec<String>) {
        let request = etcd::LeaseTimeToLiveRequest { id, keys: true };
        let mut client = LeaseClient::new(self.channel.clone());
        let answer = client.lease_time_to_live(self.with(request)).await;
        let answer = answer.expect("a lease").into_inner();
        assert!(answer.ttl > 0, "{answer:?}");
        let text = |key: &bytes::Bytes| String::from_utf8_lossy(key).into_owned();
        (answer.granted_ttl, answer.keys.iter().map(text).collect())
    }
}

fn refused<T: std::fmt::Debug>(answer: Result<T, Status>) -> (Code, String) {
    let error = answer.expect_err("refused");
    (error.code(), error.message().to_owned())
}

async fn is_answered(snapshot: &str, hash: u32) {
    let server = Server::restored(snapshot, &["--bcrypt-cost=4"]);
    let channel = server.channel().await;
    let health = server.get("/health");
    assert!(health.contains(r#""health":"false""#), "{health}");

    // Users and their permissions.
    let anonymous = KvClient::new(channel.clone()).range(everything()).await;
    let unknown = (Code::InvalidArgument, "etcdserver: user name is empty");
    let (code, text) = refused(anonymous);
    assert_eq!((code, text.as_str()), unknown);
    assert!(Guest::new(&channel, "alice", "rootpw").await.is_err());
    let root = Guest::new(&channel, "root", "rootpw").await.expect("root");
    let alice = Guest::new(&channel, "alice", "pw").await.expect("alice");
    let denied = (
        Code::PermissionDenied,
        "etcdserver: permission denied".to_owned(),
    );
    assert_eq!(refused(alice.get("secret", 0).await), denied);

    // Current values, and values at earlier revisions.
    assert_eq!(alice.get("a", 0).await.expect("read"), ["3"]);
    assert_eq!(alice.get("a", 7).await.expect("read"), ["2"]);
    assert_eq!(root.get("secret", 0).await.expect("read"), ["s"]);
    assert!(root.get("gone", 0).await.expect("read").is_empty());
    assert_eq!(root.get("gone", 9).await.expect("read"), ["2"]);
    let compacted = refused(root.get("a", 4).await);
    assert!(compacted.1.contains("has been compacted"), "{compacted:?}");
    assert_eq!(root.lease(7).await, (86_400, Vec::new()));
    assert_eq!(root.lease(8).await, (172_800, vec!["b".to_owned()]));
    let mut maintenance = MaintenanceClient::new(channel.clone());
    let keys = maintenance.hash_kv(root.with(etcd::HashKvRequest { revision: 0 }));
    let keys = keys.await.expect("a hash").into_inner();
    assert_eq!((keys.hash_revision, keys.compact_revision), (11, 5));
    assert_eq!(keys.hash, hash, "as that etcd hashes them");

    // The alarm refuses writes until it is disarmed.
    let raised = AlarmMember {
        member_id: 5,
        alarm: AlarmType::Nospace.into(),
    };
    let shown = root.alarms(AlarmAction::Get, 0).await;
    assert_eq!(shown, std::slice::from_ref(&raised));
    let full = (
        Code::ResourceExhausted,
        "etcdserver: mvcc: database space exceeded".to_owned(),
    );
    assert_eq!(refused(alice.put("b").await), full);
    assert_eq!(root.alarms(AlarmAction::Deactivate, 5).await, [raised]);
    alice.put("b").await.expect("written");
    assert_eq!(refused(alice.put("c").await), denied);
    assert_eq!(root.lease(8).await, (172_800, Vec::new()));
    assert!(server.get("/health").starts_with("HTTP/1.1 200"));

    // The cluster is a new one, with this member and no learner.
    let list = etcd::MemberListRequest { linearizable: true };
    let mut cluster = ClusterClient::new(channel);
    let members = cluster.member_list(root.with(list)).await.expect("members");
    let members = members.into_inner().members;
    assert_eq!(members.len(), 1, "{members:?}");
    assert!(
        members[0].name == "one" && !members[0].is_learner,
        "{members:?}"
    );
}

// Shows Maintenance.Snapshot: a server starts from a snapshot of etcd 3.7, users and alarms included.
#[tokio::test]
async fn snapshot_of_etcd_3_7_is_served() {
    is_answered("tests/data/etcd-snapshots/3.7.3.db", 938_981_988).await;
}

// Shows Maintenance.Snapshot: a server starts from a snapshot of etcd 3.6.
#[tokio::test]
async fn snapshot_of_etcd_3_6_is_served() {
    is_answered("tests/data/etcd-snapshots/3.6.16.db", 938_981_988).await;
}

// Shows Maintenance.Snapshot: a server starts from a snapshot of etcd 3.4, the newest that builds as a Go module.
#[tokio::test]
async fn snapshot_of_etcd_3_4_is_served() {
    is_answered("tests/data/etcd-snapshots/3.4.13.db", 938_981_988).await;
}

// Shows Maintenance.Snapshot: a server starts from a snapshot of etcd 3.5.
#[tokio::test]
async fn snapshot_of_etcd_3_5_is_served() {
    is_answered("tests/data/etcd-snapshots/3.5.35.db", 938_981_988).await;
}
