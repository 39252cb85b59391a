//! Two states of one disk: a volume that was rolled back, and a copy that runs beside the original. Both have the
//! UUID, the member ID and the log of the member's disk.

use std::path::Path;
use std::process::Command;

use super::fixture::{Server, by_hand, until};

fn copy(from: &Path, to: &Path) {
    let copied = Command::new("cp").arg("-a").arg(from).arg(to).status();
    assert!(copied.unwrap().success(), "cp copies {}", from.display());
}

/// How many times this server has connected its link to `to`.
fn linked(server: &Server, to: &Server) -> usize {
    let url = format!("{}:2380", to.address);
    let log = server.log();
    let lines = log.lines().filter(|line| line.contains("linked to peer"));
    lines.filter(|line| line.contains(&url)).count()
}

/// Three members, of which the first two have recorded both starts of the third; and a copy of the third one's disk
/// from after its first start.
async fn three_and_an_older_disk(home: &Path) -> Vec<Server> {
    let mut servers = by_hand(home, &["a", "b", "c"]);
    for server in &mut servers {
        server.start();
    }
    for server in &servers {
        server.serves("first").await;
    }
    servers[2].kill();
    copy(&servers[2].data, &home.join("older"));
    let before = [0, 1].map(|at| linked(&servers[at], &servers[2]));
    servers[2].start();
    for at in [0, 1] {
        until("the restarted member is seen", &servers[at], async || {
            (linked(&servers[at], &servers[2]) > before[at]).then_some(())
        })
        .await;
    }
    servers[2].serves("second").await;
    servers
}

/// A member whose volume was set back to an older state was accepted, because its disk had the expected UUID: it voted
/// again in terms in which it had voted, and acknowledged entries that it no longer had.
#[tokio::test]
async fn rolled_back_disk_is_refused() {
    let home = tempfile::tempdir().unwrap();
    let mut servers = three_and_an_older_disk(home.path()).await;
    servers[2].kill();
    let (data, newest) = (servers[2].data.clone(), home.path().join("newest"));
    std::fs::rename(&data, &newest).unwrap();
    std::fs::rename(home.path().join("older"), &data).unwrap();
    let message = home.path().join("message");
    let flag = format!("--termination-message-file={}", message.display());
    servers[2].arguments.push(flag);
    // The second start is refused from the data directory alone, without asking the peers.
    for _ in 0..2 {
        servers[2].start();
        let status = servers[2].ended().await;
        assert_eq!(status.code(), Some(30), "{}", servers[2].log());
        let report = std::fs::read_to_string(&message).unwrap();
        let report: serde_json::Value = serde_json::from_str(&report).unwrap();
        assert_eq!(report["class"], "copied_disk", "{report}");
        let text = report["message"].as_str().unwrap();
        assert!(text.contains("start 2 of member"), "{text}");
        assert!(text.contains("remove the member"), "{text}");
    }
    servers[0].serves("the-others-go-on").await;
    std::fs::rename(&data, home.path().join("set-back")).unwrap();
    std::fs::rename(&newest, &data).unwrap();
    servers[2].start();
    servers[2].serves("third").await;
}

/// A copy of a disk beside the original: an older one is refused by all and exits; an identical one is not accepted by
/// any member while the original is connected.
#[tokio::test]
async fn copy_of_a_running_member_is_refused() {
    let home = tempfile::tempdir().unwrap();
    let servers = three_and_an_older_disk(home.path()).await;
    let beside = home.path().join("beside");
    std::fs::create_dir(&beside).unwrap();
    let run_beside = |disk: &Path, name: &str| {
        let mut other = Server::new(&beside, name);
        std::fs::rename(disk, &other.data).unwrap();
        // The flags of the original, except for the listeners and the data directory.
        let own = other.arguments.clone();
        let differs = |argument: &&String| {
            let flags = ["--data-dir", "--listen-client-urls", "--listen-peer-urls"];
            flags.iter().any(|flag| argument.starts_with(flag))
        };
        let kept = servers[2].arguments.iter().filter(|one| !differs(one));
        let differing = own.iter().filter(differs);
        other.arguments = kept.chain(differing).cloned().collect();
        other.start();
        other
    };
    let mut older = run_beside(&home.path().join("older"), "older");
    assert_eq!(older.ended().await.code(), Some(30), "{}", older.log());
    assert!(older.log().contains("start 2 of member"), "{}", older.log());
    servers[2].serves("third").await;

    let now = home.path().join("now");
    copy(&servers[2].data, &now);
    let mut twin = run_beside(&now, "twin");
    until("the copy is reported", &twin, async || {
        let reported = twin.log().matches("two copies of its disk run").count();
        (reported > 1).then_some(())
    })
    .await;
    servers[2].serves("fourth").await;
    twin.kill();
}
