//! Many clusters that are all rolled at once, to measure what that takes: time, and what the API server and the members are
//! asked meanwhile. The operator is one as shipped but for one reconcile at a time; every cluster has its own objects, pods
//! and members, and all invariants hold throughout.

use std::collections::BTreeMap;

use serde_json::json;

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
    /// The same by their methods.
    pub methods: BTreeMap<String, u64>,
    /// What changes something, there and at members, statuses among it.
    pub writes: u64,
    /// Calls of members.
    pub calls: u64,
}

/// So many clusters of three are made, come to rest, and get another annotation of their pods all at the same time.
///
/// # Errors
/// They did not come to rest, a pod is of before the change, or an invariant was broken.
pub fn rolled(clusters: usize) -> Result<Rolled, Failure> {
    block_on(async {
        let mut world = World::new(Options::calm(1));
        world.start_operator("operator-1");
        let names: Vec<String> = (0..clusters).map(|number| format!("c{number}")).collect();
        let most_ms = user::SOON_MS * names.len() as u64;
        for name in &names {
            user::create(&mut world, name, &user::spec(3));
        }
        world.settle(most_ms).await?;
        let (begun_ms, before, reconciles) = (world.ran_ms(), asked(&world), world.reconciles);
        let methods = lock(&world.ledger).methods.clone();
        for name in &names {
            let change = json!({"podTemplate": {"metadata": {"annotations": {"note": "new"}}}});
            user::edit(&mut world, name, &change);
        }
        world.settle(most_ms).await?;
        if let Some(old) = names.iter().find_map(|name| user::outdated(&world, name)) {
            return Err(world.unexpected(format!("{old} is at rest with an older spec")));
        }
        let [requests, writes, calls] = asked(&world);
        let ended_ms = lock(&world.ledger)
            .log
            .last()
            .map_or(begun_ms, |last| last.0);
        Ok(Rolled {
            seconds: ended_ms.saturating_sub(begun_ms) / 1000,
            reconciles: world.reconciles - reconciles,
            requests: requests - before[0],
            methods: since(&world, &methods),
            writes: writes - before[1],
            calls: calls - before[2],
        })
    })
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
