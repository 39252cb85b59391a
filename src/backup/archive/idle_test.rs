//! Marks of idle times as bytes, in a store, and until when they stay.

use std::sync::Arc;

use jiff::{Timestamp, ToSpan as _};
use object_store::memory::InMemory;
use object_store::path::Path;

use super::collector::Collector;
use super::tests::{CLUSTER, key, mark, segment};
use super::{Horizon, idle};
use crate::backup::repository::Repository;
use crate::backup::{Error, sha256};
use crate::snapshot::replay::Position;
use crate::wire::member::{EntriesResponse, LogEntry};

#[test]
fn idle_marks_are_signed_and_of_one_cluster() {
    let mark = mark(7, 1_000, Some(9_000));
    let plain = idle::encode(CLUSTER, mark, None).expect("an object");
    assert_eq!(
        idle::decode(CLUSTER, &plain, &[]).expect("it is whole"),
        mark
    );
    let signed = idle::encode(CLUSTER, mark, Some((&key(1), [9; 32]))).expect("an object");
    let both = [key(2), key(1)];
    assert_eq!(idle::decode(CLUSTER, &signed, &both).expect("signed"), mark);
    for (object, keys) in [
        (&plain, vec![key(1)]),
        (&signed, vec![key(2)]),
        (&signed, vec![]),
    ] {
        let error = idle::decode(CLUSTER, object, &keys).expect_err("another key");
        assert!(matches!(error, Error::Key(_)), "{error}");
    }
    let moved = idle::decode(CLUSTER + 1, &plain, &[]).expect_err("another cluster");
    assert!(matches!(moved, Error::Archive(_)), "{moved}");
    for at in 0..signed.len() {
        let mut flipped = signed.clone();
        flipped[at] ^= 1 << (at % 8);
        let error = idle::decode(CLUSTER, &flipped, &both).expect_err("a bit");
        assert!(matches!(error, Error::Archive(_)), "{at}: {error}");
    }
    // With a sum of its own, and without the key.
    let text = String::from_utf8(signed).expect("text");
    let (json, rest) = text.split_at(text.find("\n}\n").expect("an end") + 3);
    let changed = json.replace("9000", "9001");
    assert_ne!(json, changed);
    let signature = rest.lines().nth(1).expect("a signature");
    let sum = sha256(changed.as_bytes());
    let forged = format!("{changed}sha256 {sum}\n{signature}\n");
    let error = idle::decode(CLUSTER, forged.as_bytes(), &both).expect_err("forged");
    assert!(error.to_string().contains("without the key"), "{error}");
}

/// One object a cluster, in no list of backups or entries; it goes with the last backup of its cluster.
#[tokio::test]
async fn mark_stays_while_its_cluster_has_a_backup() {
    let store = Arc::new(InMemory::new());
    let repository = Repository::new(store as _, Path::from("some/where"), "memory".to_owned());
    for as_of in [1_000, 2_000] {
        let object = idle::encode(CLUSTER, mark(7, 900, Some(as_of)), None);
        let put = repository.put_idle_mark(CLUSTER, object.expect("an object"));
        put.await.expect("stored");
    }
    let found = repository.idle_mark(CLUSTER, &[]).await.expect("an answer");
    assert_eq!(found, Some(mark(7, 900, Some(2_000))));
    let none = repository.idle_mark(CLUSTER + 1, &[]).await;
    assert_eq!(none.expect("an answer"), None);
    assert!(repository.list(&[]).await.expect("a list").is_empty());
    assert!(repository.archived(None).await.expect("a list").is_empty());

    let segment = segment(5, 7, 1);
    let object = super::merge::sealed(segment, CLUSTER, &[])
        .await
        .expect("an object");
    let range = super::tests::range(5, 7);
    let created = repository.create_archived(CLUSTER, range, object, &[]);
    created.await.expect("stored");
    let archives = repository.archives(&[]).await.expect("a list");
    assert_eq!(
        archives[0].as_of.map(Timestamp::as_millisecond),
        Some(2_000)
    );

    let now = Timestamp::now();
    let known = Horizon::from([(CLUSTER, Vec::new())]);
    for (known, unread, at, goes) in [
        (&known, false, now + 48.hours(), false),
        (&Horizon::new(), true, now + 48.hours(), false),
        (&Horizon::new(), false, now + 1.hour(), false),
        (&Horizon::new(), false, now + 48.hours(), true),
    ] {
        let found = repository.outlived_marks(known, unread, at).await;
        assert_eq!(found.expect("a list").contains(&CLUSTER), goes);
    }
    repository.delete_idle_mark(CLUSTER).await.expect("deleted");
    repository
        .delete_idle_mark(CLUSTER)
        .await
        .expect("gone already");
    let gone = repository.idle_mark(CLUSTER, &[]).await;
    assert_eq!(gone.expect("an answer"), None);
}

/// What is known of the last entry is recorded only while nothing is behind it, and no more often than is asked for.
#[test]
fn only_an_archive_that_stands_still_is_marked() {
    let nothing = |committed| EntriesResponse {
        committed,
        confirmed: true,
        first: 1,
        ..EntriesResponse::default()
    };
    let mut it = Collector::new(Position { index: 10, term: 2 }, None);
    assert_eq!(it.idle_mark(None), None, "nothing is known");
    it.take(nothing(10), (1_000, 1_005), 0).expect("idle");
    let first = mark(10, 1_005, Some(1_000));
    assert_eq!(it.idle_mark(None), Some(first));
    assert_eq!(it.idle_mark(Some(999)), Some(first));
    assert_eq!(it.idle_mark(Some(1_000)), None);
    it.take(nothing(10), (9_000, 9_005), 8_000).expect("idle");
    let later = mark(10, 1_005, Some(9_000));
    assert_eq!(it.idle_mark(Some(1_000)), Some(later));
    let entry = LogEntry {
        index: 11,
        term: 2,
        ..LogEntry::default()
    };
    let some = EntriesResponse {
        entries: vec![entry],
        ..nothing(11)
    };
    it.take(some, (9_500, 9_505), 8_500).expect("an entry");
    assert_eq!(it.idle_mark(None), None, "entry 11 is not stored");
    it.is_stored();
    assert_eq!(it.idle_mark(None), Some(mark(11, 9_505, Some(9_500))));
}

/// An archiver that was started again after hours without a write, and had its first answer with an entry in it, forgot
/// those hours: the mark of the entry before was in no object, and the next idle mark took the place of the last.
#[test]
fn idle_time_is_not_forgotten_by_the_archiver_that_goes_on() {
    let known = mark(10, 1_005, Some(9_000));
    let mut it = Collector::new(Position { index: 10, term: 2 }, Some(known));
    let entry = LogEntry {
        index: 11,
        term: 2,
        ..LogEntry::default()
    };
    let answer = EntriesResponse {
        entries: vec![entry],
        committed: 11,
        confirmed: true,
        first: 1,
    };
    it.take(answer, (9_500, 9_505), 8_500).expect("an entry");
    let marks = it.segment().expect("an entry is here").marks;
    assert_eq!(marks, [known, mark(11, 9_505, Some(9_500))]);
}
