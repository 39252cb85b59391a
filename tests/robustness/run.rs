//! One run, from the start of the first member to rest: load and faults together, then no faults, then the state is
//! brought to an end that can be checked.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use quorate::wire::etcd::kv_client::KvClient;
use quorate::wire::etcd::lease_client::LeaseClient;
use quorate::wire::etcd::maintenance_client::MaintenanceClient;
use quorate::wire::etcd::{AlarmRequest, HashKvRequest, LeaseLeasesRequest, RangeRequest};
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::background_faults;
use crate::history::{AtRest, History, Recorder};
use crate::nemesis::{Broken, Cluster, Counts};
use crate::server::{self, PATIENCE, Place, Server};
use crate::traffic::client::{Client, Directory, kv};
use crate::traffic::load;
use crate::traffic::watcher::{Interest, Watcher};

/// The parameters of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) lasts: Duration,
    pub(crate) seed: u64,
    pub(crate) members: usize,
}

/// The result of a run.
pub(crate) struct Outcome {
    pub(crate) history: History,
    pub(crate) counts: Counts,
    /// The folder of data, logs and the record; removed after a correct run.
    pub(crate) home: PathBuf,
    pub(crate) took: Duration,
    /// Why the cluster did not recover or come to rest.
    pub(crate) broken: Option<Broken>,
}

/// Executes the run.
pub(crate) async fn run(plan: Plan) -> Outcome {
    let begun = Instant::now();
    let home = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!(
        "robustness-{}-{}",
        plan.seed,
        std::process::id()
    ));
    let _ = std::fs::remove_dir_all(&home);
    std::fs::create_dir_all(&home).expect("a folder");
    server::build_faults(&home);
    let (counts, recorder) = (Counts::default(), Arc::new(Recorder::new()));
    let mut cluster = match Cluster::start(&home, plan.members, plan.seed, &counts).await {
        Ok(cluster) => cluster,
        Err(broken) => panic!("the cluster does not start: {broken}"),
    };
    let broken = under_load(plan, &mut cluster, &recorder).await.err();
    for page in cluster.pages.lock().expect("unpoisoned").iter() {
        counts.add("syncs delayed", page.get(Place::SyncsDelayed));
        counts.add("syncs failed", page.get(Place::SyncsFailed));
        counts.add("writes failed", page.get(Place::WritesFailed));
        counts.add("wrong clocks read", page.get(Place::ClocksRead));
    }
    let passed = &cluster.network.passed;
    counts.add(
        "messages between members",
        passed.messages.load(Ordering::Relaxed),
    );
    counts.add("messages lost", passed.lost.load(Ordering::Relaxed));
    counts.add("messages delayed", passed.delayed.load(Ordering::Relaxed));
    counts.add("pieces held", passed.held.load(Ordering::Relaxed));
    drop(cluster);
    Outcome {
        history: recorder.finish(),
        counts,
        home,
        took: begun.elapsed(),
        broken,
    }
}

async fn under_load(
    plan: Plan,
    cluster: &mut Cluster,
    recorder: &Arc<Recorder>,
) -> Result<(), Broken> {
    let (enough, seen_all, calm) = (flag(), flag(), flag());
    let (watchers, shown) = watchers(plan, &cluster.directory, recorder, &seen_all);
    let clients = clients(
        plan,
        &cluster.directory,
        recorder,
        &enough,
        &shown[..RECORDERS],
    );
    let leaders = Arc::new(Mutex::new(BTreeSet::new()));
    let sampler = tokio::spawn(sample(
        cluster.directory.clone(),
        Arc::clone(&leaders),
        Arc::clone(&seen_all),
    ));
    let background_faults = tokio::spawn(background_faults::background_faults(
        Arc::clone(&cluster.network),
        Arc::clone(&cluster.directory),
        plan.seed,
        Arc::clone(&calm),
        cluster.counts.clone(),
    ));
    let mut result = cluster.nemesis(plan.seed, plan.lasts).await;
    for flag in [&calm, &enough] {
        flag.store(true, Ordering::Relaxed);
    }
    for task in clients.into_iter().chain([background_faults]) {
        let patience = if result.is_ok() { PATIENCE } else { SHORT };
        result = result.and(ended(task, patience).await);
    }
    if result.is_ok() {
        result = rest(cluster, recorder, &shown).await;
    }
    seen_all.store(true, Ordering::Relaxed);
    for task in watchers.into_iter().chain([sampler]) {
        let patience = if result.is_ok() { PATIENCE } else { SHORT };
        result = result.and(ended(task, patience).await);
    }
    let leaders = leaders.lock().expect("unpoisoned").len() as u64;
    cluster
        .counts
        .add("leader changes", leaders.saturating_sub(1));
    result
}

/// How long to wait for tasks after the run has failed.
const SHORT: Duration = Duration::from_secs(4);

/// Waits for a task that was asked to stop. If no member can be reached the task may never notice, and is aborted.
async fn ended(task: JoinHandle<()>, patience: Duration) -> Result<(), Broken> {
    let abort = task.abort_handle();
    match tokio::time::timeout(patience, task).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => Err(format!("a client or watcher failed: {error}")),
        Err(_) => {
            abort.abort();
            Err("a client or watcher found no member any more".to_owned())
        }
    }
}

fn flag() -> Arc<AtomicBool> {
    Arc::default()
}

/// Watchers of the whole key space, whose record is the history.
const RECORDERS: usize = 3;

fn watchers(
    plan: Plan,
    directory: &Directory,
    recorder: &Arc<Recorder>,
    enough: &Arc<AtomicBool>,
) -> (Vec<JoinHandle<()>>, Vec<Arc<std::sync::atomic::AtomicI64>>) {
    let everything = |number: usize| Interest {
        name: format!("everything-{number}"),
        end: "\0".to_owned(),
        prev: true,
        stays: 30_000,
        ..Interest::default()
    };
    let prefix = |name: &str, key: &str| Interest {
        name: name.to_owned(),
        key: key.to_owned(),
        end: load::end_of(key),
        stays: 8_000,
        ..Interest::default()
    };
    let mut interests: Vec<Interest> = (0..RECORDERS).map(everything).collect();
    interests.push(Interest {
        prev: true,
        back: 600,
        ..prefix("keys-restless", "g/")
    });
    interests.push(Interest {
        no_put: true,
        prev: true,
        back: 50,
        ..prefix("keys-deletions", "g/")
    });
    interests.push(Interest {
        no_delete: true,
        ..prefix("keys-puts", "g/")
    });
    interests.push(Interest {
        prev: true,
        needs_leader: true,
        ..prefix("objects", "/registry/")
    });
    interests.push(Interest {
        prev: true,
        back: 20,
        ..prefix("leases", "lease/")
    });
    let mut shown = Vec::new();
    let start = |(number, interest)| {
        let seed = plan.seed.wrapping_add(77_000 + number as u64);
        let watcher = Watcher::new(interest, seed, directory, recorder, enough);
        shown.push(Arc::clone(&watcher.shown));
        tokio::spawn(watcher.run())
    };
    let tasks = interests.into_iter().enumerate().map(start).collect();
    (tasks, shown)
}

fn clients(
    plan: Plan,
    directory: &Directory,
    recorder: &Arc<Recorder>,
    enough: &Arc<AtomicBool>,
    shown: &[Arc<std::sync::atomic::AtomicI64>],
) -> Vec<JoinHandle<()>> {
    let mut next = 0;
    let mut client = || {
        next += 1;
        Client::new(next, plan.seed, recorder, directory)
    };
    let mut tasks = Vec::new();
    for _ in 0..6 {
        tasks.push(tokio::spawn(load::keys(client(), Arc::clone(enough))));
    }
    for _ in 0..2 {
        tasks.push(tokio::spawn(load::objects(client(), Arc::clone(enough))));
    }
    for _ in 0..4 {
        tasks.push(tokio::spawn(load::leases(client(), Arc::clone(enough))));
    }
    tasks.push(tokio::spawn(load::ballast(client(), Arc::clone(enough))));
    let shown = shown.to_vec();
    tasks.push(tokio::spawn(load::compactions(
        client(),
        Arc::clone(enough),
        shown,
    )));
    tasks
}

/// Records the leader of each term.
async fn sample(
    directory: Directory,
    leaders: Arc<Mutex<BTreeSet<(u64, u64)>>>,
    enough: Arc<AtomicBool>,
) {
    while !enough.load(Ordering::Relaxed) {
        let places = directory.lock().expect("unpoisoned").clone();
        for place in places {
            let channel = server::channel(&place.url, Duration::from_millis(300));
            let asked = quorate::wire::etcd::StatusRequest {};
            if let Ok(answer) = MaintenanceClient::new(channel).status(asked).await {
                let answer = answer.into_inner();
                if answer.leader != 0 {
                    let mut leaders = leaders.lock().expect("unpoisoned");
                    leaders.insert((answer.raft_term, answer.leader));
                }
            }
        }
        sleep(Duration::from_millis(200)).await;
    }
}

/// When faults and load have ended, leases expire, watchers catch up, and all members are checked.
async fn rest(
    cluster: &mut Cluster,
    recorder: &Arc<Recorder>,
    shown: &[Arc<std::sync::atomic::AtomicI64>],
) -> Result<(), Broken> {
    cluster.settle("everything").await?;
    let begun = Instant::now();
    loop {
        let mut left = 0;
        for server in &cluster.servers {
            left += leases(server).await.map_or(1, |leases| leases.len());
        }
        if left == 0 {
            break;
        }
        if begun.elapsed() > PATIENCE {
            return Err(format!("{left} leases without keep-alives do not expire"));
        }
        sleep(Duration::from_millis(200)).await;
    }
    no_alarms(&cluster.servers[0]).await?;
    let mut looks = Vec::new();
    for server in &cluster.servers {
        looks.push(look(server).await?);
    }
    let newest = looks.iter().map(|look| look.revision).max().unwrap_or(0);
    for look in looks {
        recorder.rest(look);
    }
    let begun = Instant::now();
    while let Some(at) = shown
        .iter()
        .position(|shown| shown.load(Ordering::Relaxed) < newest)
    {
        if begun.elapsed() > PATIENCE {
            let seen = shown[at].load(Ordering::Relaxed);
            return Err(format!("watcher {at} stopped at {seen} of {newest}"));
        }
        sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}

async fn leases(server: &Server) -> Option<Vec<i64>> {
    let mut client = LeaseClient::new(server.channel());
    let answer = client.lease_leases(LeaseLeasesRequest {}).await.ok()?;
    let leases = answer.into_inner().leases.into_iter();
    Some(leases.map(|lease| lease.id).collect())
}

/// Members with different data, or without space, would have activated an alarm.
async fn no_alarms(server: &Server) -> Result<(), Broken> {
    let mut client = MaintenanceClient::new(server.channel());
    let answer = client.alarm(AlarmRequest::default()).await;
    let alarms = answer.map_err(|error| format!("alarms at rest: {error}"))?;
    let alarms = alarms.into_inner().alarms;
    match alarms.is_empty() {
        true => Ok(()),
        false => Err(format!("alarms at rest: {alarms:?}")),
    }
}

async fn look(server: &Server) -> Result<AtRest, Broken> {
    let failed = |error: tonic::Status| format!("{} at rest: {error}", server.name);
    let request = RangeRequest {
        key: "\0".into(),
        range_end: "\0".into(),
        ..RangeRequest::default()
    };
    let mut client = KvClient::new(server.channel()).max_decoding_message_size(usize::MAX);
    let range = client.range(request).await.map_err(failed)?.into_inner();
    let revision = range.header.as_ref().map_or(0, |header| header.revision);
    let request = HashKvRequest { revision };
    let mut client = MaintenanceClient::new(server.channel());
    let hash = client.hash_kv(request).await.map_err(failed)?.into_inner();
    Ok(AtRest {
        member: server.name.clone(),
        revision,
        hash: hash.hash,
        compacted: hash.compact_revision,
        kvs: range.kvs.iter().map(kv).collect(),
        leases: leases(server).await.unwrap_or_default(),
    })
}
