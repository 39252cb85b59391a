//! A snapshot as etcdutl reads it: its content, not the layout of its pages.

use std::path::Path;

use quorate::wire::etcd::SnapshotResponse;
use serde_json::Value;
use tonic::{Status, Streaming};

use crate::server::Reply;

/// Receives a whole snapshot; returns the hash of its keys and history, their number, and its version.
pub(crate) async fn read(
    mut stream: Streaming<SnapshotResponse>,
    peers: &Path,
) -> Result<Reply, Status> {
    let (mut whole, mut left) = (Vec::new(), u64::MAX);
    while let Some(piece) = stream.message().await? {
        assert!(piece.remaining_bytes <= left, "{left} bytes were left");
        left = piece.remaining_bytes;
        whole.extend_from_slice(&piece.blob);
    }
    assert_eq!(left, 0, "the end is missing");
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("snapshot.db");
    std::fs::write(&file, whole).expect("a file");
    let status = tool(peers, &["snapshot", "status"], &file).await;
    let hash = tool(peers, &["hashkv"], &file).await;
    let revision = status["revision"].as_i64();
    Ok((
        revision,
        format!("{} {} {hash}", status["totalKey"], status["version"]),
    ))
}

async fn tool(peers: &Path, arguments: &[&str], file: &Path) -> Value {
    let output = tokio::process::Command::new(peers.join("etcdutl"))
        .args(arguments)
        .arg(file)
        .args(["-w", "json"])
        .env_clear()
        .output()
        .await
        .expect("etcdutl runs");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "etcdutl {arguments:?}: {error}");
    serde_json::from_slice(&output.stdout).unwrap_or_else(|problem| panic!("{problem}: {error}"))
}
