//! A store rebuilt from the rows of a database.

use bytes::Bytes;

use crate::store::{KeyValue, Rebuild, Row};

/// etcd removes the tombstone at the compacted revision, and once took the revision of the
/// newest row that was left for the revision of the store (its issue 17780): it went back.
#[test]
fn compacting_deleted_keys_keeps_the_revision() {
    let mut rebuild = Rebuild::new(9);
    let row = Row {
        main: 4,
        sub: 0,
        tombstone: false,
        kv: KeyValue {
            key: Bytes::from_static(b"k"),
            create_revision: 4,
            mod_revision: 4,
            version: 1,
            ..KeyValue::default()
        },
    };
    rebuild.row(&row).expect("it is in order");
    let store = rebuild.finish(0).expect("a sound history");
    assert_eq!((store.revision(), store.publish().compacted()), (9, 9));
}
