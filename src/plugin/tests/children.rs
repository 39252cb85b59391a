//! The plugin with a `kubectl` and an `etcdctl` of the test on its PATH: what it runs, and that nothing is left of it.
#![cfg(unix)]
// The tests run other programs, and wait for what these write.
#![allow(clippy::disallowed_methods, clippy::panic)]

use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use tempfile::TempDir;

/// Prints the objects of the stage, and what port-forward and logs print.
const KUBECTL: &str = r#"#!/bin/sh
echo "$*" >>"$STAGE/asked"
case "$1" in
get)
  # of this name there is none
  case " $* " in *" restored "*) exit ;; esac
  for word; do
    case "$word" in
    etcdclusters.quorate.dev) cat "$STAGE/cluster" && exit ;;
    pods) cat "$STAGE/pods" && exit ;;
    secrets)
      [ -f "$STAGE/secret" ] || { echo "Error from server (Forbidden): secrets is forbidden" >&2; exit 1; }
      cat "$STAGE/secret" && exit ;;
    events | leases*) echo '{"items": []}' && exit ;;
    etcdrecoveries*) cat "$STAGE/recoveries" && exit ;;
    persistentvolumeclaims) echo '{"items": []}' && exit ;;
    etcdbackupstores*) cat "$STAGE/stores" && exit ;;
    etcdbackups.quorate.dev)
      # another one each time, and the last one again and again
      echo >>"$STAGE/looks"
      for look in $(seq "$(grep -c '' "$STAGE/looks")" -1 1); do cat "$STAGE/backup-$look" 2>/dev/null && exit; done
      echo "Unable to connect to the server" >&2
      exit 1 ;;
    esac
  done
  echo "Error from server (Forbidden): the test does not let you" >&2
  exit 1 ;;
port-forward)
  for word; do case "$word" in pod/*) pod=${word#pod/} ;; esac; done
  if [ -f "$STAGE/refused-$pod" ]; then echo "error: unable to forward: $pod is gone" >&2; exit 1; fi
  echo $$ >>"$STAGE/forwards"
  echo "Forwarding from 127.0.0.1:4${pod%-0} -> 2379" | sed 's/demo-/000/'
  sleep 600 &
  echo $! >>"$STAGE/forwards"
  wait ;;
logs)
  case "$*" in
  *--previous*) echo "error: previous terminated container member not found" ;;
  *) echo "[pod/member] a line of the log" ;;
  esac
  exit "$(cat "$STAGE/code" 2>/dev/null || echo 3)" ;;
version) echo '{"serverVersion": {"gitVersion": "v1.34.0"}}' ;;
create) tee "$STAGE/created" ;;
patch)
  # overtaken once, where the test wants that
  if [ -f "$STAGE/overtaken" ]; then
    rm "$STAGE/overtaken"
    echo "Error from server (Conflict): the object has been modified; please apply your changes to the latest version" >&2
    exit 1
  fi
  cat "$STAGE/cluster" ;;
apply)
  cat >"$STAGE/applied"
  echo "Error from server (Invalid): refused by the test" >&2
  exit 1 ;;
esac
"#;

/// Prints how it was called, or waits for a signal.
const ETCDCTL: &str = r#"#!/bin/sh
echo "arguments $*"
env | grep '^ETCDCTL_' | sort
if [ -n "$ETCDCTL_CACERT" ]; then
  echo "ca $(cat "$ETCDCTL_CACERT"), certificate $(cat "$ETCDCTL_CERT"), key $(cat "$ETCDCTL_KEY")"
  ls -ld "$(dirname "$ETCDCTL_KEY")" | cut -c1-10
fi
if [ "$1" = wait ]; then
  trap 'echo ended by a signal; exit 9' TERM
  echo ready >"$STAGE/ready"
  while :; do sleep 0.05; done
fi
[ "$1" != fail ] || exit 7
"#;

struct Stage {
    folder: TempDir,
}

impl Stage {
    /// With a cluster of three ready voters.
    fn new(tls: bool) -> Stage {
        let stage = Stage {
            folder: TempDir::new().expect("a folder"),
        };
        fs::create_dir(stage.path("bin")).expect("a folder");
        fs::create_dir(stage.path("tmp")).expect("a folder");
        stage.program("kubectl", KUBECTL);
        stage.program("etcdctl", ETCDCTL);
        stage.write("cluster", &cluster(tls));
        let pods = ["demo-1", "demo-2", "demo-3"].map(|member| pod(member, tls));
        stage.write("pods", &json!({"items": pods}));
        if tls {
            // "authority", "certificate" and "secret" in base64.
            let data = json!({"ca.crt": "YXV0aG9yaXR5", "tls.crt": "Y2VydGlmaWNhdGU=", "tls.key": "c2VjcmV0"});
            let secret =
                json!({"kind": "Secret", "metadata": {"name": "demo-client"}, "data": data});
            stage.write("secret", &secret);
        }
        stage
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, object: &Value) {
        fs::write(self.path(name), object.to_string()).expect("written");
    }

    fn program(&self, name: &str, text: &str) {
        let path = self.path("bin").join(name);
        fs::write(&path, text).expect("written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("executable");
    }

    fn plugin(&self, words: &[&str]) -> Command {
        let mut plugin = Command::new(env!("CARGO_BIN_EXE_kubectl-quorate"));
        let path = format!("{}:/usr/bin:/bin", self.path("bin").display());
        plugin.args(words).env("PATH", path);
        plugin.env("STAGE", self.folder.path());
        plugin.env("TMPDIR", self.path("tmp"));
        plugin.env("ETCDCTL_INSECURE_SKIP_TLS_VERIFY", "true");
        plugin.env("ETCDCTL_USER", "alice");
        plugin.stdin(Stdio::null());
        plugin.stdout(Stdio::piped()).stderr(Stdio::piped());
        plugin
    }

    fn run(&self, words: &[&str]) -> Output {
        self.plugin(words).output().expect("it runs")
    }

    fn asked(&self) -> String {
        fs::read_to_string(self.path("asked")).unwrap_or_default()
    }

    /// No certificate and no process is left.
    fn is_clean(&self) {
        let left = fs::read_dir(self.path("tmp")).expect("a folder").count();
        assert_eq!(left, 0, "files are left");
        let forwards = fs::read_to_string(self.path("forwards")).unwrap_or_default();
        for process in forwards.lines() {
            let process = Pid::from_raw(process.parse().expect("a number"));
            within(&format!("process {process} is left"), || {
                kill(process, None).is_err()
            });
        }
    }
}

/// Until this is so, for ten seconds at most.
fn within(otherwise: &str, mut so: impl FnMut() -> bool) {
    let until = Instant::now() + Duration::from_secs(10);
    while !so() {
        assert!(Instant::now() < until, "{otherwise}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn cluster(tls: bool) -> Value {
    let row = |name: &str| json!({"name": name, "role": "Voter", "health": "Healthy"});
    let endpoints = match tls {
        true => json!({
            "client": "https://demo-client:2379", "caSecretRef": {"name": "demo-client-ca"},
            "clientSecretRef": {"name": "demo-client"},
        }),
        false => json!({"client": "http://demo-client:2379"}),
    };
    json!({
        "apiVersion": "quorate.dev/v1alpha1", "kind": "EtcdCluster",
        "metadata": {"name": "demo", "namespace": "tenants", "uid": "u"},
        "spec": {"replicas": 3, "version": "0.1.0", "tls": tls.then(|| json!({}))},
        "status": {"members": [row("demo-1"), row("demo-2"), row("demo-3")], "endpoints": endpoints},
    })
}

fn pod(member: &str, tls: bool) -> Value {
    let scheme = if tls { "https" } else { "http" };
    let argument = format!("--listen-client-urls={scheme}://0.0.0.0:2379");
    json!({
        "metadata": {
            "name": format!("{member}-0"),
            "namespace": "tenants",
            "labels": {"quorate.dev/cluster-uid": "u", "quorate.dev/member": member},
        },
        "spec": {"containers": [{"name": "member", "args": [argument]}]},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
    })
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn etcdctl_has_endpoints_and_certificates() {
    let stage = Stage::new(true);
    let output = stage.run(&["etcdctl", "demo", "--", "get", "--prefix", "key"]);
    let (said, errors) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{errors}");
    assert!(said.starts_with("arguments get --prefix key\n"), "{said}");
    let endpoints = "ETCDCTL_ENDPOINTS=https://127.0.0.1:40001,https://127.0.0.1:40002,https://127.0.0.1:40003\n";
    assert!(said.contains(endpoints), "{said}");
    assert!(
        said.contains("ca authority, certificate certificate, key secret\n"),
        "{said}"
    );
    assert!(said.contains("drwx------\n"), "{said}");
    assert!(said.contains("ETCDCTL_USER=alice\n"), "{said}");
    assert!(!said.contains("INSECURE"), "{said}");
    let asked = stage.asked();
    let forward = "port-forward --request-timeout=0 --namespace=tenants --address=127.0.0.1 pod/demo-1-0 :2379\n";
    assert!(asked.contains(forward), "{asked}");
    stage.is_clean();
}

#[test]
fn etcdctl_without_tls_of_one_member() {
    let stage = Stage::new(false);
    let words = ["etcdctl", "demo", "--member=demo-2", "--", "fail"];
    let output = stage.run(&words);
    let said = text(&output.stdout);
    assert_eq!(output.status.code(), Some(7), "etcdctl's own code");
    let endpoints = "ETCDCTL_ENDPOINTS=http://127.0.0.1:40002\n";
    assert!(said.contains(endpoints), "{said}");
    assert!(!said.contains("CACERT"), "{said}");
    stage.is_clean();
}

#[test]
fn members_that_cannot_be_reached_are_left_out() {
    let stage = Stage::new(true);
    fs::write(stage.path("refused-demo-1-0"), "").expect("written");
    let output = stage.run(&["etcdctl", "demo", "--", "get", "key"]);
    let (said, errors) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{errors}");
    assert!(said.contains("=https://127.0.0.1:40002,"), "{said}");
    assert!(
        errors.contains("left out demo-1-0: error: unable"),
        "{errors}"
    );
    for pod in ["demo-2-0", "demo-3-0"] {
        fs::write(stage.path(&format!("refused-{pod}")), "").expect("written");
    }
    let output = stage.run(&["etcdctl", "demo", "--", "get", "key"]);
    let errors = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{errors}");
    assert!(errors.contains("pods/portforward"), "{errors}");
    stage.is_clean();
}

#[test]
fn errors_say_what_to_do_and_leave_nothing() {
    let stage = Stage::new(true);
    fs::remove_file(stage.path("bin/etcdctl")).expect("removed");
    let words = ["etcdctl", "demo", "--", "get", "key"];
    let output = stage.run(&words);
    let errors = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{errors}");
    assert!(errors.contains("cannot run etcdctl: put it on the PATH"));
    stage.is_clean();

    fs::remove_file(stage.path("secret")).expect("removed");
    let errors = text(&stage.run(&words).stderr);
    assert!(
        errors.contains("cannot read Secret demo-client"),
        "{errors}"
    );
    assert!(errors.contains("Forbidden"), "{errors}");

    stage.write(
        "secret",
        &json!({"metadata": {"name": "demo-client"}, "data": {"ca.crt": "YQ=="}}),
    );
    let errors = text(&stage.run(&words).stderr);
    assert!(errors.contains("demo-client has no tls.crt"), "{errors}");

    let contradicts = [
        "etcdctl",
        "demo",
        "--",
        "get",
        "key",
        "--endpoints=http://a:1",
    ];
    let errors = text(&stage.run(&contradicts).stderr);
    assert!(
        errors.contains("leave out etcdctl's --endpoints"),
        "{errors}"
    );

    stage.write("pods", &json!({"items": []}));
    let errors = text(&stage.run(&words).stderr);
    assert!(errors.contains("no voter of demo is ready"), "{errors}");
    stage.is_clean();
}

fn started(stage: &Stage) -> Child {
    let child = stage.plugin(&["etcdctl", "demo", "--", "wait"]).spawn();
    let ready = stage.path("ready");
    within("etcdctl was not started", || ready.exists());
    child.expect("it runs")
}

#[test]
fn signal_ends_etcdctl_and_leaves_nothing() {
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
        let stage = Stage::new(true);
        let child = started(&stage);
        let process = i32::try_from(child.id()).expect("a process");
        kill(Pid::from_raw(process), signal).expect("sent");
        let output = child.wait_with_output().expect("it ends");
        let said = text(&output.stdout);
        assert!(said.ends_with("ended by a signal\n"), "{said}");
        assert_eq!(output.status.code(), Some(9), "etcdctl's own code");
        stage.is_clean();
    }
}

#[test]
fn logs_are_kubectls_own() {
    let stage = Stage::new(true);
    let output = stage.run(&["logs", "demo", "--member=demo-2", "--since=5m"]);
    assert_eq!(text(&output.stdout), "[pod/member] a line of the log\n");
    assert_eq!(output.status.code(), Some(3), "kubectl's own code");
    let asked = stage.asked();
    let logs = "logs --request-timeout=0 --namespace=tenants --selector=quorate.dev/cluster-uid=u,quorate.dev/member in (demo-2) ";
    assert!(asked.contains(logs), "{asked}");
    let errors = text(&stage.run(&["logs", "demo", "--member=demo-7"]).stderr);
    assert!(errors.contains("demo-7 is no member"), "{errors}");
}

/// An end-to-end test failed once in many runs: `kubectl get -o yaml | sed | kubectl quorate plan -f -` was refused as a
/// conflict, because the operator wrote the status in between and the file had the version of before.
#[test]
fn plan_of_a_file_does_not_depend_on_the_version_that_it_was_read_at() {
    let stage = Stage::new(false);
    let mut manifest = cluster(false);
    manifest["metadata"]["resourceVersion"] = json!("17");
    let output = plan_of(&stage, &manifest.to_string());
    let errors = text(&output.stderr);
    assert!(errors.contains("refused by the test"), "{errors}");
    let applied = fs::read(stage.path("applied")).expect("applied");
    let applied: Value = serde_json::from_slice(&applied).expect("a manifest");
    assert_eq!(applied, cluster(false));
    let asked = stage.asked();
    assert!(
        asked.contains("apply --request-timeout=10s --dry-run=server"),
        "{asked}"
    );
}

#[test]
fn plan_of_a_file_is_of_one_cluster() {
    let stage = Stage::new(false);
    let one = cluster(false).to_string();
    let kind = json!({"apiVersion": "v1", "kind": "Secret"}).to_string();
    let files = [
        (format!("{one}{one}"), "- holds 2 resources"),
        (kind, "- holds a Secret"),
    ];
    for (file, expected) in files {
        let output = plan_of(&stage, &file);
        let errors = text(&output.stderr);
        assert!(errors.contains(expected), "{errors}");
        assert!(!stage.path("applied").exists(), "{errors}");
    }
}

fn plan_of(stage: &Stage, file: &str) -> Output {
    let mut command = stage.plugin(&["plan", "-f", "-"]);
    let mut child = command.stdin(Stdio::piped()).spawn().expect("it runs");
    let mut input = child.stdin.take().expect("an input");
    input.write_all(file.as_bytes()).expect("written");
    drop(input);
    child.wait_with_output().expect("it ends")
}

fn unpacked(archive: &std::path::Path) -> Vec<(String, String)> {
    let file = fs::File::open(archive).expect("an archive");
    let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(file));
    let mut files = Vec::new();
    for entry in archive.entries().expect("entries") {
        let mut entry = entry.expect("an entry");
        let path = entry.path().expect("a name").display().to_string();
        let mut text = String::new();
        entry.read_to_string(&mut text).expect("text");
        let (folder, name) = path.split_once('/').expect("one folder");
        assert!(
            folder.starts_with("quorate-report-tenants-demo-"),
            "{folder}"
        );
        files.push((name.to_owned(), text));
    }
    files
}

#[test]
fn top_needs_a_terminal_or_prints_once() {
    let stage = Stage::new(false);
    let errors = text(&stage.run(&["top"]).stderr);
    assert!(errors.contains("no terminal: --once"), "{errors}");
    let mut other = cluster(false);
    other["metadata"]["name"] = json!("other");
    other["status"] =
        json!({"readyReplicas": 1, "leader": "other-1", "summary": "2 more are wanted"});
    stage.write("cluster", &json!({"items": [cluster(false), other]}));
    let output = stage.run(&["top", "--once", "-A"]);
    let said = text(&output.stdout);
    let expected = "NAMESPACE  NAME   READY  LEADER   VERSION  BEHIND  STATUS\n\
                    tenants    demo   0/3    -        -        0       no operator has reported on it yet\n\
                    tenants    other  1/3    other-1  -        0       2 more are wanted\n";
    assert_eq!(said, expected, "{}", text(&output.stderr));
    assert!(
        stage
            .asked()
            .ends_with("etcdclusters.quorate.dev --all-namespaces\n")
    );
}

#[test]
fn report_has_what_helps_and_no_secret() {
    let stage = Stage::new(true);
    stage.write("code", &json!(0));
    let path = stage.path("report.tar.gz");
    let output = format!("--output={}", path.display());
    let done = stage.run(&["report", "demo", &output]);
    let (said, errors) = (text(&done.stdout), text(&done.stderr));
    assert_eq!(done.status.code(), Some(0), "{errors}");
    assert!(said.contains("could not be read: missing.txt"), "{said}");
    let files = unpacked(&path);
    let find = |wanted: &str| {
        let file = files.iter().find(|(name, _)| name == wanted);
        file.unwrap_or_else(|| panic!("no {wanted}")).1.as_str()
    };
    assert!(said.contains(&format!(": {} files", files.len())), "{said}");
    assert!(find("status.txt").contains("CLUSTER "));
    assert!(find("cluster.json").contains("demo-client-ca"));
    assert!(find("objects/pods.json").contains("demo-2-0"));
    assert!(find("objects/secrets.json").contains("tls.key"));
    assert!(find("kubernetes.json").contains("v1.34.0"));
    assert_eq!(
        find("members/logs/demo-3-0.log"),
        "[pod/member] a line of the log\n"
    );
    assert!(files.iter().all(|(name, _)| !name.contains("previous")));
    let missing = find("missing.txt");
    assert!(
        missing.contains("objects/nodes.json: Error from server (Forbidden)"),
        "{missing}"
    );
    assert!(
        files
            .iter()
            .all(|(_, content)| !content.contains("c2VjcmV0"))
    );
    let mode = fs::metadata(&path)
        .expect("it is there")
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
    let asked = stage.asked();
    let labelled = "get --request-timeout=10s --output=json secrets --namespace=tenants --selector=quorate.dev/cluster=demo";
    assert!(asked.contains(labelled), "{asked}");

    // No file is written over.
    let again = stage.run(&["report", "demo", &output]);
    let errors = text(&again.stderr);
    assert_eq!(again.status.code(), Some(1), "{errors}");
    assert!(errors.contains("must not exist"), "{errors}");

    let printed = stage.run(&["report", "demo", "--output=-", "--no-logs"]);
    fs::write(stage.path("printed"), &printed.stdout).expect("written");
    let files = unpacked(&stage.path("printed"));
    assert!(files.iter().all(|(name, _)| !name.contains("logs/")));
}

fn backup(phase: &str, message: &str) -> Value {
    json!({
        "apiVersion": "quorate.dev/v1alpha1", "kind": "EtcdBackup", "metadata": {"name": "before", "namespace": "tenants"},
        "spec": {"clusterRef": {"name": "demo"}, "storeRef": {"name": "s3"}},
        "status": {"phase": phase, "message": message},
    })
}

#[test]
fn backup_is_created_and_followed() {
    let stage = Stage::new(false);
    let store = |name: &str| {
        json!({
            "apiVersion": "quorate.dev/v1alpha1", "kind": "EtcdBackupStore", "metadata": {"name": name},
            "spec": {"s3": {"bucket": "b", "credentialsRef": {"name": "c"}}},
        })
    };
    let words = ["backup", "demo", "--as=before", "--verify", "--wait"];
    for (stores, expected) in [
        (vec![], "no EtcdBackupStore in namespace tenants"),
        (vec![store("s3"), store("gcs")], "name one of s3, gcs"),
    ] {
        stage.write("stores", &json!({ "items": stores }));
        let errors = text(&stage.run(&words).stderr);
        assert!(errors.contains(expected), "{errors}");
        assert!(!stage.path("created").exists());
    }
    stage.write("stores", &json!({"items": [store("s3")]}));
    stage.write("backup-1", &backup("Streaming", "a Job reads"));
    stage.write("backup-2", &backup("Uploaded", "a Job restores it"));
    stage.write("backup-3", &backup("Verified", ""));
    let output = stage.run(&words);
    let (said, errors) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{errors}");
    assert!(
        said.ends_with("etcdbackup.quorate.dev/before verified\n"),
        "{said}"
    );
    assert_eq!(
        errors,
        "Streaming: a Job reads\nUploaded: a Job restores it\n"
    );
    let created = fs::read(stage.path("created")).expect("created");
    let created: Value = serde_json::from_slice(&created).expect("a manifest");
    assert_eq!(
        created["metadata"],
        json!({"name": "before", "namespace": "tenants"})
    );
    assert_eq!(created["spec"]["storeRef"]["name"], "s3");
    assert_eq!(created["spec"]["verify"], true);

    // It is not done when the time is over.
    fs::remove_file(stage.path("backup-3")).expect("removed");
    let patient = [&words[..], &["--timeout=0s"]].concat();
    let errors = text(&stage.run(&patient).stderr);
    assert!(errors.contains("the backup goes on"), "{errors}");
    fs::remove_file(stage.path("backup-2")).expect("removed");
    let refused = stage.run(&["backup", "demo", "--timeout=soon", "--wait"]);
    assert_eq!(refused.status.code(), Some(2), "wrong usage");

    stage.write("backup-1", &backup("Failed", "access denied"));
    let output = stage.run(&["backup", "demo", "--store=gcs", "--wait"]);
    let errors = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{errors}");
    assert!(
        errors.contains("given up: Failed: access denied"),
        "{errors}"
    );
}

#[test]
fn manifest_of_a_restore_is_that_of_the_saved_cluster() {
    let stage = Stage::new(true);
    let mut saved = cluster(true);
    saved["spec"]["storage"] = json!({"size": "8Gi"});
    saved["spec"]["bootstrap"] = json!({"restore": {"backupRef": {"name": "older"}}});
    saved["spec"]["replaceMembers"] = json!(["demo-1"]);
    stage.write("cluster", &saved);
    let mut good = backup("Verified", "");
    good["status"]["revision"] = json!(17);
    good["status"]["size"] = json!("1.2 GiB");
    stage.write("backup-1", &good);
    let output = stage.run(&[
        "restore",
        "before",
        "--as=restored",
        "--at-time=2026-11-25T08:30:00Z",
    ]);
    let (said, errors) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{errors}");
    assert!(
        said.starts_with("# EtcdBackup before: demo at revision 17, "),
        "{said}"
    );
    assert!(said.contains("1.2 GiB, never verified"), "{said}");
    let parsed: Value = serde_saphyr::from_str(&said).expect("YAML");
    let restore = json!({"backupRef": {"name": "before"}, "at": {"time": "2026-11-25T08:30:00Z"}});
    let mut spec = saved["spec"].clone();
    spec["bootstrap"] = json!({ "restore": restore });
    spec.as_object_mut()
        .expect("fields")
        .remove("replaceMembers");
    let metadata = json!({"name": "restored", "namespace": "tenants"});
    assert_eq!(parsed["metadata"], metadata);
    assert_eq!(parsed["spec"], spec);

    let errors = text(&stage.run(&["restore", "before", "--as=demo"]).stderr);
    assert!(errors.contains("EtcdCluster demo exists"), "{errors}");
    let both = stage.run(&[
        "restore",
        "before",
        "--as=restored",
        "--latest",
        "--at-revision=5",
    ]);
    assert_eq!(both.status.code(), Some(2), "wrong usage");
    stage.write("backup-1", &backup("Failed", "access denied"));
    let errors = text(&stage.run(&["restore", "before", "--as=restored"]).stderr);
    assert!(
        errors.contains("before is Failed") && errors.contains("access denied"),
        "{errors}"
    );
}

/// A newer operator may report what this plugin does not know: programs get it as it is, and people are told.
#[test]
fn value_that_is_not_known_is_passed_on() {
    let stage = Stage::new(false);
    let mut newer = cluster(false);
    newer["status"]["members"][0]["health"] = json!("Resting");
    newer["status"]["members"][0]["mood"] = json!("calm");
    stage.write("cluster", &newer);
    let output = stage.run(&["members", "demo", "-o", "json"]);
    let printed: Value = serde_json::from_slice(&output.stdout).expect("a document");
    assert_eq!(printed["members"], newer["status"]["members"]);
    for words in [["members", "demo"], ["logs", "demo"]] {
        let output = stage.run(&words);
        let errors = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{errors}");
        assert!(
            errors.contains("install the one of the operator's"),
            "{errors}"
        );
        assert!(errors.contains("Resting"), "{errors}");
    }
}

/// Found by reading: the plugin panicked where `head` had closed the pipe.
#[test]
fn reader_may_have_seen_enough() {
    let stage = Stage::new(true);
    let mut command = stage.plugin(&["members", "demo", "-o", "json"]);
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let output = command.stdout(writer).output().expect("it runs");
    assert_eq!(text(&output.stderr), "");
    assert_eq!(output.status.code(), Some(0));
}

/// The name goes into the annotation of the resource as it was read: an operator that wrote its status meanwhile is no reason
/// to overwrite what somebody else fenced, and none to fail.
#[test]
fn fence_names_a_voter_and_unfence_takes_it_back() {
    let stage = Stage::new(false);
    let mut fenced = cluster(false);
    fenced["metadata"]["resourceVersion"] = json!("7");
    stage.write("cluster", &fenced);
    fs::write(stage.path("overtaken"), "").expect("written");
    let output = stage.run(&["fence", "demo", "demo-2", "-n", "tenants"]);
    let said = text(&output.stdout);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(
        said.contains("kubectl quorate unfence demo demo-2"),
        "{said}"
    );
    let asked = stage.asked();
    let patch = r#"--patch={"metadata":{"annotations":{"quorate.dev/fenced":"demo-2"},"resourceVersion":"7"}}"#;
    assert_eq!(asked.matches(patch).count(), 2, "{asked}");

    fenced["metadata"]["annotations"] = json!({"quorate.dev/fenced": "demo-2"});
    stage.write("cluster", &fenced);
    let output = stage.run(&["fence", "demo", "demo-3"]);
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr);
    assert!(
        said.contains("without demo-3 1 healthy voters of 3 are left"),
        "{said}"
    );
    let output = stage.run(&["unfence", "demo", "demo-3"]);
    assert!(text(&output.stderr).contains("demo-3 is not fenced"));
    let output = stage.run(&["unfence", "demo", "demo-2"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let gone = r#"{"annotations":{"quorate.dev/fenced":null},"resourceVersion":"7"}"#;
    assert!(stage.asked().contains(gone), "{}", stage.asked());
}

fn document(output: &Output) -> Value {
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("a document alone")
}

/// `-o json` of what changes something prints the object as the API server has it then, and nothing beside it.
#[test]
fn what_was_changed_is_printed_for_programs() {
    let stage = Stage::new(false);
    let named = ["backup", "demo", "--as=before", "--store=s3", "-o", "json"];
    let created = document(&stage.run(&named));
    assert_eq!(created["metadata"]["name"], "before");
    stage.write("backup-1", &backup("Streaming", "a Job reads"));
    stage.write("backup-2", &backup("Uploaded", ""));
    let output = stage.run(&[&named[..], &["--wait"]].concat());
    assert_eq!(document(&output), backup("Uploaded", ""));
    let errors = text(&output.stderr);
    assert!(
        errors.starts_with("etcdbackup.quorate.dev/before\n"),
        "{errors}"
    );
    stage.write("backup-3", &backup("Failed", "access denied"));
    let output = stage.run(&[&named[..], &["--wait"]].concat());
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(text(&output.stdout), "");

    let fenced = stage.run(&["fence", "demo", "demo-2", "-o", "json"]);
    assert_eq!(document(&fenced), cluster(false));
    let mut annotated = cluster(false);
    annotated["metadata"]["annotations"] = json!({"quorate.dev/fenced": "demo-2"});
    stage.write("cluster", &annotated);
    let freed = stage.run(&["unfence", "demo", "demo-2", "-o", "yaml"]);
    let freed: Value = serde_saphyr::from_str(&text(&freed.stdout)).expect("YAML");
    assert_eq!(freed, annotated);
    let manifest = ["restore", "before", "--as=restored", "-o", "json"];
    stage.write("backup-3", &backup("Verified", ""));
    let manifest = document(&stage.run(&manifest));
    assert_eq!(
        manifest["spec"]["bootstrap"]["restore"]["backupRef"]["name"],
        "before"
    );
}

#[test]
fn recoveries_and_the_list_are_printed_for_programs() {
    let stage = Stage::new(false);
    let recovery = |name: &str, cluster: &str| {
        json!({
            "metadata": {"name": name}, "spec": {"clusterRef": {"name": cluster}}, "status": {"mood": "calm"},
        })
    };
    let all = [recovery("one", "demo"), recovery("two", "another")];
    stage.write("recoveries", &json!({ "items": all }));
    let list = document(&stage.run(&["recover", "demo", "-o", "json"]));
    assert_eq!(
        list,
        json!({"apiVersion": "v1", "kind": "List", "items": [recovery("one", "demo")]})
    );

    let mut lost = cluster(false);
    lost["metadata"]["uid"] = json!("u");
    lost["status"]["clusterID"] = json!("c");
    lost["status"]["backup"] = json!({"lastSuccess": {"name": "20261201", "time": "2026-11-25T08:30:00Z", "revision": 17}});
    stage.write("cluster", &lost);
    stage.write("recoveries", &json!({"items": []}));
    let words = ["recover", "demo", "--plan", "-o", "json"];
    let planned = document(&stage.run(&words));
    assert_eq!(planned["kind"], "EtcdRecovery");
    assert_eq!(planned["spec"]["acceptLoss"], false);
    // A name of digits is no number.
    let named = &planned["spec"]["restore"]["backupRef"]["name"];
    assert_eq!(*named, json!("20261201"));

    let mut listed = cluster(false);
    listed["status"]["readyReplicas"] = json!(2);
    listed["status"]["members"][1]["lagEntries"] = json!(7);
    listed["status"]["conditions"] =
        json!([{"type": "Ready", "status": "False", "reason": "Hibernated"}]);
    stage.write("cluster", &json!({"items": [listed]}));
    let list = document(&stage.run(&["top", "--once", "-o", "json"]));
    let expected = json!({
        "namespace": "tenants", "name": "demo", "replicas": 3, "readyReplicas": 2, "lagEntries": 7,
        "conditions": [{"type": "Ready", "status": "False", "reason": "Hibernated"}],
    });
    assert_eq!(list, json!({"clusters": [expected]}));
    // Nothing is known of it, which is not 0.
    let mut new = cluster(false);
    new.as_object_mut().expect("fields").remove("status");
    stage.write("cluster", &json!({"items": [new]}));
    let list = document(&stage.run(&["top", "--once", "-o", "json"]));
    let expected = json!({"namespace": "tenants", "name": "demo", "replicas": 3, "conditions": []});
    assert_eq!(list, json!({"clusters": [expected]}));
    let refused = stage.run(&["top", "-o", "json"]);
    assert_eq!(refused.status.code(), Some(2), "it has no end");
}
