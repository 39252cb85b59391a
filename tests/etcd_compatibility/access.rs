//! The `Host` and `Origin` headers that plain HTTP requests may have, compared with etcd.

use crate::http::ask;
use crate::node::pair;

#[test]
fn hosts_and_origins_are_held_to_the_lists() {
    let flags = [
        "--host-whitelist=here.test,127.0.0.1",
        "--cors=http://a.test:80",
    ];
    let Some([ours, etcd]) = pair("access::hosts_and_origins_are_held_to_the_lists", &flags) else {
        return;
    };
    for (method, host, origin) in [
        ("GET", "here.test", ""),
        ("GET", "here.test:2379", "http://a.test:80"),
        ("GET", "127.0.0.1:1", "http://b.test:80"),
        ("GET", "evil.test", "http://a.test:80"),
        ("OPTIONS", "here.test", "http://a.test:80"),
        ("OPTIONS", "evil.test", "http://a.test:80"),
        ("POST", "here.test", "http://a.test:80"),
    ] {
        for path in ["/version", "/v3/cluster/member/list"] {
            let [ours, etcd] = [&ours, &etcd].map(|node| {
                let headers = [("host", host), ("origin", origin)];
                let answer = ask(&node.client, method, path, &headers, "");
                let allowed = ["origin", "methods", "headers"].map(|what| {
                    let name = format!("access-control-allow-{what}");
                    answer.headers.get(&name).cloned()
                });
                (answer.status, allowed)
            });
            assert_eq!(
                ours, etcd,
                "ours on the left, etcd's on the right: {method} {host} {origin} {path}"
            );
        }
    }
}
