//! Our core compared with etcd's: random schedules to a cluster of each, equal state after each event.
//!
//! # What happens
//! A schedule follows from its seed. Its events are those of a cluster, not of a message: a tick
//! of one member's clock, a campaign, proposals, a change of membership (a learner or voter
//! joins, a learner is promoted, a member is removed), a transfer of leadership, a link cut one
//! way, all links healed, the log compacted, a crash, a restart. Pre-votes and the check of the
//! quorum are on in some schedules. After each, both clusters run until no message is under way. The other cluster is
//! `go.etcd.io/raft/v3` in the version of `tests/interop/go.mod`, in one process
//! (`tests/interop/raft`).
//!
//! # What is compared
//! Of every running member, after every event: term, vote, role, leader, commit index, applied index, last index, the
//! configuration in force, where the log starts, and every entry of the log with its term and content; and whether the
//! core accepted or refused the proposal.
//!
//! # What is made equal first, and why
//! - *Between two events messages differ* in number and order: the cores batch, probe and confirm differently. Only the
//!   state at rest is compared, and a lost message is one of a link that stays cut for at least an event.
//! - *The order of links* is the same in both networks: messages in flight are delivered link by link, in the order in
//!   which they were sent on each.
//! - *What is proposed together* becomes the same messages: etcd sends one message per proposal, ours all that are
//!   available, so the driver makes one proposal of all, or of each if a message holds one entry. A commit index
//!   between two of them is only known if they arrive separately.
//! - *A log read back from disk* costs ours a probe without entries first: here it is in memory.
//! - *The first guess at a new member's log* is that it is as long as the leader's; etcd's is one entry less, which
//!   finds the end at once if the server was a member before: ours is set to that.
//! - *Where a log starts* after a snapshot was installed depends on when it was sent, and ours
//!   sends one at a time: the entries from the later of the two starts on are compared, with the
//!   term there, and the schedule ends, since the two would go on to send snapshots to others.
//! - *Timeouts are random* in both: both always draw the maximum.
//! - *A vote's refusal carries a commit index* in ours alone: it is taken out of the message.
//! - *An entry behind each removal* is appended by our leader alone: the driver proposes an empty one when etcd's
//!   leader applies a removal. A change that waits to be applied excludes a transfer here, because etcd would drop that
//!   proposal.
//! - *A leader that removes itself* keeps leading in ours until the others have recorded it; etcd's steps down at once.
//!   Their logs are not comparable from there: none is requested, and a schedule ends if it happens through a preceding
//!   leader change.
//! - *A change of membership that we refuse* is not sent to etcd, which turns one that comes too early into an empty
//!   entry, and accepts invalid ones (adding an existing member). What we accept, etcd must accept: its entry is
//!   compared.
//! - *A transfer that we refuse* is not sent to etcd either: a follower there forwards it, and a second target replaces
//!   the first.
//! - *A transfer's end is counted* from its start in both, but etcd restarts its check of the quorum with it, and ours
//!   repeats a lost TimeoutNow: a leader ticks a whole election timeout at a time, and does so at once after a failed
//!   transfer.
//! - *The commit index on disk* may lag, depending on the batches. A restart finds the newest one or the snapshot's, as
//!   set by the schedule, in both. Of two membership changes in a log the first must be committed, which ours concludes
//!   at a restart: then it is that one.
//! - *A campaign by TimeoutNow* does not reset the tick count in etcd with pre-vote, but does in ours: the count is
//!   restored.
//! - *A snapshot is of all that the sender has applied*, as etcd's server makes them, and one from the leader of an
//!   older term is lost on the way: etcd ignores it, ours accepts it, because its content is committed.
//! - *A member that was removed* learns of it or not, depending on messages in flight: it is stopped, and not compared
//!   from the removal on.
//! - *A repeated TimeoutNow* helps ours if the first one reached a candidate: a transfer is
//!   to a member that follows, or to one that is down.
//! - *A report that a peer is unreachable* makes ours probe at once, and etcd's with the next
//!   heartbeat: there are none here.
//! - *Reads* are not compared; `random.rs` judges ours.
//!
//! `SEEDS=n` runs n schedules from `SEED_BASE`, `SEED=x` one of them, printing each event;
//! `KEEP_GOING=1` prints a difference and goes on to the next schedule.
//! Without the driver the test reports that it was skipped; with `QUORATE_REQUIRE_INTEROP=1`
//! it fails instead. That a difference is found is shown by [`a_difference_is_found`].

mod event;
mod line;
mod ours;
mod schedule;
mod theirs;

use std::collections::BTreeSet;

use event::Event;
use line::Likeness;
use ours::{EventCounts, Ours, Settings};
use schedule::Schedule;
use theirs::Theirs;

use super::random::Generator;
use crate::raft::MemberId;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng;

/// Schedules by default, and events of each at least.
const SEEDS: u64 = 400;
const EVENTS: usize = 80;

/// Both clusters, and all that has happened to them.
struct Pair<'a> {
    seed: u64,
    ours: Ours,
    theirs: &'a mut Theirs,
    history: Vec<String>,
    aloud: bool,
    /// What follows cannot be compared: a leader has removed itself, or a log starts elsewhere.
    over: bool,
    /// All members ever, and those removed since: they are stopped.
    members: BTreeSet<MemberId>,
    gone: BTreeSet<MemberId>,
}

impl<'a> Pair<'a> {
    fn new(seed: u64, settings: Settings, theirs: &'a mut Theirs, aloud: bool) -> Self {
        let mut pair = Self {
            seed,
            ours: Ours::new(settings),
            theirs,
            history: Vec::new(),
            aloud,
            over: false,
            members: BTreeSet::new(),
            gone: BTreeSet::new(),
        };
        pair.compare(settings.command(), true);
        pair
    }

    /// An event for both. Whether it was taken.
    fn act(&mut self, event: &Event) -> bool {
        if self.over {
            return false;
        }
        let taken = match self.ours.act(event) {
            Ok(taken) => taken,
            Err(error) => self.fail(&event.to_string(), &format!("our core returns: {error}")),
        };
        self.over = self.ours.leader_left();
        if self.over {
            self.ours.counts.left += 1;
            return taken;
        }
        let ours_alone = matches!(event, Event::Change(..) | Event::Transfer(..));
        if taken || !ours_alone {
            self.compare(event.to_string(), taken);
        }
        taken
    }

    fn compare(&mut self, command: String, taken: bool) {
        let response = self.theirs.ask(&command);
        let now = self.ours.newest().members();
        self.members.extend(&now);
        self.gone.extend(self.members.difference(&now));
        if self.aloud {
            println!("{command}");
            println!("  {}", self.ours.show().join("\n  "));
        }
        let outcome = if taken { "ok" } else { "refused" };
        let mut wrong = Vec::new();
        if response.outcome != outcome {
            wrong.push(format!("ours   {outcome}\ntheirs {}", response.outcome));
        }
        let ours = self.ours.show();
        if ours.len() != response.members.len() {
            wrong.push("a different number of members".to_owned());
        }
        for ((id, ours), theirs) in self.ours.ids().iter().zip(&ours).zip(&response.members) {
            match line::compare(ours, theirs) {
                _ if self.gone.contains(id) => {}
                Likeness::Same => {}
                Likeness::OtherStart if self.ours.installed.contains(id) => {
                    self.ours.counts.other_starts += 1;
                    self.over = true;
                }
                _ => wrong.push(format!("ours   {ours}\ntheirs {theirs}")),
            }
        }
        if !wrong.is_empty() {
            self.fail(&command, &wrong.join("\n"));
        }
        self.history.push(command);
    }

    fn fail(&self, command: &str, what: &str) -> ! {
        panic!(
            "seed {}: the cores differ after {command:?} (SEED={0} replays)\n{what}\n\
             what happened before: {}\nwhat our cluster did:\n{}",
            self.seed,
            self.history.join(", "),
            self.ours.cluster.trace
        )
    }
}

fn run(seed: u64, theirs: &mut Theirs, aloud: bool) -> EventCounts {
    let mut generator = Generator(Xoshiro256PlusPlus::seed_from_u64(seed));
    let settings = Settings {
        voters: 1 + generator.below(5) as u64,
        learners: generator.below(4).saturating_sub(2) as u64,
        pre_vote: generator.chance(60),
        check_quorum: generator.chance(60),
        narrow: generator.chance(30),
    };
    let pair = Pair::new(seed, settings, theirs, aloud);
    let mut schedule = Schedule::new(generator, pair);
    while schedule.pair.history.len() < EVENTS && !schedule.pair.over {
        schedule.step();
    }
    schedule.converge();
    schedule.pair.ours.counts
}

#[test]
fn both_cores_do_the_same() {
    let number = |name: &str| {
        let text = std::env::var(name).ok();
        text.and_then(|text| text.parse::<u64>().ok())
    };
    let Some(mut theirs) = Theirs::start() else {
        return;
    };
    if let Some(seed) = number("SEED") {
        run(seed, &mut theirs, true);
        return;
    }
    let (base, seeds) = (
        number("SEED_BASE").unwrap_or(1),
        number("SEEDS").unwrap_or(SEEDS),
    );
    let mut counts = EventCounts::default();
    let keep_going = std::env::var_os("KEEP_GOING").is_some();
    let mut failed = Vec::new();
    for seed in base..base + seeds {
        let run = std::panic::AssertUnwindSafe(|| run(seed, &mut theirs, false));
        match std::panic::catch_unwind(run) {
            Ok(more) => counts.add(&more),
            Err(_) if keep_going => failed.push(seed),
            Err(why) => std::panic::resume_unwind(why),
        }
    }
    assert!(failed.is_empty(), "the cores differ in seeds {failed:?}");
    println!("{seeds} schedules: {counts:?}");
    if seeds < 100 {
        return;
    }
    // Schedules in which nothing happens would agree, too, and so would those that end at once.
    let n = seeds as usize;
    for (what, count, least) in [
        ("events", counts.events, 100 * n),
        ("elections", counts.elections, 2 * n),
        ("changes of configuration", counts.changes, 3 * n),
        ("removals", counts.removals, n),
        ("transfers", counts.transfers, n / 4),
        ("snapshots installed", counts.snapshots, n / 2),
        ("restarts", counts.restarts, n),
        ("logs cut back", counts.overwritten, n / 20),
    ] {
        assert!(count >= least, "too few {what}: {count} of {least}");
    }
    let early = counts.left + counts.other_starts;
    assert!(early <= n / 20, "{early} schedules ended early");
}

/// The comparison detects what it should: a core that treats an entry as committed which no quorum has, one with
/// another vote, and one that lacks an entry.
#[test]
fn a_difference_is_found() {
    type Fault = (&'static str, fn(&mut Ours));
    let faults: [Fault; 3] = [
        ("commit=3", |ours| {
            let raft = ours.cluster.raft(1);
            let last = raft.last_index();
            raft.log.commit_to(last).expect("it is in the log");
        }),
        ("vote=2", |ours| ours.cluster.raft(1).vote = Some(2)),
        ("last=3", |ours| {
            ours.cluster.node(1).image.entries.pop();
        }),
    ];
    let Some(mut theirs) = Theirs::start() else {
        return;
    };
    for (sign, fault) in faults {
        let settings = Settings {
            voters: 3,
            learners: 0,
            pre_vote: false,
            check_quorum: false,
            narrow: false,
        };
        let mut pair = Pair::new(0, settings, &mut theirs, false);
        pair.act(&Event::Campaign(1));
        for to in [2, 3] {
            pair.act(&Event::Cut(1, to));
        }
        pair.act(&Event::Propose(1, vec!["lonely".to_owned()]));
        fault(&mut pair.ours);
        let found = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            pair.act(&Event::Heal);
        }));
        let text = found.expect_err("the fault is seen");
        let text = text.downcast_ref::<String>().expect("a text");
        assert!(
            text.contains("\nours   1 ") && text.contains(sign),
            "{text}"
        );
    }
}
