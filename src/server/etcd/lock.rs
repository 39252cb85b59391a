//! The Lock service: the oldest key by creation holds the lock, and the next one waits for it.
//!
//! Never keeps a lease alive: that is the client's duty, as in etcd.

use bytes::Bytes;
use tonic::{Request, Response, Status};

use super::call::Services;
use super::concurrency::{self, Behalf, Undo};
use crate::server::metrics::client::Method;
use crate::wire::etcd;
use crate::wire::etcd::range_request::SortOrder;
use crate::wire::lock::lock_server::Lock;
use crate::wire::lock::{LockRequest, LockResponse, UnlockRequest, UnlockResponse};

#[tonic::async_trait]
impl Lock for Services {
    async fn lock(&self, request: Request<LockRequest>) -> Result<Response<LockResponse>, Status> {
        self.wrapped(Method::Lock, request, lock).await
    }

    async fn unlock(
        &self,
        request: Request<UnlockRequest>,
    ) -> Result<Response<UnlockResponse>, Status> {
        let work = |caller: Behalf, request: UnlockRequest| async move {
            let header = caller.delete(request.key).await?.header;
            Ok(UnlockResponse { header })
        };
        self.wrapped(Method::Unlock, request, work).await
    }
}

async fn lock(caller: Behalf, request: LockRequest) -> Result<LockResponse, Status> {
    let lease = caller.lease(request.lease).await?;
    let prefix = concurrency::prefix(&request.name);
    let key = concurrency::key(&prefix, lease);
    let undo = Undo::new(&caller, deletion(&key));
    let owner = concurrency::edge(&prefix, SortOrder::Ascend);
    let taken = caller
        .txn(etcd::TxnRequest {
            compare: vec![concurrency::created(&key, 0)],
            success: vec![
                concurrency::put(&key, Bytes::new(), lease),
                concurrency::get(owner.clone()),
            ],
            // The lease may hold the lock already.
            failure: vec![concurrency::get_key(&key), concurrency::get(owner)],
        })
        .await;
    let taken = match taken {
        Ok(taken) => taken,
        Err(error) => {
            undo.forget();
            return Err(error);
        }
    };
    let own = if taken.succeeded {
        concurrency::revision(taken.header.as_ref())
    } else {
        concurrency::found(&taken, 0)
            .first()
            .map_or(0, |kv| kv.create_revision)
    };
    let owner = concurrency::found(&taken, 1).first();
    if owner.is_none_or(|owner| owner.create_revision == own) {
        undo.forget();
        let header = taken.header;
        return Ok(LockResponse { header, key });
    }
    let held = async {
        caller.wait_for_earlier(&prefix, own - 1).await?;
        let own = etcd::RangeRequest {
            key: key.clone(),
            ..Default::default()
        };
        caller.range(own).await
    };
    match held.await {
        Err(error) => {
            undo.now().await;
            Err(error)
        }
        Ok(held) => {
            undo.forget();
            if held.kvs.is_empty() {
                return Err(Status::unknown("mutex: session is expired"));
            }
            let header = held.header;
            Ok(LockResponse { header, key })
        }
    }
}

fn deletion(key: &Bytes) -> etcd::TxnRequest {
    etcd::TxnRequest {
        success: vec![concurrency::remove(key)],
        ..Default::default()
    }
}
