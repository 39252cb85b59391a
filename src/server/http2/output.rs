//! Bytes on their way to a client: small ones are put together, large ones are passed on as they are. Pure.

use std::collections::VecDeque;
use std::io::IoSlice;

use bytes::{Buf, Bytes, BytesMut};

/// Pieces of at least so many bytes are not copied.
const LARGE: usize = 2048;
/// A buffer that has been sent is kept for the next answers if it is no larger than this.
const KEPT: usize = 8 << 10;
/// Pieces handed to one write.
const AT_ONCE: usize = 16;

#[derive(Debug, Default)]
pub(super) struct Output {
    /// In front of `tail`.
    whole: VecDeque<Bytes>,
    tail: BytesMut,
    len: usize,
}

impl Output {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Appends what `put` writes.
    pub(super) fn put(&mut self, put: impl FnOnce(&mut BytesMut)) {
        let before = self.tail.len();
        put(&mut self.tail);
        self.len += self.tail.len() - before;
    }

    pub(super) fn push(&mut self, bytes: Bytes) {
        if bytes.len() < LARGE {
            self.put(|tail| tail.extend_from_slice(&bytes));
            return;
        }
        if !self.tail.is_empty() {
            self.whole.push_back(self.tail.split().freeze());
        }
        self.len += bytes.len();
        self.whole.push_back(bytes);
    }

    /// The pieces in front, at most as many as there are places; returns how many.
    pub(super) fn slices<'a>(&'a self, places: &mut [IoSlice<'a>; AT_ONCE]) -> usize {
        let tail: Option<&[u8]> = Some(&self.tail[..]).filter(|tail| !tail.is_empty());
        let all = self.whole.iter().map(|bytes| &bytes[..]).chain(tail);
        let mut count = 0;
        for (place, piece) in places.iter_mut().zip(all) {
            *place = IoSlice::new(piece);
            count += 1;
        }
        count
    }

    /// So many bytes were written.
    pub(super) fn written(&mut self, mut bytes: usize) {
        self.len -= bytes;
        while let Some(first) = self.whole.front_mut() {
            if bytes < first.len() {
                first.advance(bytes);
                return;
            }
            bytes -= first.len();
            self.whole.pop_front();
        }
        self.tail.advance(bytes);
        if self.len == 0 {
            self.forget();
        }
    }

    /// A connection that waits keeps no large buffer.
    fn forget(&mut self) {
        match self.tail.capacity() > KEPT {
            true => self.tail = BytesMut::new(),
            // Its beginning is free again.
            false => self.tail.clear(),
        }
    }
}

/// No pieces yet.
pub(super) fn places<'a>() -> [IoSlice<'a>; AT_ONCE] {
    [(); AT_ONCE].map(|()| IoSlice::new(&[]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_is_sent_in_order_whatever_is_written_at_once() {
        for step in [1, 7, 3000, usize::MAX] {
            let mut output = Output::default();
            let mut expected = Vec::new();
            for (number, length) in [5, 3000, 10, 20, 2048, 9].into_iter().enumerate() {
                let bytes = vec![u8::try_from(number).expect("few"); length];
                expected.extend_from_slice(&bytes);
                output.push(bytes.into());
            }
            let mut sent = Vec::new();
            while output.len() > 0 {
                let mut places = places();
                let count = output.slices(&mut places);
                let ready: Vec<u8> = places[..count].iter().flat_map(|it| it.to_vec()).collect();
                let written = ready.len().min(step);
                sent.extend_from_slice(&ready[..written]);
                output.written(written);
            }
            assert_eq!(sent, expected);
        }
    }
}
