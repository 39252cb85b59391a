//! The appends that are under way to one member, bounded by count and by bytes.

use std::collections::VecDeque;

use super::types::Index;

/// A window of appends sent and not yet acknowledged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Inflights {
    max_messages: usize,
    max_bytes: u64,
    bytes: u64,
    /// (last index, entry bytes) of each append, ascending.
    sent: VecDeque<(Index, u64)>,
}

impl Inflights {
    pub(super) fn new(max_messages: usize, max_bytes: u64) -> Self {
        Self {
            max_messages,
            max_bytes,
            bytes: 0,
            sent: VecDeque::new(),
        }
    }

    /// Whether nothing more may be sent. The byte bound is passed by at most one append, so
    /// that any append can be sent at all.
    pub(super) fn full(&self) -> bool {
        self.sent.len() >= self.max_messages || self.bytes >= self.max_bytes
    }

    pub(super) fn messages(&self) -> usize {
        self.sent.len()
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn add(&mut self, last: Index, bytes: u64) {
        self.bytes += bytes;
        self.sent.push_back((last, bytes));
    }

    /// An acknowledgement of `index` covers all appends that end at or before it.
    pub(super) fn free_through(&mut self, index: Index) {
        while let Some((last, bytes)) = self.sent.front().copied() {
            if last > index {
                break;
            }
            self.bytes -= bytes;
            self.sent.pop_front();
        }
    }

    pub(super) fn clear(&mut self) {
        self.sent.clear();
        self.bytes = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn count_and_bytes_bound_the_window() {
        let mut window = Inflights::new(3, 100);
        window.add(1, 10);
        window.add(2, 10);
        assert!(!window.full());
        window.add(3, 10);
        assert!(window.full(), "three messages");
        window.free_through(2);
        assert_eq!((window.messages(), window.bytes()), (1, 10));
        window.add(4, 200);
        assert!(
            window.full(),
            "one large append passes the byte bound, then it is full"
        );
        window.free_through(3);
        assert!(window.full());
        window.free_through(9);
        assert_eq!((window.messages(), window.bytes()), (0, 0));
    }
}
