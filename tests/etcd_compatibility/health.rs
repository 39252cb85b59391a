//! Compares probes and `/version` with etcd's, on the client port and on the metrics port.

use crate::http::{Answer, ask, get};
use crate::node::{Kind, Node, free_address, peers};

/// Status, content type, and the lines of the body, which etcd returns in no order.
fn summary(answer: &Answer) -> (u16, String, Vec<String>) {
    let mut lines: Vec<String> = answer.body.lines().map(str::to_owned).collect();
    lines.sort();
    let kind = answer.headers.get("content-type").cloned();
    (answer.status, kind.unwrap_or_default(), lines)
}

#[test]
fn probes_answer_as_etcd_s_on_both_ports() {
    let probes = [free_address(), free_address()];
    let Some(peers) = peers("health::probes_answer_as_etcd_s_on_both_ports") else {
        return;
    };
    let flags = probes
        .each_ref()
        .map(|address| format!("--listen-metrics-urls=http://{address}"));
    let ours = Node::start(Kind::Quorate, &peers, &[&flags[0]]);
    let etcd = Node::start(Kind::Etcd, &peers, &[&flags[1]]);
    for [ours, etcd] in [[&ours.client, &etcd.client], [&probes[0], &probes[1]]] {
        for (method, path) in [
            ("GET", "/health"),
            ("GET", "/health?serializable=true"),
            ("GET", "/health?exclude=NOSPACE&exclude="),
            ("POST", "/health"),
            ("GET", "/livez"),
            ("GET", "/livez?verbose"),
            ("GET", "/livez?verbose&exclude=serializable_read"),
            ("GET", "/livez/serializable_read?verbose"),
            ("GET", "/livez/linearizable_read"),
            ("GET", "/livez/"),
            ("POST", "/livez"),
            ("GET", "/readyz"),
            ("GET", "/readyz?verbose"),
            (
                "GET",
                "/readyz?verbose&exclude=non_learner&exclude=data_corruption",
            ),
            ("GET", "/readyz?exclude=unknown&verbose"),
            ("GET", "/readyz/data_corruption?verbose"),
            ("GET", "/readyz/serializable_read"),
            ("GET", "/readyz/linearizable_read?verbose"),
            ("GET", "/readyz/non_learner?verbose"),
            ("GET", "/readyz/unknown"),
            ("PUT", "/readyz"),
            ("GET", "/nothing"),
        ] {
            let [ours, etcd] =
                [ours, etcd].map(|address| summary(&ask(address, method, path, &[], "")));
            assert_eq!(
                ours, etcd,
                "ours on the left, etcd's on the right: {method} {path}"
            );
        }
    }
    let [ours, etcd] = [&ours, &etcd].map(|node| get(&node.client, "/version"));
    assert_eq!(ours.headers["content-type"], etcd.headers["content-type"]);
    let etcd = etcd.json();
    for (key, value) in etcd.as_object().expect("an object") {
        assert_eq!(&ours.json()[key], value, "{key}");
    }
}

#[test]
fn http_can_have_a_port_of_its_own() {
    let addresses = [free_address(), free_address()];
    let Some(peers) = peers("health::http_can_have_a_port_of_its_own") else {
        return;
    };
    for (kind, http) in [Kind::Quorate, Kind::Etcd].into_iter().zip(&addresses) {
        let flag = format!("--listen-client-http-urls=http://{http}");
        let node = Node::start(kind, &peers, &[&flag]);
        for path in ["/health", "/metrics", "/version"] {
            assert_eq!(get(http, path).status, 200, "{kind:?} {path}");
        }
        let put = crate::http::post(http, "/v3/kv/put", r#"{"key":"Zm9v"}"#);
        assert_eq!(put.status, 200, "{kind:?}: {}", put.body);
        let runtime = tokio::runtime::Runtime::new().expect("runtime");
        let found = runtime.block_on(async {
            use quorate::wire::etcd::{RangeRequest, kv_client::KvClient};
            let url = format!("http://{}", node.client);
            let mut kv = KvClient::connect(url).await.expect("connected");
            let range = RangeRequest {
                key: "foo".into(),
                ..Default::default()
            };
            kv.range(range).await.expect("read").into_inner().count
        });
        assert_eq!(found, 1, "{kind:?}");
        if kind == Kind::Quorate {
            assert_eq!(get(&node.client, "/health").status, 404);
        }
    }
}
