//! How responses become frames: within the windows of the client, one frame a stream at a time, so that a long response
//! does not hold a short one up. Pure.

use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, StatusCode};

use super::connection::{Connection, RESETS, line_up};
use super::frame::{self, Kind, Reason};
use super::stream::End;

/// Bytes that are framed ahead of the socket: what a client does not read stays with its streams.
const AHEAD: usize = 64 << 10;
/// Bytes of one response that are made ahead of its client.
const MADE_AHEAD: usize = 128 << 10;

/// The stream is gone: the client reset it, or the connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Gone;

impl Connection {
    /// Sends the head of a response.
    pub(super) fn respond(
        &mut self,
        id: u32,
        status: StatusCode,
        headers: &HeaderMap,
        ends: bool,
    ) -> Result<(), Gone> {
        if !self.streams.contains_key(&id) {
            return Err(Gone);
        }
        let mut block = BytesMut::new();
        self.blocks.head(&mut block, status, headers);
        self.put_block(id, &block, ends);
        if ends {
            self.ended(id);
        }
        Ok(())
    }

    /// Whether more of a response may be made; if not, its maker is woken when it may.
    pub(super) fn poll_room(
        &mut self,
        id: u32,
        context: &mut Context<'_>,
    ) -> Poll<Result<(), Gone>> {
        let Some(stream) = self.streams.get_mut(&id) else {
            return Poll::Ready(Err(Gone));
        };
        if stream.sending.waiting < MADE_AHEAD {
            return Poll::Ready(Ok(()));
        }
        self.wait_for(id, context);
        Poll::Pending
    }

    /// Has the maker of a response woken when there is room, or the stream is gone.
    pub(super) fn wait_for(&mut self, id: u32, context: &mut Context<'_>) {
        if let Some(stream) = self.streams.get_mut(&id) {
            match &mut stream.sending.maker {
                Some(maker) => maker.clone_from(context.waker()),
                maker => *maker = Some(context.waker().clone()),
            }
        }
    }

    /// Takes a piece of a response.
    pub(super) fn send(&mut self, id: u32, piece: Bytes) {
        if let Some(stream) = self.streams.get_mut(&id)
            && !piece.is_empty()
        {
            stream.sending.waiting += piece.len();
            stream.sending.pieces.push_back(piece);
            line_up(&mut self.line, id, stream);
        }
    }

    /// Takes the end of a response.
    pub(super) fn finish(&mut self, id: u32, end: End) {
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.sending.end = Some(end);
            line_up(&mut self.line, id, stream);
        }
    }

    /// Frames what may be sent, as far as it fits.
    pub(super) fn pump(&mut self) {
        while self.output.len() < AHEAD
            && let Some(id) = self.line.pop_front()
        {
            self.send_frame(id);
        }
    }

    /// Holds something until the response was sent, and gives it back if it was.
    pub(super) fn keep<T: Send + 'static>(&mut self, id: u32, kept: T) -> Option<T> {
        match self.streams.get_mut(&id) {
            Some(stream) => {
                stream.sending.kept = Some(Box::new(kept));
                None
            }
            None => Some(kept),
        }
    }

    /// Sends one frame of a stream that was taken from the line.
    fn send_frame(&mut self, id: u32) {
        let Some(stream) = self.streams.get_mut(&id) else {
            return;
        };
        let sending = &mut stream.sending;
        sending.in_line = false;
        let Some(piece) = sending.pieces.front_mut() else {
            if let Some(end) = sending.end.take() {
                self.send_end(id, end);
            }
            return;
        };
        if self.sends <= 0 {
            sending.in_line = true;
            self.blocked.push_back(id);
            if self.blocked.len() > 2 * self.streams.len() + 64 {
                let streams = &self.streams;
                self.blocked.retain(|id| streams.contains_key(id));
            }
            return;
        }
        let window = sending.window.min(self.sends).max(0);
        let most = usize::try_from(window).unwrap_or(usize::MAX);
        let length = piece.len().min(most).min(frame::MOST_PAYLOAD);
        if length == 0 {
            // Without a window of its own it has left the line until it gets one.
            return;
        }
        let data = piece.split_to(length);
        if piece.is_empty() {
            sending.pieces.pop_front();
        }
        sending.waiting -= length;
        sending.window -= length as i64;
        self.sends -= length as i64;
        if sending.waiting < MADE_AHEAD
            && let Some(maker) = sending.maker.take()
        {
            maker.wake();
        }
        let last = sending.pieces.is_empty() && matches!(sending.end, Some(End::Data));
        let flags = if last { frame::END_STREAM } else { 0 };
        self.output
            .put(|out| frame::put_head(out, length, Kind::Data, flags, id));
        self.output.push(data);
        match last {
            true => self.ended(id),
            false => line_up(&mut self.line, id, stream),
        }
    }

    fn send_end(&mut self, id: u32, end: End) {
        match end {
            End::Data => self
                .output
                .put(|out| frame::put_head(out, 0, Kind::Data, frame::END_STREAM, id)),
            End::Trailers(trailers) => {
                let mut block = BytesMut::new();
                self.blocks.trailers(&mut block, &trailers);
                self.put_block(id, &block, true);
            }
        }
        self.ended(id);
    }

    pub(super) fn put_block(&mut self, id: u32, block: &[u8], ends: bool) {
        // What every peer accepts; a larger setting of its own brings nothing here.
        let most = frame::MOST_PAYLOAD;
        self.output
            .put(|out| frame::put_block(out, id, block, ends, most));
    }

    /// The response was sent whole.
    fn ended(&mut self, id: u32) {
        self.resets_left = RESETS.min(self.resets_left + 1);
        let Some(stream) = self.streams.get_mut(&id) else {
            return;
        };
        stream.sending.end = None;
        stream.sending.ended = true;
        match stream.received.ended {
            true => self.forget(id),
            // The client need not send the rest of its request.
            false => self.reset(id, Reason::No),
        }
    }
}
