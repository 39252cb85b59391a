//! Compares the JSON gateway with etcd's: every RPC that has a path, over HTTP.

use serde_json::Value;

use crate::http::{Answer, ask, get, lines, post};
use crate::node::pair;

/// Fields that always differ between two clusters.
const OWN: &[&str] = &[
    "cluster_id",
    "member_id",
    "memberID",
    "raft_term",
    "raftTerm",
    "raftIndex",
    "raftAppliedIndex",
    "leader",
    "dbSize",
    "dbSizeInUse",
    "dbSizeQuota",
    "peerURLs",
    "clientURLs",
];

/// A member's ID, which is a string in JSON.
fn id(member: &Value) -> u64 {
    let id = member["ID"].as_str().expect("a member has an ID");
    id.parse().expect("a number")
}

/// Replaces the values of fields that always differ, and thereby still compares whether they are present.
fn plain(value: &mut Value, own: &[&str]) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                if let ("members", Value::Array(members)) = (key.as_str(), &*value) {
                    assert!(
                        members.is_sorted_by_key(id),
                        "in the order of their IDs: {members:?}"
                    );
                }
                if OWN.contains(&key.as_str()) || own.contains(&key.as_str()) {
                    *value = Value::from("*");
                } else {
                    plain(value, own);
                }
                // The order is checked above; which member has the smaller ID is random.
                if let ("members", Value::Array(members)) = (key.as_str(), value) {
                    members.sort_by_key(Value::to_string);
                }
            }
        }
        Value::Array(values) => values.iter_mut().for_each(|value| plain(value, own)),
        _ => {}
    }
}

/// Requests in order: path, body, and further fields that differ.
#[rustfmt::skip]
const STORY: &[(&str, &str, &[&str])] = &[
    ("kv/put", r#"{"key":"Zm9v","value":"YmFy"}"#, &[]),
    ("kv/put", r#"{"key":"Zm9v","value":"YmF6","prev_kv":true}"#, &[]),
    ("kv/put", r#"{"key":"","value":"YmF6"}"#, &[]),
    ("kv/put", r#"{"key":"bm8=","ignore_value":true}"#, &[]),
    ("kv/put", r#"{"key":"bm8=","lease":"77"}"#, &[]),
    ("kv/put", r#"{"key":"a2-_","value":"YQ"}"#, &[]),
    ("kv/range", r#"{"key":"Zm9v"}"#, &[]),
    ("kv/range", r#"{"key":"Zm9v","revision":"2"}"#, &[]),
    ("kv/range", r#"{"key":"Zm9v","revision":500}"#, &[]),
    ("kv/range", r#"{"key":"AA==","range_end":"AA==","limit":1,"sort_order":"DESCEND","sortTarget":"MOD","unknown":{"a":[1]}}"#, &[]),
    ("kv/range", r#"{"key":"AA==","range_end":"AA==","keys_only":true,"serializable":true,"sort_order":1}"#, &[]),
    ("kv/range", r#"{"key":"AA==","range_end":"AA==","count_only":true}"#, &[]),
    ("kv/range", "{}", &[]),
    ("kv/range", "", &[]),
    ("kv/range", r#"{"key":"Zm9v"} {"key":"bm8="}"#, &[]),
    ("kv/txn", r#"{"compare":[{"key":"Zm9v","target":"VERSION","version":"2","result":"EQUAL"}],"success":[{"request_put":{"key":"Zm9v","value":"MQ=="}},{"requestRange":{"key":"Zm9v"}}],"failure":[{"request_delete_range":{"key":"Zm9v"}}]}"#, &[]),
    ("kv/txn", r#"{"compare":[{"key":"Zm9v","target":"VALUE","value":"eA=="}],"failure":[{"request_txn":{"success":[{"request_delete_range":{"key":"Zm9v","prev_kv":true}}]}}]}"#, &[]),
    ("kv/txn", r#"{"success":[{"request_put":{"key":"YQ=="}},{"request_put":{"key":"YQ=="}}]}"#, &[]),
    ("kv/deleterange", r#"{"key":"a2-_"}"#, &[]),
    ("kv/deleterange", r#"{"key":"bm8="}"#, &[]),
    ("kv/compaction", r#"{"revision":"3"}"#, &[]),
    ("kv/compaction", r#"{"revision":"3"}"#, &[]),
    ("kv/compaction", r#"{"revision":"300"}"#, &[]),
    ("kv/range", r#"{"key":"Zm9v","revision":"2"}"#, &[]),
    ("lease/grant", r#"{"TTL":"600","ID":"7"}"#, &[]),
    ("lease/grant", r#"{"TTL":"600","ID":"7"}"#, &[]),
    ("lease/grant", r#"{"TTL":"9000000001"}"#, &[]),
    ("kv/put", r#"{"key":"bGVhc2Vk","lease":"7"}"#, &[]),
    ("lease/timetolive", r#"{"ID":"7","keys":true}"#, &["TTL"]),
    ("kv/lease/timetolive", r#"{"ID":"8"}"#, &[]),
    ("lease/leases", "{}", &[]),
    ("kv/lease/leases", "{}", &[]),
    ("lease/revoke", r#"{"ID":"7"}"#, &[]),
    ("kv/lease/revoke", r#"{"ID":"7"}"#, &[]),
    ("cluster/member/list", "{}", &["ID"]),
    ("cluster/member/list", r#"{"linearizable":true}"#, &["ID"]),
    ("cluster/member/remove", r#"{"ID":"5"}"#, &[]),
    ("cluster/member/update", r#"{"ID":"5","peerURLs":["http://127.0.0.9:1"]}"#, &[]),
    ("cluster/member/promote", r#"{"ID":"5"}"#, &[]),
    ("cluster/member/add", r#"{"peerURLs":["nothing"]}"#, &[]),
    ("maintenance/alarm", r#"{"action":"GET"}"#, &[]),
    ("maintenance/alarm", "{}", &[]),
    ("maintenance/status", "{}", &[]),
    ("maintenance/defragment", "{}", &[]),
    ("maintenance/hash", "{}", &["hash"]),
    ("maintenance/hashkv", "{}", &[]),
    ("maintenance/hashkv", r#"{"revision":"1"}"#, &[]),
    ("maintenance/transfer-leadership", r#"{"targetID":"5"}"#, &[]),
    ("maintenance/downgrade", r#"{"action":"VALIDATE","version":"nonsense"}"#, &[]),
    ("maintenance/downgrade", r#"{"action":"ENABLE","version":"3.6.0.0"}"#, &[]),
    ("maintenance/downgrade", r#"{"action":"ENABLE","version":"v3.6"}"#, &[]),
    ("maintenance/downgrade", r#"{"action":"ENABLE","version":"3.7"}"#, &[]),
    ("maintenance/downgrade", r#"{"action":"ENABLE","version":"3.5.0"}"#, &[]),
    ("maintenance/downgrade", r#"{"action":"VALIDATE","version":"3.5.0-rc.1"}"#, &[]),
    ("maintenance/downgrade", r#"{"action":"CANCEL"}"#, &[]),
    ("election/leader", r#"{"name":"ZQ=="}"#, &[]),
    ("election/campaign", r#"{"name":"ZQ==","lease":"9","value":"dg=="}"#, &[]),
    ("election/proclaim", "{}", &[]),
    ("election/proclaim", r#"{"leader":{"name":"ZQ==","key":"ZS8x","rev":"5"},"value":"dg=="}"#, &[]),
    ("election/resign", "{}", &[]),
    ("election/resign", r#"{"leader":{}}"#, &[]),
    ("lock/lock", r#"{"name":"bA==","lease":"9"}"#, &[]),
    ("lock/unlock", "{}", &[]),
    ("lock/unlock", r#"{"key":"bm8="}"#, &[]),
    ("lease/grant", r#"{"TTL":"600","ID":"10"}"#, &[]),
    ("election/campaign", r#"{"name":"ZQ==","lease":"10","value":"dg=="}"#, &[]),
    ("election/campaign", r#"{"name":"ZQ==","lease":"10","value":"dw=="}"#, &[]),
    ("election/leader", r#"{"name":"ZQ=="}"#, &[]),
    ("lock/lock", r#"{"name":"bA==","lease":"10"}"#, &[]),
    ("lock/lock", r#"{"name":"bA==","lease":"10"}"#, &[]),
    ("lock/unlock", r#"{"key":"bC9h"}"#, &[]),
    ("kv/nothing", "{}", &[]),
    ("kv/range/", "{}", &[]),
    ("cluster/member/add", r#"{"peerURLs":["http://127.0.0.9:1"],"isLearner":true}"#, &["ID"]),
    ("cluster/member/add", r#"{"peerURLs":["http://127.0.0.9:2"],"isLearner":true}"#, &[]),
];

/// Status, content type and body, without the fields that differ.
fn summary(answer: &Answer, own: &[&str]) -> (u16, String, Value) {
    let mut json = answer.json();
    plain(&mut json, own);
    let kind = |name| answer.headers.get(name).cloned().unwrap_or_default();
    let kinds = [
        "content-type",
        "grpc-metadata-content-type",
        "access-control-allow-origin",
    ];
    (answer.status, kinds.map(kind).join(" "), json)
}

#[test]
fn every_rpc_answers_as_etcd_does() {
    let Some([ours, etcd]) = pair("gateway::every_rpc_answers_as_etcd_does", &[]) else {
        return;
    };
    for (path, body, own) in STORY {
        let [ours, etcd] = [&ours, &etcd].map(|node| {
            let answer = post(&node.client, &format!("/v3/{path}"), body);
            summary(&answer, own)
        });
        assert_eq!(ours, etcd, "ours and etcd's: {path} {body}");
    }
    // Messages about invalid JSON depend on the library.
    for body in [
        "{bad",
        "{",
        "[]",
        r#"{"key":5}"#,
        r#"{"limit":"x"}"#,
        r#"{"key":"%"}"#,
    ] {
        let [ours, etcd] = [&ours, &etcd].map(|node| {
            let answer = post(&node.client, "/v3/kv/range", body);
            summary(&answer, &["message"])
        });
        assert_eq!(ours, etcd, "ours and etcd's: {body}");
    }
    for (method, path) in [
        ("GET", "/v3/kv/range"),
        ("PUT", "/v3/kv/range"),
        ("OPTIONS", "/v3/kv/range"),
        ("POST", "/v3beta/kv/range"),
    ] {
        let [ours, etcd] = [&ours, &etcd].map(|node| {
            let answer = ask(&node.client, method, path, &[], "");
            (
                answer.status,
                answer.body.replace(": ", ":").replace(", ", ","),
            )
        });
        assert_eq!(ours, etcd, "ours and etcd's: {method} {path}");
    }
}

#[test]
fn streams_are_lines_as_etcd_s() {
    let Some([ours, etcd]) = pair("gateway::streams_are_lines_as_etcd_s", &[]) else {
        return;
    };
    let create = r#"{"create_request":{"key":"Zm9v","start_revision":"2","prev_kv":true}}"#;
    let two = format!(
        "{}\n{}",
        r#"{"create_request":{"key":"Zm9v"}}"#,
        r#"{"create_request":{"key":"Zg==","range_end":"AA==","watch_id":"5"}}"#
    );
    for (path, body, count) in [
        ("/v3/watch", create, 2),
        ("/v3/watch", &two, 2),
        (
            "/v3/watch",
            r#"{"create_request":{"key":"Zw==","range_end":"Zg=="}}"#,
            1,
        ),
        ("/v3/lease/keepalive", r#"{"ID":"7"}"#, 1),
        ("/v3/lease/keepalive", r#"{"ID":"7"}{"ID":"8"}"#, 2),
        ("/v3/election/observe", r#"{"name":"ZQ=="}"#, 1),
    ] {
        let [ours, etcd] = [&ours, &etcd].map(|node| {
            post(
                &node.client,
                "/v3/kv/put",
                r#"{"key":"Zm9v","value":"YmFy"}"#,
            );
            post(&node.client, "/v3/lease/grant", r#"{"TTL":"600","ID":"7"}"#);
            let campaign = r#"{"name":"ZQ==","lease":"7","value":"dg=="}"#;
            post(&node.client, "/v3/election/campaign", campaign);
            let (head, lines) = lines(&node.client, path, body, count);
            let mut lines: Vec<Value> = lines
                .iter()
                .map(|line| serde_json::from_str(line).expect("JSON"))
                .collect();
            for line in &mut lines {
                plain(line, &[]);
                // How many events one message contains depends on time.
                if let Some(events) = line["result"]["events"].as_array_mut() {
                    events.truncate(1);
                }
            }
            lines.truncate(count);
            (
                head.status,
                head.headers.get("content-type").cloned(),
                lines,
            )
        });
        assert_eq!(ours, etcd, "ours and etcd's: {path} {body}");
    }
    for node in [&ours, &etcd] {
        let (head, lines) = lines(&node.client, "/v3/maintenance/snapshot", "{}", 1);
        assert_eq!(head.status, 200);
        assert!(lines[0].starts_with("{\"result\":{\""), "{}", lines[0]);
        assert!(lines[0].contains("\"blob\":\""), "{}", lines[0]);
    }
}

#[test]
fn gateway_requests_carry_tokens() {
    let Some([ours, etcd]) = pair("gateway::gateway_requests_carry_tokens", &[]) else {
        return;
    };
    let run = |address: &str| {
        let mut answers = Vec::new();
        let mut note = |path: &str, token: &str, body: &str| {
            let headers = [("authorization", token)];
            let headers = if token.is_empty() { &[][..] } else { &headers };
            let answer = ask(address, "POST", &format!("/v3/{path}"), headers, body);
            let mut json = answer.json();
            let token = json["token"].as_str().unwrap_or_default().to_owned();
            plain(&mut json, &["token"]);
            answers.push(format!("{path} {body} {} {json}", answer.status));
            token
        };
        note("auth/status", "", "{}");
        note("auth/enable", "", "{}");
        note("auth/user/add", "", r#"{"name":"root","password":"r"}"#);
        note("auth/user/add", "", r#"{"name":"root","password":"r"}"#);
        note("auth/user/add", "", r#"{"name":"u","password":"p"}"#);
        note("auth/role/add", "", r#"{"name":"root"}"#);
        note("auth/role/add", "", r#"{"name":"r"}"#);
        note(
            "auth/role/grant",
            "",
            r#"{"name":"r","perm":{"permType":"READWRITE","key":"YQ==","range_end":"Yg=="}}"#,
        );
        note("auth/role/get", "", r#"{"role":"r"}"#);
        note("auth/user/grant", "", r#"{"user":"root","role":"root"}"#);
        note("auth/user/grant", "", r#"{"user":"u","role":"r"}"#);
        note("auth/user/get", "", r#"{"name":"u"}"#);
        note("auth/user/changepw", "", r#"{"name":"u","password":"q"}"#);
        note("auth/enable", "", "{}");
        note("kv/put", "", r#"{"key":"YQ=="}"#);
        note(
            "auth/authenticate",
            "",
            r#"{"name":"u","password":"wrong"}"#,
        );
        let user = note("auth/authenticate", "", r#"{"name":"u","password":"q"}"#);
        note("kv/put", &user, r#"{"key":"YQ=="}"#);
        note("kv/put", &user, r#"{"key":"Yg=="}"#);
        note("kv/put", "nonsense", r#"{"key":"YQ=="}"#);
        note("auth/user/list", &user, "{}");
        note(
            "election/campaign",
            &user,
            r#"{"name":"YQ==","value":"dg=="}"#,
        );
        note("lock/lock", &user, r#"{"name":"Yg=="}"#);
        let root = note("auth/authenticate", "", r#"{"name":"root","password":"r"}"#);
        note("auth/user/list", &root, "{}");
        note("auth/role/list", &root, "{}");
        note("auth/user/revoke", &root, r#"{"name":"u","role":"r"}"#);
        note(
            "auth/role/revoke",
            &root,
            r#"{"role":"r","key":"YQ==","range_end":"Yg=="}"#,
        );
        note("auth/role/delete", &root, r#"{"role":"r"}"#);
        note("auth/user/delete", &root, r#"{"name":"u"}"#);
        note("auth/disable", &root, "{}");
        note("auth/status", "", "{}");
        answers
    };
    let (ours, etcd) = (run(&ours.client), run(&etcd.client));
    for (ours, etcd) in ours.iter().zip(&etcd) {
        let own = |text: &str| -> String {
            // IDs of leases that the server chose.
            let cut = text.find("\"leader\":{").or(text.find("\"key\":\"YQ"));
            text.chars().take(cut.unwrap_or(text.len())).collect()
        };
        assert_eq!(own(ours), own(etcd));
    }
}

#[test]
fn the_gateway_can_be_left_out() {
    let flags = ["--enable-grpc-gateway=false"];
    let Some(nodes) = pair("gateway::the_gateway_can_be_left_out", &flags) else {
        return;
    };
    for node in nodes {
        let answer = post(&node.client, "/v3/kv/range", "{}");
        let found = (answer.status, &*answer.body);
        assert_eq!(found, (404, "404 page not found\n"), "{:?}", node.kind);
        assert_eq!(get(&node.client, "/health").status, 200);
    }
}
