//! Keys, values and stores of the cases. As many keys as a small cluster of Kubernetes has, with paths and sizes like its
//! objects, in an order that is not theirs.

use bytes::Bytes;
use quorate_core::store::{Command, Operation, Position, Put, Store};

/// Keys of a filled store.
pub(crate) const KEYS: u64 = 20_000;
const VALUE_BYTES: usize = 256;

/// A key by its number; those of `0..KEYS` are in a filled store.
pub(crate) fn key(number: u64) -> Bytes {
    // Any odd factor visits every remainder of a power of two once.
    let scattered = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) & 0xffff_ffff;
    Bytes::from(format!("/registry/pods/default/{scattered:010}"))
}

/// The put of a key.
pub(crate) fn put(number: u64) -> Put {
    Put {
        key: key(number),
        value: Bytes::from(vec![(number % 251) as u8; VALUE_BYTES]),
        ..Put::default()
    }
}

/// The same as a command.
pub(crate) fn command(number: u64) -> Command {
    Operation::Put(put(number)).into()
}

/// What operations take one after the other, made beforehand so that making it is not counted. As long as the longest run
/// needs, or it begins again.
pub(crate) struct Prepared<T>(Vec<T>);

impl<T> Prepared<T> {
    /// Of so many numbers of keys, not in their order.
    pub(crate) fn new(size: u64, make: impl Fn(u64) -> T) -> Prepared<T> {
        let numbers = (0..size).map(|number| number * 7 % KEYS);
        Prepared(numbers.map(make).collect())
    }

    /// For the operation of this number.
    pub(crate) fn of(&self, number: u64) -> &T {
        &self.0[usize::try_from(number).unwrap_or(0) % self.0.len()]
    }
}

/// Where the entry of a case stands in a log.
pub(crate) fn position(index: u64) -> Position {
    Position { index, term: 1 }
}

/// A store with the keys of `0..KEYS`, and the index of its last entry.
pub(crate) fn filled() -> (Store, u64) {
    let mut store = Store::new();
    for number in 0..KEYS {
        let answer = store.apply(&command(number), position(number + 1));
        assert!(answer.is_ok(), "{answer:?}");
    }
    (store, KEYS)
}
