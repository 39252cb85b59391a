//! Hosts without an operator that have lost the quorum of their cluster: `quorate recover` reads what is left and changes
//! none of it, and a new cluster holds everything that was acknowledged.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use super::fixture::{Server, by_hand, leader, serving};
use super::recoveries::{files, holds_everything};
use super::restores::{BUMP, sha256, writes};

fn recover(arguments: &[&Path], subcommand: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_quorate"));
    command.args(["recover", subcommand]).args(arguments);
    command.output().expect("runs")
}

fn refused(output: &Output) -> String {
    assert!(!output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn printed(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn copy(from: &Path, to: &Path) -> PathBuf {
    let copied = Command::new("cp").arg("-a").args([from, to]).status();
    assert!(copied.expect("cp runs").success());
    to.to_owned()
}

/// Three hosts with every kind of data; the first two are left, and the first one's log has an entry more.
async fn lost(home: &Path) -> Vec<Server> {
    let mut servers = serving(home, &["a", "b", "c"], "key").await;
    let leads = leader(&servers).await;
    servers.swap(0, leads);
    writes(&servers[0]).await;
    servers[2].kill();
    servers[1].holds("last", "1").await;
    servers[1].kill();
    let unknown = servers[0].put("unacknowledged", "1").await;
    unknown.expect_err("there is no quorum");
    std::fs::remove_dir_all(&servers[2].data).expect("its disk is gone");
    servers
}

#[tokio::test]
async fn longest_log_is_found_and_saved_and_nothing_is_changed() {
    let home = tempfile::tempdir().expect("a folder");
    let mut servers = lost(home.path()).await;
    let file = home.path().join("recovered.db");
    let (first, second) = (servers[0].data.clone(), servers[1].data.clone());
    let running = refused(&recover(&[&first, &second], "plan"));
    assert!(running.contains("a server runs in"), "{running}");
    let running = refused(&recover(&[&first, &file], "save"));
    assert!(running.contains("stop it"), "{running}");
    servers[0].kill();

    let empty = home.path().join("empty");
    std::fs::create_dir(&empty).expect("a directory");
    let damaged = copy(&first, &home.path().join("damaged"));
    let identity = damaged.join("identity");
    let mut bytes = std::fs::read(&identity).expect("a file");
    *bytes.last_mut().expect("not empty") ^= 1;
    std::fs::write(&identity, bytes).expect("a file");
    let before = (files(&first), files(&second), files(&damaged));

    let plan = printed(&recover(&[&second, &empty, &damaged, &first], "plan"));
    let chosen = format!("{} holds the longest log", first.display());
    assert!(plan.contains(&chosen), "{plan}");
    for text in ["empty", "damaged", "was not compared", "nothing is lost"] {
        assert!(plan.contains(text), "{text}: {plan}");
    }
    let plan = printed(&recover(&[&first], "plan"));
    assert!(plan.contains("Lost at most"), "{plan}");
    let next = format!("quorate recover save {}", first.display());
    assert!(plan.contains(&next), "{plan}");

    for (directory, text) in [(&empty, "holds no data"), (&damaged, "is damaged")] {
        let why = refused(&recover(&[directory, &file], "save"));
        assert!(why.contains(text) && !file.exists(), "{why}");
    }
    let saved = printed(&recover(&[&first, &file], "save"));
    assert!(saved.contains("quorate restore"), "{saved}");
    let bytes = std::fs::read(&file).expect("a file");
    let (data, digest) = bytes.split_at(bytes.len() - 32);
    let digest: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(digest, sha256(data));
    let exists = refused(&recover(&[&second, &file], "save"));
    assert!(exists.contains("exists"), "{exists}");
    assert_eq!(std::fs::read(&file).expect("a file"), bytes);
    assert_eq!((files(&first), files(&second), files(&damaged)), before);

    let server = restored(home.path(), &file);
    server.serves("serves").await;
    holds_everything(&server).await;
    let other = server.data.clone();
    drop(server);
    let several = refused(&recover(&[&first, &other], "plan"));
    assert!(several.contains("several clusters"), "{several}");
    // The old members are what they were.
    for server in &mut servers[..2] {
        server.start();
    }
    servers[1].serves("quorum").await;
}

/// A member of a new cluster with the data of a snapshot.
fn restored(home: &Path, file: &Path) -> Server {
    let mut server = by_hand(home, &["new"]).remove(0);
    let output = Command::new(env!("CARGO_BIN_EXE_quorate"))
        .arg("restore")
        .arg(file)
        .arg(format!("--bump-revision={BUMP}"))
        .arg("--mark-compacted")
        .arg("--name=new")
        .arg(format!("--data-dir={}", server.data.display()))
        .arg(format!("--initial-cluster=new={}", server.peer_url()))
        .arg(format!(
            "--initial-advertise-peer-urls={}",
            server.peer_url()
        ))
        .arg("--initial-cluster-token=another")
        .output();
    let output = output.expect("runs");
    assert!(output.status.success(), "{output:?}");
    server.start();
    server
}
