//! Restores to a moment, from a store in memory: backups that are damaged or gone, objects that overlap or are missing,
//! and times at which nothing was written. Each is compared with the store that applied the same entries.
//!
//! A backup whose part was truncated made every restore that began with it fail, although the archive reached back to the
//! backup before it; `latest` ended before a hole and said nothing; and a cluster that nobody wrote to could be restored to
//! no time behind its last write.

use std::io::Read as _;
use std::sync::Arc;

use bytes::Bytes;
use jiff::{Timestamp, ToSpan as _};
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{ObjectStoreExt as _, PutPayload};

use super::merge::sealed;
use super::names::Range;
use super::replay::{At, Reached, Source, file};
use super::resume::starts;
use super::segment::{Mark, Segment};
use super::tests::{CLUSTER, range};
use super::{Moment, idle};
use crate::backup::manifest::{FORMAT, Manifest, Origin, Snapshot};
use crate::backup::repository::Repository;
use crate::backup::{Error, part, sha256};
use crate::bolt::HEAD_BYTES;
use crate::node::{LogPayload, Membership, RequestId};
use crate::snapshot::replay::{Entry, Position};
use crate::snapshot::{Contents, export, summarize};
use crate::store::{Command, LeaseExpire, LeaseGrant, LeaseRevoke, Operation, Put, Store, View};

const TERM: u64 = 3;

/// When an entry was committed.
fn time_of(index: u64) -> Timestamp {
    let begin: Timestamp = "2026-01-01T00:00:00Z".parse().expect("a time");
    begin + i64::try_from(index).expect("small").minutes()
}

/// A cluster whose entries are a minute apart.
struct World {
    store: Arc<InMemory>,
    repository: Repository,
    /// The states after each entry; the first one is empty.
    states: Vec<Arc<View>>,
    entries: Vec<Entry>,
}

impl World {
    /// Writes, leases, and their expiry.
    fn new(length: u64) -> World {
        let (mut store, mut states, mut entries) = (Store::new(), Vec::new(), Vec::new());
        states.push(store.publish());
        for index in 1..=length {
            let (operation, request) = operation(index);
            let command = Command::from(operation);
            let at = Position { index, term: TERM };
            let _ = store.apply(&command, at);
            states.push(store.publish());
            entries.push(Entry {
                term: TERM,
                index,
                kind: 0,
                data: LogPayload::command(request, command),
            });
        }
        let kept = Arc::new(InMemory::new());
        let repository = Repository::new(
            Arc::clone(&kept) as _,
            Path::from("some/where"),
            "memory".to_owned(),
        );
        World {
            store: kept,
            repository,
            states,
            entries,
        }
    }

    fn state(&self, index: u64) -> &Arc<View> {
        &self.states[usize::try_from(index).expect("small")]
    }

    /// A backup after an entry.
    async fn save(&self, id: &str, index: u64) {
        let bytes = database(self.state(index), index);
        let summary = summarize(&bytes[..]).expect("a database");
        let attempt = "0a1b2c3d".to_owned();
        let mut parts = Vec::new();
        for (number, piece) in (1..).zip(bytes.chunks(4096)) {
            let (part, object) = part::pack(number, piece, None).expect("packed");
            let put = self.repository.put_part(id, &attempt, number, object);
            put.await.expect("stored");
            parts.push(part);
        }
        let manifest = Manifest {
            format: FORMAT,
            id: id.to_owned(),
            attempt,
            started: time_of(index),
            completed: time_of(index) + 10.seconds(),
            source: Origin {
                endpoint: "http://a:2379".to_owned(),
                cluster_id: format!("{CLUSTER:x}"),
                member_id: "2".to_owned(),
                version: "3.7.3".to_owned(),
            },
            snapshot: Snapshot {
                size: bytes.len() as u64,
                sha256: sha256(&bytes),
                revision: summary.revision,
                compact_revision: summary.compact_revision,
                hash: summary.hash,
                raft_index: index,
                raft_term: TERM,
                keys: summary.keys,
                leases: summary.leases,
                users: summary.users,
                roles: summary.roles,
            },
            encryption: None,
            parts,
        };
        let text = manifest.seal(None).expect("a text");
        let created = self.repository.create_manifest(id, &text).await;
        assert!(created.expect("stored"), "{id} is new");
    }

    /// Entries as an archiver stores them that knew each of them a second later.
    async fn archive(&self, range: Range) {
        let at = |index: u64| usize::try_from(index - 1).expect("small");
        let marks = (range.first - 1..=range.last).map(|index| Mark {
            index,
            known_ms: (time_of(index) + 1.second()).as_millisecond(),
            as_of_ms: Some(time_of(index).as_millisecond()),
        });
        let segment = Segment {
            term_before: if range.first == 1 { 0 } else { TERM },
            entries: self.entries[at(range.first)..=at(range.last)].to_vec(),
            marks: marks.collect(),
        };
        let object = sealed(segment, CLUSTER, &[]).await.expect("an object");
        let created = self.repository.create_archived(CLUSTER, range, object, &[]);
        created.await.expect("stored");
    }

    /// Nothing was written behind an entry until then.
    async fn idles(&self, index: u64, as_of: Timestamp) {
        self.idles_since(index, time_of(index) + 1.second(), as_of)
            .await;
    }

    /// The same, by an archiver that heard of the entry at a time.
    async fn idles_since(&self, index: u64, known: Timestamp, as_of: Timestamp) {
        let mark = Mark {
            index,
            known_ms: known.as_millisecond(),
            as_of_ms: Some(as_of.as_millisecond()),
        };
        let object = idle::encode(CLUSTER, mark, None).expect("an object");
        let put = self.repository.put_idle_mark(CLUSTER, object);
        put.await.expect("stored");
    }

    async fn change(&self, path: &str, change: impl FnOnce(&mut Vec<u8>)) {
        let path = Path::from(format!("some/where/{path}"));
        let found = self.store.get(&path).await.expect("it is there");
        let mut bytes = found.bytes().await.expect("read").to_vec();
        change(&mut bytes);
        let put = self.store.put(&path, PutPayload::from(bytes)).await;
        put.expect("stored");
    }

    async fn delete(&self, path: &str) {
        let path = Path::from(format!("some/where/{path}"));
        self.store.delete(&path).await.expect("deleted");
    }

    async fn restore(&self, id: Option<&str>, moment: &str) -> Result<(Vec<u8>, Reached), Error> {
        let scratch = tempfile::tempdir().expect("a folder");
        let source = Source {
            folder: &self.repository,
            id,
        };
        let at = At {
            moment: moment.parse::<Moment>().expect("a moment"),
            keys: &[],
            scratch: scratch.path(),
        };
        let (mut from, reached) = file(source, &at).await?;
        let mut bytes = Vec::new();
        from.read_to_end(&mut bytes).expect("read");
        Ok((bytes, reached))
    }

    /// The moment has what the cluster held after an entry.
    async fn reaches(&self, moment: &str, index: u64) -> Reached {
        let restored = self.restore(None, moment).await;
        let (bytes, reached) = restored.unwrap_or_else(|error| panic!("{moment}: {error}"));
        let database = &bytes[..bytes.len() - 32];
        assert_eq!(reached.index, index, "{moment}");
        let found = summarize(database).expect("a database");
        let kept = self.state(index);
        assert_eq!(found.revision, kept.revision(), "{moment}");
        assert_eq!(
            found.hash,
            kept.hash_kv(0).expect("a hash").hash,
            "{moment}"
        );
        assert_eq!(found.leases, kept.leases().len() as u64, "{moment}");
        assert_eq!(database, self::database(kept, index), "{moment}");
        reached
    }

    async fn refused(&self, moment: &str) -> String {
        match self.restore(None, moment).await {
            Ok((_, reached)) => panic!("{moment}: {reached:?}"),
            Err(error) => error.to_string(),
        }
    }
}

/// What is written as the entry of an index: keys of leases, of which one is revoked and one expires by the leader's own
/// entry.
fn operation(index: u64) -> (Operation, Option<RequestId>) {
    let asked = RequestId {
        member: 1,
        boot_nonce: 2,
        counter: index,
    };
    let operation = match index % 10 {
        1 | 2 => Operation::LeaseGrant(LeaseGrant {
            id: i64::try_from(index).expect("small"),
            ttl: 100,
        }),
        6 => Operation::LeaseRevoke(LeaseRevoke {
            id: i64::try_from(index).expect("small") - 4,
        }),
        8 => {
            let expire = LeaseExpire {
                ids: vec![i64::try_from(index).expect("small") - 7],
                term: TERM,
            };
            return (Operation::LeaseExpire(expire), None);
        }
        digit => Operation::Put(Put {
            key: Bytes::from(format!("key{}", index % 7)),
            value: Bytes::from(format!("value {index}")),
            lease: match digit {
                3 | 4 => i64::try_from(index - index % 10).expect("small") + 1,
                5 => i64::try_from(index - index % 10).expect("small") + 2,
                _ => 0,
            },
            ..Put::default()
        }),
    };
    (operation, Some(asked))
}

fn database(view: &Arc<View>, index: u64) -> Vec<u8> {
    let contents = Contents {
        view: Arc::clone(view),
        membership: Arc::new(Membership::default()),
        index,
        term: TERM,
    };
    let mut bytes = vec![0; HEAD_BYTES];
    let exported = export(&contents, |more| {
        bytes.extend_from_slice(more);
        Ok(())
    });
    let (head, _) = exported.expect("a database");
    bytes[..HEAD_BYTES].copy_from_slice(&head);
    bytes
}

/// Objects that follow each other, that overlap, and one that is in another one.
#[tokio::test]
async fn every_entry_is_replayed_once() {
    let world = World::new(40);
    world.save("one", 10).await;
    for (first, last) in [(5, 12), (11, 15), (14, 22), (16, 18), (23, 23), (24, 40)] {
        world.archive(range(first, last)).await;
    }
    for index in 11..=40 {
        world.reaches(&format!("index:{index}"), index).await;
    }
    let reached = world.reaches("latest", 40).await;
    assert_eq!((reached.base.as_str(), reached.notes.len()), ("one", 0));
    assert_eq!(reached.as_of, time_of(40));
    let then = time_of(29) + 30.seconds();
    let reached = world.reaches(&then.to_string(), 29).await;
    assert_eq!(reached.as_of, time_of(29));
}

/// What may be wrong with a backup, seen in the list or only when it is read.
#[tokio::test]
async fn older_backup_is_begun_with_if_the_nearest_is_damaged() {
    for (damage, words) in [
        ("cut off", "part 1 has"),
        ("a bit", "SHA-256 differs"),
        ("a part is gone", "part 1 of"),
        ("the manifest", "manifest is cut off or damaged"),
        ("all of it is gone", ""),
    ] {
        let world = World::new(40);
        world.save("one", 10).await;
        world.save("two", 20).await;
        world.archive(range(11, 25)).await;
        world.archive(range(26, 40)).await;
        let part = "two/0a1b2c3d/00000001";
        match damage {
            "cut off" => world.change(part, |bytes| bytes.truncate(9)).await,
            "a bit" => world.change(part, |bytes| bytes[9] ^= 4).await,
            "a part is gone" => world.delete(part).await,
            "the manifest" => world.change("two/manifest", |text| text[20] ^= 4).await,
            _ => {
                world.delete("two/manifest").await;
            }
        }
        let revision = world.state(30).revision();
        assert!(revision > world.state(29).revision());
        let then = time_of(30) + 30.seconds();
        for (moment, index) in [
            ("latest".to_owned(), 40),
            ("index:30".to_owned(), 30),
            (format!("revision:{revision}"), 30),
            (then.to_string(), 30),
        ] {
            if (damage, &*moment) == ("the manifest", "latest") {
                // Nobody knows what it holds, and it is newer than everything else.
                let refused = world.refused("latest").await;
                assert!(refused.contains("give index:40"), "{refused}");
                continue;
            }
            let reached = world.reaches(&moment, index).await;
            assert_eq!(reached.base, "one", "{damage} {moment}");
            let notes = reached.notes.join("\n");
            assert!(notes.contains(words), "{damage} {moment}: {notes}");
            let says = notes.contains("the backup two was passed over");
            assert_eq!(says, !words.is_empty(), "{damage} {moment}: {notes}");
        }
        // Before that backup it is no matter.
        let before = world.reaches("index:15", 15).await;
        let known = before
            .notes
            .iter()
            .filter(|note| !note.contains("manifest"));
        assert_eq!(known.count(), 0, "{damage}: {before:?}");
    }
}

/// An unreadable manifest that is older than what was reached holds nothing that is not there.
#[tokio::test]
async fn latest_passes_over_an_unreadable_backup_that_is_older() {
    let world = World::new(40);
    world.save("one", 10).await;
    world.save("two", 20).await;
    world.archive(range(11, 40)).await;
    world.change("two/manifest", |text| text[20] ^= 4).await;
    world.refused("latest").await;
    world.idles(40, Timestamp::now() + 1.hours()).await;
    let reached = world.reaches("latest", 40).await;
    let [note] = &reached.notes[..] else {
        panic!("{reached:?}");
    };
    assert!(note.contains("the backup two was passed over"), "{note}");
}

/// Every backup is damaged: the nearest says how, as a backup that is damaged and not as a moment that is not there.
#[tokio::test]
async fn damage_of_every_backup_is_an_error_of_the_nearest() {
    let world = World::new(20);
    for (id, index) in [("one", 10), ("two", 15)] {
        world.save(id, index).await;
        let part = format!("{id}/0a1b2c3d/00000001");
        world.change(&part, |bytes| bytes[9] ^= 4).await;
    }
    world.archive(range(11, 20)).await;
    let error = world.restore(None, "index:18").await;
    let error = error.expect_err("all are damaged");
    assert!(
        matches!(&error, Error::Damaged { id, .. } if id == "two"),
        "{error}"
    );
}

/// Whoever names a backup wants that one.
#[tokio::test]
async fn named_backup_that_is_damaged_is_an_error() {
    let world = World::new(20);
    world.save("one", 10).await;
    world.save("two", 15).await;
    world.archive(range(11, 20)).await;
    let part = "two/0a1b2c3d/00000001";
    world.change(part, |bytes| bytes[9] ^= 4).await;
    let error = world.restore(Some("two"), "latest").await;
    let error = error.expect_err("it is damaged");
    assert!(
        matches!(&error, Error::Damaged { id, .. } if id == "two"),
        "{error}"
    );
    let (_, reached) = world
        .restore(Some("one"), "latest")
        .await
        .expect("it is whole");
    assert_eq!((reached.index, reached.notes.len()), (20, 0));
}

/// Entries that are missing are named, and `latest` is not given without them: in a Job of the operator nobody would read
/// a note. What is behind them is never taken for what follows.
#[tokio::test]
async fn latest_is_refused_where_entries_are_missing() {
    let world = World::new(40);
    world.save("one", 10).await;
    world.archive(range(11, 20)).await;
    world.archive(range(24, 40)).await;
    let refused = world.refused("latest").await;
    for words in [
        "entries 21 to 23 are missing",
        "ends with entry 20,",
        "give index:20",
    ] {
        assert!(refused.contains(words), "{words}: {refused}");
    }
    world.reaches("index:20", 20).await;
    let refused = world.refused("index:30").await;
    for words in [
        "the archive holds entries 11 to 20",
        "entries 21 to 23 are missing",
    ] {
        assert!(refused.contains(words), "{words}: {refused}");
    }
    // Nothing is missing that was not asked for.
    assert_eq!(world.reaches("index:15", 15).await.notes.len(), 0);

    // The newest objects have gone, and the archive had gone further.
    world
        .delete("archive/000000000000009f/00000000000000000024-00000000000000000040")
        .await;
    world.idles(40, time_of(90)).await;
    let refused = world.refused("latest").await;
    assert!(
        refused.contains("entries 21 to 40 are missing"),
        "{refused}"
    );

    // A backup behind the hole is the way to what follows, and without it there is less than there was.
    world.save("two", 30).await;
    world.archive(range(24, 40)).await;
    assert_eq!(world.reaches("latest", 40).await.notes.len(), 0);
    let part = "two/0a1b2c3d/00000001";
    world.change(part, |bytes| bytes[9] ^= 4).await;
    let refused = world.refused("latest").await;
    for words in [
        "the backup two cannot be used",
        "ends with entry 20,",
        "give index:20",
    ] {
        assert!(refused.contains(words), "{words}: {refused}");
    }
    world.reaches("index:20", 20).await;
    let refused = world.refused("index:35").await;
    for words in [
        "entries 21 to 23 are missing",
        "the backup two cannot be used",
    ] {
        assert!(refused.contains(words), "{words}: {refused}");
    }
}

/// A time behind the last write, as far as an archiver has seen that nothing was written.
#[tokio::test]
async fn idle_time_is_reached_as_far_as_the_entries_lead() {
    let world = World::new(30);
    world.save("one", 10).await;
    // The backup is the end, before anything is archived.
    let then = (time_of(10) + 5.minutes()).to_string();
    let refused = world.refused(&then).await;
    assert!(refused.contains("nothing follows it"), "{refused}");
    world.idles(10, time_of(16)).await;
    let reached = world.reaches(&then, 10).await;
    assert_eq!(reached.as_of.to_string(), then);

    world.archive(range(11, 20)).await;
    world.refused(&time_of(26).to_string()).await;
    world.idles(20, time_of(90)).await;
    let reached = world.reaches(&time_of(80).to_string(), 20).await;
    assert_eq!((reached.as_of, reached.notes.len()), (time_of(80), 0));
    assert_eq!(world.reaches("latest", 20).await.as_of, time_of(90));
    let later = world.refused(&time_of(91).to_string()).await;
    assert!(later.contains(&format!("of {}", time_of(90))), "{later}");
    // Times between entries are what they were.
    let between = time_of(14) + 30.seconds();
    world.reaches(&between.to_string(), 14).await;

    // Entries up to the mark have gone: the time is behind the hole.
    world
        .delete("archive/000000000000009f/00000000000000000011-00000000000000000020")
        .await;
    world.archive(range(11, 15)).await;
    let refused = world.refused(&time_of(80).to_string()).await;
    assert!(
        refused.contains("the archive holds entries 11 to 15"),
        "{refused}"
    );
    // An archiver that was started again heard of the last entry late: it says nothing of the entries before it.
    world
        .idles_since(20, time_of(16) + 50.seconds(), time_of(90))
        .await;
    let soon = (time_of(16) + 30.seconds()).to_string();
    let refused = world.refused(&soon).await;
    assert!(
        refused.contains("the archive holds entries 11 to 15"),
        "{refused}"
    );

    // One that is damaged says nothing, and is in the way of nothing.
    world.archive(range(16, 20)).await;
    world
        .change("archive/000000000000009f/idle", |text| text[40] ^= 4)
        .await;
    world.refused(&time_of(80).to_string()).await;
    assert_eq!(world.reaches("latest", 20).await.as_of, time_of(20));
}

/// An archiver that is started again knows what was recorded of the entry behind which it goes on: an object's last one, or a
/// backup's behind which nothing is stored yet.
#[tokio::test]
async fn archiver_goes_on_with_what_is_known_of_idle_times() {
    let world = World::new(30);
    world.save("one", 10).await;
    world.idles(10, time_of(16)).await;
    let known = async || {
        let (run, starts) = starts(&world.repository, CLUSTER, &[])
            .await
            .expect("a place");
        let start = starts.last().expect("a place").index;
        let mark = run.mark.filter(|mark| mark.index == start);
        (start, mark.and_then(|mark| mark.as_of_ms))
    };
    let ms = |index: u64| Some(time_of(index).as_millisecond());
    assert_eq!(known().await, (10, ms(16)), "behind a backup alone");
    world.archive(range(11, 20)).await;
    assert_eq!(known().await, (20, ms(20)), "as the object says");
    world.idles(20, time_of(90)).await;
    assert_eq!(known().await, (20, ms(90)));
}
