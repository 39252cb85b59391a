//! Objects of an archive in a store in memory: what is merged, and what is there already under a name.

use std::sync::Arc;

use bytes::Bytes;
use jiff::Timestamp;
use object_store::ObjectStoreExt as _;
use object_store::memory::InMemory;
use object_store::path::Path;

use super::merge::{merge, sealed};
use super::names::Range;
use super::segment::Segment;
use super::tests::{CLUSTER, key, range, segment};
use crate::backup::Error;
use crate::backup::repository::Repository;

/// What is merged is there as before, once; what is written already is never replaced.
#[tokio::test]
async fn merged_objects_hold_what_the_small_ones_did() {
    let store = Arc::new(InMemory::new());
    let prefix = Path::from("some/where");
    let repository = Repository::new(store as _, prefix, "memory".to_owned());
    let keys = [key(1)];
    let mut ranges = Vec::new();
    for index in 1..=5 {
        let small = segment(index * 2 - 1, index * 2, 2);
        let range = small.range().unwrap();
        let object = sealed(small, CLUSTER, &keys).await.expect("an object");
        let created = repository.create_archived(CLUSTER, range, object, &keys);
        created.await.expect("stored");
        ranges.push(range);
    }
    // Killed before the small ones were deleted, and once more.
    let whole = range(1, 10);
    for _ in 0..2 {
        let merged = merge(&repository, CLUSTER, &keys, &ranges).await;
        merged.expect("merged");
        let listed = repository.archived(Some(CLUSTER)).await.expect("a list");
        let listed: Vec<Range> = listed.iter().map(|it| it.range).collect();
        assert_eq!(listed, [whole]);
    }
    let read = repository.archived_segment(CLUSTER, whole, &keys).await;
    let read = read.expect("read").expect("it is there");
    let indexes: Vec<u64> = read.entries.iter().map(|entry| entry.index).collect();
    assert_eq!(indexes, (1..=10).collect::<Vec<_>>());
    assert_eq!((read.term_before, read.marks.len()), (2, 10));
    let gone = repository.archived_segment(CLUSTER, ranges[0], &keys).await;
    assert_eq!(gone.expect("an answer"), None);

    let archives = repository.archives(&keys).await.expect("a list");
    assert_eq!((archives[0].run, archives[0].objects), (whole, 1));
    assert_eq!(archives[0].as_of.map(Timestamp::as_millisecond), Some(800));
    let unread = repository.archives(&[]).await.expect("a list");
    assert_eq!((unread[0].run, unread[0].as_of), (whole, None));
    // No backup is seen there.
    assert!(repository.list(&[]).await.expect("a list").is_empty());
}

/// An object was taken for what was to be stored because it had the name of it, whatever was in it: the entries were in no
/// store then, and the next ones went on behind them.
#[tokio::test]
async fn object_of_the_same_name_is_read() {
    for keys in [vec![], vec![key(1)]] {
        let store = Arc::new(InMemory::new());
        let repository = Repository::new(store as _, Path::from("some/where"), "memory".to_owned());
        let object =
            async |segment: Segment| sealed(segment, CLUSTER, &keys).await.expect("an object");
        let create = async |range: Range, object: Vec<u8>| {
            let created = repository.create_archived(CLUSTER, range, object, &keys);
            created.await
        };
        let ours = segment(5, 8, 2);
        let first = create(range(5, 8), object(ours.clone()).await).await;
        assert!(first.expect("it is new"));
        // Another archiver's, which knew other times: those are not stored, and it has to know that.
        let mut theirs = ours.clone();
        theirs.marks.truncate(1);
        let second = create(range(5, 8), object(theirs).await).await;
        assert!(!second.expect("the same entries"));
        let mut changed = ours.clone();
        changed.entries[2].data = Bytes::from_static(b"another value");
        let mut of_another_term = ours;
        of_another_term.term_before = 1;
        for other in [changed, of_another_term] {
            let error = create(range(5, 8), object(other).await).await;
            let error = error.expect_err("other entries");
            assert!(matches!(error, Error::Archive(_)), "{error}");
            let text = error.to_string();
            for words in [
                "other entries are in it",
                "delete memory/archive/000000000000009f/00000000000000000005-00000000000000000008",
            ] {
                assert!(text.contains(words), "{words}: {text}");
            }
        }
        // What nobody can read is none of it either.
        let path = Path::from(format!(
            "some/where/archive/000000000000009f/{}",
            range(9, 9).name()
        ));
        let put = repository
            .store
            .put(&path, b"something".to_vec().into())
            .await;
        put.expect("stored");
        let error = create(range(9, 9), object(segment(9, 9, 2)).await).await;
        let error = error.expect_err("no entries").to_string();
        assert!(error.contains("cut off or damaged"), "{error}");
        create(range(9, 10), object(segment(9, 10, 2)).await)
            .await
            .expect("another name");
    }
}
