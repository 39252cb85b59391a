//! `quorate backup` of a cluster of either server, with one of three members down: what the manifest says is what
//! etcd's own tools say of the cluster and of the file.

use std::path::Path;
use std::process::Command;

use crate::node::{Kind, Node, peers};

/// Runs a program to its end; returns what it printed.
fn run(program: &Path, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).env_clear().output();
    let output = output.expect("it starts");
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn json(text: &str) -> serde_json::Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

#[test]
fn backup_of_either_server_holds_what_its_tools_say() {
    let Some(peers) = peers("backups::backup_of_either_server_holds_what_its_tools_say") else {
        return;
    };
    let (ctl, util) = (peers.join("etcdctl"), peers.join("etcdutl"));
    let quorate = Path::new(env!("CARGO_BIN_EXE_quorate"));
    for kind in [Kind::Etcd, Kind::Quorate] {
        let mut nodes = Node::cluster(kind, &peers, 3, &["--unsafe-no-fsync"]);
        let at = format!("--endpoints={}", nodes[0].client);
        for round in 0..3 {
            for key in 0..20 {
                let (key, value) = (format!("key{key}"), format!("{round}"));
                run(&ctl, &[&at, "put", &key, &value]);
            }
        }
        run(&ctl, &[&at, "del", "key1", "key3"]);
        run(&ctl, &[&at, "lease", "grant", "1000"]);
        run(&ctl, &[&at, "compaction", "--physical", "30"]);
        run(&ctl, &[&at, "put", "last", "1"]);

        // One member is gone, and its endpoint is named first.
        let endpoints: Vec<String> = nodes.iter().rev().map(|node| node.client.clone()).collect();
        drop(nodes.pop());
        let left = endpoints[1..].join(",");
        let left = format!("--endpoints={left}");
        let status = json(&run(&ctl, &[&left, "endpoint", "status", "-w", "json"]));
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name).display().to_string();
        std::fs::create_dir(path("store")).expect("a directory");
        let store = format!("--to=file://{}", path("store"));
        let given = format!("--endpoints={}", endpoints.join(","));
        let scratch = format!("--scratch={}", path("scratch"));
        let saved = run(
            quorate,
            &[
                "backup", "save", &store, &given, &scratch, "--id=one", "--json",
            ],
        );
        let saved = json(&saved);

        let source = saved["source"]["endpoint"].as_str().expect("an endpoint");
        let status = status.as_array().expect("a list").iter();
        let leads = status.clone().find(|it| {
            let status = &it["Status"];
            status["leader"] == status["header"]["member_id"]
        });
        if let Some(leader) = leads {
            assert_ne!(leader["Endpoint"], source, "{kind:?}: a follower gives it");
        }
        let snapshot = &saved["snapshot"];
        let at = format!("--endpoints={source}");
        let hash = json(&run(&ctl, &[&at, "endpoint", "hashkv", "-w", "json"]));
        let hash = &hash[0]["HashKV"];
        assert_eq!(snapshot["hash"], hash["hash"], "{kind:?}: {saved}");
        assert_eq!(snapshot["revision"], hash["hash_revision"], "{kind:?}");
        assert_eq!(
            snapshot["compactRevision"], hash["compact_revision"],
            "{kind:?}"
        );
        assert_eq!(
            (&snapshot["keys"], &snapshot["leases"]),
            (&9.into(), &1.into())
        );

        run(quorate, &["backup", "verify", &store, &scratch, "one"]);
        let file = path("one.db");
        run(quorate, &["backup", "fetch", &store, "one", &file]);
        let status = json(&run(&util, &["snapshot", "status", &file, "-w", "json"]));
        assert_eq!(status["revision"], snapshot["revision"], "{kind:?}");
        let restored = format!("--data-dir={}", path("etcd"));
        run(&util, &["snapshot", "restore", &file, &restored]);
        let hash = json(&run(&util, &["hashkv", &file, "-w", "json"]));
        assert_eq!(hash["hash"], snapshot["hash"], "{kind:?}");
    }
}
