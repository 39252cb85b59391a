//! Graceful stops under load, as in a rolling restart.

use std::time::Duration;

use quorate::operator::local::writer::{Tally, Writer};
use tokio::sync::watch;

use super::fixture::{Server, figure};

/// Writers, each with one write in flight.
const WRITERS: usize = 16;

/// Each member in turn is stopped while clients write through all of them: no acknowledged write is lost, and no write
/// fails permanently.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rolling_stops_lose_no_acknowledged_write() {
    let home = tempfile::tempdir().expect("folder");
    let mut servers = Server::three(home.path()).await;
    let endpoints = servers.iter().map(Server::endpoint).collect();
    let (_keep, endpoints) = watch::channel::<Vec<String>>(endpoints);
    let writers: Vec<Writer> = (0..WRITERS)
        .map(|number| Writer::start(endpoints.clone(), &format!("writer-{number}/")))
        .collect();
    for server in &mut servers {
        server.terminate().await;
        server.start();
        server.serves().await;
    }
    let (mut all, mut lost) = (Tally::default(), Vec::new());
    for writer in writers {
        let (tally, verdict) = writer.stop_and_verify().await.expect("reads back");
        assert!(tally.acknowledged > 0);
        assert_eq!(
            tally.acknowledged,
            verdict.found + verdict.missing.len() as u64
        );
        all.acknowledged += tally.acknowledged;
        all.failed += tally.failed;
        all.repeated += tally.repeated;
        all.longest = all.longest.max(tally.longest);
        lost.extend(verdict.missing);
    }
    figure(&format!(
        "three members stopped in turn under {WRITERS} writers: {} writes acknowledged, {} lost, \
         {} failed, {} tried again, the longest {} ms",
        all.acknowledged,
        lost.len(),
        all.failed,
        all.repeated,
        all.longest.as_millis()
    ));
    assert!(lost.is_empty(), "acknowledged and lost: {lost:?}");
    assert_eq!(all.failed, 0);
    assert!(all.longest < Duration::from_secs(8));
}
