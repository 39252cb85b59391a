//! The cases: what is counted, and how often it is carried out. Each is a function of the number of operations, the same
//! in every run: fixed seeds, no clock, no thread. What is done before the operations must not depend on their number.

mod disk;
mod members;
pub(crate) mod put;
mod store;
mod watch;

use crate::server::etcd::kv;

/// What is counted.
pub(crate) struct Case {
    /// Its name in the baseline.
    pub(crate) name: &'static str,
    /// Operations of the smaller run.
    pub(crate) count: u64,
    /// Carries out so many.
    pub(crate) run: fn(u64),
}

const fn case(name: &'static str, count: u64, run: fn(u64)) -> Case {
    Case { name, count, run }
}

/// Every case.
pub(crate) const ALL: &[Case] = &[
    case(
        "put, three members, one at a time",
        500,
        members::puts_one_at_a_time,
    ),
    case(
        "put, three members, 32 at a time",
        3200,
        members::puts_32_at_a_time,
    ),
    case(
        "linearizable read at the leader",
        2000,
        members::reads_at_the_leader,
    ),
    case(
        "linearizable read at a follower",
        2000,
        members::reads_at_a_follower,
    ),
    case("store: get", 10_000, store::gets),
    case("store: list 500 with count", 40, store::lists),
    case("store: put", 5000, store::puts),
    case(
        "store: transaction of a compare, a put and a get",
        3000,
        store::transactions,
    ),
    case("store: delete", 4000, store::deletes),
    case(
        "wire: Range of one key, read and answered",
        5000,
        kv::ranges,
    ),
    case("wire: Range of 500 keys, read and answered", 40, kv::lists),
    case(
        "wire: Put, read, checked, proposed and answered",
        5000,
        kv::puts,
    ),
    case("log: an entry encoded and appended", 4000, disk::entries),
    case("log: 32 entries encoded and appended", 200, disk::batches),
    case("checkpoint: a key written", 20_000, disk::checkpoints),
    case(
        "watch: an event, 10,000 watchers of other keys",
        1000,
        watch::others,
    ),
    case(
        "watch: an event, 10,000 watchers of its key",
        20,
        watch::all,
    ),
];
