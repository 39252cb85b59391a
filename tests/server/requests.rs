//! Requests that are refused or that have special responses, over gRPC.

use quorate::wire::etcd::{self, kv_client::KvClient};
use tonic::transport::Channel;
use tonic::{Code, Request, Status};

use super::fixture::{Server, everything, put};

// Shows KV.Put, KV.Txn: the largest request and the most operations.
#[tokio::test]
async fn sizes_have_etcd_s_limits_and_texts() {
    let server = Server::start(&["--max-request-bytes=10000", "--max-txn-ops=2"]);
    let mut kv = server.kv().await;
    kv.put(put("fits", &"v".repeat(9000))).await.expect("fits");
    let error = kv
        .put(put("large", &"v".repeat(10_000)))
        .await
        .expect_err("large");
    assert_eq!(
        (error.code(), error.message()),
        (Code::InvalidArgument, "etcdserver: request is too large")
    );
    let error = kv
        .put(put("huge", &"v".repeat(700_000)))
        .await
        .expect_err("huge");
    assert_eq!(error.code(), Code::ResourceExhausted, "{error:?}");
    assert!(
        error
            .message()
            .starts_with("grpc: received message larger than max"),
        "{error:?}"
    );
    let operation = |key: &str| etcd::RequestOp {
        request: Some(etcd::request_op::Request::RequestPut(put(key, "v"))),
    };
    let success = vec![operation("a"), operation("b"), operation("c")];
    let txn = etcd::TxnRequest {
        success,
        ..Default::default()
    };
    let error = kv.txn(txn).await.expect_err("three operations");
    assert_eq!(
        error.message(),
        "etcdserver: too many operations in txn request"
    );
    let success = vec![operation("a"), operation("a")];
    let txn = etcd::TxnRequest {
        success,
        ..Default::default()
    };
    let error = kv.txn(txn).await.expect_err("one key twice");
    assert_eq!(
        error.message(),
        "etcdserver: duplicate key given in txn request"
    );
}

#[tokio::test]
async fn the_quota_refuses_puts_and_is_reported() {
    let server = Server::start(&["--quota-backend-bytes=20000"]);
    let mut kv = server.kv().await;
    let refused = loop {
        match kv.put(put("k", &"v".repeat(3000))).await {
            Ok(_) => {}
            Err(error) => break error,
        }
    };
    assert_eq!(
        (refused.code(), refused.message()),
        (
            Code::ResourceExhausted,
            "etcdserver: mvcc: database space exceeded"
        )
    );
    let delete = etcd::DeleteRangeRequest {
        key: "k".into(),
        ..Default::default()
    };
    let deleted = kv
        .delete_range(delete)
        .await
        .expect("deletes are served")
        .into_inner();
    let revision = deleted.header.expect("header").revision;
    let compact = etcd::CompactionRequest {
        revision,
        physical: true,
    };
    kv.compact(compact).await.expect("compactions are served");
    let error = kv.put(put("k", "v")).await.expect_err("the alarm is on");
    assert_eq!(error.code(), Code::ResourceExhausted, "{error:?}");
    let mut maintenance = server.maintenance().await;
    let alarm = |action: etcd::alarm_request::AlarmAction, member_id| etcd::AlarmRequest {
        action: action.into(),
        member_id,
        alarm: etcd::AlarmType::Nospace.into(),
    };
    let get = alarm(etcd::alarm_request::AlarmAction::Get, 0);
    let on = maintenance.alarm(get).await.expect("a list").into_inner();
    let raised: Vec<etcd::AlarmMember> = on.alarms;
    assert_eq!(raised.len(), 1, "{raised:?}");
    let header = on.header.expect("header");
    assert_eq!(raised[0].member_id, header.member_id);
    let off = alarm(
        etcd::alarm_request::AlarmAction::Deactivate,
        header.member_id,
    );
    let gone = maintenance.alarm(off).await.expect("switched off");
    assert_eq!(gone.into_inner().alarms, raised);
    kv.put(put("k", "v")).await.expect("there is space again");
}

#[tokio::test]
async fn unknown_methods_are_unimplemented() {
    let server = Server::start(&[]);
    let error = unknown(&server, "/a.B/C").await;
    assert_eq!(error.code(), Code::Unimplemented);
    assert_eq!(error.message(), "etcdserver: unknown method");
}

async fn unknown(server: &Server, path: &'static str) -> Status {
    let mut client = tonic::client::Grpc::new(server.channel().await);
    client.ready().await.expect("connected");
    let codec: tonic_prost::ProstCodec<etcd::HashRequest, etcd::HashResponse> =
        tonic_prost::ProstCodec::default();
    let path = http::uri::PathAndQuery::from_static(path);
    client
        .unary(Request::new(etcd::HashRequest {}), path, codec)
        .await
        .expect_err("unknown")
}

// Shows KV.RangeStream: the pieces add up to the whole range, with one header.
#[tokio::test]
async fn a_streamed_range_equals_the_whole_one() {
    let server = Server::start(&["--max-request-bytes=4000"]);
    let mut kv = server.kv().await;
    for number in 0..100 {
        kv.put(put(&format!("k{number:03}"), &"v".repeat(200)))
            .await
            .expect("put");
    }
    let whole = kv.range(everything()).await.expect("range").into_inner();
    let (keys, pieces) = streamed(&mut kv, everything()).await;
    assert_eq!(keys, whole.kvs);
    let last = pieces.last().expect("pieces");
    assert_eq!((last.count, last.more), (100, false));
    assert_eq!(
        last.header.as_ref().map(|h| h.revision),
        whole.header.map(|h| h.revision)
    );
    assert!(
        pieces.len() > 3
            && pieces[..pieces.len() - 1]
                .iter()
                .all(|p| p.header.is_none())
    );
    let limited = etcd::RangeRequest {
        limit: 25,
        ..everything()
    };
    let (keys, pieces) = streamed(&mut kv, limited).await;
    assert_eq!(keys, whole.kvs[..25]);
    let last = pieces.last().expect("pieces");
    assert_eq!((last.count, last.more), (100, true));
}

/// Found by comparing the two calls: with a sort target and no sort order, a stream was sorted by key. A stream has to
/// return the keys in the order of the range.
// Shows KV.RangeStream: a sort target without an order sorts upwards, as in Range.
#[tokio::test]
async fn a_streamed_range_is_sorted_as_the_whole_one() {
    let server = Server::start(&["--max-request-bytes=4000"]);
    let mut kv = server.kv().await;
    for number in 0..60 {
        let value = format!("{:02}{}", number * 37 % 60, "v".repeat(200));
        kv.put(put(&format!("k{number:03}"), &value))
            .await
            .expect("put");
    }
    for (limit, sort_target) in [(0, 0), (0, 1), (0, 2), (0, 3), (0, 4), (25, 4), (99, 3)] {
        for (revision, keys_only, count_only) in
            [(0, false, false), (31, true, false), (0, false, true)]
        {
            let request = etcd::RangeRequest {
                limit,
                sort_target,
                revision,
                keys_only,
                count_only,
                ..everything()
            };
            let whole = kv.range(request.clone()).await.expect("range").into_inner();
            let (keys, pieces) = streamed(&mut kv, request).await;
            let at = format!("limit {limit}, target {sort_target}, revision {revision}");
            assert_eq!(keys, whole.kvs, "{at}");
            assert!(pieces.len() > 1 || keys_only || count_only, "{at}");
            let last = pieces.last().expect("pieces");
            let summary = |answer: &etcd::RangeResponse| {
                let revision = answer.header.as_ref().map(|header| header.revision);
                (answer.count, answer.more, revision)
            };
            assert_eq!(summary(last), summary(&whole), "{at}");
        }
    }
}

async fn streamed(
    kv: &mut KvClient<Channel>,
    request: etcd::RangeRequest,
) -> (
    Vec<quorate::wire::mvccpb::KeyValue>,
    Vec<etcd::RangeResponse>,
) {
    let mut stream = kv.range_stream(request).await.expect("stream").into_inner();
    let mut pieces = Vec::new();
    while let Some(piece) = stream.message().await.expect("piece") {
        pieces.push(piece.range_response.expect("range"));
    }
    (
        pieces.iter().flat_map(|piece| piece.kvs.clone()).collect(),
        pieces,
    )
}

// Shows Maintenance.Status: every field of 3.7.
#[tokio::test]
async fn status_has_every_field_that_clients_read() {
    let server = Server::start(&[]);
    let mut maintenance = server.maintenance().await;
    let status = maintenance
        .status(etcd::StatusRequest {})
        .await
        .expect("status")
        .into_inner();
    let header = status.header.expect("header");
    assert!(header.cluster_id != 0 && header.member_id != 0 && header.revision == 1);
    assert_eq!(status.leader, header.member_id);
    assert_eq!(status.raft_term, header.raft_term);
    assert!(status.version.starts_with("3.7."));
    assert_eq!(status.storage_version, "3.7.0");
    assert!(status.raft_index >= status.raft_applied_index && status.raft_applied_index > 0);
    assert!(status.db_size > 0, "etcdctl divides by it");
    assert!(status.db_size_quota > 0 && status.errors.is_empty() && !status.is_learner);
    let metrics = server.get("/metrics");
    assert!(
        metrics.contains("\netcd_disk_wal_fsync_duration_seconds_count "),
        "{metrics}"
    );
    for line in ["etcd_server_has_leader 1", "etcd_server_is_leader 1"] {
        assert!(
            metrics.lines().any(|have| have == line),
            "{line}\n{metrics}"
        );
    }
}

// Shows KV.Range: a long range is read at one revision.
#[tokio::test]
async fn long_ranges_are_whole_and_from_one_revision() {
    let server = Server::start(&[]);
    let mut kv = server.kv().await;
    for batch in 0..21 {
        let operation = |number: u32| etcd::RequestOp {
            request: Some(etcd::request_op::Request::RequestPut(put(
                &format!("k{number:05}"),
                "v",
            ))),
        };
        let success = (batch * 120..(batch + 1) * 120).map(operation).collect();
        kv.txn(etcd::TxnRequest {
            success,
            ..Default::default()
        })
        .await
        .expect("txn");
    }
    let ask = async |request: etcd::RangeRequest| {
        let answer = server
            .kv()
            .await
            .range(request)
            .await
            .expect("range")
            .into_inner();
        let keys: Vec<String> = answer
            .kvs
            .iter()
            .map(|kv| String::from_utf8_lossy(&kv.key).into_owned())
            .collect();
        (keys, answer.count, answer.more)
    };
    let all: Vec<String> = (0..2520).map(|number| format!("k{number:05}")).collect();
    assert_eq!(ask(everything()).await, (all.clone(), 2520, false));
    let limited = etcd::RangeRequest {
        limit: 1500,
        ..everything()
    };
    assert_eq!(ask(limited).await, (all[..1500].to_vec(), 2520, true));
    let exact = etcd::RangeRequest {
        limit: 2520,
        ..everything()
    };
    assert_eq!(ask(exact).await, (all.clone(), 2520, false));
    // The tenth transaction created revision 11.
    let past = etcd::RangeRequest {
        revision: 11,
        ..everything()
    };
    assert_eq!(ask(past).await, (all[..1200].to_vec(), 1200, false));
    let sort_order = etcd::range_request::SortOrder::Descend.into();
    let descending = etcd::RangeRequest {
        sort_order,
        limit: 3,
        ..everything()
    };
    let last: Vec<String> = all.iter().rev().take(3).cloned().collect();
    assert_eq!(ask(descending).await, (last, 2520, true));
}

// Shows Cluster.MemberList: the answering member is in its own list.
#[tokio::test]
async fn a_member_that_answers_is_in_its_own_list() {
    let server = Server::start(&[]);
    let mut cluster = server.cluster().await;
    let list = etcd::MemberListRequest {
        linearizable: false,
    };
    let members = cluster
        .member_list(list)
        .await
        .expect("list")
        .into_inner()
        .members;
    assert_eq!(members.len(), 1);
    assert_eq!(members[0].name, "one");
    assert_eq!(
        members[0].client_ur_ls,
        [format!("http://{}:2379", server.host)]
    );
}

// Shows KV.Range: a sort target without an order sorts upwards.
#[tokio::test]
async fn a_target_alone_sorts() {
    let server = Server::start(&[]);
    let mut kv = server.kv().await;
    for (key, value) in [("a", "3"), ("b", "1"), ("c", "2")] {
        kv.put(put(key, value)).await.expect("put");
    }
    let sort_target = etcd::range_request::SortTarget::Value.into();
    let request = etcd::RangeRequest {
        sort_target,
        keys_only: true,
        ..everything()
    };
    let answer = kv.range(request).await.expect("range").into_inner();
    let keys: Vec<&[u8]> = answer.kvs.iter().map(|kv| &kv.key[..]).collect();
    assert_eq!(keys, [b"b", b"c", b"a"]);
}

/// Found by comparing random requests with etcd: a transaction with reads was refused because of a compacted revision
/// in the branch that is not taken.
// Shows KV.Txn: a branch that is not taken is not checked.
#[tokio::test]
async fn a_branch_that_is_not_taken_refuses_nothing() {
    let server = Server::start(&[]);
    let mut kv = server.kv().await;
    for _ in 0..4 {
        kv.put(put("k", "v")).await.expect("put");
    }
    let compaction = etcd::CompactionRequest {
        revision: 4,
        physical: true,
    };
    kv.compact(compaction).await.expect("compacted");
    for revision in [2, 99] {
        let range = etcd::RangeRequest {
            revision,
            ..everything()
        };
        let past = etcd::RequestOp {
            request: Some(etcd::request_op::Request::RequestRange(range)),
        };
        let txn = etcd::TxnRequest {
            failure: vec![past.clone()],
            ..Default::default()
        };
        let answer = kv.txn(txn).await.expect("the other branch").into_inner();
        assert!(answer.succeeded && answer.responses.is_empty());
        let txn = etcd::TxnRequest {
            success: vec![past],
            ..Default::default()
        };
        let refused = kv.txn(txn).await.expect_err("this branch");
        assert_eq!(refused.code(), Code::OutOfRange, "{refused:?}");
    }
}
