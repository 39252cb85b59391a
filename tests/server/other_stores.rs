//! Backups in stores that are not the S3 gateway of `stores.rs`: Azurite, a server of Azure's API, and moto, a second
//! implementation of S3's. The same life of a backup in each: saved once, refused the second time, verified, fetched,
//! pruned, and what is said when the credentials are wrong.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use base64::Engine as _;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

use super::fixture::{Server, binary, done, failed};
use super::stores::{Killed, filled, flags, installed};

/// Python and Node take long to start on a machine that does other things.
const PATIENCE: Duration = Duration::from_secs(60);
/// The account that Azurite has; its key is public.
const ACCOUNT: &str = "devstoreaccount1";
const ACCOUNT_KEY: &str =
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";

/// A store as a process.
struct Store {
    url: &'static str,
    endpoint: String,
    environment: Vec<(&'static str, String)>,
    _process: Killed,
}

impl Store {
    fn run(&self, what: &str, arguments: &[&str]) -> Output {
        self.run_as(what, arguments, &[])
    }

    fn run_as(&self, what: &str, arguments: &[&str], other: &[(&str, &str)]) -> Output {
        let mut command = binary();
        command
            .args(["backup", what, "--to", self.url, "--store-endpoint"])
            .arg(&self.endpoint)
            .arg("--store-retries=0")
            .args(arguments)
            .env_remove("ETCDCTL_ENDPOINTS")
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .envs(other.iter().copied());
        command.output().expect("runs")
    }
}

fn free_port() -> u16 {
    let free = TcpListener::bind("127.0.0.1:0").expect("a port");
    free.local_addr().expect("an address").port()
}

fn started(program: &Path, arguments: &[String], folder: &Path, port: u16) -> Killed {
    let spawned: std::io::Result<Child> = Command::new(program)
        .args(arguments)
        .current_dir(folder)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let process = Killed(spawned.expect("starts"));
    let deadline = Instant::now() + PATIENCE;
    while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
        assert!(
            Instant::now() < deadline,
            "{} does not start",
            program.display()
        );
        std::thread::park_timeout(Duration::from_millis(50));
    }
    process
}

/// A container, with the request that Azure's shared keys sign.
fn azurite(program: &Path, folder: &Path) -> Store {
    let port = free_port();
    let arguments = [
        "--silent".to_owned(),
        "--disableTelemetry".to_owned(),
        "--inMemoryPersistence".to_owned(),
        "--blobHost=127.0.0.1".to_owned(),
        format!("--blobPort={port}"),
    ];
    let process = started(program, &arguments, folder, port);
    let date = jiff::Timestamp::now()
        .strftime("%a, %d %b %Y %H:%M:%S GMT")
        .to_string();
    let signed = format!(
        "PUT\n\n\n\n\n\n\n\n\n\n\n\nx-ms-date:{date}\nx-ms-version:2021-08-06\n/{ACCOUNT}/{ACCOUNT}/backups\nrestype:container"
    );
    let base64 = base64::engine::general_purpose::STANDARD;
    let key = base64.decode(ACCOUNT_KEY).expect("base64");
    let mut mac = Hmac::<Sha256>::new_from_slice(&key).expect("a key");
    mac.update(signed.as_bytes());
    let signature = base64.encode(mac.finalize().into_bytes());
    let request = format!(
        "PUT /{ACCOUNT}/backups?restype=container HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\nx-ms-date: {date}\r\nx-ms-version: 2021-08-06\r\nauthorization: SharedKey {ACCOUNT}:{signature}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
    );
    asked(port, &request, "201");
    Store {
        url: "az://backups/some/where",
        endpoint: format!("http://127.0.0.1:{port}/{ACCOUNT}"),
        environment: vec![
            ("AZURE_STORAGE_ACCOUNT_NAME", ACCOUNT.to_owned()),
            ("AZURE_STORAGE_ACCOUNT_KEY", ACCOUNT_KEY.to_owned()),
        ],
        _process: process,
    }
}

fn moto(program: &Path, folder: &Path) -> Store {
    let port = free_port();
    let arguments = ["-H", "127.0.0.1", "-p", &port.to_string()].map(str::to_owned);
    let process = started(program, &arguments, folder, port);
    let request = format!(
        "PUT /bucket HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
    );
    asked(port, &request, "200");
    Store {
        url: "s3://bucket/some/where",
        endpoint: format!("http://127.0.0.1:{port}"),
        environment: ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION"]
            .map(|name| (name, "us-east-1".to_owned()))
            .into(),
        _process: process,
    }
}

/// One request by hand: the bucket is not made by `quorate backup`.
fn asked(port: u16, request: &str, status: &str) {
    use std::io::{Read as _, Write as _};
    let mut stream = std::net::TcpStream::connect(("127.0.0.1", port)).expect("connects");
    stream.write_all(request.as_bytes()).expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("answered");
    assert_eq!(answer.split(' ').nth(1), Some(status), "{answer}");
}

/// The life of a backup.
fn life(server: &Server, store: &Store) {
    let scratch = tempfile::tempdir().expect("a folder");
    let path = |name: &str| scratch.path().join(name).display().to_string();
    std::fs::write(path("key"), "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=").expect("a key");
    let key = format!("--key-file={}", path("key"));
    let given = flags(server, scratch.path());
    let given: Vec<&str> = given.iter().map(String::as_str).chain([&*key]).collect();
    let save = |id: &str| {
        let named = format!("--id={id}");
        let arguments: Vec<&str> = given.iter().copied().chain([&*named]).collect();
        done(&store.run("save", &arguments))
    };
    assert!(save("one").contains("revision 25, 24 keys"));
    let again: Vec<&str> = given.iter().copied().chain(["--id=one"]).collect();
    let again = store.run("save", &again);
    let said = String::from_utf8_lossy(&again.stderr).into_owned();
    assert!(said.contains("nothing was saved: one exists"), "{said}");
    let at = format!("--scratch={}", scratch.path().display());
    let verified = done(&store.run("verify", &[&key, &at, "one"]));
    assert!(verified.contains("verified one"), "{verified}");
    done(&store.run("fetch", &[&key, "one", &path("one.db")]));
    assert!(std::fs::metadata(path("one.db")).expect("a file").len() > 3 << 20);
    save("two");
    done(&store.run("verify", &[&key, &at, "two"]));
    let pruned = done(&store.run("prune", &[&key, "--keep-last=1"]));
    assert!(pruned.contains("delete one"), "{pruned}");
    let list = done(&store.run("list", &[&key]));
    assert!(
        list.contains("two      Verified   25") && !list.contains("one "),
        "{list}"
    );
    let missing = failed(&store.run("fetch", &[&key, "one", &path("gone.db")]), 1);
    assert!(missing.contains("there is no backup one"), "{missing}");
}

fn program(name: &str, test: &str) -> Option<PathBuf> {
    installed(name, &format!("other_stores::{test}"))
}

#[tokio::test]
async fn backups_live_in_azures_store() {
    let Some(program) = program("azurite-blob", "backups_live_in_azures_store") else {
        return;
    };
    let folder = tempfile::tempdir().expect("a folder");
    let store = azurite(&program, folder.path());
    let server = filled().await;
    life(&server, &store);
    let wrong = [("AZURE_STORAGE_ACCOUNT_KEY", "d3Jvbmc=")];
    let report = folder.path().join("report");
    let report = format!("--result-file={}", report.display());
    let given = flags(&server, folder.path());
    let given: Vec<&str> = given.iter().map(String::as_str).chain([&*report]).collect();
    let error = failed(&store.run_as("save", &given, &wrong), 1);
    assert!(error.contains("its credentials"), "{error}");
    let class = std::fs::read_to_string(folder.path().join("report")).expect("a report");
    assert!(class.contains("\"class\":\"credentials\""), "{class}");
    let error = failed(&store.run_as("list", &[], &wrong), 1);
    assert!(error.contains("its credentials"), "{error}");
}

#[tokio::test]
async fn backups_live_in_moto() {
    let Some(program) = program("moto_server", "backups_live_in_moto") else {
        return;
    };
    let folder = tempfile::tempdir().expect("a folder");
    let store = moto(&program, folder.path());
    life(&filled().await, &store);
}
