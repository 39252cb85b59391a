//! Incorrect histories with one fault each: the checks must detect every one, and porcupine those that concern
//! linearizability.

use std::io::Write as _;

use crate::checks::check;
use crate::history::{
    Act, AtRest, Compare, Event, Given, History, Kv, Operation, Outcome, Request, Shown, Watch,
};
use crate::porcupine;

fn kv(key: &str, value: &str, created: i64, modified: i64, version: i64) -> Kv {
    Kv {
        key: key.to_owned(),
        value: value.to_owned(),
        created,
        modified,
        version,
        lease: 0,
    }
}

fn put(key: &str, value: &str) -> Act {
    Act::Put {
        key: key.to_owned(),
        value: value.to_owned(),
        lease: 0,
        prev: false,
    }
}

fn get(key: &str) -> Act {
    Act::Range {
        key: key.to_owned(),
        end: String::new(),
        limit: 0,
        revision: 0,
        keys_only: false,
        count_only: false,
    }
}

fn done(revision: i64, given: Given) -> Outcome {
    Outcome::Done {
        revision,
        succeeded: true,
        given: vec![given],
        ttl: 0,
    }
}

fn got(kv: Option<Kv>) -> Given {
    Given::Range {
        count: i64::from(kv.is_some()),
        kvs: kv.into_iter().collect(),
        more: false,
    }
}

fn operation(client: u64, times: (u64, u64), act: Act, outcome: Outcome) -> Operation {
    Operation {
        client,
        member: "m1".to_owned(),
        began: times.0,
        ended: times.1,
        request: Request::Txn {
            compares: Vec::new(),
            then: vec![act],
            or_else: Vec::new(),
            serializable: false,
        },
        outcome,
    }
}

fn event(kv: Kv, prev: Option<Kv>) -> Event {
    Event {
        deleted: false,
        kv,
        prev,
    }
}

fn shown(at: u64, events: Vec<Event>) -> Shown {
    Shown {
        at,
        revision: events.last().map_or(0, |event| event.kv.modified),
        events,
        bookmark: false,
        compacted: 0,
    }
}

fn watch(watcher: &str, shown: Vec<Shown>) -> Watch {
    Watch {
        watcher: watcher.to_owned(),
        member: "m1".to_owned(),
        key: String::new(),
        end: "\0".to_owned(),
        start: 1,
        no_put: false,
        no_delete: false,
        prev: true,
        shown,
    }
}

const NONE: Given = Given::Put { prev: None };

/// g/a is set to 1.1, then 2.1, then 1.2 together with g/b, and each is read; this history is correct.
fn right() -> History {
    let (first, second) = (kv("g/a", "1.1", 2, 2, 1), kv("g/a", "2.1", 2, 3, 2));
    let third = kv("g/b", "1.2", 4, 4, 1);
    let operations = vec![
        operation(1, (10, 20), put("g/a", "1.1"), done(2, NONE)),
        operation(2, (30, 40), get("g/a"), done(2, got(Some(first.clone())))),
        operation(2, (50, 60), put("g/a", "2.1"), done(3, NONE)),
        operation(1, (70, 80), get("g/a"), done(3, got(Some(second.clone())))),
        operation(1, (90, 100), put("g/b", "1.2"), done(4, NONE)),
    ];
    let events = vec![
        shown(22, vec![event(first.clone(), None)]),
        shown(62, vec![event(second.clone(), Some(first))]),
        shown(102, vec![event(third.clone(), None)]),
    ];
    History {
        operations,
        watches: vec![watch("one", events.clone()), watch("two", events)],
        rest: vec![AtRest {
            member: "m1".to_owned(),
            revision: 4,
            hash: 7,
            compacted: 0,
            kvs: vec![second, third],
            leases: Vec::new(),
        }],
    }
}

/// The part of the history that porcupine checks.
fn second_opinion(history: &History) -> Option<porcupine::Opinion> {
    let folder = tempfile::tempdir().expect("a folder");
    history.write(folder.path()).expect("written");
    let opinion = porcupine::opinion(folder.path()).expect("an opinion");
    if opinion.is_none() {
        let text = "skipped: robustness::checks (porcupine was not built)\n";
        let _ = std::io::stderr().write_all(text.as_bytes());
    }
    opinion
}

#[track_caller]
fn found(history: &History, rule: &str) {
    let (_, violations) = check(history);
    let rules: Vec<&str> = violations.iter().map(|found| found.rule).collect();
    assert!(rules.contains(&rule), "wanted {rule:?} in {violations:#?}");
}

#[track_caller]
fn found_by_both(history: &History, rule: &str) {
    found(history, rule);
    if let Some(opinion) = second_opinion(history) {
        assert!(!opinion.illegal.is_empty(), "porcupine agrees: {opinion:?}");
    }
}

fn outcome(history: &mut History, at: usize) -> &mut Outcome {
    &mut history.operations[at].outcome
}

#[test]
fn a_right_history_is_right_for_both() {
    let history = right();
    assert_eq!(check(&history).1, Vec::new());
    if let Some(opinion) = second_opinion(&history) {
        assert_eq!((opinion.operations, opinion.ok), (5, opinion.histories));
    }
    let folder = tempfile::tempdir().expect("a folder");
    history.write(folder.path()).expect("written");
    assert_eq!(History::read(folder.path()).expect("read"), history);
}

#[test]
fn unknown_writes_may_or_may_not_apply() {
    let mut history = right();
    let unknown = Outcome::Unknown {
        text: "no answer in time".to_owned(),
    };
    *outcome(&mut history, 2) = unknown.clone();
    let never = operation(3, (55, 65), put("g/a", "3.1"), unknown);
    history.operations.push(never);
    let (looked, violations) = check(&history);
    assert_eq!(violations, Vec::new());
    assert_eq!((looked.unknown, looked.unknown_done), (2, 1));
    if let Some(opinion) = second_opinion(&history) {
        assert_eq!(opinion.ok, opinion.histories);
    }
}

#[test]
fn a_lost_write_is_found() {
    let mut history = right();
    // The write was acknowledged and never read: only the history of all changes can show the loss.
    history
        .operations
        .push(operation(3, (110, 120), put("g/c", "3.1"), done(5, NONE)));
    found(&history, "no acknowledged write is lost");
    // With a read of the missing key, all checks detect the loss.
    let lost = operation(3, (130, 140), get("g/c"), done(5, got(None)));
    history.operations.push(lost);
    found_by_both(&history, "no acknowledged write is lost");
}

#[test]
fn a_stale_read_is_found() {
    let mut history = right();
    let old = kv("g/a", "1.1", 2, 2, 1);
    *outcome(&mut history, 3) = done(2, got(Some(old.clone())));
    found_by_both(&history, "real time");
    *outcome(&mut history, 3) = done(3, got(Some(old)));
    found_by_both(&history, "answers");
}

#[test]
fn detects_repeated_and_refused_writes() {
    let mut history = right();
    let again = event(kv("g/a", "1.1", 2, 5, 3), Some(kv("g/a", "2.1", 2, 3, 2)));
    for watch in &mut history.watches {
        watch.shown.push(shown(130, vec![again.clone()]));
    }
    history.rest.clear();
    found(&history, "a write happens once, as answered");
    let mut history = right();
    *outcome(&mut history, 4) = Outcome::Refused {
        code: "refused".to_owned(),
        text: String::new(),
    };
    found(&history, "a write happens once, as answered");
}

#[test]
fn an_event_without_a_request_is_found() {
    let mut history = right();
    history.operations.pop();
    found(&history, "every change was asked for");
}

#[test]
fn a_transaction_on_the_wrong_branch_is_found() {
    let mut history = right();
    let Request::Txn { compares, .. } = &mut history.operations[2].request else {
        panic!("a transaction");
    };
    compares.push(Compare {
        key: "g/a".to_owned(),
        modified: Some(0),
        value: String::new(),
    });
    found_by_both(&history, "compares");
}

#[test]
fn two_writes_of_one_revision_are_found() {
    let mut history = right();
    *outcome(&mut history, 4) = done(3, NONE);
    found(&history, "one write a revision");
    if let Some(opinion) = second_opinion(&history) {
        assert!(!opinion.illegal.is_empty());
    }
}

#[test]
fn detects_repeated_watch_events() {
    let mut history = right();
    let again = history.watches[1].shown[1].clone();
    history.watches[1].shown.insert(2, again);
    found(&history, "watch: ordered and unique");
}

#[test]
fn detects_gaps_in_one_watch_and_in_all() {
    let mut history = right();
    history.watches[1].shown.remove(1);
    found(&history, "watch: reliable");
    history.watches[0].shown.remove(1);
    found(&history, "no gap in the revisions");
}

#[test]
fn another_order_is_found() {
    let mut history = right();
    history.watches[1].shown.swap(0, 1);
    found(&history, "watch: reliable");
    let mut history = right();
    history.watches[1].shown.swap(1, 2);
    history.watches[1].shown.remove(0);
    history.watches[1].start = 3;
    found(&history, "watch: reliable");
}

/// Two keys changed at one revision, of which a watcher receives the second in a separate response.
#[test]
fn a_split_revision_is_found() {
    let mut history = right();
    let other = event(kv("g/c", "1.3", 4, 4, 1), None);
    for watch in &mut history.watches {
        watch.shown[2].events.push(other.clone());
    }
    let Request::Txn { then, .. } = &mut history.operations[4].request else {
        panic!("a transaction");
    };
    then.push(put("g/c", "1.3"));
    let Outcome::Done { given, .. } = outcome(&mut history, 4) else {
        panic!("done");
    };
    given.push(NONE);
    history.rest[0].kvs.push(other.kv.clone());
    assert_eq!(check(&history).1, Vec::new());
    history.watches[1].shown[2].events.pop();
    history.watches[1].shown.push(shown(103, vec![other]));
    history.watches[1].no_delete = true; // with a filter, so its record is not part of the history
    found(&history, "watch: atomic");
}

#[test]
fn a_wrong_or_missing_key_before_is_found() {
    let mut history = right();
    history.watches[1].shown[1].events[0].prev = None;
    found(&history, "watch: the key as it was");
    history.watches[1].shown[1].events[0].prev = Some(kv("g/a", "9.9", 2, 2, 1));
    found(&history, "watch: the key as it was");
}

#[test]
fn a_bookmark_ahead_of_the_stream_is_found() {
    let mut history = right();
    let bookmark = Shown {
        at: 61,
        revision: 3,
        events: Vec::new(),
        bookmark: true,
        compacted: 0,
    };
    history.watches[1].shown.insert(1, bookmark.clone());
    found(&history, "watch: bookmarks");
    let mut history = right();
    history.watches[1].shown.insert(2, bookmark);
    assert_eq!(check(&history).1, Vec::new());
}

#[test]
fn detects_unfiltered_events_and_odd_cancels() {
    let mut history = right();
    history.watches[1].key = "g/b".to_owned();
    history.watches[1].end = String::new();
    found(&history, "watch: filter and range");
    let mut history = right();
    history.watches[1].shown[2].events.clear();
    history.watches[1].shown[2].compacted = 4;
    found(&history, "watch: cancelled for cause");
}

#[test]
fn detects_diverging_watchers() {
    let mut history = right();
    history.watches[1].shown[1].events[0].kv.value = "9.9".to_owned();
    found(&history, "one history");
}

#[test]
fn members_that_differ_at_rest_are_found() {
    let mut history = right();
    let mut other = history.rest[0].clone();
    other.hash = 8;
    history.rest.push(other);
    found(&history, "at rest: equal hashes");
    history.rest[1].hash = 7;
    history.rest[1].kvs.pop();
    found(&history, "at rest: what was written is there");
}

/// A lease of two seconds, granted at one second, whose key is deleted at this time.
fn lease_that_ends(at: u64) -> History {
    const SECOND: u64 = 1_000_000_000;
    let key = Kv {
        lease: 5,
        ..kv("lease/5/0", "1.1", 2, 2, 1)
    };
    let mut act = put("lease/5/0", "1.1");
    if let Act::Put { lease, .. } = &mut act {
        *lease = 5;
    }
    let granted = Operation {
        request: Request::Grant { id: 5, ttl: 2 },
        outcome: Outcome::Done {
            revision: 1,
            succeeded: true,
            given: Vec::new(),
            ttl: 2,
        },
        ..operation(1, (SECOND, SECOND + 1), get("x"), done(1, got(None)))
    };
    let wrote = operation(1, (SECOND + 2, SECOND + 3), act, done(2, NONE));
    let gone = Event {
        deleted: true,
        kv: Kv {
            key: key.key.clone(),
            modified: 3,
            ..Kv::default()
        },
        prev: Some(key.clone()),
    };
    let events = vec![
        shown(SECOND + 4, vec![event(key, None)]),
        shown(at, vec![gone]),
    ];
    History {
        operations: vec![granted, wrote],
        watches: vec![watch("one", events)],
        rest: Vec::new(),
    }
}

#[test]
fn detects_wrong_lease_ends() {
    let in_time = lease_that_ends(3_000_000_000);
    let (looked, violations) = check(&in_time);
    assert_eq!((looked.leases_expired, violations), (1, Vec::new()));
    found(&lease_that_ends(2_900_000_000), "leases: never early");
    let mut late = lease_that_ends(3_000_000_000);
    late.operations.push(Operation {
        began: 3_100_000_000,
        ended: 3_100_000_001,
        request: Request::KeepAlive { id: 5 },
        ..late.operations[0].clone()
    });
    found(&late, "leases: what has ended is not renewed");
}
