//! Watchers, a test for each rule.

use std::sync::Arc;

use super::helpers::*;
use crate::store::*;

#[test]
fn watcher_at_the_compacted_revision() {
    let mut store = filled(&["a", "b"]);
    do_delete(&mut store, "a");
    compact(&mut store, 4).expect("a compaction");
    let view = store.publish();
    let mut watchers = Watchers::new(&view);
    let spec = |start_revision| WatchSpec {
        key: bytes("a"),
        range_end: bytes("z"),
        start_revision,
        prev_kv: true,
        ..Default::default()
    };
    watchers.create(1, spec(4)).expect("a watcher");
    watchers.create(2, spec(3)).expect("a watcher");
    let CatchUp::Synced(events) = watchers.catch_up(1, &view, Slice::default()) else {
        panic!("not caught up");
    };
    assert_eq!((events.len(), events[0].kind), (1, EventKind::Delete));
    assert_eq!(events[0].prev_kv, None, "what was before is compacted");
    assert_eq!(
        watchers.catch_up(2, &view, Slice::default()),
        CatchUp::Compacted(4)
    );
    assert_eq!(watchers.len(), 1, "it is gone");
}

#[test]
fn future_watchers_wait_in_step() {
    let mut store = Store::new();
    let mut watchers = Watchers::new(&store.publish());
    let spec = |start_revision| WatchSpec {
        key: bytes("a"),
        start_revision,
        ..Default::default()
    };
    watchers.create(1, spec(1)).expect("a watcher");
    watchers.create(2, spec(4)).expect("a watcher");
    let caught_up = watchers.catch_up(1, &store.publish(), Slice::default());
    assert_eq!(caught_up, CatchUp::Synced(Vec::new()));
    assert_eq!(
        (watchers.in_step(1), watchers.in_step(2)),
        (Some(true), Some(false))
    );
    let mut seen = Vec::new();
    for _ in 0..3 {
        do_put(&mut store, "a", "v");
        watchers.advance(&store.publish(), &mut |id, events| {
            seen.push((id, events[0].kv.mod_revision));
            true
        });
    }
    assert_eq!(seen, [(1, 2), (1, 3), (1, 4), (2, 4)]);
    assert_eq!(watchers.in_step(2), Some(true));
}

#[test]
fn slow_reader_learns_of_the_compaction() {
    let mut store = filled(&["a"]);
    let mut watchers = Watchers::new(&store.publish());
    watchers
        .create(
            1,
            WatchSpec {
                key: bytes("a"),
                ..Default::default()
            },
        )
        .expect("a watcher");
    (0..3000).for_each(|_| _ = do_put(&mut store, "a", "v"));
    compact(&mut store, 2500).expect("a compaction");
    let compacted = store.publish();
    store.reclaim(usize::MAX);
    // Nothing has been lost to one that sees a view from before the reclaim.
    let mut prompt = Watchers::new(&filled(&["a"]).publish());
    prompt
        .create(
            1,
            WatchSpec {
                key: bytes("a"),
                ..Default::default()
            },
        )
        .expect("a watcher");
    let mut seen = 0;
    prompt.advance(&compacted, &mut |_, events| {
        seen += events.len();
        true
    });
    assert_eq!(seen, 3000);
    let view = store.publish();
    watchers.advance(&view, &mut |_, _| panic!("there is a gap"));
    assert_eq!(
        watchers.catch_up(1, &view, Slice::default()),
        CatchUp::Compacted(2500)
    );
}

/// The newest records outlive a compaction for readers that miss a few views; where space is short they go as well.
#[test]
fn newest_records_are_kept_unless_all_are_reclaimed() {
    let mut store = filled(&["a"]);
    let follower = |store: &mut Store| {
        let mut watchers = Watchers::new(&store.publish());
        let spec = WatchSpec {
            key: bytes("a"),
            ..Default::default()
        };
        watchers.create(1, spec).expect("a watcher");
        watchers
    };
    let (mut first, mut second) = (follower(&mut store), follower(&mut store));
    (0..10).for_each(|_| _ = do_put(&mut store, "a", "v"));
    compact(&mut store, 12).expect("a compaction");
    assert_eq!(store.reclaim(usize::MAX), 0);
    let mut seen = 0;
    first.advance(&store.publish(), &mut |_, events| {
        seen += events.len();
        true
    });
    assert_eq!(seen, 10);
    assert_eq!(store.reclaim_all(usize::MAX), 0);
    let view = store.publish();
    second.advance(&view, &mut |_, _| panic!("there is a gap"));
    assert_eq!(
        second.catch_up(1, &view, Slice::default()),
        CatchUp::Compacted(12)
    );
    let found = view.range(&Range {
        key: bytes("a"),
        ..Range::default()
    });
    assert_eq!(found.expect("it is there").kvs[0].version, 11);
}

#[test]
fn equal_watchers_share_events() {
    let mut store = Store::new();
    let mut watchers = Watchers::new(&store.publish());
    let spec = WatchSpec {
        key: bytes("a"),
        range_end: bytes("b"),
        ..Default::default()
    };
    for id in 0..3 {
        watchers.create(id, spec.clone()).expect("a watcher");
    }
    assert_eq!(watchers.create(2, spec), Err(WatchError::DuplicateId));
    do_put(&mut store, "ab", "v");
    let mut seen = Vec::new();
    watchers.advance(&store.publish(), &mut |_, events| {
        seen.push(Arc::clone(events));
        true
    });
    assert!(seen.len() == 3 && seen.iter().all(|events| Arc::ptr_eq(events, &seen[0])));
}

#[test]
fn views_can_be_read_by_other_threads() {
    fn sendable<T: Send + Sync + 'static>(_: &T) {}
    sendable(&filled(&["a"]).publish());
}
