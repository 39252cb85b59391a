//! A kube-apiserver that knows of its store nothing but the lines of `kube-apiserver.flags` stores and reads objects, and
//! is refused nothing, with a user who may do nothing but what is below its prefix.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use quorate::crd::access::{EtcdUser, KubeApiserverFlags, UserConnection};

use super::world::World;
use super::{can_have_hosts, user, with_hosts};
use crate::address::address;
use crate::cluster::Kind;
use crate::process::{Running, peers, report_skipped, skip};

/// What it takes on a busy machine until an API server is ready.
const PATIENCE: Duration = Duration::from_secs(120);
const TOKEN: &str = "0123456789abcdef";

/// The folder of Kubernetes' programs; `None`, with a message, if they have not been built. They take minutes, so
/// `QUORATE_REQUIRE_INTEROP` does not ask for them, and `QUORATE_REQUIRE_KUBERNETES=1` does. `KUBERNETES=newest` is as for
/// `tests/kubernetes/build.sh`.
fn kubernetes(test: &str) -> Option<PathBuf> {
    let folder = match newest() {
        true => "target/kubernetes-newest/bin",
        false => "target/kubernetes/bin",
    };
    let built = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    if built.join("kube-apiserver").is_file() && built.join("kubectl").is_file() {
        return Some(built);
    }
    let reason = "no kube-apiserver: run tests/kubernetes/build.sh";
    let required = std::env::var("QUORATE_REQUIRE_KUBERNETES").is_ok_and(|value| value == "1");
    assert!(!required, "{test}: {reason}");
    report_skipped(test, reason);
    None
}

/// Whether it is the newest Kubernetes, and not the one of the end-to-end tests.
fn newest() -> bool {
    std::env::var("KUBERNETES").is_ok_and(|value| value == "newest")
}

struct ApiServer {
    process: Running,
    kubectl: PathBuf,
    url: String,
}

impl ApiServer {
    /// Starts one that is told of its store what the Secret in this folder says.
    fn start(programs: &Path, home: &Path, hosts: &Path, secret: &Path) -> ApiServer {
        let address = address();
        let file = |name: &str| home.join(name).display().to_string();
        fs::write(
            file("tokens.csv"),
            format!("{TOKEN},admin,admin,system:masters\n"),
        )
        .expect("written");
        let flags = fs::read_to_string(secret.join("kube-apiserver.flags")).expect("flags");
        let mut words = vec![programs.join("kube-apiserver").display().to_string()];
        words.extend(flags.lines().map(str::to_owned));
        // What has nothing to do with its store; the key is any that signs, with its certificate.
        words.extend([
            format!("--bind-address={address}"),
            "--advertise-address=10.97.0.1".to_owned(),
            "--secure-port=6443".to_owned(),
            format!("--cert-dir={}", file("certificates")),
            "--service-cluster-ip-range=10.97.0.0/16".to_owned(),
            "--service-account-issuer=https://hosted".to_owned(),
            format!("--service-account-key-file={}", file("sa.crt")),
            format!("--service-account-signing-key-file={}", file("sa.key")),
            format!("--token-auth-file={}", file("tokens.csv")),
            "--authorization-mode=RBAC".to_owned(),
            "--endpoint-reconciler-type=none".to_owned(),
            // Only root may compact.
            "--etcd-compaction-interval=0s".to_owned(),
        ]);
        let words = with_hosts(hosts, &words);
        ApiServer {
            process: Running::start(Path::new(&words[0]), &words[1..], home.join("log")),
            kubectl: programs.join("kubectl"),
            url: format!("https://{address}:6443"),
        }
    }

    fn kubectl(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(&self.kubectl);
        command.args(["--server", &self.url, "--token", TOKEN]);
        command.args(["--insecure-skip-tls-verify", "--cache-dir=/nonexistent"]);
        command.args(arguments).env_clear();
        command.output().expect("kubectl runs")
    }

    fn must(&self, arguments: &[&str]) -> String {
        let output = self.kubectl(arguments);
        let failed = format!(
            "kubectl {arguments:?}: {output:?}\n{}",
            self.process.output()
        );
        assert!(output.status.success(), "{failed}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    fn is_ready(&self) {
        let begun = std::time::Instant::now();
        while begun.elapsed() < PATIENCE {
            if self.kubectl(&["get", "--raw", "/readyz"]).status.success() {
                return;
            }
            std::thread::sleep(Duration::from_millis(200));
        }
        panic!("the API server is not ready:\n{}", self.process.output());
    }
}

fn asking_for_flags(mount: &Path) -> EtcdUser {
    let mut user = user("apiserver");
    user.spec.connection = Some(UserConnection {
        kube_apiserver: Some(KubeApiserverFlags {
            mount_path: mount.display().to_string(),
            prefix: "/registry".to_owned(),
        }),
        ..UserConnection::default()
    });
    user
}

#[test]
fn a_connection_secret_is_enough_for_kube_apiserver() {
    let test = "connections::apiserver::a_connection_secret_is_enough_for_kube_apiserver";
    let (Some(peers), Some(programs)) = (peers(test), kubernetes(test)) else {
        return;
    };
    if let Err(reason) = can_have_hosts() {
        return skip(test, &reason);
    }
    let world = World::start(Kind::Quorate, &peers);
    world.add_user("apiserver", None, "/registry/");
    world.enable_authentication();
    let (mount, home) = (
        world.mount("apiserver"),
        tempfile::tempdir().expect("a directory"),
    );
    world.write_secret("apiserver", &asking_for_flags(&mount), None);
    for (from, to) in [("tls.crt", "sa.crt"), ("tls.key", "sa.key")] {
        fs::copy(mount.join(from), home.path().join(to)).expect("copied");
    }
    let server = ApiServer::start(&programs, home.path(), &world.hosts(), &mount);
    server.is_ready();
    server.must(&[
        "create",
        "configmap",
        "greeting",
        "--from-literal=say=hello",
    ]);
    let read = server.must(&["get", "configmap", "greeting", "-o", "jsonpath={.data.say}"]);
    assert_eq!(read, "hello");
    let key = "/registry/configmaps/default/greeting";
    assert_eq!(
        world.cluster.must(0, &["get", key, "--keys-only"]).trim(),
        key
    );
    let log = server.process.output();
    assert!(!log.contains("ermission denied"), "{log}");
    if newest() {
        lists_are_streamed(&server);
    }
}

/// From 1.37 on an API server reads whole kinds by `RangeStream`, and by pages if that was refused; its metrics tell which.
fn lists_are_streamed(server: &ApiServer) {
    let metrics = server.must(&["get", "--raw", "/metrics"]);
    let of = |metric: &str, operation: &str| -> Vec<String> {
        let operation = format!("operation=\"{operation}\"");
        let lines = metrics.lines().filter(|line| line.starts_with(metric));
        let lines = lines.filter(|line| line.contains(&operation));
        lines.map(str::to_owned).collect()
    };
    let streamed = of("etcd_request_duration_seconds_count", "listStream");
    assert!(streamed.len() > 10, "{streamed:?}");
    for (metric, operation) in [
        ("etcd_request_errors_total", "listStream"),
        ("etcd_request_duration_seconds_count", "list"),
    ] {
        let none = of(metric, operation);
        assert!(none.is_empty(), "{none:?}");
    }
}
