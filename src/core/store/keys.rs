//! The keys of a long answer. A record has its key in its own piece of memory, so an answer needs copies: all of them in one
//! piece, since a piece for each would take longer to get than its key to copy.

use bytes::Bytes;

use super::KeyValue;
use super::pace::Pace;

/// The keys of an answer, in its order.
#[derive(Debug, Default)]
pub(super) struct Keys {
    bytes: Vec<u8>,
    lengths: Vec<usize>,
}

impl Keys {
    /// Adds the next key.
    #[inline]
    pub(super) fn add(&mut self, key: &[u8]) {
        self.bytes.extend_from_slice(key);
        self.lengths.push(key.len());
    }

    /// Gives each of these its key.
    pub(super) fn fill(self, kvs: &mut [KeyValue], pace: &Pace<'_>) {
        let mut bytes = Bytes::from(self.bytes);
        for (kv, length) in kvs.iter_mut().zip(self.lengths) {
            pace.step();
            kv.key = bytes.split_to(length);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_gets_its_key() {
        let added: Vec<Vec<u8>> = [1, 0, 3000, 7, 32, 0]
            .iter()
            .zip(0_u8..)
            .map(|(length, byte)| vec![byte; *length])
            .collect();
        let mut keys = Keys::default();
        added.iter().for_each(|key| keys.add(key));
        let mut kvs = vec![KeyValue::default(); added.len()];
        keys.fill(&mut kvs, &Pace::default());
        let filled: Vec<&[u8]> = kvs.iter().map(|kv| &kv.key[..]).collect();
        assert_eq!(filled, added);
        Keys::default().fill(&mut [], &Pace::default());
    }
}
