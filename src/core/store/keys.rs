//! Copies of keys for an answer. A record has its key in its own piece of memory, so whoever shows it needs a copy; many
//! copies lie in one piece, since a piece takes longer to get than a key to copy.
//!
//! Never for keys that are kept: one that stays keeps the whole piece.

use bytes::{Bytes, BytesMut};

/// Bytes of a piece.
const PIECE: usize = 4096;

/// The keys of one answer.
#[derive(Debug, Default)]
pub(super) struct Keys {
    /// The first key is by itself: most answers have one.
    begun: bool,
    /// What is left of the last piece.
    room: BytesMut,
}

impl Keys {
    #[inline]
    pub(super) fn copy(&mut self, key: &[u8]) -> Bytes {
        if !self.begun {
            self.begun = true;
            return Bytes::copy_from_slice(key);
        }
        if self.room.capacity() < key.len() {
            self.room = BytesMut::with_capacity(key.len().max(PIECE));
        }
        self.room.extend_from_slice(key);
        self.room.split().freeze()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_are_the_keys_across_pieces() {
        let lengths = [1, 0, 3000, 1096, 1, 5000, 4096, 7, 32];
        let keys: Vec<Vec<u8>> = lengths
            .iter()
            .cycle()
            .take(100)
            .zip(0_u8..)
            .map(|(length, byte)| vec![byte; *length])
            .collect();
        let mut copies = Keys::default();
        let copied: Vec<Bytes> = keys.iter().map(|key| copies.copy(key)).collect();
        assert_eq!(copied, keys);
    }
}
