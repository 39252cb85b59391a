//! The way from Quorate to etcd, by the commands of docs/tasks/move-to-etcd.md: they are read from the page and run with
//! etcd's own tools, and what a real etcd of three members then holds is compared with what ours held. Replaced in them are
//! addresses, directories, the password and the revision alone, and `https://`, because the servers here have no TLS.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use quorate::wire::etcd::auth_client::AuthClient;
use quorate::wire::etcd::lease_client::LeaseClient;
use quorate::wire::etcd::*;
use quorate::wire::mvccpb::KeyValue;
use tokio::task::JoinHandle;

use super::address::address;
use super::fixture::{Server, by_hand, serving, until};
use super::follow::Etcd;
use super::held::{Client, Truth};

const PAGE: &str = "docs/tasks/move-to-etcd.md";
/// 32 bytes in base64.
const BACKUP_KEY: &str = "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=\n";
/// Expires within the test once nobody keeps it alive.
const SHORT: i64 = 8;
const LONG: i64 = 77;
const NEGATIVE: i64 = -5;

/// The block of each step on the page, in the page's order. Those with kubectl are not run here, nor is the one that
/// watches without an end.
struct Planned {
    names: String,
    still: String,
    save: String,
    host: String,
    restore: String,
    start: String,
    hash: String,
    leases_and_users: String,
}

impl Planned {
    fn read() -> Planned {
        let blocks = blocks("## Nothing is lost").try_into();
        let [
            names,
            still,
            watch,
            save,
            host,
            restore,
            start,
            hash,
            leases_and_users,
        ]: [String; 9] = blocks.expect("a block for each step");
        assert!(watch.contains(" watch "), "{watch}");
        Planned {
            names,
            still,
            save,
            host,
            restore,
            start,
            hash,
            leases_and_users,
        }
    }
}

/// The shell blocks below a heading of the page, without those for Kubernetes.
fn blocks(heading: &str) -> Vec<String> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join(PAGE);
    let page = std::fs::read_to_string(page).expect("the page");
    let (_, section) = page.split_once(heading).expect("the heading");
    let section = section.split("\n## ").next().unwrap_or_default();
    let fenced = section.split("```").skip(1).step_by(2);
    let shell = fenced.filter_map(|block| block.strip_prefix("sh\n"));
    let here = shell.filter(|block| !block.contains("kubectl"));
    here.map(str::to_owned).collect()
}

/// The directory of etcd, etcdctl and etcdutl; `None`, with a message, if they are not built.
pub(super) fn tools(test: &str) -> Option<PathBuf> {
    let built = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/interop/bin");
    let tools = std::env::var_os("QUORATE_PEERS").map_or(built, PathBuf::from);
    let tools = std::path::absolute(tools).expect("a path");
    if ["etcd", "etcdctl", "etcdutl"]
        .iter()
        .all(|tool| tools.join(tool).is_file())
    {
        return Some(tools);
    }
    let required = std::env::var("QUORATE_REQUIRE_INTEROP").is_ok_and(|it| it == "1");
    assert!(!required, "this needs real etcd in {}", tools.display());
    let text = format!("skipped: {test} (no real etcd: run tests/interop/build.sh)\n");
    let _ = std::io::stderr().write_all(text.as_bytes());
    None
}

/// Who runs the commands of the page, and where.
struct Way {
    home: tempfile::TempDir,
    tools: PathBuf,
    ours: Vec<Server>,
    /// Never started: the addresses and the logs of etcd's members.
    theirs: Vec<Server>,
    /// What is exported in every shell.
    exports: String,
    /// What else is replaced in the page's blocks.
    replaced: Vec<(String, String)>,
    etcds: Vec<Etcd>,
}

impl Way {
    fn new(home: tempfile::TempDir, tools: PathBuf, ours: Vec<Server>) -> Way {
        let named = |name: &&str| Server::at(home.path(), name, &address());
        let theirs = ["n1", "n2", "n3"].iter().map(named).collect();
        Way {
            home,
            tools,
            ours,
            theirs,
            exports: String::new(),
            replaced: Vec::new(),
            etcds: Vec::new(),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    fn replace(&mut self, from: &str, to: impl Into<String>) {
        self.replaced.push((from.to_owned(), to.into()));
    }

    /// A block of the page, with what is different here.
    fn here(&self, block: &str) -> String {
        let mut text = block.replace("https://", "http://");
        for (at, server) in self.ours.iter().enumerate() {
            text = text.replace(&format!("demo-client-{at}"), &server.address);
        }
        for (at, server) in self.theirs.iter().enumerate() {
            text = text.replace(&format!("10.0.0.{}", at + 1), &server.address);
        }
        for (from, to) in &self.replaced {
            assert!(!to.is_empty(), "nothing for {from}");
            text = text.replace(from, to);
        }
        text
    }

    /// The same on one of etcd's hosts.
    fn on_host(&self, at: usize, block: &str) -> String {
        let number = at + 1;
        let text = block
            .replace("NAME=n1", &format!("NAME=n{number}"))
            .replace("ADDRESS=10.0.0.1", &format!("ADDRESS=10.0.0.{number}"));
        let data = self.theirs[at].data.display().to_string();
        self.here(&text).replace("/var/lib/etcd", &data)
    }

    fn shell(&self, text: &str) -> Command {
        let ours = Path::new(env!("CARGO_BIN_EXE_quorate"));
        let ours = ours.parent().expect("a folder").display();
        let path = std::env::var("PATH").unwrap_or_default();
        let mut command = Command::new("bash");
        command
            .args(["-euo", "pipefail", "-c"])
            .arg(format!("{}\n{text}", self.exports))
            .env("PATH", format!("{}:{ours}:{path}", self.tools.display()))
            .current_dir(self.home.path())
            .stdin(Stdio::null());
        command
    }

    /// The variables that a block exports.
    fn exported(&self, block: &str) -> String {
        let block = self.here(block);
        let exports = block.lines().filter(|line| line.starts_with("export "));
        exports.collect::<Vec<_>>().join("\n")
    }

    /// Runs commands, and returns what they print.
    fn run(&self, text: &str) -> String {
        let done = self.shell(text).output().expect("bash runs");
        let printed = String::from_utf8_lossy(&done.stdout).into_owned();
        let errors = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success(), "{text}\n{printed}\n{errors}");
        printed
    }

    /// Makes each member of etcd from the snapshot, and starts all of them.
    async fn becomes_etcd(&mut self, host: &str, restore: &str, start: &str) {
        for at in 0..self.theirs.len() {
            let text = [host, restore].map(|block| self.on_host(at, block));
            self.run(&text.concat());
        }
        for at in 0..self.theirs.len() {
            let [host, start] = [host, start].map(|block| self.on_host(at, block));
            let log = self.path(&format!("{}.log", self.theirs[at].name));
            let log = std::fs::File::create(log).expect("a file");
            let mut command = self.shell(&format!("{host}\nexec {start}"));
            // As servers are configured that have given out JSON web tokens.
            if self.path("jwt-key").exists() {
                command.env("ETCD_AUTH_TOKEN", self.web_tokens());
            }
            command.stdout(Stdio::null()).stderr(log);
            self.etcds.push(Etcd(command.spawn().expect("it starts")));
        }
        for server in &self.theirs {
            until("etcd answers", server, async || {
                let answer = server.kv().range(all(0)).await;
                // Without a token it is refused, where authentication is enabled.
                answer
                    .map_or_else(
                        |status| status.message().contains("user name is empty"),
                        |_| true,
                    )
                    .then_some(())
            })
            .await;
        }
    }

    fn web_tokens(&self) -> String {
        let key = self.path("jwt-key");
        format!("jwt,sign-method=HS256,priv-key={},ttl=10m", key.display())
    }
}

/// Every key at a revision.
fn all(revision: i64) -> RangeRequest {
    RangeRequest {
        key: b"\0".as_slice().into(),
        range_end: b"\0".as_slice().into(),
        revision,
        ..RangeRequest::default()
    }
}

async fn keys(client: &Client<'_>, revision: i64) -> Vec<KeyValue> {
    let answer = client.server.kv().range(client.call(all(revision))).await;
    answer.expect("a range").into_inner().kvs
}

async fn token(server: &Server, name: &str, password: &str) -> String {
    let login = AuthenticateRequest {
        name: name.to_owned(),
        password: password.to_owned(),
    };
    let token = AuthClient::new(server.channel()).authenticate(login).await;
    token.expect("the password is right").into_inner().token
}

async fn times(client: &Client<'_>, id: i64) -> LeaseTimeToLiveResponse {
    let ask = client.call(LeaseTimeToLiveRequest { id, keys: true });
    let mut leases = LeaseClient::new(client.server.channel());
    let times = leases.lease_time_to_live(ask).await;
    times.expect("an answer").into_inner()
}

/// A client that writes until it is told to stop; the last revision that it was given.
fn writer(server: Server, token: String, stop: Arc<AtomicBool>) -> JoinHandle<i64> {
    tokio::spawn(async move {
        let client = Client {
            server: &server,
            token: Some(token),
        };
        let mut last = 0;
        for number in 0_u64.. {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            let key = format!("w/{}/{}", server.name, number % 20);
            last = client.put(&key, &number.to_string(), 0).await;
            if number % 7 == 3 {
                let delete = client.call(DeleteRangeRequest {
                    key: key.into(),
                    ..DeleteRangeRequest::default()
                });
                let deleted = server.kv().delete_range(delete).await.expect("deleted");
                last = deleted.into_inner().header.expect("a header").revision;
            }
        }
        last
    })
}

/// The same address, for a task of its own.
fn again(home: &Path, server: &Server) -> Server {
    Server::at(home, &server.name, &server.address)
}

/// Keeps the short lease alive at each of these servers, until it is told to stop.
fn keeper(servers: Vec<Server>, token: String, stop: Arc<AtomicBool>) -> JoinHandle<()> {
    tokio::spawn(async move {
        while !stop.load(Ordering::Relaxed) {
            for server in &servers {
                let token = Some(token.clone());
                let client = Client { server, token };
                client.keep_alive(SHORT).await;
            }
            tokio::time::sleep(std::time::Duration::from_millis(300)).await;
        }
    })
}

/// Leases, a key that is deleted, a compaction, users. Returns the revision of the compaction.
async fn lives(way: &Way) -> i64 {
    let client = Client {
        server: &way.ours[0],
        token: None,
    };
    for (id, ttl) in [(SHORT, 5), (LONG, 600), (NEGATIVE, 900)] {
        client.grant(id, ttl).await;
        client.put(&format!("leased/{id}"), "1", id).await;
    }
    for number in 0..20 {
        client
            .put(&format!("old/{}", number % 6), &number.to_string(), 0)
            .await;
    }
    let delete = DeleteRangeRequest {
        key: b"old/3".as_slice().into(),
        ..DeleteRangeRequest::default()
    };
    let deleted = client.server.kv().delete_range(delete).await;
    deleted.expect("deleted");
    let compacted = client.put("old/1", "before the compaction", 0).await;
    let compact = CompactionRequest {
        revision: compacted,
        physical: true,
    };
    let done = client.server.kv().compact(compact).await;
    done.expect("compacted");
    client.put("old/4", "behind it", LONG).await;
    way.run(&format!(
        "export ETCDCTL_ENDPOINTS=http://{}:2379
         etcdctl user add root:secret
         etcdctl role add root
         etcdctl user grant-role root root
         etcdctl user add ann:hers
         etcdctl role add writers
         etcdctl role grant-permission writers readwrite --prefix w/
         etcdctl user grant-role ann writers
         etcdctl auth enable",
        client.server.address
    ));
    compacted
}

/// What is in a column of what etcdctl prints, a line a member.
fn column(printed: &str, at: usize) -> Vec<String> {
    let cells = |line: &str| {
        let cell = line.split(", ").nth(at);
        cell.unwrap_or_else(|| panic!("{printed}")).to_owned()
    };
    printed.lines().map(cells).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_on_the_way_to_etcd() {
    let Some(tools) = tools("out::nothing_is_lost_on_the_way_to_etcd") else {
        return;
    };
    let page = Planned::read();
    let home = tempfile::tempdir().expect("a folder");
    std::fs::write(home.path().join("jwt-key"), BACKUP_KEY).expect("a file");
    let mut way = Way::new(home, tools, Vec::new());
    way.ours = by_hand(way.home.path(), &["a", "b", "c"]);
    let web_tokens = format!("--auth-token={}", way.web_tokens());
    for server in &mut way.ours {
        let more = [web_tokens.clone(), "--bcrypt-cost=4".to_owned()];
        server.arguments.extend(more);
        server.start();
    }
    for server in &way.ours {
        server.serves("key").await;
    }
    let compacted = lives(&way).await;
    way.replace("SECRET", "secret");
    way.exports = way.here(&page.names);

    // Clients of every member write. Whoever keeps a lease alive goes on: that writes nothing.
    let tokens = [
        token(&way.ours[0], "root", "secret").await,
        token(&way.ours[1], "ann", "hers").await,
    ];
    let [stop, expire] = [0, 1].map(|_| Arc::new(AtomicBool::new(false)));
    let here = way.ours.iter().map(|it| again(way.home.path(), it));
    let writers: Vec<_> = here
        .map(|server| writer(server, tokens[1].clone(), Arc::clone(&stop)))
        .collect();
    let at_ours = vec![again(way.home.path(), &way.ours[0])];
    let kept = keeper(at_ours, tokens[0].clone(), Arc::clone(&expire));
    until("they have written enough", &way.ours[0], async || {
        let token = Some(tokens[0].clone());
        let client = Client {
            server: &way.ours[0],
            token,
        };
        (client.truth().await.revision > compacted + 100).then_some(())
    })
    .await;

    stop.store(true, Ordering::Relaxed);
    let mut last = 0;
    for writer in writers {
        last = last.max(writer.await.expect("no panic"));
    }
    let still = until("all members have it", &way.ours[0], async || {
        let printed = way.run(&page.still);
        let revision = format!("\"Revision\" : {last}");
        printed
            .lines()
            .all(|line| line == revision)
            .then_some(printed)
    })
    .await;
    assert_eq!(still.lines().count(), 3, "{still}");
    assert_eq!(way.run(&page.still), still, "somebody writes");

    let printed = way.run(&way.here(&page.save));
    assert!(printed.contains(&format!(" {last} ")), "{printed}");
    let Planned {
        host,
        restore,
        start,
        ..
    } = &page;
    way.becomes_etcd(host, restore, start).await;
    let at_both = vec![
        again(way.home.path(), &way.ours[0]),
        again(way.home.path(), &way.theirs[0]),
    ];
    kept_on(kept, &expire).await;
    expire.store(false, Ordering::Relaxed);
    let kept = keeper(at_both, tokens[0].clone(), Arc::clone(&expire));

    way.replace("48211", last.to_string());
    let hashes = column(&way.run(&way.here(&page.hash)), 1);
    assert_eq!(hashes.len(), 6, "{hashes:?}");
    assert!(hashes.iter().all(|it| *it == hashes[0]), "{hashes:?}");
    let printed = way.run(&page.leases_and_users);
    let status: Vec<&str> = printed.lines().collect();
    assert_eq!(status.len(), 4, "{printed}");
    assert_eq!(status[..2], status[2..], "{printed}");
    assert_eq!(way.run(&page.still), still, "somebody writes");

    is_the_same(&way, &tokens[0], compacted, last).await;
    goes_on(&way, &tokens, last).await;
    kept_on(kept, &expire).await;
    expires(&way, &tokens[0], last).await;
}

async fn kept_on(keeper: JoinHandle<()>, stop: &AtomicBool) {
    stop.store(true, Ordering::Relaxed);
    keeper.await.expect("it was alive throughout");
}

/// Every member of etcd answers what ours do; with a web token that ours have given.
async fn is_the_same(way: &Way, token: &str, compacted: i64, last: i64) {
    let client = |server| Client {
        server,
        token: Some(token.to_owned()),
    };
    let ours = client(&way.ours[0]);
    let truth: Truth = ours.truth().await;
    assert_eq!((truth.revision, truth.compacted), (last, compacted));
    assert_eq!(truth.leases.len(), 3, "{truth:?}");
    assert_eq!(truth.users, ["ann", "root"]);
    let events = ours.events(compacted + 1, last).await;
    assert!(events.len() > 50, "{}", events.len());
    for theirs in way.theirs.iter().map(client) {
        assert_eq!(theirs.truth().await, truth);
        for revision in [
            compacted,
            compacted + 1,
            i64::midpoint(compacted, last),
            last,
        ] {
            let kvs = keys(&theirs, revision).await;
            assert_eq!(kvs, keys(&ours, revision).await, "at {revision}");
            assert!(kvs.iter().any(|kv| kv.lease == NEGATIVE), "{kvs:?}");
        }
        assert_eq!(theirs.events(compacted + 1, last).await, events);
    }
    // A lease's time began anew when etcd was started: later than ours was granted.
    let (before, now) = (
        times(&ours, LONG).await,
        times(&client(&way.theirs[0]), LONG).await,
    );
    assert!(now.ttl > before.ttl, "{before:?} {now:?}");
}

/// Who has a password, or a web token that is valid, writes on, within their permissions.
async fn goes_on(way: &Way, tokens: &[String; 2], last: i64) {
    let server = &way.theirs[1];
    let ann = Client {
        server,
        token: Some(token(server, "ann", "hers").await),
    };
    assert_eq!(ann.put("w/next", "1", 0).await, last + 1);
    let denied = server.kv().range(ann.call(all(0))).await;
    let denied = denied.expect_err("it is not hers");
    assert_eq!(denied.message(), "etcdserver: permission denied");
    for (at, token) in tokens.iter().enumerate() {
        let token = Some(token.clone());
        let client = Client { server, token };
        assert_eq!(client.put("w/next", "2", 0).await, last + 2 + at as i64);
    }
    let root = Client {
        server,
        token: Some(token(server, "root", "secret").await),
    };
    // A watch that goes on behind what it has seen at ours.
    let events = root.events(last + 1, last + 3).await;
    let revisions: Vec<i64> = events.iter().map(|event| event.3).collect();
    assert_eq!(revisions, [last + 1, last + 2, last + 3]);
}

/// The lease that nobody keeps alive any more ends, and its key with it, at one revision.
async fn expires(way: &Way, token: &str, last: i64) {
    let client = Client {
        server: &way.theirs[2],
        token: Some(token.to_owned()),
    };
    let key = format!("leased/{SHORT}").into_bytes();
    until("it expires", client.server, async || {
        let found = keys(&client, 0).await;
        found.iter().all(|kv| kv.key != key).then_some(())
    })
    .await;
    let events = client.events(last + 4, last + 4).await;
    let deleted = (1, key, Vec::new(), last + 4);
    assert_eq!(events, [deleted]);
    assert_eq!(times(&client, SHORT).await.ttl, -1);
    assert_eq!(times(&client, NEGATIVE).await.keys.len(), 1);
}

/// Nothing of the cluster is left but a backup, and clients have seen more than it has.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_becomes_an_etcd_whose_watches_begin_anew() {
    let Some(tools) = tools("out::a_backup_becomes_an_etcd_whose_watches_begin_anew") else {
        return;
    };
    let blocks = blocks("## From a backup").try_into();
    let [fetch, _to_a_moment, restore, hash]: [String; 4] = blocks.expect("a block for each step");
    let Planned { host, start, .. } = Planned::read();
    let home = tempfile::tempdir().expect("a folder");
    let ours = serving(home.path(), &["a"], "key").await;
    let mut way = Way::new(home, tools, ours);
    std::fs::create_dir(way.path("store")).expect("a directory");
    std::fs::write(way.path("backup.key"), BACKUP_KEY).expect("a file");
    let store = format!("file://{}", way.path("store").display());
    let client = Client {
        server: &way.ours[0],
        token: None,
    };
    client.grant(LONG, 600).await;
    client.put("leased", "1", LONG).await;
    let saved = client.put("key", "saved", 0).await;
    let endpoint = format!("http://{}:2379", way.ours[0].address);
    way.run(&format!(
        "quorate backup save --to={store} --prefix=default/demo --key-file=backup.key \
         --id=monday --endpoints={endpoint}"
    ));
    let seen = client.put("key", "lost", 0).await;
    way.ours[0].kill();

    way.replace("s3://backups", store);
    let printed = way.run(&way.here(&fetch));
    assert!(printed.contains("monday"), "{printed}");
    let printed = way.run(&format!("{}\n{}", way.exported(&fetch), way.here(&hash)));
    let [file, listed] = [0, 1].map(|line| printed.lines().nth(line).expect("a hash"));
    let file = file.split(',').next().unwrap_or_default();
    assert_eq!(listed.trim(), format!("\"hash\": {file},"));
    way.becomes_etcd(&host, &restore, &start).await;

    for server in &way.theirs {
        let client = Client {
            server,
            token: None,
        };
        let answer = server.kv().range(all(0)).await.expect("a range");
        let answer = answer.into_inner();
        let revision = answer.header.expect("a header").revision;
        assert_eq!(revision, saved + 1_000_000_000);
        let key = answer.kvs.iter().find(|kv| *kv.key == *b"key");
        let key = key.expect("it was saved");
        assert_eq!((&*key.value, key.mod_revision), (&b"saved"[..], saved));
        assert_eq!(times(&client, LONG).await.keys.len(), 1);
        // What a cache that has seen the lost write asks for.
        let old = server.kv().range(all(seen)).await;
        let old = old.expect_err("it would be something else");
        assert!(old.message().contains("has been compacted"), "{old}");
        let watched = way.run(&format!(
            "! timeout 5 etcdctl --endpoints=http://{}:2379 watch key --rev={} 2>&1",
            server.address,
            seen + 1
        ));
        assert!(watched.contains("has been compacted"), "{watched}");
    }
    let client = Client {
        server: &way.theirs[0],
        token: None,
    };
    let next = client.put("key", "goes on", 0).await;
    assert_eq!(next, saved + 1_000_000_001);
}
