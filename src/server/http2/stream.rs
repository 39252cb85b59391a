//! One stream of a connection: what has come of its request and was not read yet, and what of its response was not sent
//! yet. Pure: the connection moves both.

use std::any::Any;
use std::collections::VecDeque;
use std::task::Waker;

use bytes::Bytes;
use http::HeaderMap;

/// How much may still come until the next update of a flow-control window.
#[derive(Debug)]
pub(super) struct Window {
    size: u32,
    left: u32,
    /// Read, and not given back to the sender yet.
    read: u32,
}

impl Window {
    pub(super) fn new(size: u32) -> Window {
        Window {
            size,
            left: size,
            read: 0,
        }
    }

    /// So many bytes came; false if they were more than allowed.
    pub(super) fn take(&mut self, bytes: u32) -> bool {
        match self.left.checked_sub(bytes) {
            Some(left) => {
                self.left = left;
                true
            }
            None => false,
        }
    }

    /// So many bytes of them were read: how many the sender may be given, if it is time to.
    pub(super) fn give_back(&mut self, bytes: u32) -> Option<u32> {
        self.read += bytes;
        // Rarely enough to cost nothing, early enough not to hold the sender up.
        if self.read < self.size / 2 {
            return None;
        }
        self.left += self.read;
        Some(std::mem::take(&mut self.read))
    }
}

/// Something that is only held.
pub(super) type Kept = Box<dyn Any + Send>;

/// A stream that neither side has reset.
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) received: Received,
    pub(super) sending: Sending,
}

/// The request's body.
#[derive(Debug)]
pub(super) struct Received {
    pub(super) window: Window,
    pub(super) pieces: VecDeque<Bytes>,
    pub(super) trailers: Option<HeaderMap>,
    /// All of it has come.
    pub(super) ended: bool,
    /// Nobody reads it any more.
    pub(super) unread: bool,
    /// Bytes that are missing to the stated length.
    pub(super) missing: Option<u64>,
    pub(super) reader: Option<Waker>,
}

/// The response.
#[derive(Debug)]
pub(super) struct Sending {
    /// What the client accepts; below zero if it has reduced it meanwhile.
    pub(super) window: i64,
    pub(super) pieces: VecDeque<Bytes>,
    /// Bytes of them.
    pub(super) waiting: usize,
    /// What comes after them, if that is known.
    pub(super) end: Option<End>,
    /// All of it was sent.
    pub(super) ended: bool,
    /// It is in the line of those that can send.
    pub(super) in_line: bool,
    /// What is held until all of it was sent: the request counts as pending.
    pub(super) kept: Option<Kept>,
    /// Whoever makes the response: woken when there is room, and when the stream is gone.
    pub(super) maker: Option<Waker>,
}

/// The end of a response.
#[derive(Debug)]
pub(super) enum End {
    Data,
    Trailers(HeaderMap),
}

impl Stream {
    pub(super) fn new(window: u32, sends: i64, missing: Option<u64>) -> Stream {
        Stream {
            received: Received {
                window: Window::new(window),
                pieces: VecDeque::new(),
                trailers: None,
                ended: false,
                unread: false,
                missing,
                reader: None,
            },
            sending: Sending {
                window: sends,
                pieces: VecDeque::new(),
                waiting: 0,
                end: None,
                ended: false,
                in_line: false,
                kept: None,
                maker: None,
            },
        }
    }

    /// Wakes everyone who waits for it: it is gone.
    pub(super) fn wake_all(&mut self) {
        let wakers = [self.received.reader.take(), self.sending.maker.take()];
        wakers.into_iter().flatten().for_each(Waker::wake);
    }
}

impl Received {
    /// More came, or its end.
    pub(super) fn wake(&mut self) {
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
    }

    /// Bytes that nobody has read.
    pub(super) fn waiting(&self) -> u32 {
        let bytes: usize = self.pieces.iter().map(Bytes::len).sum();
        // Less than its window.
        u32::try_from(bytes).unwrap_or(u32::MAX)
    }
}

impl Sending {
    /// Whether a frame can be sent now, as far as this stream is concerned.
    pub(super) fn can_send(&self) -> bool {
        match self.pieces.front() {
            Some(piece) => piece.is_empty() || self.window > 0,
            None => self.end.is_some(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn window_is_given_back_by_halves() {
        let mut window = Window::new(100);
        assert!(window.take(60));
        assert!(!window.take(41));
        assert_eq!(window.give_back(49), None);
        assert_eq!(window.give_back(11), Some(60));
        assert!(window.take(100));
    }
}
