//! The pure parts against simple models: chains, objects that are damaged, what is collected, joined, chosen and pruned.

use std::time::Duration;

use bytes::Bytes;
use jiff::{Timestamp, ToSpan as _};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

use super::chain::{chain, newest_run};
use super::collector::Collector;
use super::merge::{Small, joined};
use super::moment::{Base, Moment, Unusable, choose};
use super::names::{Range, cluster, folder};
use super::objects::Archived;
use super::retention::{Horizon, prunable};
use super::segment::{MOST_HEAD, Mark, Segment, head};
use crate::backup::Error;
use crate::backup::cipher::Key;
use crate::backup::manifest::check_id;
use crate::snapshot::replay::{Entry, Position};
use crate::wire::member::{EntriesResponse, LogEntry};

pub(super) const CLUSTER: u64 = 0x9f;

struct Dice(Xoshiro256PlusPlus);

impl Dice {
    fn below(&mut self, sides: u64) -> u64 {
        self.0.next_u64() % sides
    }
}

fn dice(seed: u64) -> Dice {
    Dice(Xoshiro256PlusPlus::seed_from_u64(seed))
}

pub(super) fn range(first: u64, last: u64) -> Range {
    Range::new(first, last).expect("a range")
}

fn time(text: &str) -> Timestamp {
    text.parse().expect("a time")
}

#[test]
fn names_are_read_in_one_way() {
    let name = "00000000000000000007-00000000000000000012";
    assert_eq!(range(7, 12).name(), name);
    assert_eq!(Range::parse(name), Some(range(7, 12)));
    for other in [
        "",
        "7-12",
        "00000000000000000012-00000000000000000007",
        "00000000000000000000-00000000000000000007",
        "00000000000000000007-00000000000000000012#1",
        "+0000000000000000007-00000000000000000012",
    ] {
        assert_eq!(Range::parse(other), None, "{other}");
    }
    assert_eq!(cluster(&folder(CLUSTER)), Some(CLUSTER));
    for other in ["9f", "000000000000009F", "x00000000000009f"] {
        assert_eq!(cluster(other), None, "{other}");
    }
    assert!(matches!(check_id("archive"), Err(Error::Usage(_))));
}

/// Random ranges, that overlap and leave holes, against a set of entries.
#[test]
fn chains_reach_the_first_hole_and_no_further() {
    let (mut holes, mut whole) = (0, 0);
    for seed in 0..4_000 {
        let mut dice = dice(seed);
        let longest = 1 + dice.below(12);
        let ranges: Vec<Range> = (0..dice.below(14))
            .map(|_| {
                let first = 1 + dice.below(40);
                range(first, first + dice.below(longest))
            })
            .collect();
        let after = dice.below(45);
        let is_held = |index: u64| {
            let mut ranges = ranges.iter();
            ranges.any(|it| (it.first..=it.last).contains(&index))
        };
        let end = (after + 1..).find(|index| !is_held(*index)).unwrap() - 1;
        let next = (end + 1..100).find(|index| is_held(*index));

        let chain = chain(ranges.clone(), after);
        assert_eq!(chain.end, end, "seed {seed}: {ranges:?} after {after}");
        let hole = next.map(|next| range(end + 1, next - 1));
        assert_eq!(chain.hole, hole, "seed {seed}: {ranges:?} after {after}");
        let mut at = after;
        for link in &chain.links {
            assert!(ranges.contains(link));
            assert!(link.first <= at + 1 && link.last > at, "seed {seed}");
            at = link.last;
        }
        assert_eq!(at, end);
        // No two of them would do without one between them.
        for three in chain.links.windows(3) {
            assert!(three[2].first > three[0].last + 1, "seed {seed}");
        }
        match hole {
            Some(_) => holes += 1,
            None => whole += 1,
        }

        let newest = (1..100).rev().find(|index| is_held(*index)).map(|last| {
            let first = (1..=last).rev().take_while(|index| is_held(*index)).last();
            range(first.unwrap(), last)
        });
        assert_eq!(
            newest_run(ranges.clone()),
            newest,
            "seed {seed}: {ranges:?}"
        );
    }
    assert!(holes > 500 && whole > 500, "{holes} {whole}");
}

fn entry(index: u64, term: u64) -> Entry {
    Entry {
        term,
        index,
        kind: 0,
        data: Bytes::from(vec![b'e'; (index % 7) as usize * 5]),
    }
}

pub(super) fn segment(first: u64, last: u64, term: u64) -> Segment {
    Segment {
        term_before: term,
        entries: (first..=last).map(|index| entry(index, term)).collect(),
        marks: vec![mark(first - 1, 900, Some(800)), mark(last, 2_000, None)],
    }
}

pub(super) fn mark(index: u64, known_ms: i64, as_of_ms: Option<i64>) -> Mark {
    Mark {
        index,
        known_ms,
        as_of_ms,
    }
}

pub(super) fn key(byte: u8) -> Key {
    use base64::Engine as _;
    let text = base64::prelude::BASE64_STANDARD.encode([byte; 32]);
    Key::parse(&text).expect("a key")
}

#[test]
fn objects_come_back_or_say_what_is_wrong() {
    let stored = segment(5, 24, 3);
    let place = (CLUSTER, range(5, 24));
    for secret in [None, Some(key(1))] {
        let with = secret.as_ref().map(|key| (key, [9; 32]));
        let keys: Vec<Key> = secret.iter().cloned().collect();
        let object = stored.encode(CLUSTER, with).expect("an object");
        let back = Segment::decode(place, &object, &keys).expect("it is whole");
        assert_eq!(back, stored);
        let begin = &object[..object.len().min(MOST_HEAD)];
        let head = head(place, begin, &keys).expect("a head");
        assert_eq!(head.marks, stored.marks);

        for at in 0..object.len() {
            let mut flipped = object.clone();
            flipped[at] ^= 1 << (at % 8);
            let error = Segment::decode(place, &flipped, &keys).expect_err("a bit");
            assert!(matches!(error, Error::Archive(_)), "{at}: {error}");
            let text = error.to_string();
            assert!(text.contains("archive/000000000000009f/"), "{text}");
            let cut = Segment::decode(place, &object[..at], &keys);
            assert!(matches!(cut, Err(Error::Archive(_))), "{at}");
        }
        let mut longer = object.clone();
        longer.push(0);
        Segment::decode(place, &longer, &keys).expect_err("a byte more");
        // In another one's place, it would be other entries.
        for elsewhere in [(CLUSTER, range(5, 25)), (CLUSTER + 1, range(5, 24))] {
            let error = Segment::decode(elsewhere, &object, &keys).expect_err("moved");
            assert!(matches!(error, Error::Archive(_)), "{error}");
        }
        let wrong = match secret {
            None => vec![vec![key(1)]],
            Some(_) => vec![vec![], vec![key(2)]],
        };
        for keys in wrong {
            let error = Segment::decode(place, &object, &keys).expect_err("another key");
            assert!(matches!(error, Error::Key(_)), "{error}");
        }
    }
}

/// Whoever can write to the store, and has no key, must not be able to move what is known of the time.
#[test]
fn heads_of_encrypted_objects_are_signed() {
    let stored = segment(5, 6, 3);
    let place = (CLUSTER, range(5, 6));
    let object = stored.encode(CLUSTER, Some((&key(1), [9; 32]))).unwrap();
    let text = String::from_utf8_lossy(&object[12..]).into_owned();
    let (json, rest) = text.split_at(text.find("\n}\n").unwrap() + 3);
    let changed = json.replace("\"knownMs\": 2000", "\"knownMs\": 1000");
    assert_ne!(json, changed);
    let signature = rest.lines().nth(1).expect("a signature");
    let sum = crate::backup::sha256(changed.as_bytes());
    let head = format!("{changed}sha256 {sum}\n{signature}\n");
    let mut forged = object[..8].to_vec();
    forged.extend_from_slice(&u32::try_from(head.len()).unwrap().to_be_bytes());
    forged.extend_from_slice(head.as_bytes());
    let error = super::segment::head(place, &forged, &[key(1)]).expect_err("forged");
    assert!(error.to_string().contains("without the key"), "{error}");
}

#[test]
fn many_marks_are_thinned_and_the_last_one_stays() {
    let mut long = segment(1, 2, 1);
    long.marks = (0..5_000).map(|ms| mark(2, ms, None)).collect();
    let object = long.encode(CLUSTER, None).expect("an object");
    let back = Segment::decode((CLUSTER, range(1, 2)), &object, &[]).expect("whole");
    assert!(
        (100..=256).contains(&back.marks.len()),
        "{}",
        back.marks.len()
    );
    assert_eq!(back.marks.last(), long.marks.last());
    head(
        (CLUSTER, range(1, 2)),
        &object[..object.len().min(MOST_HEAD)],
        &[],
    )
    .expect("a head");
}

fn answer(indexes: std::ops::RangeInclusive<u64>, term: u64, committed: u64) -> EntriesResponse {
    let entries = indexes.map(|index| LogEntry {
        index,
        term,
        kind: 0,
        payload: Bytes::from_static(b"data"),
    });
    EntriesResponse {
        entries: entries.collect(),
        committed,
        confirmed: true,
        first: 1,
    }
}

fn nothing(committed: u64) -> EntriesResponse {
    EntriesResponse {
        committed,
        confirmed: true,
        first: 1,
        ..EntriesResponse::default()
    }
}

#[test]
fn collector_stores_in_time_and_knows_of_when_it_is() {
    let mut it = Collector::new(Position { index: 10, term: 2 }, None);
    assert_eq!(it.as_of_ms(), None);
    it.take(nothing(10), (1_000, 1_005), 0).expect("idle");
    assert_eq!((it.as_of_ms(), it.segment()), (Some(1_000), None));
    assert!(!it.is_due(1_000_000, 4_000));
    it.take(nothing(10), (3_000, 3_005), 2_000).expect("idle");
    assert_eq!(it.as_of_ms(), Some(3_000));

    // Behind: nobody knows of when that is.
    it.take(answer(11..=12, 2, 20), (5_000, 5_005), 4_000)
        .expect("entries");
    assert!(!it.is_caught_up());
    assert_eq!((it.as_of_ms(), it.stored_index()), (Some(3_000), 10));
    it.take(answer(13..=20, 3, 20), (5_100, 5_105), 4_100)
        .expect("entries");
    assert!(it.is_caught_up());
    // Nothing new: known as early as before, and of a later time.
    it.take(nothing(20), (6_000, 6_500), 5_500).expect("idle");
    assert!(!it.is_due(7_999, 4_000) && it.is_due(8_000, 4_000));
    assert_eq!(it.due_in(7_000, 4_000), Some(1_000));
    let segment = it.segment().expect("entries");
    assert_eq!(segment.range().unwrap(), range(11, 20));
    assert_eq!(segment.term(10), Some(2));
    assert_eq!(segment.term(20), Some(3));
    let marks = [mark(10, 1_005, Some(3_000)), mark(20, 5_105, Some(6_000))];
    assert_eq!(segment.marks, marks);
    // Not stored, and asked for again.
    assert_eq!(it.segment(), Some(segment));
    it.is_stored();
    assert_eq!((it.as_of_ms(), it.stored_index()), (Some(6_000), 20));
    assert_eq!((it.segment(), it.at().term), (None, 3));
}

#[test]
fn collector_takes_nothing_that_does_not_follow() {
    let mut it = Collector::new(Position { index: 10, term: 2 }, None);
    for (wrong, why) in [
        (answer(12..=13, 2, 20), "behind entry 10"),
        (answer(10..=13, 2, 20), "behind entry 10"),
        (answer(11..=13, 1, 20), "term 1"),
        // What is archived was committed, so a quorum knows it.
        (nothing(9), "lost entries"),
    ] {
        let error = it.take(wrong, (0, 0), 0).expect_err(why);
        assert!(error.contains(why), "{error}");
        assert_eq!((it.at().index, it.segment()), (10, None));
    }
    // Without a quorum a member may be behind.
    let behind = EntriesResponse {
        confirmed: false,
        ..nothing(9)
    };
    it.take(behind.clone(), (0, 0), 0).expect("it waits");
    assert_eq!(it.as_of_ms(), None);
    // But not for long: the others may have a quorum.
    it.take(behind.clone(), (0, 0), 0).expect("it waits");
    assert!(!it.is_cut_off());
    it.take(nothing(10), (0, 0), 0).expect("a quorum");
    for _ in 0..3 {
        assert!(!it.is_cut_off());
        it.take(behind.clone(), (0, 0), 0).expect("it waits");
    }
    assert!(it.is_cut_off() && !it.is_cut_off());
}

#[test]
fn a_full_collector_does_not_wait() {
    let mut it = Collector::new(Position::default(), None);
    let mut large = answer(1..=1, 1, 5);
    large.entries[0].payload = vec![0; 9 << 20].into();
    it.take(large, (0, 0), 0).expect("one entry");
    assert!(it.is_due(0, 60_000));
}

#[test]
fn small_objects_are_joined_if_they_follow() {
    let one = segment(5, 8, 2);
    let two = segment(9, 9, 2);
    let whole = joined(vec![one.clone(), two.clone()]).expect("one");
    assert_eq!(whole.range().unwrap(), range(5, 9));
    assert_eq!(whole.term_before, 2);
    assert_eq!(whole.marks.len(), 4);
    assert_eq!(joined(vec![two, one.clone()]), None);
    assert_eq!(joined(vec![one.clone(), segment(10, 11, 2)]), None);
    assert_eq!(joined(vec![one, segment(9, 9, 3)]), None, "another term");
    let mut small = Small::default();
    for index in 1..64 {
        small.push(range(index, index), 10);
        assert_eq!(small.due(), None);
    }
    small.push(range(64, 64), 10);
    assert_eq!(small.due().expect("many").len(), 64);
    small.push(range(65, 65), 9 << 20);
    assert_eq!(small.due(), None, "one is large by itself");
    small.push(range(66, 66), 10);
    assert_eq!(small.due(), None, "and is not written again");
}

fn base(id: &str, index: u64, revision: i64, completed: &str) -> Base {
    Base {
        id: id.to_owned(),
        cluster_id: CLUSTER,
        at: Position { index, term: 1 },
        revision,
        started: time(completed) - 1.minute(),
        completed: time(completed),
    }
}

#[test]
fn moments_are_read_as_they_are_written() {
    for text in ["latest", "revision:7", "index:12", "2026-01-31T12:00:00Z"] {
        let moment: Moment = text.parse().expect("a moment");
        assert_eq!(moment.to_string(), text);
    }
    for text in [
        "",
        "now",
        "7",
        "revision:",
        "revision:-1",
        "revision:0",
        "index:x",
        "2026-01-31",
    ] {
        text.parse::<Moment>().expect_err(text);
    }
}

#[test]
fn backup_of_a_moment_holds_nothing_behind_it() {
    let one = base("one", 100, 50, "2026-01-01T10:00:00Z");
    let two = base("two", 200, 80, "2026-01-01T11:00:00Z");
    let same = base("same", 210, 80, "2026-01-01T12:00:00Z");
    let mut other = base("other", 900, 500, "2026-01-01T09:00:00Z");
    other.cluster_id = CLUSTER + 1;
    let all = [same, other.clone(), one, two];
    let chosen = |moment: &str| -> Vec<String> {
        let moment: Moment = moment.parse().unwrap();
        let bases = choose(&all, &[], moment);
        let bases = bases.map(|bases| bases.iter().map(|it| it.id.clone()).collect());
        bases.unwrap_or_else(|why| vec![why])
    };
    // The nearest one, and those before it in case that it is damaged.
    assert_eq!(chosen("latest"), ["same", "two", "one"]);
    assert_eq!(chosen("index:205"), ["two", "one"]);
    assert_eq!(chosen("index:200"), ["two", "one"]);
    assert_eq!(chosen("revision:79"), ["one"]);
    // What reached revision 80 is behind "one"; the others hold that revision, the earlier one less besides.
    assert_eq!(chosen("revision:80"), ["one", "two", "same"]);
    assert_eq!(chosen("revision:81"), ["same", "two", "one"]);
    assert_eq!(chosen("2026-01-01T11:59:59Z"), ["two", "one"]);
    assert_eq!(chosen("2026-01-01T09:30:00Z"), ["other"]);
    let before = chosen("index:99");
    assert!(before[0].contains("before the oldest") && before[0].contains("the backup one"));
    let none = choose(&[], &[], Moment::Latest).expect_err("none");
    assert!(none.contains("no good backup"), "{none}");
    // A cluster that took the place of another one has a single backup, and that is damaged: an entry of the earlier one is
    // not what is asked for.
    let damaged = |id: &str, base: Base| Unusable {
        id: id.to_owned(),
        what: "part 1 of 1 is gone".to_owned(),
        base: Some(base),
        written: None,
    };
    let mut next = base("next", 50, 900, "2026-01-02T12:00:00Z");
    next.cluster_id = CLUSTER + 2;
    let unusable = [damaged("next", next)];
    for moment in [Moment::Latest, Moment::Index(205)] {
        let none = choose(&all, &unusable, moment).expect_err("none");
        assert!(none.contains("no good backup of the cluster"), "{none}");
    }
    let before = choose(&all, &unusable, Moment::Time(time("2026-01-01T11:59:59Z")));
    assert_eq!(before.expect("it was there then").len(), 2);
}

#[test]
fn archive_is_kept_behind_every_moment_of_the_window() {
    let now = time("2026-01-10T00:00:00Z");
    let object = |cluster_id, first, last, modified: &str| Archived {
        cluster_id,
        range: range(first, last),
        size: 1,
        modified: time(modified),
    };
    let old = "2026-01-01T00:00:00Z";
    let all = [
        object(1, 1, 100, old),
        object(1, 101, 150, old),
        object(1, 151, 200, old),
        object(1, 201, 201, "2026-01-09T23:00:00Z"),
        object(2, 1, 9, old),
        object(2, 10, 11, "2026-01-09T23:00:00Z"),
        object(3, 1, 9, old),
    ];
    let day = Duration::from_secs(24 * 3600);
    let known = Horizon::from([
        (
            1,
            vec![
                (100, time("2026-01-02T00:00:00Z")),
                (160, time("2026-01-05T00:00:00Z")),
                (200, time("2026-01-09T00:00:00Z")),
            ],
        ),
        // Damaged ones alone.
        (3, vec![]),
    ]);
    let goes = |window, unread| -> Vec<(u64, u64)> {
        let prunable = prunable(&all, &known, unread, window, now);
        prunable
            .iter()
            .map(|it| (it.cluster_id, it.range.last))
            .collect()
    };
    // All that is behind the oldest backup stays; a cluster without any backup goes after a day.
    assert_eq!(goes(Duration::ZERO, false), [(1, 100), (2, 9)]);
    // A week back begins before the second backup, so what follows the first one stays.
    assert_eq!(goes(7 * day, false), [(1, 100), (2, 9)]);
    // Two days back are reached from the backup of the fifth.
    assert_eq!(goes(2 * day, false), [(1, 100), (1, 150), (2, 9)]);
    assert_eq!(goes(day / 2, false).len(), 4);
    // A backup that cannot be read may be of that cluster.
    assert_eq!(goes(Duration::ZERO, true), [(1, 100)]);
}
