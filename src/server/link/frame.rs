//! Frames: length, checksum, protobuf.
//!
//! Never allocates the size in a length field before the bytes arrive.

use std::io::{Error, ErrorKind};

use bytes::{Bytes, BytesMut};
use prost::Message;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// Largest frame before the other side has sent its hello, in bytes.
pub(crate) const HELLO_LIMIT: usize = 64 << 10;
/// Largest frame between members, in bytes.
pub(crate) const FRAME_LIMIT: usize = 256 << 20;
const HEAD: usize = 8;
/// A frame is read in pieces of this size, so that memory grows with the bytes received.
const PIECE: usize = 1 << 20;

/// Appends one frame to `buffer`.
pub(crate) fn encode(message: &impl Message, buffer: &mut BytesMut) {
    let body = buffer.len() + HEAD;
    let size = message.encoded_len();
    // A slice of the size that prost has just counted: a buffer that can grow checks whether it has to before each byte
    // of each number.
    buffer.resize(body + size, 0);
    message.encode_raw(&mut &mut buffer[body..]);
    let length = u32::try_from(size).unwrap_or(u32::MAX);
    let checksum = crc32c::crc32c(&buffer[body..]);
    buffer[body - HEAD..body - 4].copy_from_slice(&length.to_be_bytes());
    buffer[body - 4..body].copy_from_slice(&checksum.to_be_bytes());
}

/// Writes one frame.
pub(crate) async fn write(
    io: &mut (impl AsyncWrite + Unpin),
    message: &impl Message,
) -> Result<(), Error> {
    let mut buffer = BytesMut::with_capacity(message.encoded_len() + HEAD);
    encode(message, &mut buffer);
    io.write_all(&buffer).await?;
    io.flush().await
}

/// Reads one message; `None` where the stream ends between frames.
pub(crate) async fn read<M: Message + Default>(
    io: &mut (impl AsyncRead + Unpin),
    limit: usize,
) -> Result<Option<M>, Error> {
    match read_bytes(io, limit).await? {
        Some(body) => decode(body).map(Some),
        None => Ok(None),
    }
}

/// Decodes a frame's body.
pub(crate) fn decode<M: Message + Default>(body: Bytes) -> Result<M, Error> {
    M::decode(body).map_err(|error| Error::new(ErrorKind::InvalidData, error))
}

/// Reads one frame's body, which is empty in a heartbeat; `None` where the stream ends between
/// frames.
pub(crate) async fn read_bytes(
    io: &mut (impl AsyncRead + Unpin),
    limit: usize,
) -> Result<Option<Bytes>, Error> {
    let mut head = [0_u8; HEAD];
    if io.read(&mut head[..1]).await? == 0 {
        return Ok(None);
    }
    io.read_exact(&mut head[1..]).await?;
    let field =
        |at: usize| u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    let length = field(0) as usize;
    if length > limit {
        let text = format!("a frame of {length} bytes is larger than the {limit} allowed");
        return Err(Error::new(ErrorKind::InvalidData, text));
    }
    let body = body(io, length).await?;
    if crc32c::crc32c(&body) != field(4) {
        return Err(Error::new(
            ErrorKind::InvalidData,
            "a frame's checksum does not match: it was damaged on its way",
        ));
    }
    Ok(Some(body))
}

async fn body(io: &mut (impl AsyncRead + Unpin), length: usize) -> Result<Bytes, Error> {
    let mut body = BytesMut::new();
    while body.len() < length {
        let from = body.len();
        let to = length.min(from + PIECE);
        body.resize(to, 0);
        io.read_exact(&mut body[from..to]).await?;
    }
    Ok(body.freeze())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::link::hello::Hello;

    fn hello(name: &str) -> Hello {
        Hello {
            name: name.to_owned(),
            ..Hello::default()
        }
    }

    #[tokio::test]
    async fn frames_round_trip() {
        let mut buffer = BytesMut::new();
        encode(&hello("a"), &mut buffer);
        encode(&hello("b"), &mut buffer);
        let mut io = &buffer[..];
        for name in ["a", "b"] {
            let read: Option<Hello> = read(&mut io, HELLO_LIMIT).await.expect("a frame");
            assert_eq!(read, Some(hello(name)));
        }
        let end: Option<Hello> = read(&mut io, HELLO_LIMIT).await.expect("the end");
        assert_eq!(end, None);
    }

    #[tokio::test]
    async fn damaged_frames_are_errors() {
        let mut buffer = BytesMut::new();
        encode(&hello("member"), &mut buffer);
        let mut damaged = buffer.clone();
        *damaged.last_mut().expect("not empty") ^= 1;
        assert!(read::<Hello>(&mut &damaged[..], HELLO_LIMIT).await.is_err());
        assert!(read::<Hello>(&mut &buffer[..], 3).await.is_err());
        let cut = &buffer[..buffer.len() - 1];
        assert!(read::<Hello>(&mut &cut[..], HELLO_LIMIT).await.is_err());
    }
}
