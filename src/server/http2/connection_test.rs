//! A connection's rules, frame by frame: what a client sends, and what it gets.

use bytes::{BufMut as _, Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use rand::RngExt as _;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng as _;

use super::super::frame::{self, HEAD};
use super::super::output::places;
use super::super::stream::End;
use super::*;

const LIMITS: Limits = Limits {
    streams: 3,
    stream_window: 1000,
    connection_window: 100_000,
    headers: 1 << 14,
};

/// A frame as it was sent: kind, flags, stream and payload.
type Sent = (Kind, u8, u32, Vec<u8>);

/// Everything that waits to be sent.
fn sent(connection: &mut Connection) -> Vec<Sent> {
    let mut bytes = Vec::new();
    loop {
        connection.pump();
        let mut places = places();
        let count = connection.output.slices(&mut places);
        let ready: Vec<u8> = places[..count].iter().flat_map(|it| it.to_vec()).collect();
        if ready.is_empty() {
            break;
        }
        bytes.extend_from_slice(&ready);
        connection.output.written(ready.len());
    }
    let mut frames = Vec::new();
    let mut rest = &bytes[..];
    while let Some((head, after)) = rest.split_first_chunk::<HEAD>() {
        let head = Head::read(head);
        let (payload, after) = after.split_at(head.length);
        frames.push((head.kind, head.flags, head.stream, payload.to_vec()));
        rest = after;
    }
    frames
}

fn framed(kind: Kind, flags: u8, stream: u32, payload: &[u8]) -> Bytes {
    let mut out = BytesMut::new();
    frame::put_head(&mut out, payload.len(), kind, flags, stream);
    out.put_slice(payload);
    out.freeze()
}

/// `:method: POST`, `:scheme: http`, `:path: /`.
const REQUEST: [u8; 3] = [0x83, 0x86, 0x84];
const WHOLE: u8 = frame::END_HEADERS | frame::END_STREAM;

fn begin(stream: u32, flags: u8) -> Bytes {
    framed(Kind::Headers, flags, stream, &REQUEST)
}

/// A connection after both sides' settings.
fn settled() -> Connection {
    let mut connection = Connection::new(LIMITS);
    let settings = framed(Kind::Settings, 0, 0, &[]);
    connection.receive(&settings).expect("settings");
    sent(&mut connection);
    connection
}

fn receive(connection: &mut Connection, frames: &[Bytes]) {
    for bytes in frames {
        connection.receive(bytes).expect("no error");
    }
}

fn reset(stream: u32, reason: Reason) -> Sent {
    let payload = (reason as u32).to_be_bytes();
    (Kind::Reset, 0, stream, payload.to_vec())
}

fn update(stream: u32, bytes: u32) -> Bytes {
    framed(Kind::WindowUpdate, 0, stream, &bytes.to_be_bytes())
}

fn grpc() -> HeaderMap {
    let value = HeaderValue::from_static("application/grpc");
    HeaderMap::from_iter([(header::CONTENT_TYPE, value)])
}

#[test]
fn settings_are_sent_first_and_answered() {
    let mut connection = Connection::new(LIMITS);
    let first = sent(&mut connection);
    let kinds: Vec<Kind> = first.iter().map(|it| it.0).collect();
    assert_eq!(kinds, [Kind::Settings, Kind::WindowUpdate]);
    receive(&mut connection, &[framed(Kind::Settings, 0, 0, &[])]);
    let ack = (Kind::Settings, frame::ACK, 0, Vec::new());
    assert_eq!(sent(&mut connection), [ack]);
}

/// However the bytes are divided, the same requests begin.
#[test]
fn requests_begin_whatever_pieces_they_come_in() {
    let body = framed(Kind::Data, frame::END_STREAM, 1, b"body");
    let all = [
        framed(Kind::Settings, 0, 0, &[]),
        begin(1, frame::END_HEADERS),
        body,
        begin(3, WHOLE),
    ]
    .concat();
    for size in 1..all.len() {
        let mut connection = Connection::new(LIMITS);
        for piece in all.chunks(size) {
            connection.receive(piece).expect("no error");
        }
        let opened: Vec<u32> = connection.opened().iter().map(|it| it.stream).collect();
        assert_eq!(opened, [1, 3], "in pieces of {size}");
        let received = &connection.streams[&1].received;
        assert!(received.ended && received.pieces == ["body"]);
    }
}

#[test]
fn a_response_is_head_data_and_trailers() {
    let mut connection = settled();
    receive(&mut connection, &[begin(1, WHOLE)]);
    let respond = connection.respond(1, StatusCode::OK, &grpc(), false);
    respond.expect("it is open");
    connection.send(1, Bytes::from_static(b"answer"));
    let status = HeaderValue::from_static("0");
    let trailers = HeaderMap::from_iter([(header::HeaderName::from_static("grpc-status"), status)]);
    connection.finish(1, End::Trailers(trailers));
    let frames = sent(&mut connection);
    let seen: Vec<(Kind, u8)> = frames.iter().map(|it| (it.0, it.1)).collect();
    let end = frame::END_HEADERS | frame::END_STREAM;
    let expected = [
        (Kind::Headers, frame::END_HEADERS),
        (Kind::Data, 0),
        (Kind::Headers, end),
    ];
    assert_eq!(seen, expected);
    assert_eq!(frames[1].3, b"answer");
    assert!(connection.streams.is_empty());
}

/// The client's windows, its own and the stream's, are never exceeded.
#[test]
fn data_waits_for_both_windows() {
    let mut connection = settled();
    receive(&mut connection, &[begin(1, WHOLE), begin(3, WHOLE)]);
    for stream in [1, 3] {
        let respond = connection.respond(stream, StatusCode::OK, &grpc(), false);
        respond.expect("it is open");
        connection.send(stream, vec![7; 50_000].into());
        connection.finish(stream, End::Data);
    }
    let data = |frames: Vec<Sent>, stream| -> usize {
        let of = frames
            .iter()
            .filter(|it| it.0 == Kind::Data && it.2 == stream);
        of.map(|it| it.3.len()).sum()
    };
    let first = sent(&mut connection);
    let (one, other) = (data(first.clone(), 1), data(first, 3));
    assert_eq!(one + other, 65_535, "the connection's window");
    assert!(one > 30_000 && other > 30_000, "each has its turn");
    receive(&mut connection, &[update(0, 1_000_000)]);
    let rest = sent(&mut connection);
    assert_eq!(one + data(rest.clone(), 1), 50_000);
    assert_eq!(other + data(rest, 3), 50_000);

    // A stream's window may become negative (RFC 9113, section 6.9.2).
    receive(&mut connection, &[begin(5, WHOLE)]);
    let respond = connection.respond(5, StatusCode::OK, &grpc(), false);
    respond.expect("it is open");
    connection.send(5, vec![7; 1000].into());
    sent(&mut connection);
    connection.send(5, vec![7; 100_000].into());
    let setting = [&[0, 4][..], &100_u32.to_be_bytes()].concat();
    receive(&mut connection, &[framed(Kind::Settings, 0, 0, &setting)]);
    assert_eq!(data(sent(&mut connection), 5), 0);
    receive(&mut connection, &[update(5, 900)]);
    assert_eq!(data(sent(&mut connection), 5), 0);
    receive(&mut connection, &[update(5, 1)]);
    assert_eq!(data(sent(&mut connection), 5), 1);
}

/// A client that reads none of its answers has its requests counted as pending.
#[test]
fn request_is_pending_until_its_answer_is_sent() {
    let mut connection = settled();
    let setting = [&[0, 4][..], &0_u32.to_be_bytes()].concat();
    let none = framed(Kind::Settings, 0, 0, &setting);
    receive(&mut connection, &[none, begin(1, WHOLE)]);
    let respond = connection.respond(1, StatusCode::OK, &grpc(), false);
    respond.expect("it is open");
    connection.send(1, Bytes::from_static(b"answer"));
    connection.finish(1, End::Data);
    let pending = Arc::new(());
    assert!(connection.keep(1, Arc::clone(&pending)).is_none());
    sent(&mut connection);
    assert_eq!(Arc::strong_count(&pending), 2);
    receive(&mut connection, &[update(1, 6)]);
    sent(&mut connection);
    connection.released.clear();
    assert_eq!(Arc::strong_count(&pending), 1);
    assert!(connection.keep(1, pending).is_some(), "it is gone");
}

#[test]
fn what_is_read_is_given_back() {
    let mut connection = settled();
    receive(&mut connection, &[begin(1, frame::END_HEADERS)]);
    let data = framed(Kind::Data, 0, 1, &[0; 900]);
    receive(&mut connection, std::slice::from_ref(&data));
    assert!(sent(&mut connection).is_empty(), "nobody has read it");
    connection.read(1, 900);
    let window = (Kind::WindowUpdate, 0, 1, 900_u32.to_be_bytes().to_vec());
    assert_eq!(sent(&mut connection), [window]);
    // A client that sends more than its window allows.
    receive(&mut connection, &[data.clone(), data]);
    assert_eq!(sent(&mut connection), [reset(1, Reason::FlowControl)]);
    assert!(connection.streams.is_empty());
}

/// A connection's window is not used up by streams that ended before they were read.
#[test]
fn unread_data_of_a_stream_that_is_gone_is_given_back() {
    let mut connection = settled();
    for number in 0..200 {
        let stream = 2 * number + 1;
        let data = framed(Kind::Data, 0, stream, &[0; 1000]);
        let cancel = framed(Kind::Reset, 0, stream, &8_u32.to_be_bytes());
        receive(
            &mut connection,
            &[begin(stream, frame::END_HEADERS), data, cancel],
        );
    }
    let updates = sent(&mut connection).into_iter().filter(|it| it.2 == 0);
    assert_eq!(updates.count(), 4, "200,000 bytes, half of a window each");
}

#[test]
fn errors_of_a_stream_end_the_stream() {
    let open = frame::END_HEADERS;
    let data = |flags| framed(Kind::Data, flags, 1, b"x");
    let with_length = [&REQUEST[..], &[0x0f, 0x0d, 1, b'3']].concat();
    let with_length = framed(Kind::Headers, open, 1, &with_length);
    let cases: [(&[Bytes], Reason); 8] = [
        (&[begin(1, WHOLE), data(0)], Reason::StreamClosed),
        (&[begin(1, open), begin(1, open)], Reason::Protocol),
        (&[begin(1, open), update(1, 0)], Reason::Protocol),
        (
            &[begin(1, open), update(1, frame::MOST)],
            Reason::FlowControl,
        ),
        (
            &[with_length.clone(), data(frame::END_STREAM)],
            Reason::Protocol,
        ),
        (
            &[framed(Kind::Headers, WHOLE, 1, &[0x83, 0x86])],
            Reason::Protocol,
        ),
        (
            &[framed(Kind::Priority, 0, 1, &[0, 0, 0, 1, 0])],
            Reason::Protocol,
        ),
        (&[framed(Kind::Priority, 0, 1, &[0; 4])], Reason::FrameSize),
    ];
    for (number, (frames, reason)) in cases.into_iter().enumerate() {
        let mut connection = settled();
        receive(&mut connection, frames);
        assert_eq!(sent(&mut connection), [reset(1, reason)], "case {number}");
        assert!(connection.streams.is_empty() && connection.opened().is_empty());
    }
}

#[test]
fn errors_of_the_connection_end_it() {
    use Kind::*;
    let open = frame::END_HEADERS;
    let setting = |name: u16, value: u32| {
        let payload = [&name.to_be_bytes()[..], &value.to_be_bytes()].concat();
        framed(Settings, 0, 0, &payload)
    };
    let cancel = framed(Reset, 0, 1, &8_u32.to_be_bytes());
    let cases: [(&[Bytes], Reason); 24] = [
        (&[begin(3, open), begin(1, open)], Reason::Protocol),
        (
            &[begin(1, open), cancel, begin(1, open)],
            Reason::StreamClosed,
        ),
        (&[framed(Data, 0, 0, b"x")], Reason::Protocol),
        (&[framed(Data, 0, 1, b"x")], Reason::Protocol),
        (
            &[begin(1, open), framed(Data, frame::PADDED, 1, &[2, 0])],
            Reason::Protocol,
        ),
        (&[begin(2, open)], Reason::Protocol),
        (&[begin(0, open)], Reason::Protocol),
        (
            &[begin(1, 0), framed(Ping, 0, 0, &[0; 8])],
            Reason::Protocol,
        ),
        (
            &[begin(1, 0), framed(Continuation, open, 3, &[])],
            Reason::Protocol,
        ),
        (&[framed(Continuation, open, 1, &[])], Reason::Protocol),
        (&[framed(Headers, open, 1, &[0xff])], Reason::Compression),
        (&[framed(Priority, 0, 0, &[0; 5])], Reason::Protocol),
        (&[framed(Reset, 0, 1, &[0; 4])], Reason::Protocol),
        (
            &[begin(1, open), framed(Reset, 0, 1, &[0; 3])],
            Reason::FrameSize,
        ),
        (&[framed(Settings, 0, 1, &[])], Reason::Protocol),
        (
            &[framed(Settings, frame::ACK, 0, &[0; 6])],
            Reason::FrameSize,
        ),
        (&[framed(Settings, 0, 0, &[0; 5])], Reason::FrameSize),
        (&[setting(2, 2)], Reason::Protocol),
        (&[setting(4, 1 << 31)], Reason::FlowControl),
        (&[setting(5, 100)], Reason::Protocol),
        (&[framed(Promise, 0, 1, &[0; 4])], Reason::Protocol),
        (&[framed(Ping, 0, 0, &[0; 7])], Reason::FrameSize),
        (&[update(0, 0)], Reason::Protocol),
        (&[update(0, frame::MOST)], Reason::FlowControl),
    ];
    for (number, (frames, reason)) in cases.into_iter().enumerate() {
        let mut connection = settled();
        let (last, before) = frames.split_last().expect("a frame");
        receive(&mut connection, before);
        let error = connection.receive(last).expect_err("an error");
        assert_eq!(error.reason, reason, "case {number}");
        let (kind, _, _, payload) = sent(&mut connection).pop().expect("a frame");
        assert_eq!((kind, payload[7]), (GoAway, reason as u8), "case {number}");
    }
    let mut long = BytesMut::new();
    frame::put_head(&mut long, frame::MOST_PAYLOAD + 1, Data, 0, 1);
    let error = settled().receive(&long).expect_err("an error");
    assert_eq!(error.reason, Reason::FrameSize);
    let error = Connection::new(LIMITS).receive(&begin(1, WHOLE));
    assert_eq!(error.expect_err("no settings").reason, Reason::Protocol);
}

/// What costs a client little must not cost this server much (CVE-2023-44487, CVE-2024-27316).
#[test]
fn floods_end_the_connection() {
    let mut connection = settled();
    let error = (0..2 * RESETS).find_map(|number| {
        let stream = 2 * number + 1;
        let cancel = framed(Kind::Reset, 0, stream, &8_u32.to_be_bytes());
        let both = [begin(stream, WHOLE), cancel].concat();
        let taken = connection.receive(&both);
        let nothing = connection.opened().is_empty();
        assert!(taken.is_err() || nothing, "it was reset before it began");
        taken.err()
    });
    assert_eq!(error.expect("an error").reason, Reason::Calm);

    // Made to fail instead of reset (CVE-2025-8671).
    let mut connection = settled();
    let error = (0..2 * RESETS).find_map(|number| {
        let stream = 2 * number + 1;
        let both = [begin(stream, WHOLE), update(stream, 0)].concat();
        connection.receive(&both).err()
    });
    assert_eq!(error.expect("an error").reason, Reason::Calm);

    let mut connection = settled();
    receive(&mut connection, &[begin(1, 0)]);
    let piece = framed(Kind::Continuation, 0, 1, &[]);
    let error = (0..MOST_PIECES).find_map(|_| connection.receive(&piece).err());
    assert_eq!(error.expect("an error").reason, Reason::Calm);
}

#[test]
fn no_more_streams_than_the_limit() {
    let mut connection = settled();
    let begun = [1, 3, 5, 7].map(|stream| begin(stream, WHOLE));
    receive(&mut connection, &begun);
    assert_eq!(sent(&mut connection), [reset(7, Reason::Refused)]);
    assert_eq!(connection.opened().len(), 3);
}

/// A client that is asked to close has what it had begun by then answered, and nothing else.
#[test]
fn closing_answers_what_was_begun() {
    let mut connection = settled();
    receive(&mut connection, &[begin(1, WHOLE)]);
    connection.ask_to_close();
    let frames = sent(&mut connection);
    let [(Kind::GoAway, ..), (Kind::Ping, _, _, ping)] = &frames[..] else {
        panic!("{frames:?}");
    };
    // On its way meanwhile.
    receive(&mut connection, &[begin(3, WHOLE)]);
    receive(&mut connection, &[framed(Kind::Ping, frame::ACK, 0, ping)]);
    let (kind, _, _, payload) = sent(&mut connection).pop().expect("a frame");
    assert_eq!((kind, &payload[..4]), (Kind::GoAway, &[0, 0, 0, 3][..]));
    receive(&mut connection, &[begin(5, WHOLE)]);
    assert_eq!(connection.opened().len(), 2);
    for stream in [1, 3] {
        assert!(!connection.is_over());
        let respond = connection.respond(stream, StatusCode::OK, &grpc(), true);
        respond.expect("it is open");
    }
    assert!(connection.is_over());
}

/// Any bytes at all: no panic, and no memory beyond the limits.
#[test]
fn any_bytes_are_survived() {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(7);
    let kinds = [
        Kind::Data,
        Kind::Headers,
        Kind::Priority,
        Kind::Reset,
        Kind::Settings,
        Kind::Ping,
        Kind::GoAway,
        Kind::WindowUpdate,
        Kind::Continuation,
    ];
    let mut ended = 0;
    for _ in 0..3_000 {
        let mut connection = settled();
        receive(
            &mut connection,
            &[begin(1, frame::END_HEADERS), begin(3, WHOLE)],
        );
        for _ in 0..random.random_range(1..12) {
            let kind = kinds[random.random_range(0..kinds.len())];
            let usual = match kind {
                Kind::Priority => 5,
                Kind::Settings => 6,
                Kind::Ping | Kind::GoAway => 8,
                _ => 4,
            };
            let length = [usual, usual, usual, 0, 20][random.random_range(0..5)];
            let mut payload: Vec<u8> = (0..length).map(|_| random.random()).collect();
            if random.random_bool(0.7) && matches!(kind, Kind::Headers | Kind::Continuation) {
                payload = REQUEST.to_vec();
            }
            let flags = random.random::<u8>() & [0xff, 0x05][random.random_range(0..2)];
            let stream = [0, 1, 1, 3, 3, 5, 7][random.random_range(0..7)];
            if connection
                .receive(&framed(kind, flags, stream, &payload))
                .is_err()
            {
                ended += 1;
                break;
            }
            for it in connection.opened() {
                let _ = connection.respond(it.stream, StatusCode::OK, &grpc(), random.random());
                connection.send(it.stream, Bytes::from_static(b"answer"));
            }
            assert!(connection.streams.len() <= LIMITS.streams as usize);
            sent(&mut connection);
        }
    }
    assert!((500..2_900).contains(&ended), "{ended} connections ended");
}
