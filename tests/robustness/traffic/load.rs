//! The requests of the clients: single keys and small transactions on a few keys that change over time, objects as an
//! API server stores them, leases, compactions, and ballast.
//!
//! Groups of keys are abandoned after a few seconds, so that porcupine can check short histories, each complete in
//! itself.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use tokio::time::sleep;

use super::client::Client;
use crate::history::{Act, Compare, Given, Kv, Nanos, Outcome, Request};

/// How long the keys of a group are used.
const GROUP: Nanos = 6_000_000_000;

/// Set when all clients should stop.
pub(crate) type Enough = Arc<AtomicBool>;

fn over(enough: &Enough) -> bool {
    enough.load(Ordering::Relaxed)
}

fn get(key: &str, end: &str) -> Act {
    Act::Range {
        key: key.to_owned(),
        end: end.to_owned(),
        limit: 0,
        revision: 0,
        keys_only: false,
        count_only: false,
    }
}

/// The end of a group's range: its name ends with a slash, and this is the next character.
pub(crate) fn end_of(group: &str) -> String {
    format!("{}0", group.trim_end_matches('/'))
}

/// A client's knowledge of one group.
#[derive(Default)]
struct Picture {
    group: String,
    keys: BTreeMap<String, Kv>,
    /// The newest revision that it received.
    newest: i64,
}

impl Picture {
    fn learn(&mut self, outcome: &Outcome) {
        let Outcome::Done {
            revision, given, ..
        } = outcome
        else {
            return;
        };
        self.newest = self.newest.max(*revision);
        for given in given {
            if let Given::Range { kvs, .. } = given {
                for kv in kvs.iter().filter(|kv| !kv.value.is_empty()) {
                    self.keys.insert(kv.key.clone(), kv.clone());
                }
            }
        }
    }

    fn enter(&mut self, group: String) {
        if self.group != group {
            self.group = group;
            self.keys.clear();
        }
    }
}

/// Single keys, ranges and transactions over a group of five keys.
pub(crate) async fn keys(mut client: Client, enough: Enough) {
    let mut picture = Picture::default();
    while !over(&enough) {
        let group = client.recorder.now() / GROUP;
        picture.enter(format!("g/{group:05}/"));
        let (request, serializable) = next(&mut client, &picture);
        let outcome = match request {
            Request::Txn {
                compares,
                then,
                or_else,
                ..
            } => {
                client
                    .ask(Request::Txn {
                        compares,
                        then,
                        or_else,
                        serializable,
                    })
                    .await
            }
            other => client.ask(other).await,
        };
        picture.learn(&outcome);
        let pause = 10 + client.generator.below(30);
        sleep(Duration::from_millis(pause)).await;
    }
}

fn txn(compares: Vec<Compare>, then: Vec<Act>, or_else: Vec<Act>) -> Request {
    Request::Txn {
        compares,
        then,
        or_else,
        serializable: false,
    }
}

fn one(act: Act) -> Request {
    txn(Vec::new(), vec![act], Vec::new())
}

/// The next operation of a client, and whether a read is serializable.
fn next(client: &mut Client, picture: &Picture) -> (Request, bool) {
    let group = &picture.group;
    let slot = client.generator.below(5);
    let key = format!("{group}k{slot}");
    let other = format!("{group}k{}", (slot + 1) % 5);
    let prev = client.generator.one_in(2);
    let put = |key: &str, value: String| Act::Put {
        key: key.to_owned(),
        value,
        lease: 0,
        prev,
    };
    let known = picture.keys.get(&key);
    let request = match client.generator.below(100) {
        0..25 => one(put(&key, client.value())),
        25..33 => one(Act::Delete {
            key,
            end: String::new(),
            prev,
        }),
        33..36 => one(Act::Delete {
            key: format!("{group}k0"),
            end: format!("{group}k2"),
            prev,
        }),
        36..50 => one(get(&key, "")),
        50..60 => return (one(get(&key, "")), true),
        60..68 => one(whole(client, group)),
        68..73 => return (one(whole(client, group)), true),
        73..85 => {
            let compare = Compare {
                key: key.clone(),
                modified: Some(known.map_or(0, |kv| kv.modified)),
                value: known.map(|kv| kv.value.clone()).unwrap_or_default(),
            };
            txn(
                vec![compare],
                vec![put(&key, client.value())],
                vec![get(&key, "")],
            )
        }
        85..94 => {
            let compare = known.map(|kv| Compare {
                key: key.clone(),
                modified: None,
                value: kv.value.clone(),
            });
            let then = vec![
                put(&key, client.value()),
                put(&other, client.value()),
                get(group, &end_of(group)),
            ];
            txn(
                compare.into_iter().collect(),
                then,
                vec![get(&key, ""), get(&other, "")],
            )
        }
        _ => {
            let back = i64::try_from(client.generator.below(400)).expect("small");
            let mut range = get(group, &end_of(group));
            if let Act::Range { revision, .. } = &mut range {
                *revision = (picture.newest - back).max(1);
            }
            one(range)
        }
    };
    (request, false)
}

fn whole(client: &mut Client, group: &str) -> Act {
    Act::Range {
        key: group.to_owned(),
        end: end_of(group),
        limit: i64::try_from(client.generator.below(4)).expect("small"),
        revision: 0,
        keys_only: client.generator.one_in(4),
        count_only: false,
    }
}

/// Objects as an API server stores them: lists in pages at one revision, and updates that succeed only if the object
/// has not changed since it was read.
pub(crate) async fn objects(mut client: Client, enough: Enough) {
    let mut picture = Picture::default();
    while !over(&enough) {
        let group = client.recorder.now() / GROUP;
        picture.enter(format!("/registry/pods/ns{group:05}/"));
        if client.generator.one_in(6) {
            list(&mut client, &mut picture).await;
        } else {
            update(&mut client, &mut picture).await;
        }
        let pause = 10 + client.generator.below(40);
        sleep(Duration::from_millis(pause)).await;
    }
}

async fn list(client: &mut Client, picture: &mut Picture) {
    let (mut from, end) = (picture.group.clone(), end_of(&picture.group));
    let mut pinned = 0;
    loop {
        let page = Act::Range {
            key: from,
            end: end.clone(),
            limit: 3,
            revision: pinned,
            keys_only: false,
            count_only: false,
        };
        let outcome = client.act(page, false).await;
        picture.learn(&outcome);
        let Outcome::Done {
            revision, given, ..
        } = &outcome
        else {
            return;
        };
        let Some(Given::Range { kvs, more, .. }) = given.first() else {
            return;
        };
        let (true, Some(last)) = (*more, kvs.last()) else {
            return;
        };
        from = format!("{}\0", last.key);
        pinned = if pinned == 0 { *revision } else { pinned };
    }
}

async fn update(client: &mut Client, picture: &mut Picture) {
    let key = format!("{}p{}", picture.group, client.generator.below(8));
    let known = picture.keys.get(&key).cloned();
    let compare = Compare {
        key: key.clone(),
        modified: Some(known.as_ref().map_or(0, |kv| kv.modified)),
        value: known
            .as_ref()
            .map(|kv| kv.value.clone())
            .unwrap_or_default(),
    };
    let then = if known.is_some() && client.generator.one_in(4) {
        Act::Delete {
            key: key.clone(),
            end: String::new(),
            prev: false,
        }
    } else {
        Act::Put {
            key: key.clone(),
            value: client.value(),
            lease: 0,
            prev: false,
        }
    };
    let outcome = client
        .ask(txn(vec![compare], vec![then], vec![get(&key, "")]))
        .await;
    // The update may have been applied, whatever its outcome, so the earlier state of the key is removed.
    picture.keys.remove(&key);
    picture.learn(&outcome);
    if client.generator.one_in(3) {
        let outcome = client.act(get(&key, ""), false).await;
        picture.learn(&outcome);
    }
}

/// Leases with keys that are kept alive for a while, then revoked or left to expire.
pub(crate) async fn leases(mut client: Client, enough: Enough) {
    while !over(&enough) {
        let id = client.number();
        let ttl = 2 + i64::try_from(client.generator.below(3)).expect("small");
        let outcome = client.ask(Request::Grant { id, ttl }).await;
        let Outcome::Done { ttl, .. } = outcome else {
            sleep(Duration::from_millis(100)).await;
            continue;
        };
        for number in 0..=client.generator.below(3) {
            let put = Act::Put {
                key: format!("lease/{id}/{number}"),
                value: client.value(),
                lease: id,
                prev: false,
            };
            client.act(put, false).await;
        }
        let third = Duration::from_millis(u64::try_from(ttl).unwrap_or(1) * 333);
        for _ in 0..client.generator.below(5) {
            if over(&enough) {
                return;
            }
            sleep(third).await;
            client.ask(Request::KeepAlive { id }).await;
        }
        if client.generator.one_in(3) {
            client.ask(Request::Revoke { id }).await;
        }
    }
}

/// Compacts up to a revision shortly before the one that all recording watchers have received, so that at least these
/// are not cancelled. Other watchers may be.
pub(crate) async fn compactions(mut client: Client, enough: Enough, shown: Vec<Arc<AtomicI64>>) {
    while !over(&enough) {
        let pause = 2_000 + client.generator.below(3_000);
        sleep(Duration::from_millis(pause)).await;
        let least = shown.iter().map(|shown| shown.load(Ordering::Relaxed));
        let back = 20 + i64::try_from(client.generator.below(200)).expect("small");
        let revision = least.min().unwrap_or(0) - back;
        if revision > 1 {
            client.ask(Request::Compact { revision }).await;
        }
    }
}

/// Large values, so that logs grow, are compacted into checkpoints, and are not kept for members that are far behind.
pub(crate) async fn ballast(mut client: Client, enough: Enough) {
    while !over(&enough) {
        let put = Act::Put {
            key: format!("ballast/{}", client.generator.below(4)),
            value: client.value(),
            lease: 0,
            prev: false,
        };
        client.act(put, false).await;
        sleep(Duration::from_millis(250)).await;
    }
}
