//! Backups in a store in memory: what is written, what is found damaged, what is deleted.

use std::sync::Arc;

use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan as _};
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{ObjectStoreExt as _, PutPayload};

use super::cipher::Key;
use super::fetch::fetch;
use super::manifest::{
    CIPHER, Encryption, FORMAT, Manifest, Origin, Snapshot, Verification, check_id,
};
use super::prune::{carry_out, plan};
use super::repository::Repository;
use super::retention::{Candidate, Decision, Retention, decide};
use super::*;

fn time(text: &str) -> Timestamp {
    text.parse().expect("a time")
}

fn key(byte: u8) -> Key {
    use base64::Engine as _;
    let text = base64::prelude::BASE64_STANDARD.encode([byte; 32]);
    Key::parse(&text).expect("a key")
}

struct World {
    store: Arc<InMemory>,
    repository: Repository,
}

impl World {
    fn new() -> World {
        let store = Arc::new(InMemory::new());
        let prefix = Path::from("some/where");
        let repository = Repository::new(Arc::clone(&store) as _, prefix, "memory".to_owned());
        World { store, repository }
    }

    /// Saves these bytes in parts of ten, as `save` does after it has them.
    async fn save(&self, id: &str, at: &str, bytes: &[u8], key: Option<&Key>) -> Manifest {
        let attempt = "0a1b2c3d".to_owned();
        let salt = [7; 32];
        let keys = key.map(|key| key.of_attempt(&salt).expect("keys"));
        let mut parts = Vec::new();
        for (number, piece) in (1..).zip(bytes.chunks(10)) {
            let (part, object) = part::pack(number, piece, keys.as_ref()).expect("packed");
            let put = self.repository.put_part(id, &attempt, number, object).await;
            put.expect("stored");
            parts.push(part);
        }
        let manifest = Manifest {
            format: FORMAT,
            id: id.to_owned(),
            attempt,
            started: time(at),
            completed: time(at),
            source: Origin {
                endpoint: "http://a:2379".to_owned(),
                cluster_id: "1".to_owned(),
                member_id: "2".to_owned(),
                version: "3.7.3".to_owned(),
            },
            snapshot: Snapshot {
                size: bytes.len() as u64,
                sha256: sha256(bytes),
                revision: 5,
                compact_revision: -1,
                hash: 1,
                raft_index: 9,
                raft_term: 2,
                keys: 3,
                leases: 0,
                users: 0,
                roles: 0,
            },
            encryption: key.map(|key| Encryption {
                cipher: CIPHER.to_owned(),
                key_id: key.id().to_owned(),
                salt: base64::Engine::encode(&base64::prelude::BASE64_STANDARD, salt),
            }),
            parts,
        };
        let text = manifest.seal(keys.as_ref()).expect("a text");
        let created = self.repository.create_manifest(id, &text).await;
        assert!(created.expect("stored"), "{id} is new");
        manifest
    }

    async fn get(&self, path: &str) -> Vec<u8> {
        let path = Path::from(format!("some/where/{path}"));
        let found = self.store.get(&path).await.expect("it is there");
        found.bytes().await.expect("read").into()
    }

    async fn put(&self, path: &str, bytes: Vec<u8>) {
        let path = Path::from(format!("some/where/{path}"));
        let put = self.store.put(&path, PutPayload::from(bytes)).await;
        put.expect("stored");
    }

    async fn fetch(&self, id: &str, keys: &[Key]) -> Result<Vec<u8>, Error> {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("file");
        let fetched = fetch(&self.repository, id, keys, &file).await;
        let names = std::fs::read_dir(folder.path()).expect("a folder").count();
        assert_eq!(names, usize::from(fetched.is_ok()), "nothing partial stays");
        fetched.map(|_| std::fs::read(&file).expect("the file"))
    }

    async fn ids(&self) -> Vec<String> {
        let stored = self.repository.list(&[]).await.expect("a list");
        stored.into_iter().map(|it| it.id).collect()
    }
}

const BYTES: &[u8] = b"thirty-five bytes in parts of ten..";

#[tokio::test]
async fn backup_comes_back_as_it_was_with_its_digest() {
    for key in [None, Some(key(1))] {
        let world = World::new();
        world
            .save("one", "2026-11-25T06:00:00Z", BYTES, key.as_ref())
            .await;
        let keys: Vec<Key> = key.into_iter().collect();
        let file = world.fetch("one", &keys).await.expect("fetched");
        let (data, digest) = file.split_at(BYTES.len());
        assert_eq!(data, BYTES);
        assert_eq!(hex(digest), sha256(BYTES));
    }
}

#[tokio::test]
async fn encrypted_backup_needs_its_own_key() {
    let world = World::new();
    world
        .save("one", "2026-11-25T06:00:00Z", BYTES, Some(&key(1)))
        .await;
    world.save("two", "2026-11-25T06:00:00Z", BYTES, None).await;
    for number in 1..=4 {
        let object = world.get(&format!("one/0a1b2c3d/{number:08}")).await;
        let plain = world.get(&format!("two/0a1b2c3d/{number:08}")).await;
        assert_ne!(object, plain);
    }
    for keys in [vec![], vec![key(2)]] {
        let error = world.fetch("one", &keys).await.expect_err("another key");
        assert!(matches!(error, Error::Key(_)), "{error}");
        assert!(error.to_string().contains(key(1).id()), "{error}");
    }
    let both = [key(2), key(1)];
    assert!(world.fetch("one", &both).await.is_ok());
    // Whoever can write to the store could have put it there.
    let error = world.fetch("two", &both).await.expect_err("not encrypted");
    assert!(matches!(error, Error::Key(_)), "{error}");
}

/// Every bit of every object counts: an altered backup is refused, and is never an error of the store.
#[tokio::test]
async fn altered_object_is_damage() {
    for key in [None, Some(key(1))] {
        let world = World::new();
        world
            .save("one", "2026-11-25T06:00:00Z", BYTES, key.as_ref())
            .await;
        let keys: Vec<Key> = key.into_iter().collect();
        for name in ["0a1b2c3d/00000002", "manifest"] {
            let path = format!("one/{name}");
            let sound = world.get(&path).await;
            for at in 0..sound.len() {
                let mut altered = sound.clone();
                altered[at] ^= 1 << (at % 8);
                world.put(&path, altered).await;
                let error = world.fetch("one", &keys).await.expect_err("altered");
                assert!(
                    matches!(error, Error::Damaged { .. }),
                    "{path} {at}: {error}"
                );
            }
            for length in [0, 1, sound.len() - 1] {
                world.put(&path, sound[..length].to_vec()).await;
                let error = world.fetch("one", &keys).await.expect_err("cut off");
                assert!(
                    matches!(error, Error::Damaged { .. }),
                    "{path} {length}: {error}"
                );
            }
            world.put(&path, sound).await;
        }
        assert!(world.fetch("one", &keys).await.is_ok());
    }
}

/// Without the key nobody changes what a backup says, be it with a right sum behind it.
#[tokio::test]
async fn changed_manifest_needs_the_key() {
    let world = World::new();
    let saved = world
        .save("one", "2026-11-25T06:00:00Z", BYTES, Some(&key(1)))
        .await;
    let mut changed = saved.clone();
    changed.parts.pop();
    let without = changed.seal(None).expect("a text");
    let other = key(2).of_attempt(&[7; 32]).expect("keys");
    let with_another = changed.seal(Some(&other)).expect("a text");
    for text in [without, with_another] {
        world.put("one/manifest", text).await;
        let error = world.fetch("one", &[key(1)]).await.expect_err("changed");
        let text = error.to_string();
        assert!(text.contains("without the key"), "{text}");
    }
    // A part in another one's place has a right tag of its own.
    let third = world.get("one/0a1b2c3d/00000003").await;
    let mut swapped = saved.clone();
    swapped.parts[1] = swapped.parts[2].clone();
    let keys = key(1).of_attempt(&[7; 32]).expect("keys");
    world.put("one/0a1b2c3d/00000002", third).await;
    let text = swapped.seal(Some(&keys)).expect("a text");
    world.put("one/manifest", text).await;
    let error = world.fetch("one", &[key(1)]).await.expect_err("swapped");
    assert!(error.to_string().contains("part 2 was changed"), "{error}");
}

#[tokio::test]
async fn list_names_what_is_gone() {
    let world = World::new();
    world.save("one", "2026-11-25T06:00:00Z", BYTES, None).await;
    world.save("two", "2026-11-25T07:00:00Z", BYTES, None).await;
    world.put("begun/12345678/00000001", vec![1]).await;
    world.put("notes.txt", vec![1]).await;
    world.put("one/extra/readme", vec![1]).await;
    let part = Path::from("some/where/two/0a1b2c3d/00000003");
    world.store.delete(&part).await.expect("deleted");
    assert_eq!(world.ids().await, ["begun", "one", "two"]);
    let stored = world.repository.list(&[]).await.expect("a list");
    assert!(stored[0].manifest.is_none());
    assert_eq!(stored[1].damage(), None);
    assert_eq!(stored[2].damage(), Some("part 3 of 4 is gone".to_owned()));
    let error = world.fetch("two", &[]).await.expect_err("a part is gone");
    assert!(matches!(error, Error::Damaged { .. }), "{error}");
    let error = world.fetch("begun", &[]).await.expect_err("no manifest");
    assert!(matches!(error, Error::Unclear { .. }), "{error}");
    let error = world.fetch("three", &[]).await.expect_err("nothing");
    assert!(matches!(error, Error::NotFound { .. }), "{error}");
}

#[tokio::test]
async fn second_save_under_a_name_leaves_the_first() {
    let world = World::new();
    let first = world.save("one", "2026-11-25T06:00:00Z", BYTES, None).await;
    let mut second = first.clone();
    second.attempt = "99999999".to_owned();
    let text = second.seal(None).expect("a text");
    let created = world.repository.create_manifest("one", &text).await;
    assert!(!created.expect("answered"));
    assert_eq!(
        world.fetch("one", &[]).await.expect("fetched")[..35],
        *BYTES
    );
}

#[tokio::test]
async fn newest_verification_counts() {
    let world = World::new();
    let manifest = world.save("one", "2026-11-25T06:00:00Z", BYTES, None).await;
    for (at, failure) in [
        ("2026-11-25T08:00:00Z", None),
        ("2026-11-25T07:00:00Z", Some("it was so".to_owned())),
    ] {
        let verification = Verification {
            manifest: sha256(&manifest.seal(None).expect("a text")),
            at: time(at),
            seconds: 1.5,
            failure,
        };
        let put = world
            .repository
            .put_verification("one", &verification, None)
            .await;
        put.expect("stored");
    }
    let stored = world.repository.find("one", &[]).await.expect("found");
    assert!(stored.verified());
    assert_eq!(stored.damage(), None);
}

#[tokio::test]
async fn prune_deletes_what_it_says_and_leaves_other_objects() {
    let world = World::new();
    for (id, at) in [
        ("a", "2026-11-23T06:00:00Z"),
        ("b", "2026-11-24T06:00:00Z"),
        ("c", "2026-11-25T06:00:00Z"),
    ] {
        world.save(id, at, BYTES, None).await;
    }
    world.put("a/extra/readme", vec![1]).await;
    world.put("left/12345678/00000001", vec![1]).await;
    world
        .put("broken/manifest", b"{ \"format\": 2 }".to_vec())
        .await;
    let policy = Retention {
        last: 2,
        ..Retention::default()
    };
    let stored = world.repository.list(&[]).await.expect("a list");
    let soon = Timestamp::now();
    let early = plan(&stored, &policy, &TimeZone::UTC, soon);
    let ids: Vec<&str> = early.deleted.iter().map(|it| it.id.as_str()).collect();
    assert_eq!(ids, ["a"]);
    assert_eq!(
        early.left_over,
        Vec::<String>::new(),
        "somebody may be writing it"
    );
    let later = soon.checked_add(25.hours()).expect("a time");
    let late = plan(&stored, &policy, &TimeZone::UTC, later);
    assert_eq!(late.left_over, ["left"]);
    let stored = world.repository.find("a", &[]).await.expect("found");
    let first = super::prune::all_manifest_first(&stored);
    let first = first.first().map(ToString::to_string);
    assert_eq!(first.as_deref(), Some("some/where/a/manifest"));
    let mut deleted = Vec::new();
    let done = carry_out(
        &world.repository,
        &late,
        &policy,
        &TimeZone::UTC,
        &[],
        later,
        &mut deleted,
    )
    .await;
    done.expect("deleted");
    let again = carry_out(
        &world.repository,
        &late,
        &policy,
        &TimeZone::UTC,
        &[],
        later,
        &mut deleted,
    )
    .await;
    again.expect("again is no error");
    assert_eq!(world.ids().await, ["b", "broken", "c"]);
    assert_eq!(world.get("a/extra/readme").await, [1], "not ours");
    for id in ["b", "c"] {
        assert!(world.fetch(id, &[]).await.is_ok(), "{id}");
    }
}

/// Who can write to the store and has no key can neither make a prune delete encrypted backups, nor take their place,
/// nor call one verified: found by a reader of the first version.
#[tokio::test]
async fn forged_objects_do_not_steer_a_prune_with_the_key() {
    let world = World::new();
    let keys = [key(1)];
    let mut forged = None;
    for (id, at) in [("a", "2026-11-23T06:00:00Z"), ("b", "2026-11-24T06:00:00Z")] {
        let manifest = world.save(id, at, BYTES, keys.first()).await;
        let stored = world.repository.find(id, &[]).await.expect("found");
        for failure in [Some("a lie".to_owned()), None] {
            let verification = Verification {
                manifest: sha256(&stored.text),
                at: time("2026-11-25T00:00:00Z"),
                seconds: 1.0,
                failure,
            };
            let other = key(2).of_attempt(&[7; 32]).expect("keys");
            for signing in [None, Some(&other)] {
                let put = world
                    .repository
                    .put_verification(id, &verification, signing);
                put.await.expect("stored");
            }
        }
        forged = Some(manifest);
    }
    let mut forged = forged.expect("one");
    forged.id = "z".to_owned();
    forged.encryption = None;
    forged.parts.clear();
    forged.started = time("2026-11-25T00:00:00Z");
    world
        .put("z/manifest", forged.seal(None).expect("a text"))
        .await;

    let stored = world.repository.list(&keys).await.expect("a list");
    let policy = Retention {
        last: 2,
        ..Retention::default()
    };
    let plan = plan(&stored, &policy, &TimeZone::UTC, Timestamp::now());
    assert_eq!(plan.deleted, []);
    assert_eq!(plan.kept["z"], ["its manifest cannot be read"]);
    let unread = stored.iter().find(|it| it.id == "z").expect("listed");
    assert_eq!(unread.damage(), None, "it may be a good one of another key");
    assert_eq!(plan.kept["a"], ["last"]);
    assert!(stored.iter().all(|it| !it.verified()));
    // One that the key signed counts.
    let found = world.repository.find("a", &keys).await.expect("found");
    let verification = Verification {
        manifest: sha256(&found.text),
        at: time("2026-11-26T00:00:00Z"),
        seconds: 1.0,
        failure: None,
    };
    let signing = keys[0].of_attempt(&[7; 32]).expect("keys");
    let put = world
        .repository
        .put_verification("a", &verification, Some(&signing));
    put.await.expect("stored");
    let found = world.repository.find("a", &keys).await.expect("found");
    assert!(found.verified());
}

/// Between the plan and the deletion the backup that was to stay turns out to be damaged.
#[tokio::test]
async fn prune_looks_again_before_it_deletes() {
    let world = World::new();
    for (id, at) in [("a", "2026-11-23T06:00:00Z"), ("b", "2026-11-24T06:00:00Z")] {
        world.save(id, at, BYTES, None).await;
    }
    let policy = Retention {
        last: 1,
        ..Retention::default()
    };
    let (zone, now) = (TimeZone::UTC, Timestamp::now());
    let stored = world.repository.list(&[]).await.expect("a list");
    let planned = plan(&stored, &policy, &zone, now);
    assert_eq!(planned.deleted.len(), 1, "the older one");
    let newest = world.repository.find("b", &[]).await.expect("found");
    let verification = Verification {
        manifest: sha256(&newest.text),
        at: now,
        seconds: 1.0,
        failure: Some("it cannot be restored".to_owned()),
    };
    let put = world.repository.put_verification("b", &verification, None);
    put.await.expect("stored");
    let mut deleted = Vec::new();
    let done = carry_out(
        &world.repository,
        &planned,
        &policy,
        &zone,
        &[],
        now,
        &mut deleted,
    );
    done.await.expect("nothing to do");
    assert!(deleted.is_empty(), "{deleted:?}");
    assert_eq!(world.ids().await, ["a", "b"]);
}

/// An object that is too long for what it should be says nothing, and hides no other backup.
#[tokio::test]
async fn oversized_object_hides_no_other_backup() {
    let world = World::new();
    world.save("one", "2026-11-25T06:00:00Z", BYTES, None).await;
    world.put("one/verified/9999", vec![0; 17 << 20]).await;
    world.put("two/manifest", vec![0; 17 << 20]).await;
    let stored = world.repository.list(&[]).await.expect("a list");
    assert_eq!(stored[0].damage(), None);
    assert!(stored[1].known().is_none() && stored[1].damage().is_none());
    assert!(world.fetch("one", &[]).await.is_ok());
}

/// Two clusters in one folder have two histories: the newest of one does not replace the other's.
#[tokio::test]
async fn clusters_in_one_folder_take_no_place_of_each_other() {
    let world = World::new();
    let mut other = world.save("a", "2026-11-23T06:00:00Z", BYTES, None).await;
    world.save("b", "2026-11-24T06:00:00Z", BYTES, None).await;
    other.source.cluster_id = "2".to_owned();
    world
        .put("a/manifest", other.seal(None).expect("a text"))
        .await;
    let stored = world.repository.list(&[]).await.expect("a list");
    let policy = Retention {
        last: 1,
        ..Retention::default()
    };
    let plan = plan(&stored, &policy, &TimeZone::UTC, Timestamp::now());
    assert_eq!(plan.deleted, []);
}

fn candidate(id: &str, at: &str) -> Candidate {
    Candidate {
        id: id.to_owned(),
        at: time(at),
        good: true,
        verified: false,
    }
}

fn kept(policy: &Retention, candidates: &[Candidate], zone: &TimeZone) -> Vec<String> {
    let decided = decide(policy, candidates, zone).into_iter();
    let kept = decided.filter(|(_, decision)| *decision != Decision::Delete);
    kept.map(|(id, _)| id).collect()
}

#[test]
fn retention_keeps_the_newest_of_each_period() {
    let all = [
        candidate("w1", "2026-11-08T12:00:00Z"),
        candidate("w2", "2026-11-15T12:00:00Z"),
        candidate("d1", "2026-11-24T01:00:00Z"),
        candidate("d2", "2026-11-24T23:30:00Z"),
        candidate("h1", "2026-11-25T05:10:00Z"),
        candidate("h2", "2026-11-25T05:50:00Z"),
        candidate("h3", "2026-11-25T06:10:00Z"),
    ];
    let zone = TimeZone::UTC;
    let policy = |last, hourly, daily, weekly| Retention {
        last,
        hourly,
        daily,
        weekly,
        min_keep: 1,
    };
    assert_eq!(kept(&policy(2, 0, 0, 0), &all, &zone), ["h2", "h3"]);
    assert_eq!(kept(&policy(0, 3, 0, 0), &all, &zone), ["d2", "h2", "h3"]);
    assert_eq!(kept(&policy(0, 0, 2, 0), &all, &zone), ["d2", "h3"]);
    assert_eq!(kept(&policy(0, 0, 0, 3), &all, &zone), ["h3", "w1", "w2"]);
    // In Berlin d2 is of the 25th, whose newest is h3.
    let berlin = TimeZone::get("Europe/Berlin").expect("a zone");
    assert_eq!(kept(&policy(0, 0, 2, 0), &all, &berlin), ["d1", "h3"]);
    let four = Retention {
        last: 1,
        min_keep: 4,
        ..Retention::default()
    };
    assert_eq!(kept(&four, &all, &zone), ["d2", "h1", "h2", "h3"]);
}

/// cloudnative-pg#9681 and others: a retention that counts failed backups deletes the last good one.
#[test]
fn retention_never_deletes_the_last_good_backup() {
    let mut all = [
        candidate("good", "2026-11-01T00:00:00Z"),
        candidate("bad1", "2026-11-24T00:00:00Z"),
        candidate("bad2", "2026-11-25T00:00:00Z"),
    ];
    all[1].good = false;
    all[2].good = false;
    let policy = Retention {
        last: 1,
        ..Retention::default()
    };
    assert_eq!(
        kept(&policy, &all, &TimeZone::UTC),
        ["bad1", "bad2", "good"]
    );
    // A newer good one ends the use of the damaged ones, and the oldest goes.
    let mut more = all.to_vec();
    more.push(candidate("new", "2026-11-26T00:00:00Z"));
    assert_eq!(kept(&policy, &more, &TimeZone::UTC), ["new"]);
    // Unless it is the only one that was ever restored.
    more[0].verified = true;
    assert_eq!(kept(&policy, &more, &TimeZone::UTC), ["good", "new"]);
    assert_eq!(kept(&policy, &[], &TimeZone::UTC), Vec::<String>::new());
}

#[test]
fn names_that_are_no_folder_are_refused() {
    for id in ["a", "20261125T060000Z-1a2b3c4d", "A_b.c"] {
        assert!(check_id(id).is_ok(), "{id}");
    }
    let long = "a".repeat(129);
    for id in ["", ".", "..", "a/b", "a b", "é", long.as_str()] {
        assert!(check_id(id).is_err(), "{id}");
    }
}

#[test]
fn key_is_32_bytes_in_base64() {
    let error = Key::parse("c2hvcnQ=").expect_err("short").to_string();
    assert!(error.contains("openssl rand -base64 32"), "{error}");
    assert_ne!(key(1).id(), key(2).id());
    assert!(
        !format!("{:?}", key(1)).contains("AQEB"),
        "a key is not printed"
    );
}
