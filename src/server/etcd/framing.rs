//! gRPC's framing of one message that is not compressed, both ways. Never reads or writes a socket, and never looks into
//! a message.
//!
//! A file of its own, so that the count of instructions (tests/instructions) drives it as shipped.

use bytes::{BufMut, Bytes, BytesMut};
use prost::Message;

/// gRPC's prefix of a message: a flag, and its length.
pub(super) const HEAD: usize = 5;

/// What has come of a body: nearly always one piece, which is then not copied.
#[derive(Default)]
pub(super) struct Pieces {
    first: Bytes,
    all: Option<BytesMut>,
}

impl Pieces {
    pub(super) fn push(&mut self, data: Bytes) {
        match &mut self.all {
            Some(all) => all.put_slice(&data),
            None if self.first.is_empty() => self.first = data,
            // Grows by doubling, so that each byte is copied a few times at most.
            None => {
                let mut all = BytesMut::with_capacity(2 * (self.first.len() + data.len()));
                all.put_slice(&self.first);
                all.put_slice(&data);
                self.all = Some(all);
            }
        }
    }

    pub(super) fn head(&self) -> &[u8] {
        let came = self.all.as_deref().unwrap_or(&self.first);
        &came[..came.len().min(HEAD)]
    }

    pub(super) fn len(&self) -> usize {
        self.all.as_ref().map_or(self.first.len(), BytesMut::len)
    }

    pub(super) fn into_bytes(self) -> Bytes {
        self.all.map_or(self.first, BytesMut::freeze)
    }
}

/// Whether a message that begins like this may be one that is taken.
pub(super) fn may_become_one(head: &[u8], limit: usize) -> bool {
    match *head {
        [] | [0] | [0, _] | [0, _, _] | [0, _, _, _] => true,
        [0, a, b, c, d] => u32::from_be_bytes([a, b, c, d]) as usize <= limit,
        _ => false,
    }
}

/// Whether it is one whole message that is not compressed.
pub(super) fn is_one_message(came: &[u8]) -> bool {
    match came.split_first_chunk::<HEAD>() {
        // The flag says that it is not compressed.
        Some((&[0, ref length @ ..], message)) => {
            u32::try_from(message.len()).is_ok_and(|found| found == u32::from_be_bytes(*length))
        }
        _ => false,
    }
}

/// A message as it came.
pub(super) fn framed(message: &[u8]) -> Bytes {
    let mut whole = BytesMut::with_capacity(HEAD + message.len());
    put_head(&mut whole, message.len());
    whole.put_slice(message);
    whole.freeze()
}

/// A message with its prefix; `None` if it is too long for one.
pub(super) fn encoded(message: &impl Message) -> Option<Bytes> {
    let length = message.encoded_len();
    u32::try_from(length).ok()?;
    // A slice of the length that prost has just counted: a buffer that can grow checks whether it has to before each
    // byte of each number.
    let mut data = vec![0; HEAD + length];
    let mut rest = &mut data[..];
    put_head(&mut rest, length);
    message.encode_raw(&mut rest);
    Some(data.into())
}

/// gRPC's prefix of a message that is not compressed, and that fits into one.
fn put_head(buffer: &mut impl BufMut, length: usize) {
    buffer.put_u8(0);
    buffer.put_u32(u32::try_from(length).unwrap_or(u32::MAX));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_whole_message_that_is_not_compressed_is_taken() {
        for (came, one) in [
            (&[0, 0, 0, 0, 2, 7, 7][..], true),
            (&[0, 0, 0, 0, 0], true),
            (&[], false),
            (&[0, 0, 0, 0], false),
            (&[0, 0, 0, 0, 2, 7], false),
            (&[0, 0, 0, 0, 1, 7, 0, 0, 0, 0, 1, 7], false),
            (&[1, 0, 0, 0, 2, 7, 7], false),
        ] {
            assert_eq!(is_one_message(came), one, "{came:?}");
        }
        assert!(is_one_message(&framed(b"message")));
    }

    /// A message in many frames was copied as often as it has frames.
    #[test]
    fn pieces_are_put_together() {
        for size in [1, 3, 1000] {
            let bytes: Vec<u8> = (0..1000_u32).map(|number| number as u8).collect();
            let mut pieces = Pieces::default();
            for piece in bytes.chunks(size) {
                pieces.push(Bytes::copy_from_slice(piece));
            }
            assert_eq!((pieces.len(), pieces.head()), (1000, &bytes[..HEAD]));
            assert_eq!(pieces.into_bytes(), bytes);
        }
    }

    #[test]
    fn what_cannot_be_taken_is_given_back_at_its_head() {
        for (head, may) in [
            (&[][..], true),
            (&[0, 9, 9], true),
            (&[1], false),
            (&[0, 0, 0, 0, 100], true),
            (&[0, 0, 0, 0, 101], false),
            (&[0, 0xff, 0, 0, 0], false),
        ] {
            assert_eq!(may_become_one(head, 100), may, "{head:?}");
        }
    }
}
