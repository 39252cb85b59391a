//! Automatic maintenance, and alarms that a client activates.

use std::time::{Duration, Instant};

use quorate::wire::etcd::alarm_request::AlarmAction;
use quorate::wire::etcd::{self, AlarmMember, AlarmType};
use tonic::Code;

use crate::fixture::{Server, put, refused};

#[tokio::test]
async fn history_is_compacted_by_itself() {
    let server = Server::start(&["--auto-compaction-retention=1s"]);
    let mut kv = server.kv().await;
    for value in ["1", "2", "3"] {
        kv.put(put("k", value)).await.expect("a put");
    }
    let old = etcd::RangeRequest {
        key: "k".into(),
        revision: 2,
        ..Default::default()
    };
    let deadline = Instant::now() + Duration::from_secs(30);
    let error = loop {
        match kv.range(old.clone()).await {
            Ok(_) if Instant::now() < deadline => {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            other => break other.expect_err("compacted in time"),
        }
    };
    assert_eq!(
        (error.code(), error.message()),
        (
            Code::OutOfRange,
            "etcdserver: mvcc: required revision has been compacted"
        )
    );
    let now = etcd::RangeRequest { revision: 0, ..old };
    let kept = kv.range(now).await.expect("the newest").into_inner();
    assert_eq!(&kept.kvs[0].value[..], b"3");
}

#[tokio::test]
async fn corrupt_alarm_stops_writes() {
    let server = Server::start(&[]);
    let (mut kv, mut maintenance) = (server.kv().await, server.maintenance().await);
    kv.put(put("k", "1")).await.expect("a put");
    let alarm = |action: AlarmAction| etcd::AlarmRequest {
        action: action.into(),
        member_id: 77,
        alarm: AlarmType::Corrupt.into(),
    };
    let on = vec![AlarmMember {
        member_id: 77,
        alarm: AlarmType::Corrupt.into(),
    }];
    for _ in 0..2 {
        let raised = maintenance.alarm(alarm(AlarmAction::Activate)).await;
        assert_eq!(raised.expect("raised").into_inner().alarms, on);
    }
    let error = kv.put(put("k", "2")).await.expect_err("no writes");
    assert_eq!(
        (error.code(), error.message()),
        (Code::DataLoss, "etcdserver: corrupt cluster")
    );
    let compact = etcd::CompactionRequest {
        revision: 2,
        physical: false,
    };
    let error = kv.compact(compact).await.expect_err("no compaction");
    assert_eq!(error.code(), Code::DataLoss);
    let read = etcd::RangeRequest {
        key: "k".into(),
        ..Default::default()
    };
    kv.range(read).await.expect("reads are served");
    let health = server.get("/health");
    assert!(health.starts_with("HTTP/1.1 503"), "{health}");
    assert!(health.contains("ALARM CORRUPT"), "{health}");
    let excluded = server.get("/health?exclude=CORRUPT");
    assert!(excluded.starts_with("HTTP/1.1 200"), "{excluded}");
    let ready = server.get("/readyz");
    assert!(ready.starts_with("HTTP/1.1 503"), "{ready}");
    let expected = "[-]data_corruption failed: alarm activated: CORRUPT";
    assert!(ready.contains(expected), "{ready}");
    let live = server.get("/livez");
    assert!(live.starts_with("HTTP/1.1 200"), "{live}");
    let status = maintenance.status(etcd::StatusRequest {}).await;
    let errors = status.expect("a status").into_inner().errors;
    assert_eq!(errors, ["memberID:77 alarm:CORRUPT"]);
    for left in [on, Vec::new()] {
        let gone = maintenance.alarm(alarm(AlarmAction::Deactivate)).await;
        assert_eq!(gone.expect("switched off").into_inner().alarms, left);
    }
    kv.put(put("k", "2")).await.expect("writes are served");
    assert!(server.get("/health").starts_with("HTTP/1.1 200"));
}

#[test]
fn meaningless_gates_are_refused() {
    for (flag, expected) in [
        ("--feature-gates=Foo=true", "unrecognized feature gate: Foo"),
        (
            "--auto-compaction-retention=soon",
            "--auto-compaction-retention",
        ),
        ("--compact-hash-check-time=0s", "must be more than 0"),
    ] {
        let (code, text) = refused(&[flag]);
        assert_ne!(code, 0, "{flag}");
        assert!(text.contains(expected), "{flag}: {text}");
    }
}
