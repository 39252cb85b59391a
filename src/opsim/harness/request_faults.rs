//! Every request of an operator goes through here, to the API server and to members: it is
//! counted, delayed, and where a run asks for it the operator dies right before or after it, or its
//! answer is lost.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rand::RngExt as _;
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::operator::kubernetes::lease::{Leadership, REQUEST};

use super::monitor::InvariantMonitor;

/// So many requests are shown where there should be none.
const LAST: usize = 12;

/// How a write is disturbed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Crash {
    /// The operator dies right before it.
    Before,
    /// The operator dies right after it.
    After,
    /// It was carried out, and its answer was lost.
    ReplyLost,
}

impl Crash {
    /// Every way.
    pub const ALL: [Self; 3] = [Self::Before, Self::After, Self::ReplyLost];
}

/// What is known of the requests of all operators of a run.
pub(crate) struct Ledger {
    /// Requests to the API server.
    pub(crate) requests: u64,
    /// The same by their methods.
    pub(crate) methods: BTreeMap<String, u64>,
    /// The same by the second of the run.
    pub(crate) by_second: BTreeMap<u64, u64>,
    /// Requests to members.
    pub(crate) calls: u64,
    /// Requests of both kinds that may change something, the status and events aside.
    pub(crate) writes: u64,
    /// Those to the status.
    pub(crate) status_writes: u64,
    /// Words of the last requests to the API server.
    pub(crate) asked: VecDeque<String>,
    /// Words of each write, with its time.
    pub(crate) log: Vec<(u64, String)>,
    /// The write to disturb, counted from 1.
    pub(crate) plan: Option<(u64, Crash)>,
    /// Whether it was disturbed.
    pub(crate) disturbed: bool,
    /// Writes while more than one operator acted.
    pub(crate) contested: u64,
    /// The highest epoch of an operator by the Lease that acted.
    newest: u64,
    /// What operators did by the Lease after one with a higher epoch had acted.
    pub(crate) late: Vec<String>,
    /// What operators asked for and their role does not allow.
    pub(crate) forbidden: Vec<String>,
    /// One in so many requests fails by itself; 0: none.
    pub(crate) flaky: u32,
    /// Writes with these words in them fail, as where an admission webhook does not answer; empty:
    /// none.
    pub(crate) webhook: &'static str,
    pub(crate) now_ms: u64,
    random: Xoshiro256PlusPlus,
}

/// What becomes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Disturbance {
    Through,
    Dies(Crash),
    Fails,
    /// It fails, and was not carried out.
    Unanswered,
}

impl Ledger {
    pub(crate) fn new(random: Xoshiro256PlusPlus) -> Self {
        Self {
            requests: 0,
            methods: BTreeMap::new(),
            by_second: BTreeMap::new(),
            calls: 0,
            writes: 0,
            status_writes: 0,
            asked: VecDeque::new(),
            log: Vec::new(),
            plan: None,
            disturbed: false,
            contested: 0,
            newest: 0,
            late: Vec::new(),
            forbidden: Vec::new(),
            flaky: 0,
            webhook: "",
            now_ms: 0,
            random,
        }
    }

    fn fate(&mut self, request: &Request) -> Disturbance {
        match request.to {
            To::ApiServer => {
                self.requests += 1;
                let (method, _) = request.words.split_once(' ').unwrap_or_default();
                *self.methods.entry(method.to_owned()).or_default() += 1;
                *self.by_second.entry(self.now_ms / 1000).or_default() += 1;
                self.asked.push_back(request.words.clone());
                if self.asked.len() > LAST {
                    self.asked.pop_front();
                }
            }
            To::Member => self.calls += 1,
        }
        match request.writes {
            Writes::Nothing => {}
            Writes::Status => self.status_writes += 1,
            Writes::Something => {
                self.writes += 1;
                self.log.push((self.now_ms, request.words.clone()));
            }
        }
        if request.writes == Writes::Something
            && let Some((_, crash)) = self.plan.filter(|(at, _)| *at == self.writes)
        {
            self.disturbed = true;
            return Disturbance::Dies(crash);
        }
        let asked = request.to == To::ApiServer && request.writes == Writes::Something;
        if asked && !self.webhook.is_empty() && request.words.contains(self.webhook) {
            return Disturbance::Unanswered;
        }
        if self.flaky > 0 && self.random.random_range(0..self.flaky) == 0 {
            return Disturbance::Fails;
        }
        Disturbance::Through
    }
}

/// The receiver of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum To {
    ApiServer,
    Member,
}

/// What a request may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Writes {
    Nothing,
    /// The status or an event: a report, not an action.
    Status,
    Something,
}

/// A request in words.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) to: To,
    pub(crate) writes: Writes,
    pub(crate) words: String,
}

impl Request {
    /// Of the API server, by method and path.
    pub(crate) fn of_api(method: &http::Method, path: &str) -> Self {
        // A Lease is renewed for as long as its holder lives: that is no sign of work.
        let writes = if method == http::Method::GET || path.contains("/leases") {
            Writes::Nothing
        } else if path.ends_with("/status") || path.contains("/events") {
            Writes::Status
        } else {
            Writes::Something
        };
        let mut short = path;
        for prefix in ["/apis/", "/api/"] {
            short = short.strip_prefix(prefix).unwrap_or(short);
        }
        let short = short
            .split_once("/namespaces/")
            .and_then(|(_, rest)| rest.split_once('/'))
            .map_or(short, |(_, rest)| rest);
        Self {
            to: To::ApiServer,
            writes,
            words: format!("{method} {short}"),
        }
    }

    /// Of a member, by the path of its method.
    pub(crate) fn of_member(path: &str, address: &str) -> Self {
        let word = path.rsplit('/').next().unwrap_or(path);
        let writes = if word == "Describe" {
            Writes::Nothing
        } else {
            Writes::Something
        };
        Self {
            to: To::Member,
            writes,
            words: format!("{word} at {address}"),
        }
    }
}

/// What is done to one operator's requests; clones are the same.
#[derive(Clone)]
pub(crate) struct RequestFaults {
    name: Arc<str>,
    ledger: Arc<Mutex<Ledger>>,
    monitor: InvariantMonitor,
    /// The operator is dead: whatever it still waits for never comes.
    dead: Arc<Mutex<bool>>,
    /// By which it acts, if it acts by the Lease.
    lease: Option<Leadership>,
}

impl RequestFaults {
    pub(crate) fn new(name: &str, ledger: Arc<Mutex<Ledger>>, monitor: InvariantMonitor) -> Self {
        Self {
            name: name.into(),
            ledger,
            monitor,
            dead: Arc::default(),
            lease: None,
        }
    }

    /// The same for an operator that acts by the Lease.
    pub(crate) fn by(mut self, lease: &Leadership) -> Self {
        self.lease = Some(lease.clone());
        self
    }

    pub(crate) fn is_dead(&self) -> bool {
        *lock(&self.dead)
    }

    /// Whoever acts by the Lease does nothing once its successor has.
    fn judge_turn(&self, request: &Request) {
        if request.writes != Writes::Something {
            return;
        }
        let Some(epoch) = self.lease.as_ref().map(Leadership::epoch) else {
            return;
        };
        let mut ledger = lock(&self.ledger);
        if epoch < ledger.newest {
            let words = format!("{} of {} (epoch {epoch})", request.words, self.name);
            ledger.late.push(words);
        }
        ledger.newest = ledger.newest.max(epoch);
    }

    async fn die(&self) {
        *lock(&self.dead) = true;
        std::future::pending::<()>().await;
    }

    /// Carries a request out, or not. `failed`: what the caller gets where the answer is lost.
    pub(crate) async fn pass<T>(
        &self,
        request: Request,
        executed: impl Future<Output = T>,
        failed: impl Fn() -> T,
    ) -> T {
        let begun_ms = lock(&self.ledger).now_ms;
        // Others get their turn between any two requests.
        tokio::task::yield_now().await;
        let waited = lock(&self.ledger).now_ms.saturating_sub(begun_ms);
        if request.writes != Writes::Nothing && u128::from(waited) > REQUEST.as_millis() {
            // A process that was stopped does not send any more what it was about to.
            return failed();
        }
        self.judge_turn(&request);
        let fate = lock(&self.ledger).fate(&request);
        match fate {
            Disturbance::Dies(Crash::Before) => self.die().await,
            Disturbance::Fails => {
                // As often as not it was carried out all the same.
                let lost = lock(&self.ledger).random.random_bool(0.5);
                if !lost {
                    return failed();
                }
            }
            Disturbance::Unanswered => return failed(),
            Disturbance::Dies(_) | Disturbance::Through => {}
        }
        let writes = request.writes == Writes::Something;
        let before = writes.then(|| self.monitor.before_write()).flatten();
        // Whoever answers does so at once, so nothing else happens between the two observations.
        let answer = executed.await;
        if let Some(before) = before {
            lock(&self.ledger).contested += u64::from(before.operators > 1);
            let words = format!("{} of {}", request.words, self.name);
            self.monitor.judge(before, &words);
        }
        match fate {
            Disturbance::Dies(Crash::After) => self.die().await,
            Disturbance::Dies(_) | Disturbance::Fails | Disturbance::Unanswered => return failed(),
            Disturbance::Through => {}
        }
        answer
    }
}

/// What a mutex guards; a test that failed elsewhere does not hide behind a poisoned lock.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_kind_by_method_and_path() {
        let api = |method: http::Method, path: &str| Request::of_api(&method, path).writes;
        let sets = "/apis/apps/v1/namespaces/default/statefulsets/demo-1";
        assert_eq!(api(http::Method::GET, sets), Writes::Nothing);
        assert_eq!(api(http::Method::PATCH, sets), Writes::Something);
        let status = "/apis/quorate.dev/v1alpha1/namespaces/default/etcdclusters/demo/status";
        assert_eq!(api(http::Method::PATCH, status), Writes::Status);
        let words = Request::of_api(&http::Method::DELETE, sets).words;
        assert_eq!(words, "DELETE statefulsets/demo-1");
        let member = |path: &str| Request::of_member(path, "10.0.0.1:2380").writes;
        assert_eq!(member("/quorate.v1.Member/Describe"), Writes::Nothing);
        assert_eq!(member("/quorate.v1.Member/Promote"), Writes::Something);
    }
}
