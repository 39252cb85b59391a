//! Spans of keys as in etcd's requests. Independent of a store.

use std::cmp::Ordering;

/// A span of keys, borrowed from a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span<'a> {
    /// The first key.
    pub(crate) from: &'a [u8],
    /// Where it ends.
    pub(crate) end: End<'a>,
}

/// The end of a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End<'a> {
    /// It holds the first key alone.
    Single,
    /// It holds every key from the first on.
    Open,
    /// It ends before this key; empty if that does not lie after the first.
    Before(&'a [u8]),
}

impl<'a> Span<'a> {
    /// Every key.
    pub(crate) const ALL: Span<'static> = Span {
        from: &[],
        end: End::Open,
    };

    /// The span of a request: no `range_end` is one key, `\0` is open-ended.
    pub(crate) fn new(key: &'a [u8], range_end: &'a [u8]) -> Span<'a> {
        let end = match range_end {
            [] => End::Single,
            [0] => End::Open,
            end => End::Before(end),
        };
        Span { from: key, end }
    }

    /// Every key that starts with `prefix`, given the buffer that `prefix_end` made.
    pub(crate) fn between(from: &'a [u8], before: &'a [u8]) -> Span<'a> {
        Span {
            from,
            end: End::Before(before),
        }
    }

    /// Whether the key lies in the span.
    pub(crate) fn contains(&self, key: &[u8]) -> bool {
        match self.end {
            End::Single => key == self.from,
            End::Open => key >= self.from,
            End::Before(end) => key >= self.from && key < end,
        }
    }

    /// Where a key lies relative to the end: `Less` is inside as far as the end is concerned.
    pub(crate) fn ends_before(&self, key: &[u8]) -> bool {
        match self.end {
            End::Single => key > self.from,
            End::Open => false,
            End::Before(end) => key >= end,
        }
    }

    /// Whether all keys from `first` up to (not including) `next`, or to infinity without one,
    /// lie in the span.
    pub(crate) fn covers(&self, first: &[u8], next: Option<&[u8]>) -> bool {
        if first < self.from {
            return false;
        }
        match (self.end, next) {
            (End::Open, _) => true,
            (End::Before(end), Some(next)) => next.cmp(end) != Ordering::Greater,
            _ => false,
        }
    }
}
