//! What a stream sends, and when it ends.

use futures::StreamExt as _;
use tokio::sync::Semaphore;

use super::super::testing::Told;
use super::*;

fn viewer(cut: &Cut) -> Viewer {
    let place = Arc::new(Semaphore::new(1)).try_acquire_owned();
    Viewer {
        request: Request {
            token: Some("good".into()),
            ..Request::default()
        },
        sight: Sight {
            namespace: None,
            backups: Ok(()),
            events: Ok(()),
        },
        place: place.expect("free"),
        cut: cut.clone(),
    }
}

async fn next(parts: &mut axum::body::BodyDataStream) -> Option<String> {
    let part = tokio::time::timeout(Duration::from_secs(10), parts.next()).await;
    let part = part.expect("it comes in time")?.expect("it is read");
    Some(String::from_utf8_lossy(&part).into_owned())
}

#[tokio::test]
async fn a_document_is_sent_when_it_has_changed() {
    let told = Arc::new(Told::new());
    let mut parts = body(told.clone(), viewer(&Cut::default())).into_data_stream();
    let first = next(&mut parts).await.expect("a document");
    assert!(
        first.starts_with("event: document\ndata: {\"version\":\"1\""),
        "{first}"
    );
    assert!(first.ends_with("}\n\n"), "{first}");
    // Nothing has changed for a while.
    assert_eq!(
        next(&mut parts).await.as_deref(),
        Some(": nothing has changed\n\n")
    );
    *told.version.lock().expect("unpoisoned") = "2";
    let mut after = next(&mut parts).await;
    while after.as_deref() == Some(": nothing has changed\n\n") {
        after = next(&mut parts).await;
    }
    let after = after.expect("a document");
    assert!(after.contains("\"version\":\"2\""), "{after}");
}

/// A token that has lost its right would have gone on reading for as long as the page was open.
#[tokio::test]
async fn who_may_no_longer_look_loses_the_stream() {
    let told = Arc::new(Told::new());
    let cut = Cut::default();
    let mut parts = body(told.clone(), viewer(&cut)).into_data_stream();
    next(&mut parts).await.expect("a document");
    let why = "alice may not list \"etcdclusters\"";
    *told.sight.lock().expect("unpoisoned") = Err(Error::Forbidden(why.into()));
    let mut last = next(&mut parts).await.expect("a word");
    while last.starts_with(':') {
        last = next(&mut parts).await.expect("a word");
    }
    assert_eq!(
        last,
        "event: refused\ndata: \"alice may not list \\\"etcdclusters\\\"\"\n\n"
    );
    assert_eq!(next(&mut parts).await, None);
    assert!(!cut.is_cut());
}

/// An API server that restarts would have thrown out every viewer, with his token.
#[tokio::test]
async fn who_cannot_be_reviewed_for_a_moment_keeps_the_stream() {
    let told = Arc::new(Told::new());
    let mut parts = body(told.clone(), viewer(&Cut::default())).into_data_stream();
    next(&mut parts).await.expect("a document");
    let before = told.sight.lock().expect("unpoisoned").clone();
    let set = |sight| *told.sight.lock().expect("unpoisoned") = sight;
    set(Err(Error::Unclear("the API server does not answer".into())));
    tokio::time::sleep(AGAIN * 4).await;
    set(before);
    *told.version.lock().expect("unpoisoned") = "2";
    let mut after = next(&mut parts).await.expect("it goes on");
    while after.starts_with(':') {
        after = next(&mut parts).await.expect("it goes on");
    }
    assert!(after.contains("\"version\":\"2\""), "{after}");
    // For good it ends, and not as a refusal.
    set(Err(Error::Unclear("the API server does not answer".into())));
    while let Some(part) = next(&mut parts).await {
        assert!(part.starts_with(':'), "{part}");
    }
}

#[tokio::test]
async fn who_does_not_read_is_disconnected() {
    let told = Arc::new(Told::new());
    let cut = Cut::default();
    let viewer = viewer(&cut);
    let places = viewer.place.semaphore().clone();
    let _unread = body(told.clone(), viewer);
    assert_eq!(places.available_permits(), 0);
    for _ in 0..500 {
        if places.available_permits() == 1 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(cut.is_cut());
    assert_eq!(places.available_permits(), 1);
}
