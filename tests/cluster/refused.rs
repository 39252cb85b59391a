//! What a server refuses: data directories that it must not start on, and peers of other clusters. Each case has a
//! clear error and its own exit code.

use std::os::unix::fs::FileExt;

use super::fixture::{Server, by_hand, serving, until};

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
    // Inside the records of the first writes, far before the last one.
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
async fn other_clusters_are_refused() {
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
    // The first one to be refused exits; the other one is refused too, or finds its peer gone.
    let ended = |server: &Server| server.log().contains("\"class\":\"identity\"");
    let at = until(
        "one of them is refused and exits",
        &servers[0],
        async || servers.iter().position(ended),
    )
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
async fn member_with_a_lost_disk_is_refused() {
    let home = tempfile::tempdir().unwrap();
    let mut servers = serving(home.path(), &["a", "b", "c"], "key").await;
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

/// A data directory of a newer release was reported as damaged (20), a foreign file in the log as a foreign disk (21).
/// To an operator both mean a lost member: after a rollback it would have deleted intact disks. Each now has its own
/// exit code, the disk is not changed, and the release that wrote it can start on it again.
#[tokio::test]
async fn newer_data_is_refused_and_kept() {
    let home = tempfile::tempdir().unwrap();
    let mut server = by_hand(home.path(), &["a"]).remove(0);
    let message = home.path().join("message");
    let flag = format!("--termination-message-file={}", message.display());
    server.arguments.push(flag);
    server.start();
    server.serves("key").await;
    server.kill();
    let first = |directory: &str| {
        let mut files: Vec<_> = std::fs::read_dir(server.data.join(directory))
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| !path.to_string_lossy().ends_with(".tmp"))
            .collect();
        files.sort();
        files.remove(0)
    };
    // The offset of a header's checksum, and the range after the format number that it covers.
    let identity = (server.data.join("identity"), 16, 20..usize::MAX);
    let segment = (first("log"), 12, 16..96);
    let checkpoint = (first("checkpoints"), 12, 16..36);
    // Checked first, because each start rewrites this file.
    let starts = (server.data.join("starts"), 16, 20..usize::MAX);
    let mut cases = Vec::new();
    for (path, sum_at, covered) in [starts, identity, segment, checkpoint] {
        let sound = std::fs::read(&path).unwrap();
        let mut newer = sound.clone();
        let written = u32::from_le_bytes(newer[8..12].try_into().unwrap());
        // Checkpoints with values in files are of the next one.
        let known = written + u32::from(path.extension().is_some_and(|it| it == "checkpoint"));
        let format = known + 1;
        newer[8..12].copy_from_slice(&format.to_le_bytes());
        let covered = covered.start..covered.end.min(newer.len());
        let sum = crc32c::crc32c_append(crc32c::crc32c(&format.to_le_bytes()), &newer[covered]);
        newer[sum_at..sum_at + 4].copy_from_slice(&sum.to_le_bytes());
        cases.push((path, Some(sound), newer, 28, "too_new", "start the release"));
    }
    for (directory, class) in [("log", "stray_file"), ("checkpoints", "stray_file")] {
        let path = server.data.join(directory).join("notes.txt");
        cases.push((path, None, b"mine".to_vec(), 29, class, "move it out"));
    }
    for (path, sound, newer, code, class, remedy) in cases {
        std::fs::write(&path, &newer).unwrap();
        server.start();
        let status = server.ended().await;
        assert_eq!(status.code(), Some(code), "{path:?}: {}", server.log());
        let report = std::fs::read_to_string(&message).unwrap();
        let report: serde_json::Value = serde_json::from_str(&report).unwrap();
        assert_eq!(report["class"], class, "{report}");
        let text = report["message"].as_str().unwrap();
        assert!(text.contains(&*path.to_string_lossy()), "{text}");
        assert!(text.contains(remedy), "{text}");
        assert_eq!(std::fs::read(&path).unwrap(), newer, "the file was changed");
        match sound {
            Some(sound) => std::fs::write(&path, sound).unwrap(),
            None => std::fs::remove_file(&path).unwrap(),
        }
    }
    server.start();
    server.holds("key", "1").await;
}
