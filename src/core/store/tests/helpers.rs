//! Shorthand for requests in tests.

use bytes::Bytes;

use crate::store::*;

pub(super) fn bytes(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

pub(super) fn put(key: &str, value: &str) -> Put {
    Put {
        key: bytes(key),
        value: bytes(value),
        ..Default::default()
    }
}

pub(super) fn delete(key: &str, end: &str) -> DeleteRange {
    DeleteRange {
        key: bytes(key),
        range_end: bytes(end),
        prev_kv: false,
    }
}

pub(super) fn read(key: &str, end: &str) -> Range {
    Range {
        key: bytes(key),
        range_end: bytes(end),
        ..Default::default()
    }
}

pub(super) fn compare(key: &str, target: CompareTarget, number: i64) -> Compare {
    let (target, result) = (target as i32, CompareResult::Equal as i32);
    Compare {
        result,
        target,
        key: bytes(key),
        number,
        ..Default::default()
    }
}

pub(super) fn ops(list: impl IntoIterator<Item = Op>) -> Vec<RequestOp> {
    list.into_iter().map(RequestOp::from).collect()
}

pub(super) fn run(store: &mut Store, operation: Operation) -> Result<Response, Error> {
    store.apply(&Command::from(operation), Position { index: 1, term: 3 })
}

pub(super) fn do_put(store: &mut Store, key: &str, value: &str) -> Revision {
    run(store, Operation::Put(put(key, value)))
        .expect("a put")
        .revision()
}

pub(super) fn do_delete(store: &mut Store, key: &str) {
    run(store, Operation::DeleteRange(delete(key, ""))).expect("a delete");
}

pub(super) fn compact(store: &mut Store, revision: Revision) -> Result<Response, Error> {
    run(store, Operation::Compact(Compact { revision }))
}

pub(super) fn get(store: &Store, range: &Range) -> Result<RangeResponse, Error> {
    store.publish().range(range)
}

pub(super) fn keys(response: &RangeResponse) -> Vec<&str> {
    response
        .kvs
        .iter()
        .map(|kv| std::str::from_utf8(&kv.key).expect("text"))
        .collect()
}

pub(in crate::store) fn filled(keys: &[&str]) -> Store {
    let mut store = Store::new();
    keys.iter().for_each(|key| _ = do_put(&mut store, key, "v"));
    store
}
