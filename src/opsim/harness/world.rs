//! A world on one thread: an API server, its controllers and nodes, servers, operators, and time.
//! What happens next follows from a seed; between any two requests of an operator everything else
//! has its turn.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rand::{RngExt as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;
use serde_json::Value;

use crate::build::OwnImage;
use crate::operator::clock::Clock;
use crate::operator::reconcile::Rules;
use crate::opsim::api::{self, ApiServer, Kind};
use crate::opsim::oracles::{Oracles, Violation, unfinished, unsettled};
use crate::opsim::servers::Servers;
use crate::opsim::user_certificates;
use crate::opsim::work::Work;

use super::backups::CACHED_OF_BACKUPS;
use super::containers::Containers;
use super::end;
use super::ground_truth::GroundTruth;
use super::monitor::InvariantMonitor;
use super::operator::{CACHED, Operator, Right, Setup};
use super::request_faults::{Crash, Ledger, RequestFaults, lock};
use super::rights;
use super::second_leader::SecondLeader;

/// When every world begins: 2026-01-01, in Unix milliseconds.
pub(crate) const START_MS: u64 = 1_767_225_600_000;
/// The longest step of time while nothing happens.
const QUIET_MS: u64 = 1_000;
/// Between an operator's death and the next process.
const RESTART_MS: u64 = 400;
/// Within this time of its start an operator has reconciled each resource once.
const FIRST_RECONCILE_MS: u64 = 5_000;
/// So long nothing is written before a world counts as at rest: longer than an operator waits between two checks of clusters
/// that are not calm. Calm ones are looked at once then, instead of waiting for the five minutes to pass.
const REST_MS: u64 = 75_000;

/// So long after a look at every cluster at rest nothing may be written either.
const LOOKED_MS: u64 = 2_000;

/// So long a reconcile takes that began on a cache that is behind, and finds live that nothing is to be done.
const LOOK_MS: u64 = 250;

/// What a run is made of, beside its scenario.
#[derive(Clone, Debug)]
pub struct Options {
    /// Chooses everything that is left to chance.
    pub seed: u64,
    /// A write to disturb, counted from 1, and how.
    pub crash: Option<(u64, Crash)>,
    /// How late caches may be, in milliseconds; each kind draws its own bound below it.
    pub lag_ms: u64,
    /// One request in so many fails by itself; 0: none.
    pub flaky: u32,
    /// The only kind whose cache is late; `None`: each is.
    pub late: Option<Kind>,
    /// A second operator begins to act after this write, counted from 1, and for a while both do.
    pub second_leader: Option<u64>,
    /// A stranger makes objects with each cluster's labels, and pods that answer and lie.
    pub intruder: bool,
    /// The operator's rules.
    pub rules: Rules,
    /// Reads the processor time that was taken so far, where it is measured.
    pub stopwatch: Option<fn() -> Duration>,
}

impl Options {
    /// Without any fault.
    #[must_use]
    pub fn calm(seed: u64) -> Self {
        Self {
            seed,
            crash: None,
            lag_ms: 20,
            flaky: 0,
            late: None,
            second_leader: None,
            intruder: false,
            rules: Rules::SHIPPED,
            stopwatch: None,
        }
    }
}

/// Why a run failed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Failure {
    /// An invariant was broken.
    #[error("{0}")]
    Broken(Violation),
    /// What a scenario expects did not come about.
    #[error("at {at_ms} ms: {what}")]
    Unexpected {
        /// Milliseconds since the start of the run.
        at_ms: u64,
        /// What.
        what: String,
    },
}

/// Everything.
pub(crate) struct World {
    pub(crate) api: api::SharedApiServer,
    pub(crate) servers: Arc<Mutex<Servers>>,
    pub(crate) work: Arc<Mutex<Work>>,
    pub(crate) ledger: Arc<Mutex<Ledger>>,
    pub(crate) monitor: InvariantMonitor,
    pub(crate) containers: Containers,
    pub(crate) operators: Vec<Operator>,
    /// Operators that come back, by when: name, and whether by the Lease.
    pub(super) reborn: Vec<(u64, String)>,
    /// When an operator's process started last.
    started_ms: u64,
    pub(super) second_leader: SecondLeader,
    /// A stranger is at work.
    pub(crate) intruder: bool,
    pub(super) intruders: u32,
    /// The lives of resources that it has made something for.
    pub(super) intruded: BTreeSet<String>,
    pub(crate) options: Options,
    time: Arc<AtomicU64>,
    pub(crate) random: Xoshiro256PlusPlus,
    epoch: u64,
    pub(super) by_lease: bool,
    /// Of operators that start from now on.
    pub(crate) image: OwnImage,
    sees_no_slices: bool,
    with_backups: bool,
    entropy: u64,
    lags: BTreeMap<Kind, u64>,
    pub(crate) reconciles: u64,
    /// Those that began with a cache behind the API server.
    pub(crate) stale: u64,
    /// Versions that no cache ever showed, because a newer one came with them.
    pub(crate) coalesced: u64,
    /// Changes that users made to specifications.
    pub(crate) edits: u64,
    idle: u32,
    /// Processor time of operators' turns, by the options' stopwatch.
    pub(crate) operating: Duration,
    /// From now on every two voters that run have to accept each other's certificates.
    pub(crate) links_hold: bool,
}

impl World {
    pub(crate) fn new(options: Options) -> Self {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(options.seed);
        let mut server = ApiServer::new(options.seed, START_MS);
        server.set_ip_families(&["IPv4", "IPv6"]);
        let api = api::SharedApiServer::new(server);
        let fork =
            |random: &mut Xoshiro256PlusPlus| Xoshiro256PlusPlus::seed_from_u64(random.random());
        let servers = Servers::new(fork(&mut random), START_MS);
        let servers = Arc::new(Mutex::new(servers));
        let mut ledger = Ledger::new(fork(&mut random));
        ledger.plan = options.crash;
        ledger.flaky = options.flaky;
        let work = Arc::new(Mutex::new(Work::default()));
        let monitor = InvariantMonitor {
            work: work.clone(),
            api: api.clone(),
            servers: servers.clone(),
            oracles: Arc::new(Mutex::new(Oracles::new(START_MS))),
            acting: Arc::new(AtomicUsize::new(0)),
            looks_away: Arc::default(),
            read: Arc::default(),
        };
        let lags = CACHED.map(|kind| {
            let bound = random.random_range(0..=options.lag_ms);
            match options.late {
                None => (kind, bound),
                Some(late) if late == kind => (kind, options.lag_ms),
                Some(_) => (kind, 0),
            }
        });
        let ledger = Arc::new(Mutex::new(ledger));
        rights::enforce(&api, ledger.clone(), &[], &[]);
        Self {
            containers: Containers::new(&api, options.seed),
            api,
            servers,
            work,
            ledger,
            monitor,
            operators: Vec::new(),
            reborn: Vec::new(),
            started_ms: START_MS,
            second_leader: SecondLeader::default(),
            intruder: options.intruder,
            intruders: 0,
            intruded: BTreeSet::new(),
            options,
            time: Arc::new(AtomicU64::new(START_MS)),
            random,
            epoch: 0,
            by_lease: false,
            image: OwnImage::of("registry.example/quorate".parse().expect("a reference")),
            sees_no_slices: false,
            with_backups: false,
            entropy: 0,
            lags: lags.into(),
            reconciles: 0,
            stale: 0,
            coalesced: 0,
            edits: 0,
            idle: 0,
            operating: Duration::ZERO,
            links_hold: false,
        }
    }

    /// Virtual time since the start, in seconds.
    pub(crate) fn ran_seconds(&self) -> u64 {
        self.ran_ms() / 1000
    }

    /// The same in milliseconds, as the log of writes counts it.
    pub(crate) fn ran_ms(&self) -> u64 {
        self.now_ms() - START_MS
    }

    pub(crate) fn now_ms(&self) -> u64 {
        self.time.load(Ordering::SeqCst)
    }

    /// Writes of operators so far, the status and events aside.
    pub(crate) fn writes(&self) -> u64 {
        lock(&self.ledger).writes
    }

    /// Entries of all clusters that were acknowledged to clients.
    pub(crate) fn acknowledged(&self) -> u64 {
        let servers = lock(&self.servers);
        servers
            .groups
            .values()
            .map(|group| group.acknowledged)
            .sum()
    }

    /// The operator that acts and is in the middle of a reconcile.
    pub(crate) fn busy_leader(&self) -> Option<&str> {
        let busy = |operator: &&Operator| operator.leads && operator.is_busy();
        let found = self.operators.iter().find(busy);
        found.map(|operator| operator.name.as_str())
    }

    /// The operator that acts stops where it is. Gives its name.
    pub(crate) fn freeze_leader(&mut self) -> String {
        let mut acting = self.operators.iter_mut().filter(|operator| operator.leads);
        let Some(operator) = acting.next() else {
            return String::new();
        };
        operator.frozen = true;
        operator.name.clone()
    }

    /// A stopped operator goes on, as if no time had passed for it.
    pub(crate) fn thaw(&mut self, name: &str) {
        for operator in &mut self.operators {
            operator.frozen &= operator.name != name;
        }
    }

    /// Time goes on by itself, and no operator acts.
    pub(crate) fn set_now_ms(&self, now_ms: u64) {
        self.time.store(now_ms, Ordering::SeqCst);
    }

    /// Starts an operator that acts by itself, or while it holds the Lease.
    pub(crate) fn start_operator(&mut self, name: &str) {
        let mut operator = self.operator(name);
        operator.lags.clone_from(&self.lags);
        self.operators.push(operator);
        self.started_ms = self.now_ms();
    }

    /// An operator's process, before its first turn.
    pub(crate) fn operator(&mut self, name: &str) -> Operator {
        self.epoch += 1;
        self.entropy += 1 << 32;
        let setup = Setup {
            name: name.to_owned(),
            api: self.api.clone(),
            request_faults: RequestFaults::new(name, self.ledger.clone(), self.monitor.clone()),
            clock: Clock::simulated(self.time.clone()),
            servers: self.servers.clone(),
            rules: self.options.rules,
            right: if self.by_lease {
                Right::Lease
            } else {
                Right::FixedEpoch(self.epoch)
            },
            image: self.image.clone(),
            sees_no_slices: self.sees_no_slices,
            with_backups: self.with_backups,
            entropy: self.entropy,
        };
        Operator::new(setup)
    }

    /// Operators act by the Lease from now on.
    pub(crate) fn by_lease(&mut self) {
        self.by_lease = true;
    }

    /// Operators have a role of before EndpointSlices were asked for, from the next one on.
    pub(crate) fn without_slices(&mut self) {
        self.sees_no_slices = true;
        rights::enforce(&self.api, self.ledger.clone(), &["endpointslices"], &[]);
    }

    /// The API server serves all kinds but these from now on.
    pub(crate) fn unserve(&mut self, unserved: &'static [Kind]) {
        rights::enforce(&self.api, self.ledger.clone(), &[], unserved);
    }

    /// Operators reconcile backups too, from the next one on, and Jobs do what they are for.
    pub(crate) fn with_backups(&mut self) {
        self.with_backups = true;
        for kind in CACHED_OF_BACKUPS {
            let drawn = self.random.random_range(0..=self.options.lag_ms);
            let bound = match self.options.late {
                None => drawn,
                Some(late) if late == kind => self.options.lag_ms,
                Some(_) => 0,
            };
            self.lags.insert(kind, bound);
        }
    }

    /// Ends every operator; none comes back by itself.
    pub(crate) fn stop_operators(&mut self) {
        self.operators.clear();
        self.reborn.clear();
    }

    /// One turn of everything, and all of it judged.
    pub(crate) async fn round(&mut self) -> Result<GroundTruth, Failure> {
        self.step().await;
        let ground_truth = self.monitor.moment();
        if self.links_hold
            && let Some(apart) = lock(&self.servers).estranged()
        {
            return Err(self.unexpected(apart));
        }
        match &lock(&self.monitor.oracles).broken {
            Some(violation) => Err(Failure::Broken(violation.clone())),
            None => Ok(ground_truth),
        }
    }

    /// One turn of everything.
    pub(super) async fn step(&mut self) {
        let busy = self.operators.iter().any(Operator::is_busy);
        let step_ms = if busy {
            self.random.random_range(1..=12)
        } else {
            self.pause_ms()
        };
        let now_ms = self.now_ms() + step_ms;
        self.time.store(now_ms, Ordering::SeqCst);
        lock(&self.ledger).now_ms = now_ms - START_MS;
        self.api.lock().set_now_ms(now_ms);
        lock(&self.servers).advance(now_ms);
        let moved = {
            let (mut servers, mut work) = (lock(&self.servers), lock(&self.work));
            self.containers.step(&mut servers, &mut work)
        };
        self.idle = if moved {
            0
        } else {
            self.idle.saturating_add(1)
        };
        self.turn_intruder();
        self.turn_second_leader(now_ms);
        let begun = self.options.stopwatch.map(|read| read());
        self.turn_operators(now_ms).await;
        // Tasks of clients have their turn.
        tokio::task::yield_now().await;
        if let (Some(read), Some(begun)) = (self.options.stopwatch, begun) {
            self.operating += read() - begun;
        }
        let acting = self
            .operators
            .iter()
            .filter(|o| o.leads && !o.frozen)
            .count();
        self.monitor.acting.store(acting, Ordering::SeqCst);
    }

    /// Lets time pass without judging anything, until nothing has been written for so long, at most so many milliseconds. What is
    /// written meanwhile is not judged either. For so many clusters that a look at all of them takes longer than a turn.
    pub(crate) async fn unjudged(&mut self, quiet_ms: u64, most_ms: u64) -> Result<(), Failure> {
        self.monitor.looks_away.store(true, Ordering::SeqCst);
        let end = self.now_ms() + most_ms;
        let (mut since, mut writes) = (self.now_ms(), 0);
        while self.now_ms() < since + quiet_ms {
            self.step().await;
            let now = self.writes();
            if now != writes {
                (since, writes) = (self.now_ms(), now);
            }
            if self.now_ms() > end {
                let what = format!("still written after {} s", most_ms / 1000);
                return Err(self.unexpected(what));
            }
        }
        self.monitor.looks_away.store(false, Ordering::SeqCst);
        Ok(())
    }

    /// How long nothing needs to be looked at: not beyond what an operator waits for.
    fn pause_ms(&mut self) -> u64 {
        let most = match self.idle {
            0..20 => 60,
            20..60 => 250,
            _ => QUIET_MS,
        };
        let now_ms = self.now_ms();
        let operators = self.operators.iter().filter(|o| !o.frozen);
        let due = operators.filter_map(Operator::next_ms).min();
        let reborn = self.reborn.iter().map(|(at, _)| *at).min();
        let next = [due, reborn].into_iter().flatten().min();
        next.map_or(most, |at| at.saturating_sub(now_ms).clamp(1, most))
    }

    async fn turn_operators(&mut self, now_ms: u64) {
        let back: Vec<String> = self
            .reborn
            .extract_if(.., |(at, _)| *at <= now_ms)
            .map(|(_, name)| name)
            .collect();
        for name in back {
            self.start_operator(&name);
        }
        let mut died = Vec::new();
        for (at, operator) in self.operators.iter_mut().enumerate() {
            let random = &mut self.random;
            let mut draw = |most: u64| random.random_range(0..=most);
            if !operator.turn(&self.api, now_ms, &mut draw).await {
                died.push(at);
            }
            self.reconciles += std::mem::take(&mut operator.counted.reconciles);
            self.stale += std::mem::take(&mut operator.counted.stale);
            self.coalesced += std::mem::take(&mut operator.counted.coalesced);
        }
        for at in died.into_iter().rev() {
            let dead = self.operators.remove(at);
            self.reborn.push((now_ms + RESTART_MS, dead.name));
        }
    }

    /// Lets so many milliseconds pass.
    pub(crate) async fn pass_ms(&mut self, ms: u64) -> Result<(), Failure> {
        let end = self.now_ms() + ms;
        while self.now_ms() < end {
            self.round().await?;
        }
        Ok(())
    }

    /// Lets time pass until this holds, at most so many milliseconds.
    pub(crate) async fn until(
        &mut self,
        what: &str,
        most_ms: u64,
        mut holds: impl FnMut(&Self, &GroundTruth) -> bool,
    ) -> Result<(), Failure> {
        let end = self.now_ms() + most_ms;
        loop {
            let ground_truth = self.round().await?;
            if holds(self, &ground_truth) {
                return Ok(());
            }
            if self.now_ms() >= end {
                return Err(self.unexpected(format!("{what} within {} s", most_ms / 1000)));
            }
        }
    }

    /// I10: the desired state is reached within this time, and then nothing is written any more.
    pub(crate) async fn settle(&mut self, most_ms: u64) -> Result<(), Failure> {
        let end = self.now_ms() + most_ms;
        let mut missing = String::new();
        let (mut since, mut writes, mut asked) = (None, 0, 0);
        let mut looked = None;
        while self.now_ms() < end {
            let ground_truth = self.round().await?;
            let now = {
                let ledger = lock(&self.ledger);
                ledger.writes + ledger.status_writes
            };
            match self.unsettled(&ground_truth) {
                Some(why) => {
                    missing = why;
                    (since, looked) = (None, None);
                }
                None if looked.is_some() && now != writes => return Err(self.found_by_a_look()),
                None if now != writes => {
                    missing.clear();
                    since = Some(self.now_ms());
                    asked = lock(&self.ledger).requests;
                }
                None => {
                    missing.clear();
                    let since = *since.get_or_insert(self.now_ms());
                    // A process that has just started reads once what it keeps in memory, also where
                    // its predecessor died at the last write and nothing is left to be written.
                    let read_ms = self.started_ms + FIRST_RECONCILE_MS;
                    // What caches that are behind still show is looked at live, and no more.
                    let looked_ms = since + 2 * self.options.lag_ms + LOOK_MS;
                    if self.now_ms() <= read_ms.max(looked_ms) {
                        asked = lock(&self.ledger).requests;
                    }
                    if self.now_ms() >= since + REST_MS && looked.is_none() {
                        looked = Some(self.look());
                    }
                    if looked.is_some_and(|at| self.now_ms() >= at + LOOKED_MS) {
                        return self.rested(asked);
                    }
                }
            }
            writes = now;
        }
        if missing.is_empty() {
            missing = "something is still written".into();
        }
        let last = lock(&self.ledger).log.last().cloned();
        let operators: Vec<String> = self.operators.iter().map(Operator::in_words).collect();
        Err(Failure::Broken(Violation {
            invariant: "I10",
            at_ms: self.now_ms() - START_MS,
            what: format!(
                "not in its desired state after {} s: {missing}; the last write was {last:?}; {}; {}",
                most_ms / 1000,
                end::summary(&self.api.lock()),
                operators.join(", ")
            ),
        }))
    }

    /// Operators look at each cluster, as they do every five minutes where they are told of changes. Returns when.
    fn look(&mut self) -> u64 {
        let now_ms = self.now_ms();
        let acting = self
            .operators
            .iter_mut()
            .filter(|it| it.leads && !it.frozen);
        acting.for_each(|operator| operator.look(now_ms));
        now_ms
    }

    /// What is to be done is told of, by objects or by members, or the cluster is looked at every ten seconds.
    fn found_by_a_look(&self) -> Failure {
        let ledger = lock(&self.ledger);
        let asked: Vec<&str> = ledger.asked.iter().map(String::as_str).collect();
        let asked = asked.join("; ");
        self.unexpected(format!(
            "a look at a cluster at rest found what nothing told of: {asked}"
        ))
    }

    /// At rest no requests are sent to the API server either, except for the Lease: with a thousand
    /// clusters one request per reconcile would be all that it does. A cluster that is not formed is
    /// read, and so are the user's Secrets, which are in no cache: each at most every half a minute. Now and then the
    /// ClusterTrustBundles are listed, and the resource of each is read.
    fn rested(&self, before: u64) -> Result<(), Failure> {
        let asked = lock(&self.ledger).requests - before;
        let api = self.api.lock();
        let mut clusters = api.all(Kind::EtcdCluster);
        let formed = clusters.all(|cluster| cluster["status"]["clusterID"].is_string());
        let reads = REST_MS / user_certificates::READ_EVERY_MS + 1;
        let live = api
            .all(Kind::EtcdCluster)
            .map(|one| user_certificates::read_live(one));
        let swept = match api.all(Kind::ClusterTrustBundle).count() as u64 {
            0 => 0,
            // In two versions: the first one is not served.
            bundles => 2 + bundles,
        };
        let most = live.map(|names| names as u64 * reads).sum::<u64>() + swept;
        if asked > most && formed && !self.by_lease && self.options.flaky == 0 {
            let ledger = lock(&self.ledger);
            let last: Vec<&str> = ledger.asked.iter().map(String::as_str).collect();
            let last = last.join("; ");
            return Err(self.unexpected(format!("{asked} requests at rest: {last}")));
        }
        Ok(())
    }

    /// What is missing from the desired state of any resource.
    fn unsettled(&self, ground_truth: &GroundTruth) -> Option<String> {
        if let Some((_, name)) = self.reborn.first() {
            return Some(format!("{name} is being started again"));
        }
        let api = self.api.lock();
        let (there, gone): (Vec<_>, Vec<_>) = ground_truth
            .clusters
            .iter()
            .partition(|(_, cluster)| cluster.exists);
        let gone = gone
            .into_iter()
            .find_map(|(uid, _)| end::remains(&api, uid));
        gone.or_else(|| {
            there
                .into_iter()
                .find_map(|(uid, cluster)| unsettled(&api, uid, cluster))
        })
        .or_else(|| unfinished(&api))
    }

    pub(crate) fn unexpected(&self, what: impl Into<String>) -> Failure {
        Failure::Unexpected {
            at_ms: self.now_ms() - START_MS,
            what: what.into(),
        }
    }

    /// The end state without what is random by design.
    pub(crate) fn end_state(&self) -> Value {
        end::state(&self.api.lock(), &lock(&self.servers))
    }
}
