//! Conversion between etcd's messages and the store's types. Values are moved, not copied; only
//! what the store's types cannot express is checked here.

use crate::store;
use crate::wire::error::EtcdError;
use crate::wire::{etcd, mvccpb};

pub(in crate::server) fn put(request: etcd::PutRequest) -> store::Put {
    store::Put {
        key: request.key,
        value: request.value,
        lease: request.lease,
        prev_kv: request.prev_kv,
        ignore_value: request.ignore_value,
        ignore_lease: request.ignore_lease,
    }
}

pub(in crate::server) fn delete_range(request: etcd::DeleteRangeRequest) -> store::DeleteRange {
    store::DeleteRange {
        key: request.key,
        range_end: request.range_end,
        prev_kv: request.prev_kv,
    }
}

pub(in crate::server) fn range(request: etcd::RangeRequest) -> store::Range {
    store::Range {
        key: request.key,
        range_end: request.range_end,
        limit: request.limit,
        revision: request.revision,
        sort_order: request.sort_order,
        sort_target: request.sort_target,
        keys_only: request.keys_only,
        count_only: request.count_only,
        min_mod_revision: request.min_mod_revision,
        max_mod_revision: request.max_mod_revision,
        min_create_revision: request.min_create_revision,
        max_create_revision: request.max_create_revision,
    }
}

pub(in crate::server) fn txn(request: etcd::TxnRequest) -> store::Txn {
    store::Txn {
        compare: request.compare.into_iter().map(compare).collect(),
        success: request.success.into_iter().map(operation).collect(),
        failure: request.failure.into_iter().map(operation).collect(),
    }
}

fn operation(request: etcd::RequestOp) -> store::RequestOp {
    use etcd::request_op::Request;
    let op = request.request.map(|request| match request {
        Request::RequestRange(request) => store::Op::Range(range(request)),
        Request::RequestPut(request) => store::Op::Put(put(request)),
        Request::RequestDeleteRange(request) => store::Op::DeleteRange(delete_range(request)),
        Request::RequestTxn(request) => store::Op::Txn(txn(request)),
    });
    store::RequestOp { op }
}

/// A compare whose operand is of another kind than its target uses that kind's zero, as in etcd.
fn compare(request: etcd::Compare) -> store::Compare {
    use etcd::compare::{CompareTarget, TargetUnion};
    let mut number = 0;
    let mut value = bytes::Bytes::new();
    match (
        CompareTarget::try_from(request.target),
        request.target_union,
    ) {
        (Ok(CompareTarget::Version), Some(TargetUnion::Version(operand)))
        | (Ok(CompareTarget::Create), Some(TargetUnion::CreateRevision(operand)))
        | (Ok(CompareTarget::Mod), Some(TargetUnion::ModRevision(operand)))
        | (Ok(CompareTarget::Lease), Some(TargetUnion::Lease(operand))) => number = operand,
        (Ok(CompareTarget::Value), Some(TargetUnion::Value(operand))) => value = operand,
        _ => {}
    }
    store::Compare {
        result: request.result,
        target: request.target,
        key: request.key,
        range_end: request.range_end,
        value,
        number,
    }
}

pub(super) fn key_value(kv: store::KeyValue) -> mvccpb::KeyValue {
    mvccpb::KeyValue {
        key: kv.key,
        create_revision: kv.create_revision,
        mod_revision: kv.mod_revision,
        version: kv.version,
        value: kv.value,
        lease: kv.lease,
    }
}

pub(super) fn event(event: store::Event) -> mvccpb::Event {
    let kind = match event.kind {
        store::EventKind::Put => mvccpb::event::EventType::Put,
        store::EventKind::Delete => mvccpb::event::EventType::Delete,
    };
    mvccpb::Event {
        r#type: kind.into(),
        kv: Some(key_value(event.kv)),
        prev_kv: event.prev_kv.map(key_value),
    }
}

pub(super) fn range_response(response: store::RangeResponse) -> etcd::RangeResponse {
    etcd::RangeResponse {
        header: None,
        kvs: response.kvs.into_iter().map(key_value).collect(),
        more: response.more,
        count: response.count,
    }
}

pub(super) fn put_response(response: store::PutResponse) -> etcd::PutResponse {
    etcd::PutResponse {
        header: None,
        prev_kv: response.prev_kv.map(key_value),
    }
}

pub(super) fn delete_response(response: store::DeleteRangeResponse) -> etcd::DeleteRangeResponse {
    etcd::DeleteRangeResponse {
        header: None,
        deleted: response.deleted,
        prev_kvs: response.prev_kvs.into_iter().map(key_value).collect(),
    }
}

pub(super) fn txn_response(response: store::TxnResponse) -> etcd::TxnResponse {
    etcd::TxnResponse {
        header: None,
        succeeded: response.succeeded,
        responses: response.responses.into_iter().map(response_op).collect(),
    }
}

/// Responses inside a transaction have a header with a revision only, as in etcd.
fn response_op(response: store::ResponseOp) -> etcd::ResponseOp {
    use etcd::response_op::Response;
    let header = |revision| {
        Some(etcd::ResponseHeader {
            revision,
            ..Default::default()
        })
    };
    let response = match response {
        store::ResponseOp::Range(inner) => {
            let header = header(inner.revision);
            Response::ResponseRange(etcd::RangeResponse {
                header,
                ..range_response(inner)
            })
        }
        store::ResponseOp::Put(inner) => {
            let header = header(inner.revision);
            Response::ResponsePut(etcd::PutResponse {
                header,
                ..put_response(inner)
            })
        }
        store::ResponseOp::DeleteRange(inner) => {
            let header = header(inner.revision);
            Response::ResponseDeleteRange(etcd::DeleteRangeResponse {
                header,
                ..delete_response(inner)
            })
        }
        store::ResponseOp::Txn(inner) => {
            let header = header(inner.revision);
            Response::ResponseTxn(etcd::TxnResponse {
                header,
                ..txn_response(inner)
            })
        }
    };
    etcd::ResponseOp {
        response: Some(response),
    }
}

/// The store's errors as etcd's. `None`: an internal error, not one of the request.
pub(super) fn store_error(error: &store::Error) -> Option<EtcdError> {
    Some(match error {
        store::Error::EmptyKey => EtcdError::EmptyKey,
        store::Error::ValueProvided => EtcdError::ValueProvided,
        store::Error::LeaseProvided => EtcdError::LeaseProvided,
        store::Error::KeyNotFound => EtcdError::KeyNotFound,
        store::Error::TooManyOps => EtcdError::TooManyOps,
        store::Error::DuplicateKey => EtcdError::DuplicateKey,
        store::Error::InvalidSortOption => EtcdError::InvalidSortOption,
        store::Error::Compacted { .. } => EtcdError::Compacted,
        store::Error::FutureRevision { .. } => EtcdError::FutureRevision,
        store::Error::NoSpace => EtcdError::NoSpace,
        store::Error::Corrupt => EtcdError::Corrupt,
        store::Error::Following => EtcdError::Following,
        store::Error::LeaseNotFound => EtcdError::LeaseNotFound,
        store::Error::LeaseExists => EtcdError::LeaseExists,
        store::Error::LeaseTtlTooLarge => EtcdError::LeaseTtlTooLarge,
        store::Error::Auth(error) => auth_error(*error),
        store::Error::NotReadOnly
        | store::Error::UnknownCommand
        | store::Error::NotFollowed { .. }
        | store::Error::FollowGap { .. }
        | store::Error::FollowSuperseded
        | store::Error::FollowIncomplete
        | store::Error::Diverged { .. }
        | store::Error::Value(_)
        | store::Error::Checkpoint(_)
        | store::Error::CheckpointFormat(_) => {
            return None;
        }
    })
}

/// The errors of authentication as etcd's.
pub(super) fn auth_error(error: store::AuthError) -> EtcdError {
    use store::AuthError;
    match error {
        AuthError::RootUserNotExist => EtcdError::RootUserNotExist,
        AuthError::RootRoleNotExist => EtcdError::RootRoleNotExist,
        AuthError::UserExists => EtcdError::UserExists,
        AuthError::UserEmpty => EtcdError::UserEmpty,
        AuthError::UserNotFound => EtcdError::UserNotFound,
        AuthError::RoleExists => EtcdError::RoleExists,
        AuthError::RoleNotFound => EtcdError::RoleNotFound,
        AuthError::RoleEmpty => EtcdError::RoleEmpty,
        AuthError::AuthFailed => EtcdError::AuthFailed,
        AuthError::PermissionNotGiven => EtcdError::PermissionNotGiven,
        AuthError::PermissionDenied => EtcdError::PermissionDenied,
        AuthError::RoleNotGranted => EtcdError::RoleNotGranted,
        AuthError::PermissionNotGranted => EtcdError::PermissionNotGranted,
        AuthError::NotEnabled => EtcdError::AuthNotEnabled,
        AuthError::OldRevision => EtcdError::AuthOldRevision,
        AuthError::InvalidManagement => EtcdError::InvalidAuthManagement,
    }
}

#[cfg(test)]
mod tests {
    use super::{response_op, txn};
    use crate::store;
    use crate::wire::etcd::{self, compare::TargetUnion, response_op::Response};

    #[test]
    fn operand_of_another_kind_counts_as_zero() {
        let guard = |target: etcd::compare::CompareTarget, operand| etcd::Compare {
            target: target.into(),
            target_union: Some(operand),
            ..Default::default()
        };
        use etcd::compare::CompareTarget::{Lease, Mod, Value, Version};
        let compare = vec![
            guard(Mod, TargetUnion::ModRevision(7)),
            guard(Mod, TargetUnion::Version(7)),
            guard(Version, TargetUnion::Version(3)),
            guard(Lease, TargetUnion::Lease(9)),
            guard(Value, TargetUnion::Value("v".into())),
            guard(Value, TargetUnion::Lease(9)),
        ];
        let guards = txn(etcd::TxnRequest {
            compare,
            ..Default::default()
        })
        .compare;
        let numbers: Vec<i64> = guards.iter().map(|guard| guard.number).collect();
        assert_eq!(numbers, [7, 0, 3, 9, 0, 0]);
        let values: Vec<&[u8]> = guards.iter().map(|guard| &guard.value[..]).collect();
        assert_eq!(values, [&b""[..], b"", b"", b"", b"v", b""]);
    }

    #[test]
    fn txn_responses_carry_only_a_revision() {
        let inner = store::PutResponse {
            revision: 5,
            prev_kv: None,
        };
        let answer = response_op(store::ResponseOp::Put(inner)).response;
        let Some(Response::ResponsePut(put)) = answer else {
            panic!("a put")
        };
        let header = etcd::ResponseHeader {
            revision: 5,
            ..Default::default()
        };
        assert_eq!(put.header, Some(header));
    }
}
