//! Linearizability: every response is that of the state at its revision, every change belongs to one operation (or to
//! the end of a lease), and no operation takes effect before one that had completed when it started. A write without a
//! response may have been applied at any time since it started, or not at all.

use std::collections::BTreeMap;

use super::log::{Log, contains};
use super::{Compactions, Found, Looked};
use crate::history::{Act, Compare, Event, Given, History, Kv, Nanos, Operation, Outcome, Request};

/// Checks all operations on keys.
pub(crate) fn check(
    history: &History,
    log: &Log,
    compactions: &Compactions,
    looked: &mut Looked,
    found: &mut Found,
) {
    let mut judge = Judge {
        log,
        compactions,
        seen: Seen::of(history),
        owners: BTreeMap::new(),
        found,
    };
    for operation in &history.operations {
        looked.unknown += u64::from(operation.is_unknown());
        looked.answered += u64::from(operation.revision().is_some());
        judge.operation(operation);
    }
    looked.unknown_done = judge.orphans(&history.operations);
}

/// The newest revision that any client had received, over time.
struct Seen(Vec<(Nanos, i64)>);

impl Seen {
    fn of(history: &History) -> Seen {
        let answered = history.operations.iter().filter_map(|operation| {
            let keys = matches!(operation.request, Request::Txn { .. });
            let revision = operation.revision().filter(|_| keys)?;
            Some((operation.ended, revision))
        });
        let shown = history.watches.iter().flat_map(|watch| &watch.shown);
        let shown = shown.filter_map(|shown| {
            let newest = shown.events.last().map(|event| event.kv.modified);
            Some((shown.at, newest?))
        });
        let mut all: Vec<(Nanos, i64)> = answered.chain(shown).collect();
        all.sort_unstable();
        let mut newest = 0;
        for (_, revision) in &mut all {
            newest = newest.max(*revision);
            *revision = newest;
        }
        Seen(all)
    }

    /// The newest revision received before a time.
    fn before(&self, time: Nanos) -> i64 {
        let earlier = self.0.partition_point(|(at, _)| *at < time);
        earlier.checked_sub(1).map_or(0, |last| self.0[last].1)
    }
}

struct Judge<'a> {
    log: &'a Log,
    compactions: &'a Compactions,
    seen: Seen,
    /// The operation that made each revision.
    owners: BTreeMap<i64, &'a Operation>,
    found: &'a mut Found,
}

impl<'a> Judge<'a> {
    fn operation(&mut self, operation: &'a Operation) {
        let Request::Txn {
            compares,
            then,
            or_else,
            serializable,
        } = &operation.request
        else {
            return;
        };
        let (revision, succeeded, given) = match &operation.outcome {
            Outcome::Done {
                revision,
                succeeded,
                given,
                ..
            } => (*revision, *succeeded, given),
            Outcome::Refused { code, .. } => return self.refused(operation, then, code),
            Outcome::Unknown { .. } => return,
        };
        let branch = if succeeded { then } else { or_else };
        let wrote = branch.iter().any(|act| matches!(act, Act::Put { .. }))
            || given
                .iter()
                .any(|given| matches!(given, Given::Delete { deleted, .. } if *deleted > 0));
        self.in_time(operation, revision, wrote, *serializable);
        self.not_gone(operation, branch, *serializable);
        let base = revision - i64::from(wrote);
        let evaluated = evaluate(self.log, compares, branch, base);
        if evaluated.holds != succeeded {
            let text = format!("{operation:?} took the wrong branch at revision {revision}");
            self.found.add("compares", text);
        } else if evaluated.given != *given {
            let text = format!(
                "{operation:?} should have given {:?} at revision {revision}",
                evaluated.given
            );
            self.found.add("answers", text);
        }
        if !wrote {
            return;
        }
        let there = self.log.changes.get(&revision);
        if !there.is_some_and(|there| same(&evaluated.changes, there)) {
            let text = format!("{operation:?} was acknowledged, and its revision has {there:?}");
            self.found.add("no acknowledged write is lost", text);
        }
        if let Some(other) = self.owners.insert(revision, operation) {
            let text = format!("{operation:?} and {other:?} have one revision");
            self.found.add("one write a revision", text);
        }
    }

    fn in_time(&mut self, operation: &Operation, revision: i64, wrote: bool, serializable: bool) {
        let seen = self.seen.before(operation.began);
        let late = revision < seen || (wrote && revision == seen);
        if late && !serializable {
            let text = format!("{operation:?} began after revision {seen} had been seen");
            self.found.add("real time", text);
        }
    }

    /// A read at a revision that is certainly compacted must be refused.
    fn not_gone(&mut self, operation: &Operation, branch: &[Act], serializable: bool) {
        let sure = self.compactions.sure(operation.began);
        for act in branch {
            if let Act::Range { revision, .. } = act
                && *revision > 0
                && *revision < sure
                && !serializable
            {
                let text = format!("{operation:?} was answered after {sure} was compacted");
                self.found.add("compacted stays compacted", text);
            }
        }
    }

    /// A read may be refused if its revision is compacted or does not exist yet.
    fn refused(&mut self, operation: &Operation, then: &[Act], code: &str) {
        let [Act::Range { revision, .. }] = then else {
            return;
        };
        let (gone, seen) = (
            self.compactions.possible(operation.ended),
            self.seen.before(operation.began),
        );
        let definite = match code {
            "compacted" => *revision < gone,
            "future" => *revision > seen,
            _ => true,
        };
        if !definite {
            let text = format!("{operation:?}; compacted at most {gone}, seen {seen}");
            self.found.add("refused with reason", text);
        }
    }

    /// Changes that no response explains: each is the effect of an operation with an unknown outcome, or the end of a
    /// lease. Returns the number of such operations.
    fn orphans(&mut self, operations: &'a [Operation]) -> u64 {
        let mut writers: BTreeMap<&str, &Operation> = BTreeMap::new();
        let mut deleters: Vec<&Operation> = Vec::new();
        for operation in operations {
            let Request::Txn { then, or_else, .. } = &operation.request else {
                continue;
            };
            for act in then.iter().chain(or_else) {
                match act {
                    Act::Put { value, .. } => {
                        writers.insert(value, operation);
                    }
                    Act::Delete { .. } if operation.is_unknown() => deleters.push(operation),
                    _ => {}
                }
            }
        }
        let orphans: Vec<i64> = self.log.changes.keys().copied().collect();
        let mut explained = 0;
        for revision in orphans {
            if self.owners.contains_key(&revision) {
                continue;
            }
            let events = &self.log.changes[&revision];
            if self.is_a_leases_end(revision, events) {
                continue;
            }
            let put = events.iter().find(|event| !event.deleted);
            let owner = match put {
                Some(put) => writers.get(put.kv.value.as_str()).copied(),
                None => self.deleter(&mut deleters, revision, events),
            };
            let Some(owner) = owner else {
                let text = format!("no operation requested {events:?}");
                self.found.add("every change was asked for", text);
                continue;
            };
            self.explain(owner, revision, events);
            explained += 1;
        }
        explained
    }

    fn explain(&mut self, owner: &'a Operation, revision: i64, events: &[Event]) {
        let elsewhere = self
            .owners
            .values()
            .any(|other| std::ptr::eq(*other, owner));
        if !owner.is_unknown() || elsewhere {
            let text = format!("{owner:?} also caused {events:?}, or was refused and caused it");
            self.found.add("a write happens once, as answered", text);
        } else if !may_give(self.log, owner, revision, events) {
            let text = format!("{owner:?} cannot have caused {events:?}");
            self.found.add("every change was asked for", text);
        } else if revision <= self.seen.before(owner.began) {
            let text = format!("{owner:?} began after its change at {revision} was possible");
            self.found.add("real time", text);
        }
        self.owners.insert(revision, owner);
    }

    /// An operation with an unknown outcome that may have made these deletions. An operation that may explain one
    /// revision may explain each later one as well, so the choice of the first match is safe.
    fn deleter(
        &self,
        deleters: &mut Vec<&'a Operation>,
        revision: i64,
        events: &[Event],
    ) -> Option<&'a Operation> {
        let at = deleters.iter().position(|operation| {
            self.seen.before(operation.began) < revision
                && may_give(self.log, operation, revision, events)
        })?;
        Some(deleters.remove(at))
    }

    /// When a lease ends, all its keys are deleted at one revision.
    fn is_a_leases_end(&self, revision: i64, events: &[Event]) -> bool {
        let before = |event: &Event| self.log.at(&event.kv.key, revision - 1);
        let Some(lease) = events.first().and_then(before).map(|kv| kv.lease) else {
            return false;
        };
        let held = self.log.range("", "\0", revision - 1);
        let mut held = held.filter(|kv| kv.lease == lease).map(|kv| &kv.key);
        let mut gone = events.iter().map(|event| &event.kv.key);
        let all = lease != 0 && events.iter().all(|event| event.deleted);
        all && held.by_ref().eq(gone.by_ref())
    }
}

fn may_give(log: &Log, operation: &Operation, revision: i64, events: &[Event]) -> bool {
    let Request::Txn {
        compares,
        then,
        or_else,
        ..
    } = &operation.request
    else {
        return false;
    };
    let holds = evaluate(log, compares, &[], revision - 1).holds;
    let branch = if holds { then } else { or_else };
    same(
        &evaluate(log, compares, branch, revision - 1).changes,
        events,
    )
}

/// The effect of an operation on a state.
struct Evaluated {
    holds: bool,
    given: Vec<Given>,
    /// Keys after the operation; `None`: deleted.
    changes: Vec<(String, Option<Kv>)>,
}

fn same(changes: &[(String, Option<Kv>)], events: &[Event]) -> bool {
    changes.len() == events.len()
        && changes
            .iter()
            .zip(events)
            .all(|((key, kv), event)| match kv {
                Some(kv) => !event.deleted && *kv == event.kv,
                None => event.deleted && *key == event.kv.key,
            })
}

/// Executes a branch on the state at a revision.
fn evaluate(log: &Log, compares: &[Compare], branch: &[Act], base: i64) -> Evaluated {
    let holds = compares.iter().all(|compare| {
        let kv = log.at(&compare.key, base);
        match compare.modified {
            Some(modified) => kv.map_or(0, |kv| kv.modified) == modified,
            None => kv.map_or("", |kv| &kv.value) == compare.value,
        }
    });
    let mut state = Evaluated {
        holds,
        given: Vec::new(),
        changes: Vec::new(),
    };
    for act in branch {
        let given = state.act(log, act, base);
        state.given.push(given);
    }
    state
}

impl Evaluated {
    /// A range over the state with the changes so far; at an older revision, without them.
    fn range(&self, log: &Log, key: &str, end: &str, base: i64, old: bool) -> Vec<Kv> {
        let kvs = log.range(key, end, base);
        let mut all: BTreeMap<&str, Kv> = kvs.map(|kv| (kv.key.as_str(), kv.clone())).collect();
        for (changed, kv) in self.changes.iter().filter(|_| !old) {
            match kv {
                Some(kv) if contains(key, end, changed) => {
                    all.insert(changed, kv.clone());
                }
                _ => {
                    all.remove(changed.as_str());
                }
            }
        }
        all.into_values().collect()
    }

    fn act(&mut self, log: &Log, act: &Act, base: i64) -> Given {
        match act {
            Act::Put {
                key,
                value,
                lease,
                prev,
            } => {
                let before = self.range(log, key, "", base, false).pop();
                let kv = Kv {
                    key: key.clone(),
                    value: value.clone(),
                    created: before.as_ref().map_or(base + 1, |kv| kv.created),
                    modified: base + 1,
                    version: before.as_ref().map_or(1, |kv| kv.version + 1),
                    lease: *lease,
                };
                self.changes.push((key.clone(), Some(kv)));
                Given::Put {
                    prev: before.filter(|_| *prev),
                }
            }
            Act::Delete { key, end, prev } => {
                let gone = self.range(log, key, end, base, false);
                let keys = gone.iter().map(|kv| (kv.key.clone(), None));
                self.changes.extend(keys);
                Given::Delete {
                    deleted: i64::try_from(gone.len()).expect("few"),
                    prev: if *prev { gone } else { Vec::new() },
                }
            }
            Act::Range {
                key,
                end,
                limit,
                revision,
                keys_only,
                count_only,
            } => {
                let base = if *revision > 0 { *revision } else { base };
                let mut kvs = self.range(log, key, end, base, *revision > 0);
                let count = kvs.len();
                let most = usize::try_from(*limit).ok().filter(|most| *most > 0);
                kvs.truncate(most.unwrap_or(count));
                let more = kvs.len() < count && !*count_only;
                if *count_only {
                    kvs.clear();
                }
                if *keys_only {
                    kvs.iter_mut().for_each(|kv| kv.value.clear());
                }
                Given::Range {
                    kvs,
                    count: i64::try_from(count).expect("few"),
                    more,
                }
            }
        }
    }
}
