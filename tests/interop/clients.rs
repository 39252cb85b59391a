//! The story of each client program, told to three members; kills and restarts members on its request.

use std::path::Path;
use std::thread;

use crate::cluster::{Cluster, Kind};
use crate::conversation::converse;
use crate::process::{peers, skip};
use crate::programs::{self, Program};

/// Used on both sides: on a busy machine or a slow disk the leader must not lose an election in the middle of a
/// chapter, because not every client retries. Without syncs a kill loses nothing: written data is still in the page
/// cache for the restarted process.
const FLAGS: &[&str] = &[
    "--heartbeat-interval=200",
    "--election-timeout=2000",
    "--unsafe-no-fsync",
];

/// Runs a client's story against three members; returns the chapters that it completed.
fn run_story(kind: Kind, peers: &Path, program: &[String]) -> Vec<String> {
    let flags: Vec<String> = FLAGS.iter().map(|flag| (*flag).to_owned()).collect();
    let mut cluster = Cluster::start_with(kind, peers, 3, &flags);
    let mut words = program.to_vec();
    words.extend(cluster.members.iter().map(|member| member.client.clone()));
    let mut killed = None;
    let told = converse(&words, |line| {
        match (line, killed) {
            ("please kill the leader", None) => {
                let leader = cluster.leader();
                cluster.stop(leader);
                killed = Some(leader);
            }
            ("please restart it", Some(leader)) => {
                cluster.run(leader, "new");
                cluster.wait_healthy(leader);
                killed = None;
            }
            _ => return false,
        }
        true
    });
    let (status, chapters, errors) = (told.status, told.chapters, told.errors);
    // The client's output comes last, so that it is visible in a truncated message.
    assert!(
        status.success(),
        "{kind:?}\n{}--- {kind:?}: {program:?} ended with {status} after {chapters:?} with stderr:\n{errors}",
        cluster.logs()
    );
    chapters
}

/// Runs the story against ours and against real etcd, so that a failure shows which side is wrong.
fn run_on_both(test: &str, program: impl FnOnce(&Path) -> Program, least: usize) {
    let Some(peers) = peers(test) else { return };
    let program = match program(&peers) {
        Ok(program) => program,
        Err(reason) => return skip(test, &reason),
    };
    let (ours, theirs) = thread::scope(|scope| {
        let theirs = scope.spawn(|| run_story(Kind::Etcd, &peers, &program));
        let ours = run_story(Kind::Quorate, &peers, &program);
        (
            ours,
            theirs
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
        )
    });
    assert_eq!(ours, theirs);
    assert!(ours.len() >= least, "too few chapters: {ours:?}");
}

#[test]
fn the_go_client_library() {
    let program = |peers: &Path| programs::go(peers, "story-go");
    run_on_both("the_go_client_library", program, 9);
}

#[test]
fn the_rust_client_etcd_client() {
    let program = |_: &Path| programs::rust("story");
    run_on_both("the_rust_client_etcd_client", program, 9);
}

#[test]
fn the_python_client_aetcd() {
    let program = |_: &Path| programs::python("story.py");
    run_on_both("the_python_client_aetcd", program, 7);
}

#[test]
fn the_node_client_etcd3() {
    let program = |_: &Path| programs::node("story.js");
    run_on_both("the_node_client_etcd3", program, 9);
}
