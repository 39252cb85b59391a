//! A connection's state, and what a client's frames do to it (RFC 9113). Pure: bytes come in, requests and bytes go out.
//! Never waits, and never looks into a body.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use bytes::{Buf, Bytes, BytesMut};
use http::{HeaderMap, StatusCode};

use super::blocks::Blocks;
use super::frame::{self, Head, Kind, Reason, Setting};
use super::head::{Block, Heads, RequestHead};
use super::output::Output;
use super::stream::{Kept, Stream, Window};

/// What a client may do.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Streams at once.
    pub(super) streams: u32,
    /// Bytes of one request that wait here.
    pub(super) stream_window: u32,
    /// Bytes of all requests that wait here.
    pub(super) connection_window: u32,
    /// Bytes of a request's headers, as the protocol counts them.
    pub(super) headers: u32,
}

/// Bytes of a block as it is sent, in all of its frames: more than any that can be accepted.
const MOST_BLOCK: usize = 64 << 10;
/// Frames of a block.
const MOST_PIECES: u32 = 32;
/// Streams that a client may reset in advance of those that were answered: beyond that it only causes work.
pub(super) const RESETS: u32 = 1_000;

/// Streams that are remembered when they have ended.
const ENDED: usize = 128;

/// Streams that are visited for a setting at the price of one reset.
const VISITS: usize = 64;

/// Why a connection cannot go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("HTTP/2: {text}")]
pub(super) struct Fatal {
    pub(super) reason: Reason,
    pub(super) text: &'static str,
}

const fn fatal(reason: Reason, text: &'static str) -> Fatal {
    Fatal { reason, text }
}

/// A request that began with the frames just received.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) stream: u32,
    pub(super) head: Arc<RequestHead>,
}

/// How far the connection's end has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Closing {
    Open,
    /// The client was asked to begin no more requests, and to answer.
    Asked,
    /// Requests beyond this one are not carried out.
    Last(u32),
}

/// A block whose frames have not all come.
#[derive(Debug)]
struct Pieces {
    stream: u32,
    ends_stream: bool,
    bytes: BytesMut,
    count: u32,
}

pub(super) struct Connection {
    limits: Limits,
    heads: Heads,
    pub(super) blocks: Blocks,
    /// A frame that has not all come.
    partial: BytesMut,
    pub(super) output: Output,
    /// The first window of what is sent on a stream.
    peer_window: i64,
    /// What may be sent on all streams.
    pub(super) sends: i64,
    receives: Window,
    pub(super) streams: BTreeMap<u32, Box<Stream>>,
    /// The newest stream of the client.
    newest: u32,
    /// The streams that ended last, and whether this server ended them: more may be on its way then.
    ended: VecDeque<(u32, bool)>,
    pieces: Option<Pieces>,
    opened: Vec<Opened>,
    /// Streams that can send.
    pub(super) line: VecDeque<u32>,
    /// Streams that could if the connection's window were not used up.
    pub(super) blocked: VecDeque<u32>,
    /// What was kept for streams that are gone, to be dropped where no lock is held.
    pub(super) released: Vec<Kept>,
    pub(super) closing: Closing,
    pub(super) resets_left: u32,
    /// The client's settings came.
    settled: bool,
}

/// The ping that asks whether the client has seen the first GOAWAY, and the one that asks whether it is there.
const FAREWELL: [u8; 8] = *b"farewell";
const ALIVE: [u8; 8] = *b"is there";

impl Connection {
    /// A connection whose preface was received.
    pub(super) fn new(limits: Limits) -> Connection {
        let mut output = Output::default();
        let more = limits.connection_window.saturating_sub(frame::FIRST_WINDOW);
        output.put(|out| {
            frame::put_settings(out, limits.streams, limits.stream_window, limits.headers);
            if more > 0 {
                frame::put_window_update(out, 0, more);
            }
        });
        let window = limits.connection_window.max(frame::FIRST_WINDOW);
        Connection {
            heads: Heads::new(limits.headers as usize),
            blocks: Blocks::default(),
            partial: BytesMut::new(),
            output,
            peer_window: i64::from(frame::FIRST_WINDOW),
            sends: i64::from(frame::FIRST_WINDOW),
            receives: Window::new(window),
            streams: BTreeMap::new(),
            newest: 0,
            ended: VecDeque::new(),
            pieces: None,
            opened: Vec::new(),
            line: VecDeque::new(),
            blocked: VecDeque::new(),
            released: Vec::new(),
            closing: Closing::Open,
            resets_left: RESETS,
            settled: false,
            limits,
        }
    }

    /// Takes bytes of the client in.
    ///
    /// # Errors
    /// The connection has to end: a GOAWAY that says why is in the output.
    pub(super) fn receive(&mut self, mut bytes: &[u8]) -> Result<(), Fatal> {
        let taken = self.take_frames(&mut bytes);
        if let Err(Fatal { reason, text }) = taken {
            let last = self.newest;
            self.output
                .put(|out| frame::put_go_away(out, last, reason, text));
        }
        taken
    }

    /// The requests that began, and have not been reset since.
    pub(super) fn opened(&mut self) -> Vec<Opened> {
        let mut opened = std::mem::take(&mut self.opened);
        opened.retain(|it| self.streams.contains_key(&it.stream));
        opened
    }

    fn take_frames(&mut self, bytes: &mut &[u8]) -> Result<(), Fatal> {
        while !bytes.is_empty() {
            if self.partial.is_empty() {
                let Some((head, payload)) = whole(bytes)? else {
                    self.partial.extend_from_slice(bytes);
                    return Ok(());
                };
                bytes.advance(frame::HEAD + head.length);
                self.frame(head, payload)?;
                continue;
            }
            let needed = missing(&self.partial)?;
            let (piece, rest) = bytes.split_at(needed.min(bytes.len()));
            self.partial.extend_from_slice(piece);
            *bytes = rest;
            let partial = std::mem::take(&mut self.partial);
            match whole(&partial)? {
                Some((head, payload)) => self.frame(head, payload)?,
                None => self.partial = partial,
            }
        }
        Ok(())
    }

    fn frame(&mut self, head: Head, payload: &[u8]) -> Result<(), Fatal> {
        use Kind::*;
        if !self.settled && head.kind != Settings {
            return Err(fatal(Reason::Protocol, "the first frame is no SETTINGS"));
        }
        let continues = head.kind == Continuation;
        match &self.pieces {
            Some(pieces) if !continues || pieces.stream != head.stream => {
                return Err(fatal(
                    Reason::Protocol,
                    "a frame between those of a header block",
                ));
            }
            None if continues => return Err(fatal(Reason::Protocol, "nothing to continue")),
            _ => {}
        }
        match head.kind {
            Data => self.data(head, payload),
            Headers => self.headers(head, payload),
            Priority => self.priority(head, payload),
            Reset => self.reset_by_client(head, payload),
            Settings => self.settings(head, payload),
            Promise => Err(fatal(Reason::Protocol, "a client has nothing to promise")),
            Ping => self.ping(head, payload),
            GoAway if head.stream != 0 => Err(fatal(Reason::Protocol, "GOAWAY of a stream")),
            GoAway if head.length < 8 => Err(fatal(Reason::FrameSize, "a short GOAWAY")),
            // The connection ends when the client has its answers.
            GoAway => {
                self.say_last();
                Ok(())
            }
            Unknown => Ok(()),
            WindowUpdate => self.window_update(head, payload),
            Continuation => self.continuation(head, payload),
        }
    }

    fn data(&mut self, head: Head, payload: &[u8]) -> Result<(), Fatal> {
        self.known(head.stream)?;
        let data = unpadded(head, payload)?;
        // At most the longest payload.
        let (all, length) = (payload.len() as u32, data.len() as u32);
        if !self.receives.take(all) {
            return Err(fatal(
                Reason::FlowControl,
                "more data than the window allows",
            ));
        }
        let Some(stream) = self.streams.get_mut(&head.stream) else {
            self.read_of_connection(all);
            self.put_reset(head.stream, Reason::StreamClosed);
            return Ok(());
        };
        let received = &mut stream.received;
        let within = received.window.take(all);
        let expected = match &mut received.missing {
            Some(missing) => match missing.checked_sub(u64::from(length)) {
                Some(left) => {
                    *missing = left;
                    left == 0 || !head.has(frame::END_STREAM)
                }
                None => false,
            },
            None => true,
        };
        let error = match (received.ended, within, expected) {
            (true, _, _) => Some(Reason::StreamClosed),
            (_, false, _) => Some(Reason::FlowControl),
            (_, _, false) => Some(Reason::Protocol),
            _ => None,
        };
        if let Some(reason) = error {
            self.read_of_connection(all);
            return self.fail(head.stream, reason);
        }
        if received.unread {
            received.ended |= head.has(frame::END_STREAM);
            self.read(head.stream, all);
        } else {
            received.ended |= head.has(frame::END_STREAM);
            if length > 0 {
                received.pieces.push_back(Bytes::copy_from_slice(data));
            }
            // An empty frame is nothing to wake anyone for.
            if length > 0 || received.ended {
                received.wake();
            }
            // Padding is nothing that anyone reads.
            self.read(head.stream, all - length);
        }
        self.close_if_over(head.stream);
        Ok(())
    }

    fn headers(&mut self, head: Head, payload: &[u8]) -> Result<(), Fatal> {
        if head.stream.is_multiple_of(2) {
            return Err(fatal(Reason::Protocol, "HEADERS of no stream of a client"));
        }
        let mut block = unpadded(head, payload)?;
        let mut depends_on_itself = false;
        if head.has(frame::PRIORITY) {
            let Some((priority, rest)) = block.split_first_chunk::<5>() else {
                return Err(fatal(Reason::FrameSize, "HEADERS without its priority"));
            };
            block = rest;
            depends_on_itself = dependency(priority) == head.stream;
        }
        if !head.has(frame::END_HEADERS) {
            self.pieces = Some(Pieces {
                stream: head.stream,
                ends_stream: head.has(frame::END_STREAM),
                bytes: block.into(),
                count: 1,
            });
            return Ok(());
        }
        self.block(head.stream, block, head.has(frame::END_STREAM))?;
        match depends_on_itself {
            true => self.fail(head.stream, Reason::Protocol),
            false => Ok(()),
        }
    }

    fn continuation(&mut self, head: Head, payload: &[u8]) -> Result<(), Fatal> {
        let Some(mut pieces) = self.pieces.take() else {
            return Ok(());
        };
        pieces.bytes.extend_from_slice(payload);
        pieces.count += 1;
        if pieces.bytes.len() > MOST_BLOCK || pieces.count > MOST_PIECES {
            return Err(fatal(Reason::Calm, "a header block that does not end"));
        }
        if !head.has(frame::END_HEADERS) {
            self.pieces = Some(pieces);
            return Ok(());
        }
        self.block(pieces.stream, &pieces.bytes, pieces.ends_stream)
    }

    /// A whole block came. Whatever becomes of it, it has to be read: the next ones refer to it.
    fn block(&mut self, id: u32, block: &[u8], ends: bool) -> Result<(), Fatal> {
        let is_new = id > self.newest;
        let read = match is_new {
            true => self.heads.request(block),
            false => self.heads.trailers(block),
        };
        let read = read.map_err(|_| fatal(Reason::Compression, "a damaged header block"))?;
        if !is_new {
            return self.trailers(id, read, ends);
        }
        self.newest = id;
        if matches!(self.closing, Closing::Last(last) if id > last) {
            self.note_end(id, true);
            return Ok(());
        }
        if self.streams.len() >= self.limits.streams as usize {
            self.refuse(id, Reason::Refused);
            return Ok(());
        }
        match read {
            Block::Request(head) if ends && head.length.is_some_and(|length| length > 0) => {
                self.refuse(id, Reason::Protocol);
            }
            Block::Request(head) => {
                let window = self.limits.stream_window;
                let missing = head.length.filter(|_| !ends);
                let mut stream = Box::new(Stream::new(window, self.peer_window, missing));
                stream.received.ended = ends;
                self.streams.insert(id, stream);
                self.opened.push(Opened { stream: id, head });
            }
            Block::TooLong => {
                self.refuse_with(id, StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, ends);
            }
            Block::Trailers(_) | Block::Malformed => self.refuse(id, Reason::Protocol),
        }
        Ok(())
    }

    fn trailers(&mut self, id: u32, read: Block, ends: bool) -> Result<(), Fatal> {
        let Some(stream) = self.streams.get_mut(&id) else {
            let ended = self.ended.iter().find(|(ended, _)| *ended == id);
            return match ended.map(|(_, by_us)| by_us) {
                Some(true) => {
                    self.put_reset(id, Reason::StreamClosed);
                    Ok(())
                }
                Some(false) => Err(fatal(Reason::StreamClosed, "HEADERS after the end")),
                None => Err(fatal(Reason::Protocol, "streams out of order")),
            };
        };
        let received = &mut stream.received;
        let incomplete = received.missing.is_some_and(|missing| missing > 0);
        match read {
            _ if received.ended => self.fail(id, Reason::StreamClosed),
            Block::Trailers(trailers) if ends && !incomplete => {
                received.trailers = Some(trailers);
                received.ended = true;
                received.wake();
                self.close_if_over(id);
                Ok(())
            }
            _ => self.fail(id, Reason::Protocol),
        }
    }

    fn priority(&mut self, head: Head, payload: &[u8]) -> Result<(), Fatal> {
        if head.stream == 0 {
            return Err(fatal(Reason::Protocol, "PRIORITY of no stream"));
        }
        match <&[u8; 5]>::try_from(payload) {
            Ok(priority) if dependency(priority) != head.stream => Ok(()),
            Ok(_) => self.fail(head.stream, Reason::Protocol),
            Err(_) => self.fail(head.stream, Reason::FrameSize),
        }
    }

    fn reset_by_client(&mut self, head: Head, payload: &[u8]) -> Result<(), Fatal> {
        if payload.len() != 4 {
            return Err(fatal(Reason::FrameSize, "RST_STREAM is not of four bytes"));
        }
        self.known(head.stream)?;
        if self.streams.contains_key(&head.stream) {
            self.count_reset()?;
            self.forget(head.stream);
        }
        Ok(())
    }

    fn count_reset(&mut self) -> Result<(), Fatal> {
        let left = self.resets_left.checked_sub(1);
        self.resets_left = left.ok_or(fatal(Reason::Calm, "too many requests were reset"))?;
        Ok(())
    }

    /// Ends a stream for an error of the client, which it may cause as rarely as it may reset one itself
    /// (CVE-2025-8671).
    fn fail(&mut self, id: u32, reason: Reason) -> Result<(), Fatal> {
        self.count_reset()?;
        self.reset(id, reason);
        Ok(())
    }

    fn settings(&mut self, head: Head, payload: &[u8]) -> Result<(), Fatal> {
        if head.stream != 0 {
            return Err(fatal(Reason::Protocol, "SETTINGS of a stream"));
        }
        let ack = head.has(frame::ACK);
        if (ack && !payload.is_empty()) || !payload.len().is_multiple_of(6) {
            return Err(fatal(Reason::FrameSize, "SETTINGS of a wrong length"));
        }
        if ack {
            return Ok(());
        }
        self.settled = true;
        let mut window = None;
        for setting in frame::settings(payload) {
            self.set(setting, &mut window)?;
        }
        // The last one counts, so that a frame concerns each stream once, however long it is.
        if let Some(window) = window {
            self.set_window(window)?;
        }
        self.output.put(frame::put_settings_ack);
        Ok(())
    }

    fn set(&mut self, setting: Setting, window: &mut Option<u32>) -> Result<(), Fatal> {
        match setting {
            Setting::TableSize(bytes) => self.blocks.table_size(bytes),
            Setting::Push(0 | 1) | Setting::Other => {}
            Setting::Push(_) => return Err(fatal(Reason::Protocol, "a push setting above one")),
            Setting::Window(bytes) if bytes > frame::MOST => {
                return Err(fatal(Reason::FlowControl, "a window that is too large"));
            }
            Setting::Window(bytes) => *window = Some(bytes),
            Setting::FrameSize(bytes) if !(1 << 14..1 << 24).contains(&bytes) => {
                return Err(fatal(Reason::Protocol, "a frame size out of range"));
            }
            // Larger ones bring nothing here.
            Setting::FrameSize(_) => {}
        }
        Ok(())
    }

    /// The first window of each stream, which changes those of the present ones (RFC 9113, section 6.9.2).
    fn set_window(&mut self, bytes: u32) -> Result<(), Fatal> {
        let change = i64::from(bytes) - self.peer_window;
        if change == 0 {
            return Ok(());
        }
        self.peer_window = i64::from(bytes);
        // All streams are visited for it: like a reset, it is given back by answers.
        for _ in 0..self.streams.len() / VISITS {
            self.count_reset()?;
        }
        if !self.streams.is_empty() {
            self.count_reset()?;
        }
        for (id, stream) in &mut self.streams {
            stream.sending.window += change;
            if stream.sending.window > i64::from(frame::MOST) {
                return Err(fatal(Reason::FlowControl, "a window that is too large"));
            }
            line_up(&mut self.line, *id, stream);
        }
        Ok(())
    }

    fn ping(&mut self, head: Head, payload: &[u8]) -> Result<(), Fatal> {
        if head.stream != 0 {
            return Err(fatal(Reason::Protocol, "PING of a stream"));
        }
        if payload.len() != 8 {
            return Err(fatal(Reason::FrameSize, "PING is not of eight bytes"));
        }
        match head.has(frame::ACK) {
            false => self
                .output
                .put(|out| frame::put_ping(out, frame::ACK, payload)),
            true if payload == FAREWELL && self.closing == Closing::Asked => self.say_last(),
            // That it came is all there is to know.
            true => {}
        }
        Ok(())
    }

    fn window_update(&mut self, head: Head, payload: &[u8]) -> Result<(), Fatal> {
        let Ok(bytes) = <[u8; 4]>::try_from(payload) else {
            return Err(fatal(
                Reason::FrameSize,
                "WINDOW_UPDATE is not of four bytes",
            ));
        };
        let more = i64::from(u32::from_be_bytes(bytes) & frame::MOST);
        let most = i64::from(frame::MOST);
        if head.stream == 0 {
            self.sends += more;
            self.line.append(&mut self.blocked);
            return match (more, self.sends > most) {
                (0, _) => Err(fatal(Reason::Protocol, "WINDOW_UPDATE of nothing")),
                (_, true) => Err(fatal(Reason::FlowControl, "a window that is too large")),
                _ => Ok(()),
            };
        }
        self.known(head.stream)?;
        let Some(stream) = self.streams.get_mut(&head.stream) else {
            return Ok(());
        };
        stream.sending.window += more;
        match (more, stream.sending.window > most) {
            (0, _) => self.fail(head.stream, Reason::Protocol),
            (_, true) => self.fail(head.stream, Reason::FlowControl),
            _ => {
                line_up(&mut self.line, head.stream, stream);
                Ok(())
            }
        }
    }

    /// Refuses what concerns a stream that the client has not begun.
    fn known(&self, stream: u32) -> Result<(), Fatal> {
        match stream != 0 && !stream.is_multiple_of(2) && stream <= self.newest {
            true => Ok(()),
            false => Err(fatal(Reason::Protocol, "a frame of a stream not begun")),
        }
    }

    /// So many bytes that came on a stream were read.
    pub(super) fn read(&mut self, id: u32, bytes: u32) {
        if bytes == 0 {
            return;
        }
        if let Some(stream) = self.streams.get_mut(&id)
            && !stream.received.ended
            && let Some(update) = stream.received.window.give_back(bytes)
        {
            self.output
                .put(|out| frame::put_window_update(out, id, update));
        }
        self.read_of_connection(bytes);
    }

    fn read_of_connection(&mut self, bytes: u32) {
        if let Some(update) = self.receives.give_back(bytes) {
            self.output
                .put(|out| frame::put_window_update(out, 0, update));
        }
    }

    /// Ends a stream for an error.
    pub(super) fn reset(&mut self, id: u32, reason: Reason) {
        self.forget(id);
        if let Some((last, by_us)) = self.ended.back_mut() {
            *by_us |= *last == id;
        }
        self.put_reset(id, reason);
    }

    fn put_reset(&mut self, id: u32, reason: Reason) {
        self.output.put(|out| frame::put_reset(out, id, reason));
    }

    /// The stream is gone: nothing is sent or read on it any more.
    pub(super) fn forget(&mut self, id: u32) {
        if let Some(mut stream) = self.streams.remove(&id) {
            self.read_of_connection(stream.received.waiting());
            stream.wake_all();
            self.released.extend(stream.sending.kept.take());
            self.note_end(id, false);
        }
    }

    fn note_end(&mut self, id: u32, by_us: bool) {
        if self.ended.len() == ENDED {
            self.ended.pop_front();
        }
        self.ended.push_back((id, by_us));
    }

    /// Forgets a stream on which both sides have said everything.
    pub(super) fn close_if_over(&mut self, id: u32) {
        let stream = self.streams.get(&id);
        let over = stream.is_some_and(|it| it.sending.ended && it.received.ended);
        if over {
            self.forget(id);
        }
    }

    /// Refuses a request that has just begun; more of it may be on its way.
    fn refuse(&mut self, id: u32, reason: Reason) {
        self.note_end(id, true);
        self.put_reset(id, reason);
    }

    /// Answers with nothing but a status.
    fn refuse_with(&mut self, id: u32, status: StatusCode, ended: bool) {
        let mut block = BytesMut::new();
        self.blocks.head(&mut block, status, &HeaderMap::new());
        self.put_block(id, &block, true);
        match ended {
            true => self.note_end(id, false),
            false => self.refuse(id, Reason::No),
        }
    }

    /// Asks the client whether it is there; anything that it sends is an answer.
    pub(super) fn ask_whether_alive(&mut self) {
        self.output.put(|out| frame::put_ping(out, 0, &ALIVE));
    }

    /// Asks the client to begin no more requests.
    pub(super) fn ask_to_close(&mut self) {
        if self.closing == Closing::Open {
            self.closing = Closing::Asked;
            // Requests on their way to this server are carried out: the client answers when it has read this.
            self.output.put(|out| {
                frame::put_go_away(out, frame::MOST, Reason::No, "");
                frame::put_ping(out, 0, &FAREWELL);
            });
        }
    }

    fn say_last(&mut self) {
        if matches!(self.closing, Closing::Last(_)) {
            return;
        }
        let last = self.newest;
        self.closing = Closing::Last(last);
        self.output
            .put(|out| frame::put_go_away(out, last, Reason::No, ""));
    }

    /// The client was told which request was its last one, and every answer was made.
    pub(super) fn is_over(&self) -> bool {
        matches!(self.closing, Closing::Last(_)) && self.streams.is_empty()
    }
}

/// A stream that can send takes its place in the line.
pub(super) fn line_up(line: &mut VecDeque<u32>, id: u32, stream: &mut Stream) {
    if stream.sending.can_send() && !std::mem::replace(&mut stream.sending.in_line, true) {
        line.push_back(id);
    }
}

/// The frame in front, if it is complete.
fn whole(bytes: &[u8]) -> Result<Option<(Head, &[u8])>, Fatal> {
    let Some((head, rest)) = bytes.split_first_chunk() else {
        return Ok(None);
    };
    let head = Head::read(head);
    if head.length > frame::MOST_PAYLOAD {
        return Err(fatal(
            Reason::FrameSize,
            "a frame that is longer than allowed",
        ));
    }
    Ok(rest.get(..head.length).map(|payload| (head, payload)))
}

/// How many bytes are missing to the head of the frame in front, or to its end.
fn missing(partial: &[u8]) -> Result<usize, Fatal> {
    let Some((head, rest)) = partial.split_first_chunk() else {
        return Ok(frame::HEAD - partial.len());
    };
    let head = Head::read(head);
    match whole(partial)? {
        Some(_) => Ok(0),
        None => Ok(head.length - rest.len()),
    }
}

fn unpadded(head: Head, payload: &[u8]) -> Result<&[u8], Fatal> {
    if !head.has(frame::PADDED) {
        return Ok(payload);
    }
    let Some((padding, rest)) = payload.split_first() else {
        return Err(fatal(Reason::FrameSize, "padding without its length"));
    };
    let left = rest.len().checked_sub(usize::from(*padding));
    let left = left.ok_or(fatal(Reason::Protocol, "more padding than payload"))?;
    Ok(&rest[..left])
}

/// The stream on which a priority makes another one depend.
fn dependency(priority: &[u8; 5]) -> u32 {
    let [a, b, c, d, _] = *priority;
    u32::from_be_bytes([a, b, c, d]) & frame::MOST
}

#[cfg(test)]
#[path = "connection_test.rs"]
mod tests;
