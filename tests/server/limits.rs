//! Limits of a running server that depend on time or numbers: the streams of one connection, and the TTL of a token.

use std::time::Duration;

use quorate::wire::etcd::auth_client::AuthClient;
use quorate::wire::etcd::kv_client::KvClient;
use quorate::wire::etcd::watch_client::WatchClient;
use quorate::wire::etcd::watch_request::RequestUnion;
use quorate::wire::etcd::{self, WatchResponse};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;
use tonic::{Code, Request, Status, Streaming};

use super::fixture::{Server, everything};

const PATIENCE: Duration = Duration::from_secs(30);

/// A created watcher; its stream is open as long as both halves are.
type Watcher = (mpsc::Sender<etcd::WatchRequest>, Streaming<WatchResponse>);

/// Opens a watch stream on a connection, and waits for the first response.
async fn watcher(channel: &Channel) -> Watcher {
    let (requests, receiver) = mpsc::channel(1);
    let create = etcd::WatchCreateRequest {
        key: "k".into(),
        ..Default::default()
    };
    let create = etcd::WatchRequest {
        request_union: Some(RequestUnion::CreateRequest(create)),
    };
    requests.send(create).await.expect("taken");
    let mut client = WatchClient::new(channel.clone());
    let answers = client.watch(ReceiverStream::new(receiver)).await;
    let mut answers = answers.expect("opens").into_inner();
    let created = answers.message().await.expect("well").expect("an answer");
    assert!(created.created);
    (requests, answers)
}

// Shows Watch.Watch: streams beyond --max-concurrent-streams wait until another one ends.
#[tokio::test]
async fn a_connection_has_as_many_streams_as_it_may() {
    let server = Server::start(&["--max-concurrent-streams=2"]);
    let channel = server.channel().await;
    let first = watcher(&channel).await;
    let _second = watcher(&channel).await;
    let mut third = Box::pin(watcher(&channel));
    let early = timeout(Duration::from_millis(300), third.as_mut()).await;
    assert!(early.is_err(), "a third stream is answered");
    // Another connection has its own limit.
    let mut other = server.kv().await;
    other.range(everything()).await.expect("answered");
    drop(first);
    let third = timeout(PATIENCE, third).await;
    third.expect("it is answered when the first has ended");
}

/// By default the number is not limited, as in etcd; the limit of the library would be a few hundred.
#[tokio::test]
async fn a_connection_has_any_number_of_streams() {
    let server = Server::start(&[]);
    let channel = server.channel().await;
    let mut watchers = Vec::new();
    for _ in 0..1000 {
        let watcher = timeout(PATIENCE, watcher(&channel)).await;
        watchers.push(watcher.expect("answered"));
    }
}

/// Creates a user who may read every key, and enables authentication.
pub(crate) async fn guard(channel: &Channel) {
    let mut auth = AuthClient::new(channel.clone());
    let user = etcd::AuthUserAddRequest {
        name: "root".to_owned(),
        password: "pw".to_owned(),
        ..Default::default()
    };
    auth.user_add(user).await.expect("added");
    let grant = etcd::AuthUserGrantRoleRequest {
        user: "root".to_owned(),
        role: "root".to_owned(),
    };
    let role = etcd::AuthRoleAddRequest {
        name: "root".to_owned(),
    };
    auth.role_add(role).await.expect("added");
    auth.user_grant_role(grant).await.expect("granted");
    auth.auth_enable(etcd::AuthEnableRequest {})
        .await
        .expect("on");
}

pub(crate) async fn token(channel: &Channel) -> String {
    let who = etcd::AuthenticateRequest {
        name: "root".to_owned(),
        password: "pw".to_owned(),
    };
    let mut auth = AuthClient::new(channel.clone());
    let given = auth.authenticate(who).await.expect("a token");
    given.into_inner().token
}

async fn read(channel: &Channel, token: &str) -> Result<(), Status> {
    let mut request = Request::new(everything());
    let token = token.parse().expect("letters");
    request.metadata_mut().insert("authorization", token);
    let mut kv = KvClient::new(channel.clone());
    kv.range(request).await.map(|_| ())
}

/// Waits until a token is not valid any more. Each use of a simple token renews its TTL, so each attempt waits longer
/// than the one before.
async fn ends(channel: &Channel, token: &str) -> Status {
    let mut pause = Duration::from_millis(1500);
    loop {
        tokio::time::sleep(pause).await;
        if let Err(error) = read(channel, token).await {
            return error;
        }
        assert!(pause < 2 * PATIENCE, "the token does not expire");
        pause *= 2;
    }
}

// Shows Auth.Authenticate: a token expires after its TTL, and a new one is issued.
#[tokio::test]
async fn tokens_expire_after_their_ttl() {
    let folder = tempfile::tempdir().expect("folder");
    let key = folder.path().join("key");
    std::fs::write(&key, "an odd secret of the test").expect("written");
    let signed = format!(
        "--auth-token=jwt,sign-method=HS256,priv-key={},ttl=1s",
        key.display()
    );
    for kind in ["--auth-token-ttl=1", &signed] {
        let server = Server::start(&["--bcrypt-cost=4", kind]);
        let channel = server.channel().await;
        guard(&channel).await;
        let mut last = token(&channel).await;
        // On a busy machine the token may expire before its first use.
        while read(&channel, &last).await.is_err() {
            last = token(&channel).await;
        }
        let error = ends(&channel, &last).await;
        assert_eq!(
            (error.code(), error.message()),
            (Code::Unauthenticated, "etcdserver: invalid auth token"),
            "{kind}"
        );
    }
}
