//! Checkpoints that are made of the one before: what must not be in them, and that one of another state is found out. That they are as those of
//! the state alone, the tests of packed stores say.

use std::sync::Arc;

use bytes::Bytes;

use super::helpers::{compact, do_put};
use super::values::Files;
use crate::store::*;

/// A checkpoint of the state alone, with all values in files, and what is known of it.
fn alone(files: &mut Files, view: &Arc<View>) -> (Written, Vec<Bytes>) {
    let moment = view.moment();
    let used = files.take(view, 1).expect("all is readable");
    let written = Written {
        moment,
        files: used,
        new: None,
    };
    (written, view.export().placed().collect())
}

/// What was written since the last checkpoint and forgotten by a compaction went to the new file, which was mostly needless then.
#[test]
fn forgotten_values_do_not_move() {
    let mut store = Store::new();
    let mut files = Files::default();
    do_put(&mut store, "a", "first");
    do_put(&mut store, "b", "first");
    let last = alone(&mut files, &store.publish());
    for number in 0..10 {
        do_put(&mut store, "a", &format!("value {number}"));
        do_put(&mut store, "b", &format!("value {number}"));
    }
    compact(&mut store, 22).expect("it is there");
    let view = store.publish();
    let changes = view
        .changes_since(&last.0.moment)
        .expect("it is in the log");
    let mut moved = Vec::new();
    let before = || Ok::<_, Error>(std::iter::empty::<Result<Bytes, Error>>());
    let put = |value: &[u8]| {
        moved.push(String::from_utf8_lossy(value).into_owned());
        Ok::<u64, Error>(0)
    };
    view.move_changes((&changes, 1), before, (&[].into(), 0), put)
        .expect("all is in memory");
    // Revision 22 is the last one of "a", and "b" has one before and one behind it.
    assert_eq!(moved, ["value 9", "value 9", "value 8"]);
}

/// Its rows are whole and in order, and of another state: that must not come out at the next start.
#[test]
fn checkpoint_of_another_state_is_found_out() {
    let states: [(&[(&str, &str)], &str); 4] = [
        (&[("a", "one"), ("b", "two"), ("c", "three")], "ok"),
        (&[("a", "one"), ("b", "longer"), ("c", "three")], "size"),
        (&[("a", "one"), ("b", "two")], "size"),
        (&[("a", "one"), ("a", "two"), ("c", "three")], "keys"),
    ];
    let fill = |puts: &[(&str, &str)]| {
        let mut store = Store::new();
        puts.iter()
            .for_each(|(key, value)| _ = do_put(&mut store, key, value));
        store
    };
    for (other, what) in states {
        let mut store = fill(states[0].0);
        let mut files = Files::default();
        let (written, _) = alone(&mut files, &store.publish());
        do_put(&mut store, "z", "after it");
        // The same files, by number.
        let mut its = Files::default();
        let (_, chunks) = alone(&mut its, &fill(other).publish());
        let last = (written, chunks);
        let merged = files.merge(&store.publish(), 1, &last);
        match merged.expect("nothing was healed or reclaimed") {
            Ok(_) => assert_eq!(what, "ok", "{other:?}"),
            Err(error) => {
                let error = error.to_string();
                assert!(
                    error.contains("with what has changed") && error.contains(what),
                    "{error}"
                );
            }
        }
    }
}
