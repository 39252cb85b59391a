//! The match of an event against many watchers, as each thread that serves clients does it.

use std::hint::black_box;
use std::sync::Arc;

use bytes::Bytes;
use quorate_core::store::{View, WatchSpec, Watchers};

use super::put::{command, filled, key, position};

const WATCHERS: u64 = 10_000;

/// One watcher of the key itself and one of all keys get it.
pub(super) fn others(count: u64) {
    let (first, views) = views(2000, |number| number * 7 % WATCHERS);
    let mut watchers = Watchers::new(&first);
    for number in 0..WATCHERS {
        watch(&mut watchers, number, key(number), Bytes::new());
    }
    let (from, end) = (
        Bytes::from_static(b"/registry/pods/"),
        Bytes::from_static(b"/registry/pods0"),
    );
    watch(&mut watchers, WATCHERS, from, end);
    assert_eq!(advance(watchers, &views, count), 2 * count);
}

pub(super) fn all(count: u64) {
    let (first, views) = views(40, |_| 0);
    let mut watchers = Watchers::new(&first);
    for number in 0..WATCHERS {
        watch(&mut watchers, number, key(0), Bytes::new());
    }
    assert_eq!(advance(watchers, &views, count), WATCHERS * count);
}

fn watch(watchers: &mut Watchers, id: u64, key: Bytes, range_end: Bytes) {
    let spec = WatchSpec {
        key,
        range_end,
        ..WatchSpec::default()
    };
    watchers.create(id, spec).expect("it is a new watcher");
}

/// A view, and so many after it with a put each: making them is not counted.
fn views(size: u64, which: impl Fn(u64) -> u64) -> (Arc<View>, Vec<Arc<View>>) {
    let (mut store, last) = filled();
    let first = store.publish();
    let mut views = Vec::new();
    for number in 0..size {
        let answer = store.apply(&command(which(number)), position(last + 1 + number));
        assert!(answer.is_ok());
        views.push(store.publish());
    }
    (first, views)
}

/// Advances to so many views, and returns how many watchers were told.
fn advance(mut watchers: Watchers, views: &[Arc<View>], count: u64) -> u64 {
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    let mut delivered = 0;
    for view in &views[..count] {
        watchers.advance(view, &mut |id, events| {
            black_box((id, events));
            delivered += 1;
            true
        });
    }
    delivered
}
