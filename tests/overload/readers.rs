//! Clients that request all data and do not read the response.

use std::time::Duration;

use http::uri::PathAndQuery;
use quorate::wire::etcd::request_op::Request as Op;
use quorate::wire::etcd::{RangeRequest, RangeResponse, RequestOp, TxnRequest};
use tokio::time::timeout;
use tonic::transport::Channel;
use tonic::{Request, Streaming};
use tonic_prost::ProstCodec;

use super::bystander::Bystanders;
use super::fixture::{PATIENCE, Server, figure, put, size};

/// Bytes of a value.
const VALUE: usize = 4096;
/// Puts in a transaction: 400 KiB.
const BATCH: usize = 100;
/// Clients that do not read, and the number of responses to each.
const CLIENTS: usize = 4;
const ANSWERS: usize = 8;
/// The longest acceptable round of a bystander, for a debug build on a busy machine.
const STALL: Duration = Duration::from_secs(5);

async fn fill(server: &Server, mib: usize) -> usize {
    let mut kv = server.kv().await;
    let batches = (mib << 20).div_ceil(VALUE * BATCH);
    for batch in 0..batches {
        let puts = (0..BATCH).map(|number| RequestOp {
            request: Some(Op::RequestPut(put(
                format!("data/{batch:06}/{number:03}"),
                vec![7; VALUE],
            ))),
        });
        let txn = TxnRequest {
            success: puts.collect(),
            ..TxnRequest::default()
        };
        kv.txn(txn).await.expect("filled");
    }
    batches * BATCH
}

/// Requests all data in one response. The response is a stream, so that nothing is read before the caller reads.
async fn ask_for_everything(channel: Channel) -> Streaming<RangeResponse> {
    let mut client = tonic::client::Grpc::new(channel).max_decoding_message_size(usize::MAX);
    client.ready().await.expect("connected");
    let request = RangeRequest {
        key: "data/".into(),
        range_end: "data0".into(),
        serializable: true,
        ..RangeRequest::default()
    };
    let path = PathAndQuery::from_static("/etcdserverpb.KV/Range");
    let codec = ProstCodec::<RangeRequest, RangeResponse>::default();
    let answer = client.server_streaming(Request::new(request), path, codec);
    answer.await.expect("it begins").into_inner()
}

/// Unread responses use memory for references to the data, not for copies; other clients are served; and a response
/// that is read late is complete.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_that_never_read_long_answers() {
    let home = tempfile::tempdir().expect("folder");
    let server = Server::alone(home.path()).await;
    let mib = size("OPERATION_MIB", 48);
    let keys = fill(&server, mib).await;
    let before = server.resident_mib();
    let bystanders = Bystanders::start(&server).await;
    let mut unread = Vec::new();
    for _ in 0..CLIENTS {
        let channel = server.channel().await;
        for _ in 0..ANSWERS {
            unread.push(ask_for_everything(channel.clone()).await);
        }
    }
    let grown = server.resident_mib() - before;
    // On a new connection: the unread responses have used up the flow-control windows of the others.
    let mut read = ask_for_everything(server.channel().await).await;
    let answer = timeout(PATIENCE, read.message()).await.expect("in time");
    let answer = answer.expect("well").expect("a message");
    assert_eq!((answer.kvs.len(), answer.count), (keys, keys as i64));
    assert!(answer.kvs.iter().all(|kv| kv.value.len() == VALUE));
    let end = read.message().await.expect("well");
    assert_eq!(end, None, "one message, then the end of the call");
    let (rounds, longest) = bystanders.stop().await;
    figure(&format!(
        "{} unread responses of {mib} MiB: {grown:.0} MiB of memory; {rounds} rounds of \
         others meanwhile, the longest {} ms",
        unread.len(),
        longest.as_millis()
    ));
    // The whole responses would be 1.5 GiB; each one holds a tenth of a KiB per key, and the data in its connection's
    // windows.
    assert!(grown < (mib * unread.len()) as f64 / 8.0, "{grown} MiB");
    assert!(longest < STALL, "a bystander waited {longest:?}");
}
