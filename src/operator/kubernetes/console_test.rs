//! To whom clusters are shown, with a small API server that reviews tokens and access; and what is shown of the caches.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use kube::Client;
use kube::runtime::watcher;
use serde_json::{Value, json};

use super::*;
use crate::operator::platform::Severity;

/// Token `all` may list everything; `team` may list clusters and events of namespace team-a, while `right` holds.
fn api_server(right: Arc<AtomicBool>) -> Client {
    let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        let right = right.load(Ordering::SeqCst);
        async move {
            let path = request.uri().path().to_owned();
            let body = request.into_body().collect_bytes().await.expect("a body");
            let body: Value = serde_json::from_slice(&body).expect("JSON");
            let answer = json!({"metadata": {}, "spec": body["spec"], "status": review(&path, &body["spec"], right)});
            let answer = kube::client::Body::from(answer.to_string().into_bytes());
            http::Response::builder().status(201).body(answer)
        }
    });
    Client::new(service, "default")
}

fn review(path: &str, spec: &Value, right: bool) -> Value {
    if path.ends_with("tokenreviews") {
        let token = spec["token"].as_str().unwrap_or_default();
        let known = ["all", "team"].contains(&token) && spec["audiences"] == json!([AUDIENCE]);
        return match known {
            true => {
                json!({"authenticated": true, "user": {"username": token}, "audiences": [AUDIENCE]})
            }
            false => json!({"error": "no such token"}),
        };
    }
    let asked = &spec["resourceAttributes"];
    let lists = asked["verb"] == "list";
    let own = asked["namespace"] == "team-a" && asked["resource"] != "etcdbackups";
    json!({"allowed": lists && (spec["user"] == "all" || (right && own))})
}

struct Fixture {
    shown: Shown,
    right: Arc<AtomicBool>,
    time: Arc<AtomicU64>,
}

fn resource(namespace: &str, name: &str) -> Resourceful {
    let resource = json!({
        "apiVersion": "quorate.dev/v1alpha1", "kind": "EtcdCluster",
        "metadata": {"namespace": namespace, "name": name, "uid": name},
        "spec": {"replicas": 3}, "status": {"ready": "3/3"},
    });
    serde_json::from_value(resource).expect("a resource")
}

fn fixture(clusters: &[(&str, &str)]) -> Fixture {
    let (right, time) = (
        Arc::new(AtomicBool::new(true)),
        Arc::new(AtomicU64::new(1_000_000)),
    );
    let clock = Clock::simulated(time.clone());
    let (mut filler, cache) = Cache::filled();
    for (namespace, name) in clusters {
        filler.apply(&mut watcher::Event::Apply(resource(namespace, name)));
    }
    let callers = Callers::new(api_server(right.clone()), clock.clone());
    let feed = Arc::new(Feed::new(clock));
    Fixture {
        shown: Shown::new(cache, Acting::default(), callers, feed),
        right,
        time,
    }
}

fn request(token: &str, namespace: Option<&str>) -> Request {
    Request {
        token: Some(token.to_owned()),
        namespace: namespace.map(str::to_owned),
        ..Request::default()
    }
}

#[tokio::test]
async fn whoever_may_list_clusters_sees_them() {
    let fixture = fixture(&[]);
    let may = async |token, namespace| fixture.shown.sight(&request(token, namespace)).await;
    let nobody = fixture.shown.sight(&Request::default()).await;
    assert_eq!(nobody, Err(Error::NoToken));
    let stranger = may("made-up", None).await;
    assert!(
        matches!(&stranger, Err(Error::Unknown(why)) if why.contains("no such token")),
        "{stranger:?}"
    );
    let all = may("all", None).await.expect("everything");
    assert_eq!(
        (all.namespace, all.backups, all.events),
        (None, Ok(()), Ok(()))
    );
    let refused = may("team", None).await;
    assert!(
        matches!(&refused, Err(Error::Forbidden(why)) if why.contains("in all namespaces") && why.contains("one namespace")),
        "{refused:?}"
    );
    let other = may("team", Some("team-b")).await;
    assert!(
        matches!(&other, Err(Error::Forbidden(why)) if why.contains("team-b")),
        "{other:?}"
    );
    let own = may("team", Some("team-a")).await.expect("its own");
    assert_eq!(own.events, Ok(()));
    let why = own.backups.expect_err("it may not");
    assert!(
        why.contains("may not list etcdbackups in namespace team-a"),
        "{why}"
    );
}

/// Within a minute, with the time for which an answer of the API server holds.
#[tokio::test]
async fn a_right_that_is_taken_away_ends() {
    let fixture = fixture(&[]);
    let asked = request("team", Some("team-a"));
    assert!(fixture.shown.sight(&asked).await.is_ok());
    fixture.right.store(false, Ordering::SeqCst);
    fixture.time.fetch_add(31_000, Ordering::SeqCst);
    let after = fixture.shown.sight(&asked).await;
    assert!(matches!(after, Err(Error::Forbidden(_))), "{after:?}");
}

#[tokio::test]
async fn a_namespace_is_all_that_its_viewer_sees() {
    let fixture = fixture(&[("team-b", "b"), ("team-a", "z"), ("team-a", "a")]);
    let names = |document: &Document| {
        let rows = document.clusters.iter();
        rows.map(|row| format!("{}/{}", row.namespace, row.name))
            .collect::<Vec<_>>()
            .join(" ")
    };
    let key = |namespace: &str, name: &str| (namespace.to_owned(), name.to_owned());
    let all = fixture
        .shown
        .sight(&request("all", None))
        .await
        .expect("all");
    let document = fixture.shown.document(&all, None).await;
    assert_eq!(names(&document), "team-a/a team-a/z team-b/b");
    let own = fixture.shown.sight(&request("team", Some("team-a"))).await;
    let own = own.expect("its own");
    let document = fixture
        .shown
        .document(&own, Some(&key("team-a", "z")))
        .await;
    assert_eq!(names(&document), "team-a/a team-a/z");
    assert_eq!(document.cluster.expect("it is there").row.name, "z");
    let foreign = fixture
        .shown
        .document(&own, Some(&key("team-b", "b")))
        .await;
    assert_eq!(foreign.cluster, None);
    let gone = fixture
        .shown
        .document(&all, Some(&key("team-a", "gone")))
        .await;
    assert_eq!(gone.cluster, None);
}

/// A standby's caches are as full, but it has published nothing and knows of no backup.
#[tokio::test]
async fn a_standby_says_that_it_is_one() {
    let fixture = fixture(&[("team-a", "a")]);
    let key = ("team-a".to_owned(), "a".to_owned());
    let event = Event {
        severity: Severity::Normal,
        reason: "Promoted".into(),
        action: "Promote".into(),
        note: "a-3 votes".into(),
    };
    fixture.shown.feed.published(&key, &event);
    let all = fixture
        .shown
        .sight(&request("all", None))
        .await
        .expect("all");
    let document = fixture.shown.document(&all, Some(&key)).await;
    assert!(!document.active);
    let cluster = document.cluster.expect("it is there");
    let standby = |why: &str| why.contains("stands by");
    assert!(matches!(&cluster.backups, Part::Withheld(why) if standby(why)));
    assert!(matches!(&cluster.events, Part::Withheld(why) if standby(why)));
}

#[tokio::test]
async fn the_list_is_bounded() {
    let names: Vec<String> = (0..LISTED + 7)
        .map(|number| format!("c{number:04}"))
        .collect();
    let clusters: Vec<(&str, &str)> = names.iter().map(|name| ("team-a", name.as_str())).collect();
    let fixture = fixture(&clusters);
    let all = fixture
        .shown
        .sight(&request("all", None))
        .await
        .expect("all");
    let document = fixture.shown.document(&all, None).await;
    assert_eq!((document.clusters.len(), document.omitted), (LISTED, 7));
}

#[test]
fn what_is_noted_of_a_deleted_cluster_goes() {
    let feed = Feed::new(Clock::machine());
    let key = ("team-a".to_owned(), "a".to_owned());
    let description = Description {
        term: 4,
        ..Description::default()
    };
    feed.described(&key, &BTreeMap::from([("a-1".to_owned(), description)]));
    let seen = feed.observed_of(&key);
    assert_eq!(seen.positions["a-1"].term, 4);
    assert!(seen.at.is_some());
    feed.forget(&key);
    assert!(feed.observed_of(&key).positions.is_empty());
}
