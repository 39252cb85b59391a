//! Many clusters that are all rolled at once, to measure what that takes: time, and what the API server and the members are
//! asked meanwhile. The operator is one as shipped; every cluster has its own objects, pods and members. All invariants hold
//! throughout; those of very many clusters are judged only at rest, for each judgement is a look at all of them.

use std::collections::BTreeMap;
use std::time::Duration;

use super::harness::request_faults::lock;
use super::harness::world::World;
use super::harness::{Failure, Options};
use super::run::block_on;
use super::user;

/// What was asked until every pod of every cluster had been replaced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rolled {
    /// From the edit to the last write.
    pub seconds: u64,
    /// Passes that ended.
    pub reconciles: u64,
    /// Requests to the API server, reads and writes.
    pub requests: u64,
    /// The most of them within a second.
    pub peak: u64,
    /// The same by their methods.
    pub methods: BTreeMap<String, u64>,
    /// What changes something, there and at members, statuses among it.
    pub writes: u64,
    /// Calls of members.
    pub calls: u64,
    /// Processor time of the operator, with the answers of the API server and of members.
    pub processor: Duration,
}

/// So many clusters and more are judged only at rest: before they are rolled, and after it.
const MANY: usize = 50;
/// Nothing is written for so long once they are rolled: longer than any wait between two steps of a cluster.
const QUIET_MS: u64 = 30_000;

/// So many clusters of three are made, come to rest, and get another annotation of their pods all at the same time. The
/// operator has so many reconciles under way at once; `stopwatch` reads the processor time of this thread.
///
/// # Errors
/// They did not come to rest, a pod is of before the change, or an invariant was broken.
pub fn rolled(
    clusters: usize,
    concurrency: usize,
    stopwatch: fn() -> Duration,
) -> Result<Rolled, Failure> {
    block_on(async {
        let mut options = Options::calm(1);
        options.stopwatch = Some(stopwatch);
        let mut world = World::new(options);
        world.start_operator("operator-1");
        for operator in &mut world.operators {
            operator.concurrency = concurrency;
        }
        let names: Vec<String> = (0..clusters).map(|number| format!("c{number}")).collect();
        for name in &names {
            user::create(&mut world, name, &user::spec(3));
        }
        rest(&mut world, clusters).await?;
        let (begun_ms, before) = (world.ran_ms(), asked(&world));
        let (reconciles, operating) = (world.reconciles, world.operating);
        let methods = lock(&world.ledger).methods.clone();
        for name in &names {
            user::change_template(&mut world, name);
        }
        rest(&mut world, clusters).await?;
        if let Some(old) = names.iter().find_map(|name| user::outdated(&world, name)) {
            return Err(world.unexpected(format!("{old} is at rest with an older spec")));
        }
        let [requests, writes, calls] = asked(&world);
        let ledger = lock(&world.ledger);
        let ended_ms = ledger.log.last().map_or(begun_ms, |last| last.0);
        let seconds = ledger.by_second.range(begun_ms / 1000..);
        let peak = seconds.map(|(_, requests)| *requests).max().unwrap_or(0);
        drop(ledger);
        Ok(Rolled {
            seconds: ended_ms.saturating_sub(begun_ms) / 1000,
            reconciles: world.reconciles - reconciles,
            requests: requests - before[0],
            peak,
            methods: since(&world, &methods),
            writes: writes - before[1],
            calls: calls - before[2],
            processor: world.operating - operating,
        })
    })
}

/// Until nothing is to be done for any of so many.
async fn rest(world: &mut World, clusters: usize) -> Result<(), Failure> {
    let most_ms = user::SOON_MS * clusters as u64;
    if clusters >= MANY {
        world.unjudged(QUIET_MS, most_ms).await?;
    }
    world.settle(most_ms).await
}

/// Requests since these, by their methods.
fn since(world: &World, before: &BTreeMap<String, u64>) -> BTreeMap<String, u64> {
    let mut now = lock(&world.ledger).methods.clone();
    for (method, count) in &mut now {
        *count -= before.get(method).copied().unwrap_or(0);
    }
    now
}

/// Requests, writes and calls so far.
fn asked(world: &World) -> [u64; 3] {
    let ledger = lock(&world.ledger);
    let writes = ledger.writes + ledger.status_writes;
    [ledger.requests, writes, ledger.calls]
}
