//! Keys and leases for elections and locks: the oldest key by creation holds the prefix, and each
//! other one waits only for the one just before it.
//!
//! Every request goes through the KV and Lease services with the caller's own metadata, so that the
//! caller's permissions apply. Never holds state of its own.

use bytes::Bytes;
use tonic::metadata::MetadataMap;
use tonic::{Extensions, Request, Status};

use super::call::Services;
use crate::store;
use crate::wire::error::EtcdError;
use crate::wire::etcd::kv_server::Kv as _;
use crate::wire::etcd::lease_server::Lease as _;
use crate::wire::etcd::range_request::{SortOrder, SortTarget};
use crate::wire::etcd::{self, compare, request_op};
use crate::wire::mvccpb::KeyValue;

/// TTL in seconds of a lease that the caller did not provide.
const SESSION_TTL: i64 = 60;

/// The caller's credentials, and the services that are called with them.
#[derive(Clone)]
pub(super) struct Behalf {
    pub(super) services: Services,
    metadata: MetadataMap,
    extensions: Extensions,
}

impl Behalf {
    /// Splits a request into its credentials and its message.
    pub(super) fn of<T>(services: &Services, request: Request<T>) -> (Behalf, T) {
        let (metadata, extensions, message) = request.into_parts();
        let caller = Behalf {
            services: services.clone(),
            metadata,
            extensions,
        };
        (caller, message)
    }

    fn request<T>(&self, message: T) -> Request<T> {
        Request::from_parts(self.metadata.clone(), self.extensions.clone(), message)
    }

    /// The caller's lease, or a new one.
    pub(super) async fn lease(&self, asked: i64) -> Result<i64, Status> {
        if asked != 0 {
            return Ok(asked);
        }
        let grant = etcd::LeaseGrantRequest {
            ttl: SESSION_TTL,
            id: 0,
        };
        let granted = self.services.lease_grant(self.request(grant)).await?;
        Ok(granted.into_inner().id)
    }

    pub(super) async fn range(
        &self,
        range: etcd::RangeRequest,
    ) -> Result<etcd::RangeResponse, Status> {
        let response = self.services.range(self.request(range)).await?;
        Ok(response.into_inner())
    }

    pub(super) async fn txn(&self, txn: etcd::TxnRequest) -> Result<etcd::TxnResponse, Status> {
        let response = self.services.txn(self.request(txn)).await?;
        Ok(response.into_inner())
    }

    pub(super) async fn delete(&self, key: Bytes) -> Result<etcd::DeleteRangeResponse, Status> {
        let request = etcd::DeleteRangeRequest {
            key,
            ..Default::default()
        };
        let response = self.services.delete_range(self.request(request)).await?;
        Ok(response.into_inner())
    }

    /// Waits until no key of the prefix with this create revision or an older one is left.
    pub(super) async fn wait_for_earlier(
        &self,
        prefix: &Bytes,
        created: i64,
    ) -> Result<(), Status> {
        loop {
            let last = etcd::RangeRequest {
                max_create_revision: created,
                ..edge(prefix, SortOrder::Descend)
            };
            let response = self.range(last).await?;
            let Some(before) = response.kvs.into_iter().next() else {
                return Ok(());
            };
            self.wait_for_end(&before).await?;
        }
    }

    /// Waits until this key, with its create revision, is deleted.
    async fn wait_for_end(&self, key: &KeyValue) -> Result<(), Status> {
        let member = &self.services.shared.member;
        let mut latest = member.subscribe();
        let mut stopping = self.services.shared.stopping.clone();
        loop {
            latest.mark_unchanged();
            let state = member.published();
            let own = store::Range {
                key: key.key.clone(),
                ..Default::default()
            };
            let found = state
                .view
                .range(&own)
                .map_err(|error| super::call::refused(&error))?;
            let same = found
                .kvs
                .first()
                .is_some_and(|kv| kv.create_revision == key.create_revision);
            if !same {
                return Ok(());
            }
            // Not kept while waiting: the applier takes back what nobody has.
            drop(state);
            tokio::select! {
                biased;
                () = crate::server::listen::until(&mut stopping) => return Err(EtcdError::Stopped.into()),
                changed = latest.changed() => if changed.is_err() {
                    return Err(EtcdError::Stopped.into());
                },
            }
        }
    }
}

/// An action to undo if the caller is dropped before it has what it waits for.
pub(super) struct Undo {
    caller: Behalf,
    what: Option<etcd::TxnRequest>,
}

impl Undo {
    pub(super) fn new(caller: &Behalf, what: etcd::TxnRequest) -> Undo {
        Undo {
            caller: caller.clone(),
            what: Some(what),
        }
    }

    /// The caller has it: nothing is undone.
    pub(super) fn forget(mut self) {
        self.what = None;
    }

    /// Undoes it now; what remains ends with its lease.
    pub(super) async fn now(mut self) {
        if let Some(txn) = self.what.take() {
            let _ = self.caller.txn(txn).await;
        }
    }
}

impl Drop for Undo {
    fn drop(&mut self) {
        let (Some(txn), Ok(runtime)) = (self.what.take(), tokio::runtime::Handle::try_current())
        else {
            return;
        };
        let caller = self.caller.clone();
        runtime.spawn(async move {
            let _ = caller.txn(txn).await;
        });
    }
}

/// The prefix of a name's keys.
pub(super) fn prefix(name: &[u8]) -> Bytes {
    [name, b"/"].concat().into()
}

/// The key of a lease below a prefix.
pub(super) fn key(prefix: &[u8], lease: i64) -> Bytes {
    let sign = if lease < 0 { "-" } else { "" };
    let number = format!("{sign}{:x}", lease.unsigned_abs());
    [prefix, number.as_bytes()].concat().into()
}

/// Just after every key of a prefix, which ends with a slash.
pub(super) fn end(prefix: &[u8]) -> Bytes {
    let mut end = prefix.to_vec();
    if let Some(last) = end.last_mut() {
        // It is a slash, so this never overflows.
        *last += 1;
    }
    end.into()
}

/// The first or the last key of a prefix by creation.
pub(super) fn edge(prefix: &Bytes, order: SortOrder) -> etcd::RangeRequest {
    etcd::RangeRequest {
        key: prefix.clone(),
        range_end: end(prefix),
        limit: 1,
        sort_order: order.into(),
        sort_target: SortTarget::Create.into(),
        ..Default::default()
    }
}

/// Compares the key's create revision with this one (0: it does not exist).
pub(super) fn created(key: &Bytes, revision: i64) -> etcd::Compare {
    etcd::Compare {
        result: compare::CompareResult::Equal.into(),
        target: compare::CompareTarget::Create.into(),
        key: key.clone(),
        target_union: Some(compare::TargetUnion::CreateRevision(revision)),
        ..Default::default()
    }
}

pub(super) fn put(key: &Bytes, value: Bytes, lease: i64) -> etcd::RequestOp {
    operation(request_op::Request::RequestPut(etcd::PutRequest {
        key: key.clone(),
        value,
        lease,
        ..Default::default()
    }))
}

pub(super) fn get(range: etcd::RangeRequest) -> etcd::RequestOp {
    operation(request_op::Request::RequestRange(range))
}

pub(super) fn get_key(key: &Bytes) -> etcd::RequestOp {
    get(etcd::RangeRequest {
        key: key.clone(),
        ..Default::default()
    })
}

pub(super) fn remove(key: &Bytes) -> etcd::RequestOp {
    operation(request_op::Request::RequestDeleteRange(
        etcd::DeleteRangeRequest {
            key: key.clone(),
            ..Default::default()
        },
    ))
}

fn operation(request: request_op::Request) -> etcd::RequestOp {
    etcd::RequestOp {
        request: Some(request),
    }
}

/// The keys that the n-th operation of a transaction returned.
pub(super) fn found(response: &etcd::TxnResponse, number: usize) -> &[KeyValue] {
    let answer = response.responses.get(number);
    match answer.and_then(|answer| answer.response.as_ref()) {
        Some(etcd::response_op::Response::ResponseRange(range)) => &range.kvs,
        _ => &[],
    }
}

/// The revision of a response.
pub(super) fn revision(header: Option<&etcd::ResponseHeader>) -> i64 {
    header.map_or(0, |header| header.revision)
}

#[cfg(test)]
mod tests {
    use super::{end, key, prefix};

    #[test]
    fn lock_keys_have_etcds_layout() {
        let prefix = prefix(b"name");
        assert_eq!(&prefix[..], b"name/");
        assert_eq!(&end(&prefix)[..], b"name0");
        assert_eq!(&key(&prefix, 0x7b5a)[..], b"name/7b5a");
        assert_eq!(&key(&prefix, -1)[..], b"name/-1");
    }
}
