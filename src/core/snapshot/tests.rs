//! A store is itself again after the way through a database, and goes on as if nothing had
//! happened.

use std::sync::Arc;

use bytes::Bytes;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

use super::*;
use crate::bolt::HEAD_BYTES;
use crate::node::{InitialMember, LogPayload, Membership};
use crate::store::*;

struct Generator(Xoshiro256PlusPlus);

impl Generator {
    fn below(&mut self, sides: u64) -> u64 {
        self.0.next_u64() % sides
    }

    fn key(&mut self) -> Bytes {
        Bytes::from(format!("key{}", self.below(12)))
    }

    fn operation(&mut self, revision: Revision) -> Operation {
        match self.below(20) {
            0 => Operation::Compact(Compact {
                revision: revision - self.below(6).cast_signed(),
            }),
            1 => Operation::LeaseGrant(LeaseGrant {
                id: 1 + self.below(4).cast_signed(),
                ttl: 100,
            }),
            2 => Operation::LeaseRevoke(LeaseRevoke {
                id: 1 + self.below(4).cast_signed(),
            }),
            3 => Operation::LeaseCheckpoint(LeaseCheckpoint {
                leases: vec![LeaseRemains {
                    id: 1 + self.below(4).cast_signed(),
                    remaining: 40,
                }],
                ..LeaseCheckpoint::default()
            }),
            4 | 5 => {
                let puts = (0..self.below(3)).map(|_| RequestOp::from(Op::Put(self.put())));
                let mut success: Vec<RequestOp> = puts.collect();
                success.push(RequestOp::from(Op::DeleteRange(self.delete())));
                Operation::Txn(Txn {
                    success,
                    ..Txn::default()
                })
            }
            6..=9 => Operation::DeleteRange(self.delete()),
            _ => Operation::Put(self.put()),
        }
    }

    fn put(&mut self) -> Put {
        let size = match self.below(30) {
            0 => 9_000,
            _ => self.below(40) as usize,
        };
        Put {
            key: self.key(),
            value: vec![b'v'; size].into(),
            lease: match self.below(3) {
                0 => 1 + self.below(4).cast_signed(),
                _ => 0,
            },
            prev_kv: true,
            ..Put::default()
        }
    }

    fn delete(&mut self) -> DeleteRange {
        let range_end = match self.below(4) {
            0 => Bytes::from("key3"),
            _ => Bytes::new(),
        };
        DeleteRange {
            key: self.key(),
            range_end,
            prev_kv: true,
        }
    }
}

fn apply(store: &mut Store, operation: &Operation) -> Result<Response, crate::store::Error> {
    let position = Position { index: 7, term: 3 };
    store.apply(&Command::from(operation.clone()), position)
}

fn contents(store: &Store) -> Contents {
    let members = [InitialMember {
        name: "a".to_owned(),
        peer_urls: vec!["http://a:2380".to_owned()],
        ..InitialMember::default()
    }];
    let membership = Membership::bootstrap("", 0, "token", &members).expect("a membership");
    Contents {
        view: store.publish(),
        membership: Arc::new(membership),
        index: 7,
        term: 3,
    }
}

fn database(store: &Store) -> Vec<u8> {
    let mut file = vec![0; HEAD_BYTES];
    let contents = contents(store);
    let (head, length) = export(&contents, |bytes| {
        file.extend_from_slice(bytes);
        Ok(())
    })
    .expect("a database");
    file[..HEAD_BYTES].copy_from_slice(&head);
    assert_eq!(file.len() as u64, length);
    assert!(length <= estimate(&contents.view), "the bound is one");
    file
}

fn same(one: &Store, two: &Store) {
    let (one, two) = (one.publish(), two.publish());
    assert_eq!(one.revision(), two.revision());
    assert_eq!(one.compacted(), two.compacted());
    assert_eq!(one.leases(), two.leases());
    assert_eq!(one.alarms(), two.alarms());
    assert!(
        one.rows().map(Result::ok).eq(two.rows().map(Result::ok)),
        "rows differ"
    );
    for lease in one.leases() {
        assert_eq!(one.lease_keys(lease.id), two.lease_keys(lease.id));
    }
    for revision in one.compacted().max(1)..=one.revision() {
        assert_eq!(one.hash_kv(revision), two.hash_kv(revision), "{revision}");
        let all = Range {
            key: Bytes::from_static(b"\0"),
            range_end: Bytes::from_static(b"\0"),
            revision,
            ..Range::default()
        };
        assert_eq!(one.range(&all), two.range(&all), "{revision}");
    }
}

#[test]
fn restored_store_behaves_like_its_source() {
    for seed in 0..80 {
        let mut generator = Generator(Xoshiro256PlusPlus::seed_from_u64(seed));
        let mut store = Store::new();
        for _ in 0..generator.below(120) {
            let operation = generator.operation(store.revision());
            // Refusals are part of the story.
            let _ = apply(&mut store, &operation);
            if generator.below(9) == 0 {
                store.reclaim(1_000);
            }
        }
        let file = database(&store);
        let mut back = import(&file[..], 0).expect("readable").store;
        same(&store, &back);
        assert_eq!(summarize(&file[..]).expect("readable"), numbers(&store));
        for _ in 0..60 {
            let operation = generator.operation(store.revision());
            let one = apply(&mut store, &operation);
            assert_eq!(
                one,
                apply(&mut back, &operation),
                "seed {seed}: {operation:?}"
            );
        }
        same(&store, &back);
        // What was rebuilt makes a checkpoint like any other.
        let again = Store::import(back.publish().export()).expect("a checkpoint");
        same(&back, &again);
    }
}

/// The entry that proposes an operation, of the second term from the 60th on.
fn entry(index: u64, operation: &Operation) -> replay::Entry {
    replay::Entry {
        term: 3 + index / 60,
        index,
        kind: 0,
        data: LogPayload::command(None, Command::from(operation.clone())),
    }
}

/// What a member applied, and what is replayed behind any of its snapshots, are the same at each entry.
#[test]
fn replay_is_what_a_member_applies() {
    for seed in 0..40 {
        let mut generator = Generator(Xoshiro256PlusPlus::seed_from_u64(seed));
        let mut store = Store::new();
        let length = 20 + generator.below(80);
        let saved = generator.below(length);
        let mut replay = None;
        for index in 1..=length {
            let operation = match generator.below(12) {
                0 => Operation::LeaseExpire(LeaseExpire {
                    ids: vec![1, 2, 3],
                    term: 3 + generator.below(2),
                }),
                _ => generator.operation(store.revision()),
            };
            let entry = entry(index, &operation);
            let position = entry.position();
            // Refusals are part of the story.
            let _ = store.apply(&Command::from(operation), position);
            if index == saved {
                let at = position;
                let file = database(&store);
                replay = Some(replay::Replay::begin(&file[..], at).expect("a database"));
            }
            let Some(replay) = replay.as_mut().filter(|_| index > saved) else {
                continue;
            };
            let before = replay.at();
            replay.follows(index, before.term).expect("the next one");
            replay.apply(&entry).expect("the next one");
            assert_eq!(
                (replay.at(), replay.revision()),
                (position, store.revision())
            );
            if generator.below(10) == 0 || index == length {
                let contents = replay.contents();
                assert_eq!((contents.index, contents.term), (index, entry.term));
                same(&store, &Store::continued(&contents.view));
            }
        }
    }
}

#[test]
fn replay_passes_over_nothing() {
    let file = database(&Store::new());
    let at = replay::Position { index: 7, term: 3 };
    let mut replay = replay::Replay::begin(&file[..], at).expect("a database");
    let put = Operation::Put(Put {
        key: Bytes::from_static(b"k"),
        ..Put::default()
    });
    for (first, term) in [(7, 3), (9, 3), (8, 2), (8, 4)] {
        replay.follows(first, term).expect_err("another one");
    }
    for wrong in [entry(7, &put), entry(9, &put)] {
        let error = replay.apply(&wrong).expect_err("out of order");
        assert!(
            matches!(error, replay::Discontinuity::Order { .. }),
            "{error}"
        );
    }
    let older = replay::Entry {
        term: 2,
        ..entry(8, &put)
    };
    replay.apply(&older).expect_err("of an older term");
    let unknown = replay::Entry {
        data: Bytes::from_static(b"\x08\x63"),
        ..entry(8, &put)
    };
    let error = replay.apply(&unknown).expect_err("of a newer version");
    assert!(error.to_string().contains("run the version"), "{error}");
    assert_eq!((replay.at(), replay.revision()), (at, 1));
    replay.apply(&entry(8, &put)).expect("the next one");
    assert_eq!(replay.revision(), 2);
}

/// What a summary of the database of a store has to say.
fn numbers(store: &Store) -> Summary {
    let view = store.publish();
    Summary {
        version: STORAGE_VERSION.to_owned(),
        revision: view.revision(),
        compact_revision: view.compacted(),
        hash: view.hash_kv(0).expect("the current revision").hash,
        index: 7,
        term: 3,
        keys: view.key_count(),
        leases: view.leases().len() as u64,
        users: view.auth().users().count() as u64,
        roles: view.auth().roles().count() as u64,
    }
}

/// A summary of a file agrees with the store that came out of it.
fn agrees(file: &[u8], store: &Store) {
    let summary = summarize(file).expect("it was imported");
    let expected = Summary {
        version: summary.version.clone(),
        index: summary.index,
        term: summary.term,
        ..numbers(store)
    };
    assert_eq!(summary, expected);
}

/// Without its digest a damaged file may still be readable; what comes out of it is a store that
/// works.
#[test]
fn damaged_database_is_an_error() {
    let mut store = Store::new();
    let mut generator = Generator(Xoshiro256PlusPlus::seed_from_u64(1));
    for _ in 0..150 {
        let operation = generator.operation(store.revision());
        let _ = apply(&mut store, &operation);
    }
    let file = database(&store);
    let (mut readable, mut refused) = (0, 0);
    for _ in 0..300 {
        let mut damaged = file.clone();
        for _ in 0..=generator.below(3) {
            let at = generator.below(file.len() as u64) as usize;
            damaged[at] = match generator.below(2) {
                0 => damaged[at] ^ (1 << generator.below(8)),
                _ => generator.below(256) as u8,
            };
        }
        let Ok(imported) = import(&damaged[..], 0) else {
            refused += 1;
            // Nothing is called a backup that cannot be restored.
            assert!(summarize(&damaged[..]).is_err());
            continue;
        };
        readable += 1;
        let mut back = imported.store;
        agrees(&damaged, &back);
        for _ in 0..5 {
            let operation = generator.operation(back.revision());
            let _ = apply(&mut back, &operation);
        }
        Store::import(back.publish().export()).expect("a checkpoint");
        let _ = import(&database(&back)[..], 0).expect("a database");
    }
    assert!(readable > 20, "{readable} were readable");
    assert!(refused > 20, "{refused} were refused");
}

#[test]
fn backup_restores_alarms() {
    let mut store = Store::new();
    for (kind, member) in [(AlarmKind::NoSpace, 7), (AlarmKind::Corrupt, 9)] {
        let set = SetAlarm {
            kind: kind.into(),
            member,
            on: true,
        };
        apply(&mut store, &Operation::SetAlarm(set)).expect("an alarm");
    }
    let back = import(&database(&store)[..], 0).expect("readable").store;
    same(&store, &back);
    assert_eq!(back.publish().alarms().len(), 2);
}

#[test]
fn raised_revision_compacts_earlier_revisions() {
    let mut store = Store::new();
    for value in ["1", "2"] {
        let put = Put {
            key: Bytes::from_static(b"k"),
            value: Bytes::from(value),
            ..Put::default()
        };
        apply(&mut store, &Operation::Put(put)).expect("a put");
    }
    let file = database(&store);
    let raised = import(&file[..], 1_000).expect("readable").store;
    let view = raised.publish();
    assert_eq!((view.revision(), view.compacted()), (1_003, 1_003));
    assert_eq!(view.key_count(), 1);
    assert!(import(&file[..], u64::MAX).is_err(), "no such revision");
    // The way through another database keeps it.
    let again = database(&raised);
    let twice = import(&again[..], 0).expect("readable").store;
    same(&raised, &twice);
    assert_eq!(summarize(&again[..]).expect("readable"), numbers(&raised));
}

/// etcd saves a database while a compaction is scheduled and not carried out: rows that it has forgotten are still
/// there, and its `HashKV` leaves them out.
#[test]
fn summary_leaves_out_what_a_scheduled_compaction_forgets() {
    let row = |main: Revision, key: &'static str, tombstone| Row {
        main,
        sub: 0,
        tombstone,
        kv: KeyValue {
            key: Bytes::from(key),
            create_revision: if tombstone { 0 } else { main },
            mod_revision: if tombstone { 0 } else { main },
            version: i64::from(!tombstone),
            ..KeyValue::default()
        },
    };
    let histories = [
        vec![row(2, "a", false), row(3, "a", false), row(4, "b", false)],
        vec![row(2, "a", false), row(3, "a", true), row(4, "b", false)],
        vec![row(2, "a", false), row(3, "b", false), row(4, "a", true)],
        // No key lives.
        vec![row(2, "a", false), row(4, "a", true)],
        vec![row(2, "a", false), row(3, "a", true)],
    ];
    for rows in histories {
        for compacted in 1..=4 {
            let mut writer = crate::bolt::Writer::new();
            writer.bucket(b"key").expect("a bucket");
            for row in &rows {
                let value = prost::Message::encode_to_vec(&row.kv);
                writer.put(&row.name(), &value).expect("a row");
            }
            writer.bucket(b"meta").expect("a bucket");
            let scheduled = row(compacted, "", false).name();
            let put = writer.put(b"scheduledCompactRev", &scheduled);
            put.expect("a pair");
            let file = file_of(writer);
            agrees(&file, &import(&file[..], 0).expect("readable").store);
        }
    }
}

#[test]
fn foreign_database_is_refused() {
    let mut writer = crate::bolt::Writer::new();
    writer.bucket(b"other").expect("a bucket");
    let mut file = vec![0; HEAD_BYTES];
    let finished = writer.finish();
    file.extend(finished.rest);
    file[..HEAD_BYTES].copy_from_slice(&finished.head);
    let error = import(&file[..], 0).expect_err("no keys").to_string();
    assert!(error.contains("none of etcd's"), "{error}");
}

/// A database with these pairs, and nothing else.
fn with(pairs: &[(&str, &[u8], &[u8])]) -> Vec<u8> {
    let mut writer = crate::bolt::Writer::new();
    for (bucket, key, value) in pairs {
        writer.bucket(bucket.as_bytes()).expect("a bucket");
        if !key.is_empty() {
            writer.put(key, value).expect("a pair");
        }
    }
    file_of(writer)
}

fn file_of(writer: crate::bolt::Writer) -> Vec<u8> {
    let mut file = vec![0; HEAD_BYTES];
    let finished = writer.finish();
    file.extend(finished.rest);
    file[..HEAD_BYTES].copy_from_slice(&finished.head);
    file
}

/// Rows of a database: bucket, key and value.
type Rows<'a> = &'a [(&'a str, &'a [u8], &'a [u8])];

#[test]
fn unknown_database_content_is_named() {
    let cases: [(Rows<'_>, &str); 6] = [
        (&[("key", b"short", b"")], "bucket key"),
        (
            &[("key", b"\0\0\0\0\0\0\0\x02_\0\0\0\0\0\0\0\0", b"\xff")],
            "bucket key",
        ),
        (
            &[("key", b"", b""), ("lease", b"12345678", b"\x08\x01")],
            "another lease",
        ),
        (
            &[("key", b"", b""), ("alarm", b"\x10\x07", b"")],
            "unknown kind",
        ),
        (
            &[("key", b"", b""), ("meta", b"storageVersion", b"3.8.0")],
            "3.8.0",
        ),
        (
            &[("key", b"", b""), ("auth", b"authEnabled", b"x")],
            "neither 0 nor 1",
        ),
    ];
    for (pairs, want) in cases {
        let error = import(&with(pairs)[..], 0).expect_err(want).to_string();
        assert!(error.contains(want), "{error}");
    }
    let file = with(&[("key", b"", b""), ("extra", b"k", b"v")]);
    let imported = import(&file[..], 0).expect("readable");
    assert_eq!(imported.unknown, ["extra"]);
    assert_eq!(imported.store.revision(), 1);
}
