//! The invariants that an operator promises, judged by what is really so: some at every
//! moment, some right before and right after each write of an operator. Each is one file, and each
//! has a test that it can fail.

mod i01_writes_survive;
mod i02_one_change;
mod i03_quorum;
mod i04_evidence;
mod i05_remove_first;
mod i06_no_second_bootstrap;
mod i07_one_cluster;
mod i08_status;
mod i09_absence;
mod i10_liveness;
mod i11_pdb;
mod i12_volumes;
mod i13_clients;
mod i14_alarms;
mod i15_first_data;
mod i16_fencing;
mod i17_one_resource;
mod i18_verified;
mod i19_retention;
mod i20_living_data;
mod i21_jobs;

#[cfg(test)]
mod fixture;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;

use super::harness::ground_truth::{ClusterTruth, GroundTruth};

pub(crate) use i10_liveness::unsettled;
pub(crate) use i21_jobs::unfinished;

/// Descriptions are believed for ten seconds, contact for three; and a reconcile takes its time.
pub(crate) const BELIEVED_MS: u64 = 15_000;

/// An invariant that was broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which one, such as `I3`.
    pub invariant: &'static str,
    /// When, in milliseconds since the start of the run.
    pub at_ms: u64,
    /// How.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            invariant,
            at_ms,
            what,
        } = self;
        write!(f, "{invariant} at {at_ms} ms: {what}")
    }
}

/// What has been so, as far as judging needs it.
#[derive(Debug, Default)]
pub(crate) struct History {
    /// When a member was last reached, by UID of the resource and member ID.
    reached_ms: BTreeMap<(String, u64), u64>,
    /// Since when it has been out of reach.
    unreached_ms: BTreeMap<(String, u64), u64>,
    /// When a voter's node last was on its way out, with leave to remove such a voter first.
    may_leave_ms: BTreeMap<(String, u64), u64>,
    /// Names of all that ever voted, by UID of the resource.
    voted: BTreeMap<String, BTreeSet<String>>,
    /// When the cluster was last quorate.
    quorate_ms: BTreeMap<String, u64>,
    /// Since when it has not been quorate while an operator acted.
    not_quorate_ms: BTreeMap<String, u64>,
    /// Generations by the time at which they were first seen.
    generations: BTreeMap<String, VecDeque<(u64, i64, usize)>>,
    /// The configuration index after the last deed or as first seen.
    configuration: BTreeMap<String, u64>,
    /// Since when the alarm CORRUPT names the leader.
    named_leads_ms: BTreeMap<String, u64>,
    /// Since when CORRUPT is on.
    corrupt_ms: BTreeMap<String, u64>,
    /// Names of those that CORRUPT named, and of all voters under it, when they were last seen, by UID of the
    /// resource.
    named: BTreeMap<String, BTreeSet<String>>,
    /// When each incarnation was first seen, by UID of the resource.
    formed_ms: BTreeMap<(String, u64), u64>,
    /// By which verification each EtcdBackup was last judged.
    verified: BTreeMap<String, String>,
    /// Since when a Job has had no resource.
    ownerless_ms: BTreeMap<String, u64>,
    /// Status as last judged.
    judged: BTreeMap<String, std::sync::Arc<serde_json::Value>>,
}

impl History {
    /// Milliseconds since a member was last reached; `None`: it never was.
    pub(crate) fn unreached_for(&self, uid: &str, id: u64, now_ms: u64) -> Option<u64> {
        let at = self.reached_ms.get(&(uid.to_owned(), id))?;
        Some(now_ms.saturating_sub(*at))
    }

    /// Whether a voter fell silent too recently for the operator to know.
    pub(crate) fn lately_lost(&self, uid: &str, id: u64, now_ms: u64) -> bool {
        self.unreached_for(uid, id, now_ms)
            .is_some_and(|age| age <= BELIEVED_MS)
    }

    /// Whether the specification lets this voter be removed for its node, or did so lately.
    pub(crate) fn may_leave(&self, uid: &str, id: u64, now_ms: u64) -> bool {
        let at = self.may_leave_ms.get(&(uid.to_owned(), id));
        at.is_some_and(|at| now_ms.saturating_sub(*at) <= BELIEVED_MS)
    }

    /// Whether a member of this name ever voted.
    pub(crate) fn voted(&self, uid: &str, member: &str) -> bool {
        self.voted.get(uid).is_some_and(|all| all.contains(member))
    }

    /// The sizes that were asked for within the last milliseconds.
    pub(crate) fn targets(&self, uid: &str, now_ms: u64, within_ms: u64) -> Vec<usize> {
        let all = self.generations.get(uid).into_iter().flatten();
        let all: Vec<_> = all.collect();
        // The one in force at the beginning of that time counts as well.
        let from = now_ms.saturating_sub(within_ms);
        let first = all.iter().rposition(|(at, _, _)| *at <= from).unwrap_or(0);
        all.iter()
            .skip(first)
            .map(|(_, _, target)| *target)
            .collect()
    }

    /// Whether this has been so for long enough for everybody to know of it.
    pub(crate) fn is_known(since_ms: Option<&u64>, now_ms: u64) -> bool {
        since_ms.is_some_and(|since| now_ms.saturating_sub(*since) > BELIEVED_MS)
    }

    fn note_alarms(&mut self, uid: &str, cluster: &ClusterTruth, now_ms: u64) {
        let names = |id: u64| cluster.alarms.contains(&format!("CORRUPT {id:x}"));
        let mut keep = |since: fn(&mut Self) -> &mut BTreeMap<String, u64>, is_so: bool| {
            if is_so {
                since(self).entry(uid.to_owned()).or_insert(now_ms);
            } else {
                since(self).remove(uid);
            }
        };
        keep(
            |history| &mut history.named_leads_ms,
            cluster.leader.is_some_and(names),
        );
        let mut alarms = cluster.alarms.iter();
        let on = alarms.any(|alarm| alarm.starts_with("CORRUPT"));
        keep(|history| &mut history.corrupt_ms, on);
        let named = self.named.entry(uid.to_owned()).or_default();
        for (id, member) in cluster.voters.iter().chain(&cluster.learners) {
            if names(*id) || on && cluster.voters.contains_key(id) {
                named.insert(member.name.clone());
            } else {
                named.remove(&member.name);
            }
        }
    }

    fn note(&mut self, ground_truth: &GroundTruth) {
        let now_ms = ground_truth.now_ms;
        for (uid, cluster) in &ground_truth.clusters {
            for (id, member) in cluster.voters.iter().chain(&cluster.learners) {
                let key = (uid.clone(), *id);
                if member.reached {
                    self.reached_ms.insert(key.clone(), now_ms);
                    self.unreached_ms.remove(&key);
                } else {
                    self.unreached_ms.entry(key).or_insert(now_ms);
                }
            }
            for (id, member) in &cluster.voters {
                if cluster.remove_first && member.node_goes {
                    self.may_leave_ms.insert((uid.clone(), *id), now_ms);
                }
                let voted = self.voted.entry(uid.clone()).or_default();
                if !voted.contains(&member.name) {
                    voted.insert(member.name.clone());
                }
            }
            self.note_alarms(uid, cluster, now_ms);
            if cluster.incarnation > 0 {
                let key = (uid.clone(), cluster.incarnation);
                self.formed_ms.entry(key).or_insert(now_ms);
            }
            if cluster.quorate {
                self.quorate_ms.insert(uid.clone(), now_ms);
            }
            if cluster.quorate || ground_truth.operators == 0 {
                self.not_quorate_ms.remove(uid);
            } else {
                self.not_quorate_ms.entry(uid.clone()).or_insert(now_ms);
            }
            let generations = self.generations.entry(uid.clone()).or_default();
            let last = generations.back().map(|(_, generation, _)| *generation);
            if last != Some(cluster.generation) && cluster.exists {
                generations.push_back((now_ms, cluster.generation, cluster.target));
            }
        }
    }
}

/// All oracles of a run.
#[derive(Debug, Default)]
pub(crate) struct Oracles {
    history: History,
    start_ms: u64,
    before: GroundTruth,
    /// The first that was broken.
    pub(crate) broken: Option<Violation>,
    /// Judgements made.
    pub(crate) checks: u64,
}

type Broken = Option<(&'static str, String)>;

impl Oracles {
    pub(crate) fn new(start_ms: u64) -> Self {
        Self {
            start_ms,
            ..Self::default()
        }
    }

    /// Judges a moment.
    pub(crate) fn moment(&mut self, ground_truth: &GroundTruth) {
        self.history.note(ground_truth);
        let history = &mut self.history;
        let mut found: Broken = None;
        for (uid, cluster) in &ground_truth.clusters {
            let of = Of {
                uid,
                cluster,
                now_ms: ground_truth.now_ms,
            };
            self.checks += 6;
            found = found
                .or_else(|| i01_writes_survive::moment(&of).map(|what| ("I1", what)))
                .or_else(|| i07_one_cluster::moment(&of).map(|what| ("I7", what)))
                .or_else(|| i17_one_resource::moment(&of).map(|what| ("I17", what)))
                .or_else(|| i08_status::moment(&of, history).map(|what| ("I8", what)))
                .or_else(|| i09_absence::moment(&of, history).map(|what| ("I9", what)))
                .or_else(|| i11_pdb::moment(&of).map(|what| ("I11", what)));
        }
        let found = found.or_else(|| self.of_backups(ground_truth));
        self.note(ground_truth.now_ms, found, "");
    }

    /// Judges what is so about backups.
    fn of_backups(&mut self, truth: &GroundTruth) -> Broken {
        let (backups, history) = (&truth.backups, &mut self.history);
        let now_ms = truth.now_ms;
        self.checks += 4;
        i18_verified::moment(backups, &mut history.verified)
            .map(|what| ("I18", what))
            .or_else(|| i19_retention::moment(backups).map(|what| ("I19", what)))
            .or_else(|| i20_living_data::moment(truth).map(|what| ("I20", what)))
            .or_else(|| {
                let left = i21_jobs::moment(backups, now_ms, &mut history.ownerless_ms);
                left.map(|what| ("I21", what))
            })
    }

    /// A write is about to be carried out.
    pub(crate) fn before(&mut self, ground_truth: GroundTruth) {
        self.history.note(&ground_truth);
        self.before = ground_truth;
    }

    /// Judges the write that was carried out since.
    pub(crate) fn after(&mut self, words: &str, ground_truth: &GroundTruth) {
        let before = std::mem::take(&mut self.before);
        let mut found: Broken = None;
        for (uid, after) in &ground_truth.clusters {
            let none = ClusterTruth::default();
            let earlier = before.clusters.get(uid).unwrap_or(&none);
            let step = Step {
                uid,
                before: earlier,
                after,
                now_ms: ground_truth.now_ms,
            };
            let history = &self.history;
            self.checks += 11;
            found = found
                // First: a second cluster is also another set of voters.
                .or_else(|| i16_fencing::deed(&step).map(|what| ("I16", what)))
                .or_else(|| i06_no_second_bootstrap::deed(&step).map(|what| ("I6", what)))
                .or_else(|| i15_first_data::deed(&step).map(|what| ("I15", what)));
            // The voters of the next incarnation are others.
            let others = earlier.incarnation > 0 && after.incarnation > earlier.incarnation;
            let history = (!others).then_some(history);
            found = found.or_else(|| judged(&step, history?));
            self.history
                .configuration
                .insert(uid.clone(), after.configuration_index);
        }
        let (was, is) = (&before.backups, &ground_truth.backups);
        self.checks += 2;
        let found = found
            .or_else(|| i19_retention::deed(was, is).map(|what| ("I19", what)))
            .or_else(|| {
                let over = i20_living_data::deed(&before, ground_truth, &self.history);
                over.map(|what| ("I20", what))
            });
        self.note(ground_truth.now_ms, found, words);
    }

    fn note(&mut self, now_ms: u64, found: Broken, words: &str) {
        let Some((invariant, what)) = found else {
            return;
        };
        let what = if words.is_empty() {
            what
        } else {
            format!("{what} (by {words})")
        };
        self.broken.get_or_insert(Violation {
            invariant,
            at_ms: now_ms.saturating_sub(self.start_ms),
            what,
        });
    }
}

/// What every write of an operator is held to.
fn judged(step: &Step<'_>, history: &History) -> Broken {
    i02_one_change::deed(step, history)
        .map(|what| ("I2", what))
        .or_else(|| i03_quorum::deed(step, history).map(|what| ("I3", what)))
        .or_else(|| i04_evidence::deed(step, history).map(|what| ("I4", what)))
        .or_else(|| i05_remove_first::deed(step, history).map(|what| ("I5", what)))
        .or_else(|| i11_pdb::deed(step).map(|what| ("I11", what)))
        .or_else(|| i12_volumes::deed(step, history).map(|what| ("I12", what)))
        .or_else(|| i13_clients::deed(step).map(|what| ("I13", what)))
        .or_else(|| i14_alarms::deed(step, history).map(|what| ("I14", what)))
}

/// One cluster at one moment.
pub(crate) struct Of<'a> {
    pub(crate) uid: &'a str,
    pub(crate) cluster: &'a ClusterTruth,
    pub(crate) now_ms: u64,
}

/// One cluster before and after a write.
pub(crate) struct Step<'a> {
    pub(crate) uid: &'a str,
    pub(crate) before: &'a ClusterTruth,
    pub(crate) after: &'a ClusterTruth,
    pub(crate) now_ms: u64,
}
