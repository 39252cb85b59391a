//! Backups in a real object store, an S3 gateway (versitygw) as a process of this test, and what `quorate backup` says
//! when the store refuses, fails or is not there.

use std::io::Write as _;
use std::net::TcpListener;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::fixture::{Server, address, binary, done, failed, put};

/// A store that accepts no connection within this does not start.
const PATIENCE: Duration = Duration::from_secs(20);
const ACCESS: &str = "an-access-key";
const SECRET: &str = "a-secret-key-of-s3";

/// The directory of the stores' binaries; `None`, with a message, if they have not been built.
fn stores(test: &str) -> Option<PathBuf> {
    let gateway = installed("versitygw", &format!("stores::{test}"))?;
    gateway.parent().map(Path::to_owned)
}

/// The program of a store; `None`, with a message, if it has not been installed.
pub(super) fn installed(program: &str, test: &str) -> Option<PathBuf> {
    let built = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/stores/bin");
    let directory = std::env::var_os("QUORATE_STORES").map_or(built, PathBuf::from);
    let file = directory.join(program);
    if file.is_file() {
        return Some(file);
    }
    let required = std::env::var("QUORATE_REQUIRE_INTEROP").is_ok_and(|value| value == "1");
    assert!(!required, "server::{test} needs {}", file.display());
    // Written to the handle directly: the test harness captures the macros' output of a passing test.
    let text = format!("skipped: server::{test} (no {program}: run tests/stores/build.sh)\n");
    let _ = std::io::stderr().write_all(text.as_bytes());
    None
}

/// A store as a process, with one bucket in a directory.
struct Store {
    binaries: PathBuf,
    folder: TempDir,
    address: String,
    /// Its certificate and key, if it speaks TLS.
    tls: Option<[PathBuf; 2]>,
    process: Child,
}

impl Store {
    fn start(binaries: &Path) -> Store {
        Store::start_with(binaries, None)
    }

    fn start_with(binaries: &Path, tls: Option<[PathBuf; 2]>) -> Store {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::create_dir(folder.path().join("bucket")).expect("a bucket");
        let address = free_address();
        let process = spawn(binaries, folder.path(), &address, tls.as_ref());
        let store = Store {
            binaries: binaries.to_owned(),
            folder,
            address,
            tls,
            process,
        };
        store.wait();
        store
    }

    /// One with room for so many bytes: its bucket is a tmpfs, in a mount namespace that ends with it.
    fn start_small(binaries: &Path, bytes: u64) -> Store {
        let folder = tempfile::tempdir().expect("a folder");
        let sidecar = folder.path().join("attributes");
        std::fs::create_dir(&sidecar).expect("a folder");
        let data = folder.path().join("data");
        std::fs::create_dir(&data).expect("a folder");
        let address = free_address();
        let script = "mount -t tmpfs -o size=$1 tmpfs $2 && mkdir $2/bucket && shift && data=$1 && shift && exec \"$@\" $data";
        let mut command = Command::new("unshare");
        // Root may, others may where users have namespaces.
        let root = std::fs::metadata("/proc/self").is_ok_and(|it| it.uid() == 0);
        if !root {
            command.args(["--user", "--map-root-user"]);
        }
        command.args(["--mount", "sh", "-c", script, "store"]);
        command.arg(bytes.to_string()).arg(&data);
        command.arg(binaries.join("versitygw"));
        command.args(["--port", &address, "posix", "--sidecar"]);
        command.arg(&sidecar);
        command.env("ROOT_ACCESS_KEY", ACCESS);
        command.env("ROOT_SECRET_KEY", SECRET);
        let silent = command.stdout(Stdio::null()).stderr(Stdio::null());
        let store = Store {
            binaries: binaries.to_owned(),
            folder,
            address,
            tls: None,
            process: silent.spawn().expect("starts"),
        };
        store.wait();
        store
    }

    fn wait(&self) {
        let deadline = Instant::now() + PATIENCE;
        while std::net::TcpStream::connect(&self.address).is_err() {
            assert!(Instant::now() < deadline, "the store does not start");
            std::thread::park_timeout(Duration::from_millis(20));
        }
    }

    fn kill(&mut self) {
        self.process.kill().expect("killed");
        self.process.wait().expect("ended");
    }

    fn restart(&mut self) {
        let (folder, tls) = (self.folder.path(), self.tls.as_ref());
        self.process = spawn(&self.binaries, folder, &self.address, tls);
        self.wait();
    }

    /// A command with the credentials of this store.
    fn command(&self, what: &str, arguments: &[&str]) -> Command {
        self.command_at(&self.address, what, arguments)
    }

    /// The same by another address.
    fn command_at(&self, address: &str, what: &str, arguments: &[&str]) -> Command {
        let mut command = binary();
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        let url = "s3://bucket/some/where";
        command
            .args(["backup", what, "--to", url, "--store-endpoint"])
            .arg(format!("{scheme}://{address}"))
            .args(arguments)
            .env_remove("ETCDCTL_ENDPOINTS");
        command
            .env("AWS_ACCESS_KEY_ID", ACCESS)
            .env("AWS_SECRET_ACCESS_KEY", SECRET)
            .env("AWS_REGION", "us-east-1");
        command
    }

    fn run(&self, what: &str, arguments: &[&str]) -> Output {
        self.command(what, arguments).output().expect("runs")
    }

    /// The files of a backup's parts.
    fn parts(&self, id: &str) -> Vec<PathBuf> {
        let backup = self.folder.path().join("bucket/some/where").join(id);
        let mut parts = Vec::new();
        for attempt in std::fs::read_dir(backup).into_iter().flatten().flatten() {
            let files = std::fs::read_dir(attempt.path())
                .into_iter()
                .flatten()
                .flatten();
            let names = files.map(|file| file.path());
            parts.extend(names.filter(|path| {
                let name = path.file_name().unwrap_or_default().to_string_lossy();
                name.len() == 8 && name.bytes().all(|byte| byte.is_ascii_digit())
            }));
        }
        parts.sort();
        parts
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// An address on which nobody listens.
fn free_address() -> String {
    let free = TcpListener::bind("127.0.0.1:0").expect("a port");
    free.local_addr().expect("an address").to_string()
}

fn spawn(binaries: &Path, folder: &Path, address: &str, tls: Option<&[PathBuf; 2]>) -> Child {
    let mut command = Command::new(binaries.join("versitygw"));
    command
        .env("ROOT_ACCESS_KEY", ACCESS)
        .env("ROOT_SECRET_KEY", SECRET)
        .args(["--port", address]);
    if let Some([certificate, key]) = tls {
        command.arg("--cert").arg(certificate).arg("--key").arg(key);
    }
    command.arg("posix").arg(folder);
    let silent = command.stdout(Stdio::null()).stderr(Stdio::null());
    silent.spawn().expect("starts")
}

pub(super) async fn filled() -> Server {
    let server = Server::start(&[]);
    let mut kv = server.kv().await;
    for number in 0..24 {
        let value = "v".repeat(128 << 10);
        let put = kv.put(put(&format!("key{number}"), &value)).await;
        put.expect("a put");
    }
    server
}

pub(super) fn flags(server: &Server, scratch: &Path) -> [String; 3] {
    [
        format!("--endpoints=http://{}:2379", server.host),
        format!("--scratch={}", scratch.display()),
        "--part-size=1".to_owned(),
    ]
}

/// Two that save under one name at once make one backup, and it is whole.
#[tokio::test]
async fn backups_live_in_an_object_store() {
    let Some(binaries) = stores("backups_live_in_an_object_store") else {
        return;
    };
    let server = filled().await;
    let store = Store::start(&binaries);
    let scratch = tempfile::tempdir().expect("a folder");
    let given = flags(&server, scratch.path());
    let given = given.each_ref().map(String::as_str);
    let save = [&given[..], &["--id=one"]].concat();
    let both = [(); 2].map(|()| {
        let mut command = store.command("save", &save);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().expect("starts")
    });
    let both = both.map(|child| done(&child.wait_with_output().expect("ends")));
    let saved = both
        .iter()
        .filter(|text| text.contains("revision 25, 24 keys"));
    assert_eq!(saved.count(), 1, "{both:?}");
    let verified = done(&store.run(
        "verify",
        &["--scratch", &scratch.path().display().to_string()],
    ));
    assert!(verified.contains("verified one"), "{verified}");
    done(&store.run("save", &[&given[..], &["--id=two"]].concat()));
    let list = done(&store.run("list", &[]));
    assert!(list.contains("one      Verified   25"), "{list}");
    assert!(list.contains("two      Complete   25"), "{list}");
    let file = scratch.path().join("one.db");
    done(&store.run("fetch", &["one", &file.display().to_string()]));
    assert!(std::fs::metadata(&file).expect("a file").len() > 3 << 20);
    let pruned = done(&store.run("prune", &["--keep-last=1"]));
    assert!(pruned.contains("keep one: newest verified"), "{pruned}");
    done(&store.run(
        "verify",
        &["two", "--scratch", &scratch.path().display().to_string()],
    ));
    done(&store.run("prune", &["--keep-last=1"]));
    let list = done(&store.run("list", &[]));
    assert!(
        list.contains("two      Verified") && !list.contains("one      Verified"),
        "{list}"
    );
}

#[tokio::test]
async fn store_that_fails_leaves_no_backup() {
    let Some(binaries) = stores("store_that_fails_leaves_no_backup") else {
        return;
    };
    let server = filled().await;
    let mut store = Store::start(&binaries);
    let scratch = tempfile::tempdir().expect("a folder");
    let given = flags(&server, scratch.path());
    let given = given.each_ref().map(String::as_str);
    let save = [&given[..], &["--id=one", "--store-retries=0"]].concat();

    // Credentials that are wrong, and later right.
    let mut command = store.command("save", &save);
    let refused = command.env("AWS_SECRET_ACCESS_KEY", "another").output();
    let error = failed(&refused.expect("runs"), 1);
    assert!(error.contains("credentials"), "{error}");
    let mut command = store.command("list", &[]);
    command.args(["--store-retries=0"]);
    let nowhere = command.env("AWS_ACCESS_KEY_ID", "somebody").output();
    let error = failed(&nowhere.expect("runs"), 1);
    assert!(error.contains("listing objects failed"), "{error}");
    assert_eq!(error.lines().count(), 1, "{error}");

    // A store that is gone, in the beginning and for a moment.
    store.kill();
    let error = failed(&store.run("save", &save), 1);
    assert!(
        error.contains("reading the manifest of one failed"),
        "{error}"
    );
    let waiting = [&given[..], &["--id=one"]].concat();
    let mut command = store.command("save", &waiting);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().expect("starts");
    std::thread::park_timeout(Duration::from_millis(500));
    store.restart();
    done(&child.wait_with_output().expect("ends"));

    // A part that is cut off, and one that is gone.
    let parts = store.parts("one");
    assert_eq!(parts.len(), 4);
    let sound = std::fs::read(&parts[1]).expect("a part");
    std::fs::write(&parts[1], &sound[..sound.len() - 1]).expect("cut off");
    let list = done(&store.run("list", &[]));
    assert!(
        list.contains("one      Damaged") && list.contains("part 2 has"),
        "{list}"
    );
    let file = scratch.path().join("one.db").display().to_string();
    let error = failed(&store.run("fetch", &["one", &file]), 1);
    assert!(error.contains("part 2 has"), "{error}");
    std::fs::remove_file(&parts[1]).expect("deleted");
    let list = done(&store.run("list", &[]));
    assert!(list.contains("part 2 of 4 is gone"), "{list}");
    // The damaged one is the only one, and stays as evidence.
    let pruned = done(&store.run("prune", &["--keep-last=1"]));
    assert!(pruned.contains("keep one: damaged"), "{pruned}");
    done(&store.run("save", &[&given[..], &["--id=two"]].concat()));
    let pruned = done(&store.run("prune", &["--keep-last=1"]));
    assert_eq!(pruned, "keep two: newest good, last\ndelete one\n");
}

/// A store that answers byte by byte is only slow, one in another region says where, and a full one leaves no backup and
/// loses none that it has.
#[tokio::test]
async fn store_that_is_slow_elsewhere_or_full() {
    let Some(binaries) = stores("store_that_is_slow_elsewhere_or_full") else {
        return;
    };
    let server = filled().await;
    let scratch = tempfile::tempdir().expect("a folder");
    let given = flags(&server, scratch.path());
    let given = given.each_ref().map(String::as_str);
    let save = [&given[..], &["--store-retries=0"]].concat();

    let store = Store::start(&binaries);
    let mut command = store.command("save", &save);
    command.env("AWS_REGION", "eu-central-1");
    let error = failed(&command.output().expect("runs"), 1);
    assert!(error.contains("another region: set AWS_REGION"), "{error}");

    let slow = Slow::before(&store.address);
    let by_slow = [&save[..], &["--id=slow"]].concat();
    let mut command = store.command_at(&slow.address, "save", &by_slow);
    let began = Instant::now();
    done(&command.output().expect("runs"));
    assert!(began.elapsed() > Slow::PAUSE * 8, "the store was not slow");
    assert!(done(&store.run("list", &[])).contains("slow     Complete"));

    // Room for one backup and a half.
    let small = Store::start_small(&binaries, 4 << 20);
    let mut values = server.kv().await;
    for number in 0..3 {
        let put = put(&format!("random{number}"), &random_text(1 << 20));
        values.put(put).await.expect("a put");
    }
    done(&small.run("save", &[&save[..], &["--id=first"]].concat()));
    let error = failed(
        &small.run("save", &[&save[..], &["--id=second"]].concat()),
        1,
    );
    assert!(error.contains("failed in the store"), "{error}");
    let list = done(&small.run("list", &[]));
    assert!(list.contains("first    Complete"), "{list}");
    assert!(list.contains("second   Incomplete"), "{list}");
    done(&small.run(
        "verify",
        &["first", "--scratch", &scratch.path().display().to_string()],
    ));
}

/// Text that does not compress.
fn random_text(length: usize) -> String {
    use rand_xoshiro::Xoshiro256PlusPlus;
    use rand_xoshiro::rand_core::{Rng as _, SeedableRng as _};
    let mut random = Xoshiro256PlusPlus::seed_from_u64(length as u64);
    let letters = std::iter::repeat_with(|| char::from(b' ' + (random.next_u64() % 90) as u8));
    letters.take(length).collect()
}

/// A store behind a link that passes a few KiB at a time.
struct Slow {
    address: String,
}

impl Slow {
    const PAUSE: Duration = Duration::from_millis(20);

    fn before(store: &str) -> Slow {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address").to_string();
        let store = store.to_owned();
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let server = std::net::TcpStream::connect(&store).expect("the store");
                let other = (
                    server.try_clone().expect("a handle"),
                    client.try_clone().expect("a handle"),
                );
                std::thread::spawn(move || Slow::pass(client, server));
                std::thread::spawn(move || Slow::pass(other.0, other.1));
            }
        });
        Slow { address }
    }

    fn pass(mut from: std::net::TcpStream, mut to: std::net::TcpStream) {
        use std::io::Read as _;
        let mut bytes = [0; 4096];
        while let Ok(some @ 1..) = from.read(&mut bytes) {
            std::thread::park_timeout(Slow::PAUSE);
            if to.write_all(&bytes[..some]).is_err() {
                break;
            }
        }
        let _ = to.shutdown(std::net::Shutdown::Write);
    }
}

/// A process that is killed when it is dropped.
pub(super) struct Killed(pub(super) Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn cluster_and_store_by_tls() {
    let Some(binaries) = stores("cluster_and_store_by_tls") else {
        return;
    };
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name);
    let host = address();
    let made = binary()
        .args([
            "certs",
            "--client=root",
            "--member=store=127.0.0.1",
            "--out",
        ])
        .arg(folder.path())
        .arg(format!("--member=one={host}"))
        .output();
    done(&made.expect("runs"));
    let tls = [path("store/server.crt"), path("store/server.key")];
    let store = Store::start_with(&binaries, Some(tls));
    let flag = |name: &str, file: &str| format!("--{name}={}", path(file).display());
    let server = binary()
        .args([
            "server",
            "--name=one",
            "--unsafe-no-fsync",
            "--client-cert-auth",
        ])
        .arg(flag("data-dir", "data"))
        .arg(flag("cert-file", "one/server.crt"))
        .arg(flag("key-file", "one/server.key"))
        .arg(flag("trusted-ca-file", "ca.crt"))
        .arg(format!("--listen-client-urls=https://{host}:2379"))
        .arg(format!("--advertise-client-urls=https://{host}:2379"))
        .arg(format!("--listen-peer-urls=http://{host}:2380"))
        .arg(format!("--initial-advertise-peer-urls=http://{host}:2380"))
        .arg(format!("--initial-cluster=one=http://{host}:2380"))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let _server = Killed(server.expect("starts"));

    let given = [
        format!("--endpoints=https://{host}:2379"),
        flag("cacert", "ca.crt"),
        flag("cert", "root.crt"),
        flag("key", "root.key"),
        flag("scratch", "scratch"),
        "--id=one".to_owned(),
        "--store-retries=0".to_owned(),
    ];
    let given: Vec<&str> = given.iter().map(String::as_str).collect();
    // The store's certificate is of nobody whom this machine trusts.
    let error = failed(&store.run("save", &given), 1);
    assert!(
        error.contains("reading the manifest of one failed"),
        "{error}"
    );
    let trust = flag("store-ca-file", "ca.crt");
    let save = [&given[..], &[trust.as_str()]].concat();
    let deadline = Instant::now() + PATIENCE;
    let saved = loop {
        let output = store.run("save", &save);
        if output.status.success() || Instant::now() > deadline {
            break output;
        }
        std::thread::park_timeout(Duration::from_millis(100));
    };
    assert!(done(&saved).contains("revision 1, 0 keys"), "{saved:?}");
    done(&store.run("verify", &[&trust, &flag("scratch", "scratch")]));
    // Without a certificate of its own the server answers nothing.
    let bare = [given[0], given[1], given[4], "--id=two", &trust];
    let error = failed(&store.run("save", &bare), 1);
    assert!(error.contains("no snapshot: https://"), "{error}");
}
