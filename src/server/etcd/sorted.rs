//! A range that is sorted by something other than its keys, as a stream: read and sorted as a
//! whole, as Range does, and then sent in pieces. Only references to keys and values are kept
//! meanwhile, and a piece is encoded once the client has room for it. Never reads the store.
//!
//! etcd sorts each piece separately and continues after the last key of a sorted piece, so that it
//! misses and repeats keys if the range does not fit into one piece.

use futures::Stream;
use prost::Message as _;
use tonic::Status;

use super::convert;
use crate::server::scheduling::turns;
use crate::store;
use crate::wire::etcd;

/// What remains to be sent.
pub(super) struct Sorted {
    kvs: std::iter::Peekable<std::vec::IntoIter<store::KeyValue>>,
    /// The header, `more` and the count, for the last piece; `None` once that was sent.
    last: Option<etcd::RangeResponse>,
    /// A piece is complete once it has so many bytes.
    enough: usize,
}

impl Sorted {
    /// `largest` is the size of the largest request, which etcd uses as the target size of its
    /// pieces.
    pub(super) fn new(
        header: Option<etcd::ResponseHeader>,
        whole: store::RangeResponse,
        largest: usize,
    ) -> Sorted {
        Sorted {
            kvs: whole.kvs.into_iter().peekable(),
            last: Some(etcd::RangeResponse {
                header,
                kvs: Vec::new(),
                more: whole.more,
                count: whole.count,
            }),
            enough: largest / 2,
        }
    }

    /// The next piece; even an empty range has one.
    fn piece(&mut self) -> Option<etcd::RangeResponse> {
        self.last.as_ref()?;
        let mut piece = etcd::RangeResponse::default();
        let mut bytes = 0;
        while bytes <= self.enough
            && let Some(kv) = self.kvs.next()
        {
            let kv = convert::key_value(kv);
            bytes += kv.encoded_len();
            piece.kvs.push(kv);
        }
        if self.kvs.peek().is_none() {
            let last = self.last.take()?;
            piece = etcd::RangeResponse {
                kvs: piece.kvs,
                ..last
            };
        }
        Some(piece)
    }

    pub(super) fn into_stream(
        self,
    ) -> impl Stream<Item = Result<etcd::RangeStreamResponse, Status>> + Send {
        futures::stream::unfold(self, |mut sorted| async move {
            turns::pass().await;
            let range_response = Some(sorted.piece()?);
            Some((Ok(etcd::RangeStreamResponse { range_response }), sorted))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_make_the_whole_response() {
        for (keys, value, pieces) in [(0, 0, 1), (1, 10, 1), (40, 100, 8), (3, 5000, 3)] {
            let kv = |number: usize| store::KeyValue {
                key: format!("k{number}").into(),
                value: vec![7; value].into(),
                ..store::KeyValue::default()
            };
            let whole = store::RangeResponse {
                kvs: (0..keys).rev().map(kv).collect(),
                more: true,
                count: 99,
                ..store::RangeResponse::default()
            };
            let want: Vec<_> = whole.kvs.iter().cloned().map(convert::key_value).collect();
            let header = etcd::ResponseHeader {
                revision: 7,
                ..etcd::ResponseHeader::default()
            };
            let mut sorted = Sorted::new(Some(header), whole, 1000);
            let sent: Vec<_> = std::iter::from_fn(|| sorted.piece()).collect();
            let got: Vec<_> = sent.iter().flat_map(|piece| piece.kvs.clone()).collect();
            assert!(got == want, "{keys} of {value} bytes");
            assert_eq!(sent.len(), pieces, "{keys} of {value} bytes");
            let (last, others) = sent.split_last().expect("at least one");
            let end = (last.header, last.more, last.count);
            assert_eq!(end, (Some(header), true, 99));
            let bare = |piece: &etcd::RangeResponse| {
                (&piece.header, piece.more, piece.count) == (&None, false, 0)
            };
            assert!(others.iter().all(bare));
        }
    }
}
