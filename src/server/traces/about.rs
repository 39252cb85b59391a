//! What lines and spans tell of a request's message: the beginning of its first key, its size, and its lease.
//!
//! Allocates nothing until it is told. Never keeps a value, and nothing of messages that may hold a password, whose size
//! would tell how long that is.

use std::any::Any;
use std::fmt;

use prost::Message;

use crate::wire::etcd::{self, request_op::Request};

/// Bytes of a key that are told.
pub(in crate::server) const PREFIX: usize = 32;

/// What is known of a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::server) struct About {
    /// The beginning of its first key.
    pub(in crate::server) key: Option<KeyPrefix>,
    /// Its encoded size in bytes.
    pub(in crate::server) size: Option<usize>,
    /// The lease that it is about.
    pub(in crate::server) lease: Option<i64>,
}

/// The beginning of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::server) struct KeyPrefix {
    bytes: [u8; PREFIX],
    /// Of the whole key.
    length: usize,
}

impl About {
    /// Of a request's message. Nothing is known of others than those of the services KV and Lease.
    pub(in crate::server) fn of<Q: Message + 'static>(message: &Q) -> About {
        let any = message as &dyn Any;
        let key = |key: &[u8]| About {
            key: Some(KeyPrefix::of(key)),
            size: Some(message.encoded_len()),
            lease: None,
        };
        if let Some(range) = any.downcast_ref::<etcd::RangeRequest>() {
            return key(&range.key);
        }
        if let Some(put) = any.downcast_ref::<etcd::PutRequest>() {
            return key(&put.key);
        }
        if let Some(txn) = any.downcast_ref::<etcd::TxnRequest>() {
            return About {
                key: first_key(txn).map(KeyPrefix::of),
                ..key(&[])
            };
        }
        if let Some(delete) = any.downcast_ref::<etcd::DeleteRangeRequest>() {
            return key(&delete.key);
        }
        About {
            lease: lease(any),
            ..About::default()
        }
    }
}

fn lease(any: &dyn Any) -> Option<i64> {
    if let Some(grant) = any.downcast_ref::<etcd::LeaseGrantRequest>() {
        return Some(grant.id).filter(|id| *id != 0);
    }
    if let Some(revoke) = any.downcast_ref::<etcd::LeaseRevokeRequest>() {
        return Some(revoke.id);
    }
    let times = any.downcast_ref::<etcd::LeaseTimeToLiveRequest>();
    times.map(|times| times.id)
}

/// The first key that a transaction names: of a compare, or of an operation.
fn first_key(txn: &etcd::TxnRequest) -> Option<&[u8]> {
    if let Some(compare) = txn.compare.first() {
        return Some(&compare.key);
    }
    let first = txn.success.first().or_else(|| txn.failure.first())?;
    Some(match first.request.as_ref()? {
        Request::RequestRange(range) => &range.key,
        Request::RequestPut(put) => &put.key,
        Request::RequestDeleteRange(delete) => &delete.key,
        // As deep as a client nests them.
        Request::RequestTxn(_) => return None,
    })
}

impl KeyPrefix {
    fn of(key: &[u8]) -> KeyPrefix {
        let mut bytes = [0; PREFIX];
        let kept = key.len().min(PREFIX);
        bytes[..kept].copy_from_slice(&key[..kept]);
        KeyPrefix {
            bytes,
            length: key.len(),
        }
    }
}

impl fmt::Display for KeyPrefix {
    fn fmt(&self, text: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kept = self.length.min(PREFIX);
        write!(text, "{}", self.bytes[..kept].escape_ascii())?;
        match self.length > PREFIX {
            true => text.write_str("..."),
            false => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(about: About) -> Option<String> {
        about.key.map(|key| key.to_string())
    }

    #[test]
    fn keys_are_cut_and_made_printable() {
        let put = etcd::PutRequest {
            key: "a\n\u{1b}\"é".into(),
            value: "secret".into(),
            ..Default::default()
        };
        let about = About::of(&put);
        assert_eq!(key(about).as_deref(), Some("a\\n\\x1b\\\"\\xc3\\xa9"));
        assert_eq!(about.size, Some(put.encoded_len()));
        let range = etcd::RangeRequest {
            key: vec![b'k'; 5000].into(),
            ..Default::default()
        };
        assert_eq!(key(About::of(&range)), Some("k".repeat(PREFIX) + "..."));
        let exact = etcd::DeleteRangeRequest {
            key: vec![b'k'; PREFIX].into(),
            ..Default::default()
        };
        assert_eq!(key(About::of(&exact)), Some("k".repeat(PREFIX)));
    }

    #[test]
    fn a_transaction_is_told_by_its_first_key() {
        let operation = |request| etcd::RequestOp {
            request: Some(request),
        };
        let put = Request::RequestPut(etcd::PutRequest {
            key: "put".into(),
            ..Default::default()
        });
        let mut txn = etcd::TxnRequest {
            failure: vec![operation(put)],
            ..Default::default()
        };
        assert_eq!(key(About::of(&txn)).as_deref(), Some("put"));
        txn.compare = vec![etcd::Compare {
            key: "compared".into(),
            ..Default::default()
        }];
        assert_eq!(key(About::of(&txn)).as_deref(), Some("compared"));
        let nested = operation(Request::RequestTxn(txn));
        let outer = etcd::TxnRequest {
            success: vec![nested],
            ..Default::default()
        };
        assert_eq!(key(About::of(&outer)), None);
    }

    #[test]
    fn nothing_is_told_of_what_holds_a_password() {
        let request = etcd::AuthenticateRequest {
            name: "root".to_owned(),
            password: "secret".to_owned(),
        };
        assert_eq!(About::of(&request), About::default());
    }

    #[test]
    fn leases_are_told_by_their_id() {
        let revoke = etcd::LeaseRevokeRequest { id: 7 };
        assert_eq!(About::of(&revoke).lease, Some(7));
        let chosen_here = etcd::LeaseGrantRequest { ttl: 9, id: 0 };
        assert_eq!(About::of(&chosen_here), About::default());
    }
}
