//! How long a store of a million keys takes to load: `cargo test --release -p quorate-core --lib load_cost -- --ignored
//! --nocapture`. Not part of other runs, since it needs a quiet machine and release speed.

use std::time::Instant;

use bytes::Bytes;

use super::tree_cost::{KEYS, key};
use crate::store::{KeyValue, Rebuild, Row, Store};

fn row(number: u64) -> Row {
    let main = number as i64 + 2;
    Row {
        main,
        sub: 0,
        tombstone: false,
        kv: KeyValue {
            key: key(number),
            create_revision: main,
            mod_revision: main,
            version: 1,
            value: Bytes::copy_from_slice(&[7; 256]),
            lease: 0,
        },
    }
}

#[test]
#[ignore = "needs a quiet machine and release speed"]
fn load_cost() {
    let begun = Instant::now();
    let mut rebuild = Rebuild::new(-1);
    for number in 0..KEYS {
        rebuild.row(&row(number)).expect("rows in order");
    }
    let store = rebuild.finish(0).expect("a store");
    let rows = begun.elapsed();
    println!("rows of a snapshot: {rows:?}");
    let begun = Instant::now();
    let chunks: Vec<Bytes> = store.publish().export().collect();
    println!("chunks of a checkpoint: {:?}", begun.elapsed());
    let load = |_| {
        let begun = Instant::now();
        let loaded = Store::import(&chunks).expect("a store");
        let took = begun.elapsed();
        println!("a store of them: {took:?}");
        assert_eq!(loaded.publish().key_count(), KEYS);
        took
    };
    // The first one may be given its memory by the system, which can take longer than the rest.
    let least = (0..3).map(load).min().expect("three times");
    // Before keys were put in from the leaves up it was 0.7 of that.
    assert!(2 * least < rows, "{least:?}, rows {rows:?}");
}
