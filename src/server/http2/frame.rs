//! HTTP/2's frames (RFC 9113, sections 4 and 6): what is read of those that come, and the bytes of those that go. Pure,
//! and without any state of a connection.

use bytes::{BufMut, BytesMut};

/// What a client sends before its first frame.
pub(in crate::server) const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Bytes of a frame's head.
pub(super) const HEAD: usize = 9;
/// The largest payload that is accepted: the protocol's initial value, which is never raised.
pub(super) const MOST_PAYLOAD: usize = 1 << 14;
/// The largest window, and the largest stream identifier.
pub(super) const MOST: u32 = (1 << 31) - 1;
/// The window of each stream and of the connection before any setting.
pub(super) const FIRST_WINDOW: u32 = (1 << 16) - 1;

/// The kinds of frames; others are ignored, as the protocol asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Data,
    Headers,
    Priority,
    Reset,
    Settings,
    Promise,
    Ping,
    GoAway,
    WindowUpdate,
    Continuation,
    Unknown,
}

const KINDS: [Kind; 10] = [
    Kind::Data,
    Kind::Headers,
    Kind::Priority,
    Kind::Reset,
    Kind::Settings,
    Kind::Promise,
    Kind::Ping,
    Kind::GoAway,
    Kind::WindowUpdate,
    Kind::Continuation,
];

/// Of DATA and HEADERS: nothing follows on this stream.
pub(super) const END_STREAM: u8 = 0x1;
/// Of SETTINGS and PING: an answer.
pub(super) const ACK: u8 = 0x1;
/// Of HEADERS and CONTINUATION: the block is complete.
pub(super) const END_HEADERS: u8 = 0x4;
/// Of DATA and HEADERS.
pub(super) const PADDED: u8 = 0x8;
/// Of HEADERS.
pub(super) const PRIORITY: u8 = 0x20;

/// Why a stream or a connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reason {
    No = 0x0,
    Protocol = 0x1,
    Internal = 0x2,
    FlowControl = 0x3,
    StreamClosed = 0x5,
    FrameSize = 0x6,
    Refused = 0x7,
    Compression = 0x9,
    Calm = 0xb,
}

/// The head of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) length: usize,
    pub(super) kind: Kind,
    pub(super) flags: u8,
    pub(super) stream: u32,
}

impl Head {
    pub(super) fn read(bytes: &[u8; HEAD]) -> Head {
        let [a, b, c, kind, flags, stream @ ..] = *bytes;
        Head {
            length: u32::from_be_bytes([0, a, b, c]) as usize,
            kind: KINDS
                .get(usize::from(kind))
                .copied()
                .unwrap_or(Kind::Unknown),
            flags,
            // The highest bit is reserved.
            stream: u32::from_be_bytes(stream) & MOST,
        }
    }

    pub(super) fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

/// The settings by which a peer changes what is sent to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Setting {
    TableSize(u32),
    Push(u32),
    Window(u32),
    FrameSize(u32),
    Other,
}

/// The settings in the payload of a frame, whose length is a multiple of six.
pub(super) fn settings(payload: &[u8]) -> impl Iterator<Item = Setting> + '_ {
    payload.chunks_exact(6).map(|bytes| {
        let name = u16::from_be_bytes([bytes[0], bytes[1]]);
        let value = u32::from_be_bytes([bytes[2], bytes[3], bytes[4], bytes[5]]);
        match name {
            0x1 => Setting::TableSize(value),
            0x2 => Setting::Push(value),
            0x4 => Setting::Window(value),
            0x5 => Setting::FrameSize(value),
            _ => Setting::Other,
        }
    })
}

pub(super) fn put_head(out: &mut BytesMut, length: usize, kind: Kind, flags: u8, stream: u32) {
    // Callers never send more than the peer accepts, which is less than three bytes can say.
    let [_, a, b, c] = u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes();
    let kind = KINDS.iter().position(|it| *it == kind).unwrap_or_default();
    let kind = u8::try_from(kind).unwrap_or_default();
    let [e, f, g, h] = stream.to_be_bytes();
    out.put_slice(&[a, b, c, kind, flags, e, f, g, h]);
}

/// The server's settings, sent first.
pub(super) fn put_settings(out: &mut BytesMut, streams: u32, window: u32, headers: u32) {
    put_head(out, 18, Kind::Settings, 0, 0);
    for (name, value) in [(0x3, streams), (0x4, window), (0x6, headers)] {
        out.put_u16(name);
        out.put_u32(value);
    }
}

pub(super) fn put_settings_ack(out: &mut BytesMut) {
    put_head(out, 0, Kind::Settings, ACK, 0);
}

pub(super) fn put_ping(out: &mut BytesMut, flags: u8, payload: &[u8]) {
    put_head(out, payload.len(), Kind::Ping, flags, 0);
    out.put_slice(payload);
}

pub(super) fn put_reset(out: &mut BytesMut, stream: u32, reason: Reason) {
    put_head(out, 4, Kind::Reset, 0, stream);
    out.put_u32(reason as u32);
}

pub(super) fn put_go_away(out: &mut BytesMut, last: u32, reason: Reason, why: &str) {
    put_head(out, 8 + why.len(), Kind::GoAway, 0, 0);
    out.put_u32(last);
    out.put_u32(reason as u32);
    out.put_slice(why.as_bytes());
}

pub(super) fn put_window_update(out: &mut BytesMut, stream: u32, bytes: u32) {
    put_head(out, 4, Kind::WindowUpdate, 0, stream);
    out.put_u32(bytes);
}

/// A header block, in as many frames as the peer's limit asks for.
pub(super) fn put_block(out: &mut BytesMut, stream: u32, block: &[u8], end: bool, most: usize) {
    let mut kind = Kind::Headers;
    let mut flags = if end { END_STREAM } else { 0 };
    let mut rest = block;
    loop {
        let (piece, left) = rest.split_at(rest.len().min(most));
        let last = if left.is_empty() { END_HEADERS } else { 0 };
        put_head(out, piece.len(), kind, flags | last, stream);
        out.put_slice(piece);
        if left.is_empty() {
            return;
        }
        (kind, flags, rest) = (Kind::Continuation, 0, left);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(bytes: &[u8]) -> Head {
        Head::read(bytes[..HEAD].try_into().expect("nine bytes"))
    }

    #[test]
    fn head_is_read_as_it_is_written() {
        let mut out = BytesMut::new();
        put_head(&mut out, 0x01_02_03, Kind::Headers, END_STREAM, 7);
        assert_eq!(out[..], [1, 2, 3, 1, 1, 0, 0, 0, 7]);
        let read = head(&out);
        assert_eq!((read.length, read.kind), (0x01_02_03, Kind::Headers));
        assert!(read.has(END_STREAM) && !read.has(PADDED));
        assert_eq!(head(&[0, 0, 0, 99, 0, 0xff, 0, 0, 1]).kind, Kind::Unknown);
        assert_eq!(head(&[0, 0, 0, 99, 0, 0x80, 0, 0, 1]).stream, 1);
    }

    #[test]
    fn block_is_divided_by_the_peers_limit() {
        let mut out = BytesMut::new();
        put_block(&mut out, 5, b"abcdefg", true, 3);
        let frames: Vec<(Kind, u8, &[u8])> = [(0, 3), (12, 3), (24, 1)]
            .iter()
            .map(|(at, length)| {
                let read = head(&out[*at..]);
                assert_eq!((read.length, read.stream), (*length, 5));
                let payload = &out[at + HEAD..at + HEAD + length];
                (read.kind, read.flags, payload)
            })
            .collect();
        let expected: [(Kind, u8, &[u8]); 3] = [
            (Kind::Headers, END_STREAM, b"abc"),
            (Kind::Continuation, 0, b"def"),
            (Kind::Continuation, END_HEADERS, b"g"),
        ];
        assert_eq!(frames, expected);
    }
}
