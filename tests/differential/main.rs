//! Sends the same random requests over gRPC to Quorate and to real etcd. Responses, error codes and messages, events
//! of every watcher, hashes and snapshots must be equal, also while alarms are active and while a learner is added and
//! removed. Other runs are about users and their permissions. Known differences, with their reasons, are in
//! `docs/differences.md`; the requests here avoid them.
//!
//! A run is a function of its seed. `SEED=n REQUESTS=n` repeats one; `SEEDS=n` executes n of them, from `SEED_BASE`
//! on. On a difference, the test prints the seed, the number of the request, the requests before it, and the shortest
//! list of requests that still shows a difference; with `KEEP_GOING=1` it prints the difference and continues.
//!
//! Needs the tools that `tests/interop/build.sh` builds. Without them each test reports that it was skipped; with
//! `QUORATE_REQUIRE_INTEROP=1` it fails instead.

// Helpers fail a test by panicking, and other processes have to be polled.
#![allow(clippy::panic, clippy::disallowed_methods)]

#[path = "../etcdctl/cluster.rs"]
#[allow(dead_code)]
mod cluster;
mod generator;
mod pair;
#[path = "../etcdctl/process.rs"]
#[allow(dead_code)]
mod process;
mod question;
mod server;
mod shrink;
mod snapshot;
mod trouble;
mod users;
mod watch_streams;

use std::io::Write as _;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use cluster::Kind;
use generator::Generator;
use pair::{Difference, Pair};
use question::{Facts, Question, bulky, expiry, questions};

/// Requests of a run by default; the default seeds execute 20,000 and more.
const REQUESTS: u64 = 5200;
const SEEDS: u64 = 4;
/// Runs in parallel: each waits for watchers about as long as it computes.
const AT_ONCE: usize = 2;

/// The subject of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Subject {
    Keys,
    Users,
}

/// A request, and the member of our cluster that it is sent to.
type Step = (usize, Question);

/// Statistics of a run.
#[derive(Debug, Default)]
struct Summary {
    asked: u64,
    refused: u64,
    revision: i64,
    compactions: usize,
    watchers: i64,
    shown: usize,
    fragments: u64,
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

/// With `DIFFERENTIAL_SELF_TEST=1` both clusters are real etcd, which checks the test itself.
fn ours() -> Kind {
    match std::env::var("DIFFERENTIAL_SELF_TEST") {
        Ok(value) if value == "1" => Kind::Etcd,
        _ => Kind::Quorate,
    }
}

/// Written to the handle directly: the test harness captures the macros' output of a passing test.
fn print(text: &str) {
    let _ = std::io::stderr().write_all(text.as_bytes());
}

/// Executes one run; `sent` contains every request so far when it returns.
async fn converse(
    pair: &mut Pair,
    subject: Subject,
    size: usize,
    seed: u64,
    requests: u64,
    sent: &mut Vec<Step>,
) -> Result<Summary, Difference> {
    let mut generator = Generator::new(seed);
    generator.ordered = subject == Subject::Users;
    let mut facts = Facts {
        revision: 1,
        alone: size == 1,
        ..Facts::default()
    };
    let mut bulky_at = Some(requests / 2);
    let mut last = false;
    while !last {
        let next = if subject == Subject::Users {
            last = pair.asked + 30 >= requests;
            if last || sent.is_empty() {
                users::order()
            } else {
                users::questions(&mut generator, &mut facts)
            }
        } else if bulky_at.is_some_and(|at| pair.asked >= at) {
            bulky_at = None;
            bulky(&facts)
        } else if pair.asked + 10 >= requests {
            last = true;
            expiry()
        } else {
            questions(&mut generator, &mut facts)
        };
        for mut question in next {
            let member = generator.below(size as u64) as usize;
            if size > 1 {
                // etcd has a single member, so these requests cannot be compared.
                if matches!(question, Question::Members | Question::MoveLeader(_)) {
                    continue;
                }
                question.be_linearizable();
            }
            sent.push((member, question));
            let (_, question) = &sent[sent.len() - 1];
            let own = match pair.ask(member, question).await {
                Err(difference) if number("KEEP_GOING") == Some(1) => {
                    print(&format!(
                        "seed {seed}, request {}: {difference}\n",
                        sent.len()
                    ));
                    None
                }
                other => other?,
            };
            facts.revision = pair.revision();
            let asked = match question {
                Question::As(_, asked) => asked,
                question => question,
            };
            if let (Question::Compact(compact), Some(_)) = (asked, own) {
                facts.compactions.push(compact.revision);
            }
        }
    }
    let (shown, fragments) = pair.shown();
    Ok(Summary {
        asked: pair.asked,
        refused: pair.refused,
        revision: facts.revision,
        compactions: facts.compactions.len(),
        watchers: facts.watchers,
        shown,
        fragments,
    })
}

/// One run against a cluster of ours of this size, from start to end.
fn hold(peers: &Path, subject: Subject, size: usize, seed: u64, requests: u64) -> Summary {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let mut pair = Pair::start(ours(), peers, size).await;
        let mut sent = Vec::new();
        let result = converse(&mut pair, subject, size, seed, requests, &mut sent).await;
        match result {
            Ok(summary) => summary,
            Err(difference) => {
                let at = sent.len();
                let logs = pair.logs();
                drop(pair);
                let before: Vec<String> = sent[at.saturating_sub(9)..at - 1]
                    .iter()
                    .map(|step| format!("  {step:?}"))
                    .collect();
                let before = before.join("\n");
                print(&format!(
                    "SEED={seed} differs at request {at}: {difference}\nthe requests before it:\n{before}\n"
                ));
                let least = shrink::shrink(ours(), peers, size, sent).await;
                panic!("seed {seed}, request {at}: {difference}\n{least}\n{logs}");
            }
        }
    })
}

/// Executes the runs of all seeds and prints the number of requests.
fn hold_all(test: &str, subject: Subject, size: usize, seeds: u64, requests: u64) {
    let Some(peers) = process::peers(test) else {
        return;
    };
    let requests = number("REQUESTS").unwrap_or(requests);
    let all: Vec<u64> = match number("SEED") {
        Some(seed) => vec![seed],
        None => {
            let first = number("SEED_BASE").unwrap_or(1);
            (first..first + number("SEEDS").unwrap_or(seeds)).collect()
        }
    };
    let summaries = at_once(&peers, subject, size, &all, requests);
    let mut sum = Summary::default();
    for (summary, seed) in summaries.iter().zip(&all) {
        // Many requests of users are refused.
        let least = requests as i64 / if subject == Subject::Keys { 5 } else { 40 };
        let tame = summary.revision < least || summary.refused < requests / 50;
        assert!(
            !tame,
            "the run of seed {seed} had too few changes or errors: {summary:?}"
        );
        sum.asked += summary.asked;
        sum.refused += summary.refused;
        sum.revision += summary.revision;
        sum.compactions += summary.compactions;
        sum.watchers += summary.watchers;
        sum.shown += summary.shown;
        sum.fragments += summary.fragments;
    }
    let shown = sum.fragments > 0 || subject == Subject::Users;
    assert!(
        sum.compactions > 2 && shown,
        "too few compactions or events: {sum:?}"
    );
    print(&format!(
        "differential::{test}: {} requests of seeds {all:?} to etcd and to {size} of ours: all answers equal ({} refusals, {} revisions, {} compactions, {} watchers shown {} events)\n",
        sum.asked, sum.refused, sum.revision, sum.compactions, sum.watchers, sum.shown,
    ));
}

fn at_once(
    peers: &Path,
    subject: Subject,
    size: usize,
    seeds: &[u64],
    requests: u64,
) -> Vec<Summary> {
    let next = AtomicU64::new(0);
    let mut summaries: Vec<(usize, Summary)> = std::thread::scope(|scope| {
        let work = || {
            let mut done = Vec::new();
            loop {
                let at =
                    usize::try_from(next.fetch_add(1, Ordering::Relaxed)).unwrap_or(usize::MAX);
                let Some(seed) = seeds.get(at) else {
                    return done;
                };
                done.push((at, hold(peers, subject, size, *seed, requests)));
            }
        };
        let threads: Vec<_> = (0..AT_ONCE).map(|_| scope.spawn(work)).collect();
        let joined = threads.into_iter().flat_map(|thread| {
            thread
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        });
        joined.collect()
    });
    summaries.sort_by_key(|(at, _)| *at);
    summaries.into_iter().map(|(_, summary)| summary).collect()
}

// Shows KV.Put, KV.DeleteRange, KV.Compact: random requests, also invalid ones: responses, error messages and codes.
// Shows KV.Range, KV.RangeStream: every option at random, at compacted and future revisions too.
// Shows KV.Txn: nested, with too many operations, with keys given twice.
// Shows Watch.Watch: several streams of watchers with filters, previous values, fragments, starts below, at and above the compaction.
// Shows Lease.LeaseGrant, Lease.LeaseRevoke, Lease.LeaseKeepAlive, Lease.LeaseTimeToLive, Lease.LeaseLeases: known and unknown leases, an expiry.
// Shows Cluster.MemberAdd, Cluster.MemberRemove, Cluster.MemberUpdate, Cluster.MemberPromote, Cluster.MemberList: a learner that never starts, from its addition to its removal; refused changes and their messages.
// Shows Maintenance.Status, Maintenance.Alarm: every request while alarms are raised.
// Shows Maintenance.Snapshot: the same keys and history for etcdutl.
// Shows Maintenance.Defragment, Maintenance.MoveLeader, Maintenance.Downgrade: calls without an effect, and refused ones.
// Shows Maintenance.HashKV: at random revisions.
// Shows Maintenance.Hash: the response has a revision; the hash depends on the implementation.
// Shows Health.Check, Health.Watch: known and unknown services.
#[test]
fn requests_are_answered_as_etcd_does() {
    let test = "requests_are_answered_as_etcd_does";
    hold_all(test, Subject::Keys, 1, SEEDS, REQUESTS);
}

// Shows KV.Put, KV.Range, KV.Txn, KV.Compact, Watch.Watch, Maintenance.HashKV: each of three members returns what a single etcd returns.
#[test]
fn three_members_answer_as_one() {
    let test = "three_members_answer_as_one";
    hold_all(test, Subject::Keys, 3, 1, REQUESTS / 3);
}

// Shows Auth.AuthEnable, Auth.AuthDisable, Auth.AuthStatus, Auth.Authenticate: enabled and disabled, by users with and without permission.
// Shows Auth.UserAdd, Auth.UserGet, Auth.UserList, Auth.UserDelete, Auth.UserChangePassword, Auth.UserGrantRole, Auth.UserRevokeRole: random users and their tokens: responses, error messages and codes.
// Shows Auth.RoleAdd, Auth.RoleGet, Auth.RoleList, Auth.RoleDelete, Auth.RoleGrantPermission, Auth.RoleRevokePermission: random roles and ranges.
// Shows KV.Put, KV.Range, KV.RangeStream, KV.DeleteRange, KV.Txn, Lease.LeaseRevoke, Watch.Watch: what random permissions allow, with any token.
#[test]
fn users_may_do_what_etcd_lets_them() {
    let test = "users_may_do_what_etcd_lets_them";
    hold_all(test, Subject::Users, 1, 2, REQUESTS / 2);
}
