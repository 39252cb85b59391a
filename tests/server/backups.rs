//! `quorate backup` as users run it, with a directory as the store: a backup is saved, listed, verified, fetched and
//! restored, and what is wrong with one is said.

use std::path::{Path, PathBuf};
use std::process::Output;

use quorate::wire::etcd::auth_client::AuthClient;
use quorate::wire::etcd::{self, DeleteRangeRequest};
use tempfile::TempDir;

use super::fixture::{Server, binary, done, everything, failed, put};

/// A server, a directory for backups and one for scratch.
struct World {
    server: Server,
    folder: TempDir,
}

impl World {
    async fn new() -> World {
        let server = Server::start(&[]);
        let mut kv = server.kv().await;
        for number in 0..24 {
            // Random bytes, so that three MiB stay three.
            let value: String = (0..128 << 10)
                .map(|at| char::from(b' ' + ((at * 7919 + number * 104_729) % 94) as u8))
                .collect();
            let put = kv.put(put(&format!("key{number}"), &value)).await;
            put.expect("a put");
        }
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::create_dir(folder.path().join("store")).expect("a directory");
        World { server, folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn run(&self, what: &str, arguments: &[&str]) -> Output {
        let mut command = binary();
        for name in ["ETCDCTL_ENDPOINTS", "ETCDCTL_USER"] {
            command.env_remove(name);
        }
        let store = format!("file://{}", self.path("store").display());
        let arguments = [&["backup", what, "--to", &store], arguments].concat();
        command.args(arguments).output().expect("runs")
    }

    fn save(&self, arguments: &[&str]) -> Output {
        let endpoint = format!("http://{}:2379", self.server.host);
        let scratch = self.path("scratch");
        let scratch = scratch.display().to_string();
        let fixed = [
            "--endpoints",
            &endpoint,
            "--scratch",
            &scratch,
            "--part-size=1",
        ];
        self.run("save", &[&fixed, arguments].concat())
    }

    fn verify(&self, arguments: &[&str]) -> Output {
        let scratch = self.path("scratch").display().to_string();
        self.run("verify", &[&["--scratch", &scratch], arguments].concat())
    }

    /// One line of the list.
    fn listed(&self, id: &str) -> String {
        let list = done(&self.run("list", &[]));
        let line = list.lines().find(|line| line.starts_with(id));
        assert!(line.is_some(), "{id} is not in {list}");
        line.unwrap_or_default().to_owned()
    }

    /// What a command left in the directory for scratch.
    fn scratch(&self) -> usize {
        std::fs::read_dir(self.path("scratch")).map_or(0, Iterator::count)
    }

    /// Every file of a backup with this in its path.
    fn objects(&self, part: &str) -> Vec<PathBuf> {
        let mut files = Vec::new();
        collect(&self.path("store"), &mut files);
        files.retain(|file| file.to_string_lossy().contains(part));
        files.sort();
        files
    }
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        match path.is_dir() {
            true => collect(&path, files),
            false => files.push(path),
        }
    }
}

#[tokio::test]
async fn backup_is_saved_verified_fetched_and_restored() {
    let world = World::new().await;
    let saved = done(&world.save(&["--id=first"]));
    assert!(saved.contains("revision 25, 24 keys"), "{saved}");
    assert_eq!(
        world.objects("first/").len(),
        5,
        "four parts and a manifest"
    );
    assert!(world.listed("first").contains("Complete   25"));
    // The same name again is the same backup.
    let mut kv = world.server.kv().await;
    kv.put(put("later", "1")).await.expect("a put");
    let again = world.save(&["--id=first"]);
    assert_eq!(done(&again), "");
    let text = String::from_utf8_lossy(&again.stderr).into_owned();
    assert!(
        text.contains("nothing was saved: first exists since"),
        "{text}"
    );
    assert_eq!(world.objects("first/").len(), 5);

    let verified = done(&world.verify(&[]));
    assert!(verified.contains("verified first"), "{verified}");
    assert!(world.listed("first").contains("Verified   25"));
    assert_eq!(world.scratch(), 0);

    let file = world.path("first.db").display().to_string();
    done(&world.run("fetch", &["first", &file]));
    let error = failed(&world.run("fetch", &["first", &file]), 2);
    assert!(error.contains("exists"), "{error}");
    let restored = Server::restored(&file, &[]);
    let mut kv = restored.kv().await;
    let all = kv.range(everything()).await.expect("a range").into_inner();
    assert_eq!(all.count, 24);
    assert_eq!(all.header.expect("a header").revision, 25);
}

#[tokio::test]
async fn prune_keeps_what_was_verified() {
    let world = World::new().await;
    done(&world.save(&["--id=a"]));
    done(&world.verify(&["a"]));
    let mut kv = world.server.kv().await;
    let all = DeleteRangeRequest {
        key: everything().key,
        range_end: everything().range_end,
        ..DeleteRangeRequest::default()
    };
    kv.delete_range(all).await.expect("a delete");
    for id in ["b", "c"] {
        done(&world.save(&["--id", id]));
    }
    let error = failed(&world.run("prune", &[]), 2);
    assert!(error.contains("--keep-last"), "{error}");
    let dry = done(&world.run("prune", &["--keep-last=1", "--dry-run"]));
    assert_eq!(
        dry,
        "keep a: newest verified\nkeep c: newest good, last\nwould delete b\n"
    );
    assert!(!world.objects("/b/").is_empty());
    done(&world.run("prune", &["--keep-last=1"]));
    assert!(world.objects("/b/").is_empty());
    assert!(world.listed("a").contains("Verified"));
    done(&world.verify(&["c"]));
    let pruned = done(&world.run("prune", &["--keep-last=1"]));
    assert!(pruned.contains("delete a"), "{pruned}");
}

#[tokio::test]
async fn damaged_backup_is_found_and_recorded() {
    let world = World::new().await;
    done(&world.save(&["--id=one"]));
    let part = &world.objects("/00000002")[0];
    let mut bytes = std::fs::read(part).expect("a part");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 4;
    std::fs::write(part, &bytes).expect("written");
    assert!(
        world.listed("one").contains("Complete"),
        "its length is right"
    );
    let error = failed(&world.verify(&["one"]), 1);
    assert!(error.contains("part 2 is not what was saved"), "{error}");
    assert!(world.listed("one").contains("Damaged"));
    let file = world.path("one.db").display().to_string();
    let error = failed(&world.run("fetch", &["one", &file]), 1);
    assert!(error.contains("part 2 is not what was saved"), "{error}");
    assert!(!world.path("one.db").exists() && !world.path("one.db.partial").exists());
    bytes[middle] ^= 4;
    std::fs::write(part, &bytes).expect("written");
    done(&world.verify(&["one"]));
    assert!(world.listed("one").contains("Verified"), "it was replaced");
    std::fs::remove_file(part).expect("deleted");
    let list = done(&world.run("list", &[]));
    assert!(list.contains("part 2 of 4 is gone"), "{list}");
}

#[tokio::test]
async fn encrypted_backup_needs_its_key() {
    let world = World::new().await;
    let key = |name: &str, text: &str| {
        let path = world.path(name);
        std::fs::write(&path, text).expect("written");
        format!("--key-file={}", path.display())
    };
    let first = key("first", "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=\n");
    let second = key("second", "YWJjZGVmZ2hpamFiY2RlZmdoaWphYmNkZWZnaGlqYWI=");
    let short = key("short", "MDEy");
    let error = failed(&world.save(&["--id=one", &short]), 1);
    assert!(error.contains("openssl rand -base64 32"), "{error}");
    let saved = done(&world.save(&["--id=one", &first]));
    assert!(saved.contains("encrypted with the key"), "{saved}");
    for arguments in [vec!["one"], vec!["one", &second]] {
        let error = failed(&world.verify(&arguments), 1);
        assert!(error.contains("is encrypted with the key"), "{error}");
    }
    assert!(
        world.listed("one").contains("Complete"),
        "nothing is known against it"
    );
    done(&world.verify(&["one", &second, &first]));
}

/// etcd gives a snapshot to a user with the role root alone, and so do we.
#[tokio::test]
async fn saving_with_authentication_needs_root() {
    let world = World::new().await;
    let mut auth = AuthClient::new(world.server.channel().await);
    let user = etcd::AuthUserAddRequest {
        name: "root".to_owned(),
        password: "secret".to_owned(),
        ..Default::default()
    };
    auth.user_add(user).await.expect("a user");
    let grant = etcd::AuthUserGrantRoleRequest {
        user: "root".to_owned(),
        role: "root".to_owned(),
    };
    let role = etcd::AuthRoleAddRequest {
        name: "root".to_owned(),
    };
    auth.role_add(role).await.expect("a role");
    auth.user_grant_role(grant).await.expect("granted");
    auth.auth_enable(etcd::AuthEnableRequest {})
        .await
        .expect("enabled");
    let error = failed(&world.save(&["--id=one"]), 1);
    assert!(error.contains("etcdserver: user name is empty"), "{error}");
    let error = failed(&world.save(&["--id=one", "--user=root:wrong"]), 1);
    assert!(error.contains("authentication failed"), "{error}");
    assert!(!error.contains("wrong"), "{error}");
    assert_eq!((world.objects("/one/").len(), world.scratch()), (0, 0));
    let saved = done(&world.save(&["--id=one", "--user=root", "--password=secret"]));
    assert!(saved.contains("1 users"), "{saved}");
    done(&world.verify(&["one"]));
}

#[tokio::test]
async fn wrong_usage_says_what_to_do() {
    let world = World::new().await;
    let nobody = ["--endpoints=http://127.0.0.1:1", "--id=one"];
    let error = failed(&world.run("save", &nobody), 1);
    assert!(error.contains("http://127.0.0.1:1: "), "{error}");
    let error = failed(&world.save(&["--id=a/b"]), 2);
    assert!(error.contains("cannot be a backup's name"), "{error}");
    let error = failed(&world.run("verify", &["nothing"]), 1);
    assert!(error.contains("there is no backup nothing"), "{error}");
    let cases = [
        ("ftp://host/x", 2, "names no store"),
        ("s3://", 2, "names no store"),
        ("file://relative/x", 2, "absolute path"),
        ("file:///nowhere/at/all", 2, "create the directory"),
        ("s3://key:secret@bucket/x", 2, "neither credentials"),
    ];
    for (url, code, wanted) in cases {
        let output = binary().args(["backup", "list", "--to", url]).output();
        let error = failed(&output.expect("runs"), code);
        assert!(error.contains(wanted), "{url}: {error}");
        assert!(!error.contains("secret"), "{error}");
    }
    let zone = world.run("prune", &["--keep-last=1", "--time-zone=Mars/Olympus"]);
    let error = failed(&zone, 2);
    assert!(error.contains("--time-zone"), "{error}");
}
