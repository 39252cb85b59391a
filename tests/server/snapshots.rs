//! Snapshots over gRPC: messages in etcd's form, and clients that do not read.

use std::time::Duration;

use quorate::server::operator_api::backup_client::SNAPSHOT_RATE;
use quorate::wire::etcd::{SnapshotRequest, SnapshotResponse};
use sha2::{Digest as _, Sha256};
use tonic::{Code, Streaming};

use super::fixture::{Server, everything, put};

const VALUE: usize = 1 << 20;
const VALUES: usize = 24;

async fn filled() -> Server {
    let server = Server::start(&[]);
    let mut kv = server.kv().await;
    for number in 0..VALUES {
        let value = "v".repeat(VALUE);
        kv.put(put(&format!("key{number}"), &value))
            .await
            .expect("a put");
    }
    server
}

async fn begin(server: &Server) -> Result<Streaming<SnapshotResponse>, tonic::Status> {
    let mut maintenance = server.maintenance().await;
    let answer = maintenance.snapshot(SnapshotRequest {}).await?;
    Ok(answer.into_inner())
}

/// Reads a snapshot to its end and checks every message; returns its length.
async fn read(mut stream: Streaming<SnapshotResponse>) -> u64 {
    let (mut digest, mut length, mut blob) = (Sha256::new(), 0_u64, None::<SnapshotResponse>);
    while let Some(message) = stream.message().await.expect("a message") {
        assert_eq!(message.version, "3.7.0");
        if let Some(before) = blob.replace(message) {
            digest.update(&before.blob);
            length += before.blob.len() as u64;
            assert!(before.blob.len() <= 32 << 10);
            if before.remaining_bytes > 0 {
                assert_eq!(before.blob.len(), 32 << 10);
            }
        }
    }
    let last = blob.expect("a last message");
    assert_eq!(last.remaining_bytes, 0);
    assert_eq!(
        last.blob[..],
        digest.finalize()[..],
        "the digest comes last"
    );
    assert_eq!(length % 4096, 0);
    length
}

#[tokio::test]
async fn the_digest_of_all_blobs_comes_last() {
    let server = Server::start(&[]);
    let empty = read(begin(&server).await.expect("a snapshot")).await;
    assert!(empty < 64 << 10, "{empty} bytes for an empty store");
    let server = filled().await;
    let length = read(begin(&server).await.expect("a snapshot")).await;
    assert!(length > (VALUES * VALUE) as u64);
}

/// A header of our own: others, etcd's clients among them, do not send it.
#[tokio::test]
async fn snapshot_is_made_at_the_pace_that_is_asked_for() {
    let server = filled().await;
    let mut maintenance = server.maintenance().await;
    let mut request = tonic::Request::new(SnapshotRequest {});
    let rate: u64 = 12 << 20;
    request.metadata_mut().insert(SNAPSHOT_RATE, rate.into());
    let began = std::time::Instant::now();
    let stream = maintenance.snapshot(request).await.expect("a snapshot");
    // 24 MiB.
    assert!(began.elapsed() > Duration::from_millis(1_900));
    read(stream.into_inner()).await;
}

#[tokio::test]
async fn clients_that_do_not_read_hold_no_memory() {
    let server = filled().await;
    // The first snapshot allocates buffers and threads that stay.
    read(begin(&server).await.expect("a snapshot")).await;
    let before = server.resident_bytes();
    let mut hung = Vec::new();
    for _ in 0..4 {
        let mut stream = begin(&server).await.expect("a snapshot");
        stream.message().await.expect("a message");
        hung.push(stream);
    }
    let error = begin(&server).await.expect_err("a fifth one");
    assert_eq!(
        (error.code(), error.message()),
        (Code::ResourceExhausted, "etcdserver: too many requests")
    );
    let mut kv = server.kv().await;
    for number in 0..50 {
        kv.put(put("busy", &number.to_string()))
            .await
            .expect("a put");
        let mut range = everything();
        range.count_only = true;
        kv.range(range).await.expect("a range");
    }
    let grown = server.resident_bytes().saturating_sub(before);
    assert!(
        grown < (2 * VALUES * VALUE) as u64,
        "four hung snapshots of {VALUES} MiB took {grown} bytes of memory"
    );
    assert!(
        server.files().iter().all(|name| !name.contains("snapshot")),
        "the spool is a named file"
    );
    // A client that disconnects frees its place.
    hung.pop();
    let mut last = begin(&server).await;
    for _ in 0..500 {
        if last.is_ok() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
        last = begin(&server).await;
    }
    read(last.expect("room for one more")).await;
    // The clients that did not read can continue.
    read_on(hung.pop().expect("a hung one")).await;
}

/// Reads the rest of a snapshot.
async fn read_on(mut stream: Streaming<SnapshotResponse>) {
    let mut last = None;
    while let Some(message) = stream.message().await.expect("a message") {
        last = Some(message);
    }
    assert_eq!(last.expect("a digest").blob.len(), 32);
}
