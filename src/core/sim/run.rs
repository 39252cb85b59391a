//! One run: a stormy phase in which everything may go wrong, then a calm one in which the cluster
//! must elect, converge and serve within a bound.

use std::fmt;

use crate::raft::{Index, MemberId, Role};

use super::clock::Micros;
use super::counters::Counters;
use super::network::NetworkFaults;
use super::options::Options;
use super::oracles::Violation;
use super::trace::Trace;
use super::world::World;

/// What a run without a violation gave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The seed.
    pub seed: u64,
    /// What happened how often.
    pub counters: Counters,
    /// The hash of everything that happened.
    pub trace: u64,
    /// Virtual microseconds in all.
    pub lasted: u64,
    /// Virtual microseconds from the end of faults to a cluster in which all is well.
    pub recovered_after: u64,
}

/// A run in which a property did not hold.
#[derive(Debug)]
pub struct Failure {
    /// The seed.
    pub seed: u64,
    /// What did not hold.
    pub violation: Violation,
    /// The last steps before it.
    pub trace: Trace,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for line in self.trace.tail() {
            writeln!(f, "{line}")?;
        }
        let Violation { oracle, text } = &self.violation;
        writeln!(f, "seed {}: {oracle}: {text}", self.seed)?;
        write!(f, "replay: make sim SEED={}", self.seed)
    }
}

/// Runs one seed.
///
/// # Errors
/// The first property that did not hold, with the steps that led to it.
pub fn run(seed: u64, options: Options) -> Result<Report, Box<Failure>> {
    let world = World::new(seed, options);
    let mut world = world.map_err(|violation| {
        let trace = Trace::new(false);
        Box::new(Failure {
            seed,
            violation,
            trace,
        })
    })?;
    match live(&mut world) {
        Ok(recovered_after) => Ok(Report {
            seed,
            counters: world.counters,
            trace: world.trace.hash(),
            lasted: world.agenda.now(),
            recovered_after,
        }),
        Err(violation) => Err(Box::new(Failure {
            seed,
            violation,
            trace: world.trace,
        })),
    }
}

fn live(world: &mut World) -> Result<u64, Violation> {
    weather_the_storm(world)?;
    calm_down(world)?;
    let began = world.agenda.now();
    let acknowledged = world.counters.acknowledged;
    let reads = world.counters.reads;
    let bound = began + world.options.calm;
    loop {
        if !world.step()? || world.agenda.now() > bound {
            return Err(Violation::new(
                "liveness",
                format!(
                    "{} s after faults stopped {}",
                    (bound - began) / 1_000_000,
                    ails(world)
                ),
            ));
        }
        let served =
            world.counters.acknowledged > acknowledged + 20 && world.counters.reads > reads + 10;
        if served && well(world).is_ok() {
            world.compare_states()?;
            world.read_everything()?;
            world.watchers_catch_up()?;
            return Ok(world.agenda.now() - began);
        }
    }
}

/// Faults for as long as it was asked, and until enough has happened.
fn weather_the_storm(world: &mut World) -> Result<(), Violation> {
    let Options {
        stormy,
        operations,
        faults,
        ..
    } = world.options;
    while world.step()? {
        let now = world.agenda.now();
        let enough = world.counters.operations() >= operations && world.counters.faults() >= faults;
        if now >= stormy && enough {
            return Ok(());
        }
        if now > stormy * 4 {
            break;
        }
    }
    Err(Violation::new(
        "load",
        format!(
            "only {} operations and {} faults",
            world.counters.operations(),
            world.counters.faults()
        ),
    ))
}

/// Faults stop: the network is whole, and whoever has a disk runs.
fn calm_down(world: &mut World) -> Result<(), Violation> {
    world.stormy = false;
    world.network.restore_all();
    world.network.network_faults = NetworkFaults::CALM;
    world.churn.target = world.churn.target.max(3);
    let now: Micros = world.agenda.now();
    world.trace.note(now, format_args!("faults stop"));
    for host in 0..world.hosts.len() {
        world.hosts[host].paused_until = 0;
        world.mend_disk(host);
        world.restart(host)?;
    }
    Ok(())
}

/// Whether all members agree on a leader, stand at the same index, and are as many as wanted; and
/// whether all leases have ended.
fn well(world: &World) -> Result<(), String> {
    let voters: Vec<MemberId> = world.membership.voters().map(|member| member.id).collect();
    if voters.len() != world.churn.target || world.membership.learners().next().is_some() {
        return Err(format!(
            "there are {} voters and not {}",
            voters.len(),
            world.churn.target
        ));
    }
    let (mut leaders, mut indexes) = (0, Vec::<(Index, u64)>::new());
    for voter in &voters {
        let process = world
            .home
            .get(voter)
            .and_then(|host| world.hosts[*host].process.as_ref());
        let Some(process) = process else {
            return Err(format!("voter {voter:x} does not run"));
        };
        let status = process.member.status();
        leaders += u32::from(status.raft.role == Role::Leader);
        indexes.push((process.machine.index(), status.raft.term));
    }
    if leaders != 1 {
        return Err(format!("{leaders} members lead"));
    }
    if indexes.iter().any(|at| *at != indexes[0]) {
        return Err(format!(
            "members stand at different indexes and terms: {indexes:?}"
        ));
    }
    // No client renews them any more.
    let first = voters.first().and_then(|voter| world.home.get(voter));
    let process = first.and_then(|host| world.hosts[*host].process.as_ref());
    let leases = process.map_or(0, |process| process.machine.view().leases().len());
    if leases > 0 {
        return Err(format!("{leases} leases have not ended"));
    }
    Ok(())
}

fn ails(world: &World) -> String {
    match well(world) {
        Ok(()) => "clients were not served".to_owned(),
        Err(ailment) => ailment,
    }
}
