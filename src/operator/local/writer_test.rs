//! The writer against a small server of its own: fail-over, counting, reading back.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use tokio::net::TcpListener;
use tonic::{Request, Response, Status};

use super::*;
use crate::wire::etcd::kv_server::{Kv, KvServer};
use crate::wire::etcd::{
    CompactionRequest, CompactionResponse, DeleteRangeRequest, DeleteRangeResponse, PutResponse,
    RangeResponse, ResponseHeader, TxnRequest, TxnResponse,
};
use crate::wire::mvccpb::KeyValue;

type Data = Arc<Mutex<BTreeMap<Vec<u8>, Vec<u8>>>>;

/// Stores what it receives; refuses every write if configured.
#[derive(Clone, Default)]
struct Member {
    data: Data,
    refuse: bool,
}

fn no<T>() -> Result<Response<T>, Status> {
    Err(Status::unimplemented("not in this test"))
}

#[tonic::async_trait]
impl Kv for Member {
    type RangeStreamStream =
        tokio_stream::Empty<Result<crate::wire::etcd::RangeStreamResponse, Status>>;

    async fn range(
        &self,
        request: Request<RangeRequest>,
    ) -> Result<Response<RangeResponse>, Status> {
        let request = request.into_inner();
        let data = self.data.lock().unwrap_or_else(PoisonError::into_inner);
        let from = data.range(request.key.to_vec()..request.range_end.to_vec());
        let mut kvs: Vec<KeyValue> = from
            .map(|(key, value)| KeyValue {
                key: key.clone().into(),
                value: value.clone().into(),
                ..KeyValue::default()
            })
            .collect();
        // Pages of two, whatever was requested.
        let more = kvs.len() > 2;
        kvs.truncate(2);
        let header = Some(ResponseHeader {
            revision: 7,
            ..ResponseHeader::default()
        });
        Ok(Response::new(RangeResponse {
            header,
            kvs,
            more,
            ..RangeResponse::default()
        }))
    }

    async fn put(&self, request: Request<PutRequest>) -> Result<Response<PutResponse>, Status> {
        if self.refuse {
            return Err(Status::unavailable("etcdserver: no leader"));
        }
        let request = request.into_inner();
        let mut data = self.data.lock().unwrap_or_else(PoisonError::into_inner);
        data.insert(request.key.to_vec(), request.value.to_vec());
        Ok(Response::new(PutResponse::default()))
    }

    async fn range_stream(
        &self,
        _: Request<RangeRequest>,
    ) -> Result<Response<Self::RangeStreamStream>, Status> {
        no()
    }

    async fn delete_range(
        &self,
        _: Request<DeleteRangeRequest>,
    ) -> Result<Response<DeleteRangeResponse>, Status> {
        no()
    }

    async fn txn(&self, _: Request<TxnRequest>) -> Result<Response<TxnResponse>, Status> {
        no()
    }

    async fn compact(
        &self,
        _: Request<CompactionRequest>,
    ) -> Result<Response<CompactionResponse>, Status> {
        no()
    }
}

async fn serve(member: Member) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address: SocketAddr = listener.local_addr().expect("its address");
    let incoming = tokio_stream::wrappers::TcpListenerStream::new(listener);
    tokio::spawn(
        tonic::transport::Server::builder()
            .add_service(KvServer::new(member))
            .serve_with_incoming(incoming),
    );
    format!("http://{address}")
}

async fn until(writer: &Writer, count: u64) {
    tokio::time::timeout(Duration::from_secs(20), async {
        while writer.tally().acknowledged < count {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await
    .expect("not enough writes in time");
}

#[tokio::test]
async fn writer_fails_over_and_loses_nothing() {
    let data = Data::default();
    let good = serve(Member {
        data: data.clone(),
        refuse: false,
    })
    .await;
    let refusing = serve(Member {
        data: data.clone(),
        refuse: true,
    })
    .await;
    let closed_port = "http://127.0.0.1:1".to_owned();
    let (_endpoints, receiver) = watch::channel(vec![refusing, closed_port, good]);
    let writer = Writer::start(receiver, "/demo/");
    until(&writer, 5).await;
    let (tally, verdict) = writer.stop_and_verify().await.expect("read back");
    assert_eq!((tally.failed, tally.repeated), (0, 2), "{tally:?}");
    assert_eq!(
        verdict,
        Verdict {
            found: tally.acknowledged,
            missing: vec![]
        }
    );
}

#[tokio::test]
async fn a_lost_write_is_named() {
    let data = Data::default();
    let good = serve(Member {
        data: data.clone(),
        refuse: false,
    })
    .await;
    let (_endpoints, receiver) = watch::channel(vec![good]);
    let writer = Writer::start(receiver, "/demo/");
    until(&writer, 5).await;
    data.lock()
        .unwrap_or_else(PoisonError::into_inner)
        .remove(b"/demo/00000002".as_slice());
    let (_, verdict) = writer.stop_and_verify().await.expect("read back");
    assert_eq!(verdict.missing, ["/demo/00000002"]);
}

#[tokio::test]
async fn a_writer_follows_the_endpoints() {
    let (data, other) = (Data::default(), Data::default());
    let first = serve(Member {
        data: data.clone(),
        refuse: false,
    })
    .await;
    let second = serve(Member {
        data: other.clone(),
        refuse: false,
    })
    .await;
    let (endpoints, receiver) = watch::channel(vec![first]);
    let writer = Writer::start(receiver, "/demo/");
    until(&writer, 3).await;
    endpoints.send(vec![second]).expect("the writer listens");
    let before = writer.tally().acknowledged;
    until(&writer, before + 5).await;
    assert!(
        !other
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .is_empty()
    );
    let (tally, verdict) = writer.stop_and_verify().await.expect("read back");
    assert_eq!(tally.failed, 0);
    assert!(
        verdict.found < tally.acknowledged,
        "the two members share no data in this test"
    );
}
