//! Applications that have nothing but a connection Secret: one with a password and a certificate, one with a
//! certificate alone. In its own language each reads and writes below its prefix, watches, keeps a lease alive, is
//! refused anything else and members with a certificate of another CA, and connects again after the Secret was renewed.
//! The same is run against real etcd, so that a failure shows which side is wrong.

mod apiserver;
mod world;

use std::path::Path;
use std::process::Command;
use std::thread;

use quorate::crd::access::EtcdUser;

use crate::cluster::Kind;
use crate::conversation::converse;
use crate::process::{peers, report_skipped, skip};
use crate::programs::{self, Program};
use world::{PASSWORDS, World};

/// What each program prints.
const CHAPTERS: [&str; 8] = [
    "ok: keys",
    "ok: a watch",
    "ok: a lease",
    "ok: a transaction",
    "ok: nothing else",
    "ok: a lost token",
    "ok: another CA",
    "ok: a renewed Secret",
];

/// Runs a program in a mount namespace of its own with a file of hosts in place of that of the machine.
const WITH_HOSTS: [&str; 6] = [
    "unshare",
    "--map-root-user",
    "--mount",
    "sh",
    "-c",
    "mount --bind \"$1\" /etc/hosts && shift && exec \"$@\"",
];

fn with_hosts(hosts: &Path, program: &[String]) -> Vec<String> {
    let mut words: Vec<String> = WITH_HOSTS.map(str::to_owned).to_vec();
    words.extend(["sh".to_owned(), hosts.display().to_string()]);
    words.extend_from_slice(program);
    words
}

/// Whether this machine permits that, and why not.
fn can_have_hosts() -> Result<(), String> {
    let words = with_hosts(Path::new("/etc/hosts"), &["true".to_owned()]);
    let done = Command::new(&words[0]).args(&words[1..]).output();
    match done {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(format!(
            "no mount namespace: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        )),
        Err(error) => Err(format!("no unshare: {error}")),
    }
}

fn user(name: &str) -> EtcdUser {
    let text = format!(
        "apiVersion: quorate.dev/v1alpha1\nkind: EtcdUser\nmetadata: {{name: {name}}}\n\
         spec: {{clusterRef: {{name: demo}}, userName: {name}, certificate: {{}}}}\n"
    );
    serde_saphyr::from_str(&text).expect("a user")
}

/// An application's whole life with this user.
fn application(world: &World, program: &[String], name: &str, passwords: Option<[&str; 2]>) {
    let (user, other) = (user(name), format!("{name}-other"));
    let first = passwords.map(|passwords| passwords[0]);
    world.write_secret(name, &user, first);
    world.write_other(&other, &user, first);
    let mut words = with_hosts(&world.hosts(), program);
    for secret in [name, &other] {
        words.push(world.mount(secret).display().to_string());
    }
    let told = converse(&words, |line| {
        match line {
            "please forget the tokens" => world.forget_tokens(),
            "please renew the Secret" => {
                let password = passwords.map(|passwords| passwords[1]);
                world.set_password(name, password);
                world.write_secret(name, &user, password);
            }
            _ => return false,
        }
        true
    });
    assert!(
        told.status.success() && told.chapters == CHAPTERS,
        "{}--- {:?}: {words:?} ended with {} after {:?} with stderr:\n{}",
        world.cluster.logs(),
        world.cluster.kind,
        told.status,
        told.chapters,
        told.errors
    );
}

fn applications(kind: Kind, peers: &Path, program: &[String]) {
    let world = World::start(kind, peers);
    world.add_user("app", Some(PASSWORDS[0]), "/app/");
    world.add_user("worker", None, "/worker/");
    world.enable_authentication();
    application(&world, program, "app", Some(PASSWORDS));
    application(&world, program, "worker", None);
}

fn run_on_both(test: &str, program: impl FnOnce(&Path) -> Program) {
    let Some(peers) = peers(test) else { return };
    let program = match can_have_hosts().and_then(|()| program(&peers)) {
        Ok(program) => program,
        Err(reason) => return skip(test, &reason),
    };
    thread::scope(|scope| {
        scope.spawn(|| applications(Kind::Etcd, &peers, &program));
        applications(Kind::Quorate, &peers, &program);
    });
}

#[test]
fn a_connection_secret_is_enough_for_go() {
    let program = |peers: &Path| programs::go(peers, "connect-go");
    run_on_both("connections::a_connection_secret_is_enough_for_go", program);
}

#[test]
fn a_connection_secret_is_enough_for_rust() {
    let program = |_: &Path| programs::rust("connect");
    run_on_both(
        "connections::a_connection_secret_is_enough_for_rust",
        program,
    );
}

#[test]
fn a_connection_secret_is_enough_for_python() {
    let program = |_: &Path| programs::python("connect.py");
    run_on_both(
        "connections::a_connection_secret_is_enough_for_python",
        program,
    );
}

#[test]
fn a_connection_secret_is_enough_for_node() {
    let program = |_: &Path| programs::node("connect.js");
    run_on_both(
        "connections::a_connection_secret_is_enough_for_node",
        program,
    );
}

/// Of a registry that nothing else here needs: part of `make soak`.
#[test]
fn a_connection_secret_is_enough_for_java() {
    let test = "connections::a_connection_secret_is_enough_for_java";
    if std::env::var_os("QUORATE_JAVA").is_none() {
        return report_skipped(test, "QUORATE_JAVA=1 fetches jetcd by Maven");
    }
    let program = |_: &Path| programs::java("Connect.java");
    run_on_both(test, program);
}
