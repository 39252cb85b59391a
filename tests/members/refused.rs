//! What a server refuses to start on or to speak with: each a clear error and a code.

use std::os::unix::fs::FileExt;

use super::fixture::{Server, by_hand, until};

#[tokio::test]
async fn a_data_directory_in_use_is_refused() {
    let home = tempfile::tempdir().unwrap();
    let mut servers = by_hand(home.path(), &["a"]);
    servers[0].start();
    servers[0].serves("key").await;
    let mut second = Server::new(home.path(), "second");
    second
        .arguments
        .push(format!("--data-dir={}", servers[0].data.display()));
    second
        .arguments
        .retain(|argument| !argument.ends_with("/second"));
    second
        .arguments
        .push(format!("--initial-cluster=second={}", second.peer_url()));
    second.start();
    assert_eq!(second.ended().await.code(), Some(25), "{}", second.log());
    assert!(
        second.log().contains("in use by another process"),
        "{}",
        second.log()
    );
    servers[0].serves("unharmed").await;
}

#[tokio::test]
async fn a_foreign_data_directory_is_refused() {
    let home = tempfile::tempdir().unwrap();
    let mut servers = by_hand(home.path(), &["a"]);
    std::fs::create_dir_all(servers[0].data.join("member/wal")).unwrap();
    servers[0].start();
    assert_eq!(
        servers[0].ended().await.code(),
        Some(21),
        "{}",
        servers[0].log()
    );
    assert!(
        servers[0].log().contains("data directory of etcd"),
        "{}",
        servers[0].log()
    );
}

#[tokio::test]
async fn damage_before_the_tail_of_the_log_is_refused() {
    let home = tempfile::tempdir().unwrap();
    let mut servers = by_hand(home.path(), &["a"]);
    servers[0].start();
    servers[0].serves("first").await;
    for number in 0..20 {
        servers[0]
            .put(&format!("key-{number}"), &"x".repeat(1000))
            .await
            .unwrap();
    }
    servers[0].kill();
    let logs = std::fs::read_dir(servers[0].data.join("log")).unwrap();
    let mut segments: Vec<_> = logs.map(|entry| entry.unwrap().path()).collect();
    segments.sort();
    let file = std::fs::File::options()
        .write(true)
        .open(&segments[0])
        .unwrap();
    // Into the records of the first writes, far before the last one.
    file.write_all_at(&[0xff; 16], 6 * 1024).unwrap();
    servers[0].start();
    assert_eq!(
        servers[0].ended().await.code(),
        Some(20),
        "{}",
        servers[0].log()
    );
    assert!(
        servers[0].log().contains("is damaged at offset"),
        "{}",
        servers[0].log()
    );
}

#[tokio::test]
async fn members_of_different_clusters_refuse_each_other() {
    let home = tempfile::tempdir().unwrap();
    let mut servers = by_hand(home.path(), &["a", "b"]);
    servers[1]
        .arguments
        .retain(|argument| !argument.contains("token"));
    servers[1]
        .arguments
        .push("--initial-cluster-token=another".to_owned());
    for server in &mut servers {
        server.start();
    }
    // Whoever is told first ends; the other one is told so too, or waits for one that is gone.
    let ended = |server: &Server| server.log().contains("\"class\":\"identity\"");
    let at = until("one of them is told and ends", &servers[0], async || {
        servers.iter().position(ended)
    })
    .await;
    let status = servers[at].ended().await;
    assert_eq!(status.code(), Some(24), "{}", servers[at].log());
    assert!(
        servers[at].log().contains("cluster ID mismatch"),
        "{}",
        servers[at].log()
    );
}

#[tokio::test]
async fn a_member_whose_disk_was_lost_is_refused_by_the_others() {
    let home = tempfile::tempdir().unwrap();
    let mut servers = by_hand(home.path(), &["a", "b", "c"]);
    for server in &mut servers {
        server.start();
    }
    for server in &servers {
        server.serves("key").await;
    }
    servers[2].kill();
    std::fs::remove_dir_all(&servers[2].data).unwrap();
    servers[2].start();
    assert_eq!(
        servers[2].ended().await.code(),
        Some(24),
        "{}",
        servers[2].log()
    );
    assert!(
        servers[2].log().contains("is bound to disk"),
        "{}",
        servers[2].log()
    );
    servers[0].serves("the-others-go-on").await;
}
