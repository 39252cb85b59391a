//! A well-behaved client that writes and reads during a test's load on the server, and records its longest round trip.

use std::time::{Duration, Instant};

use quorate::wire::etcd::RangeRequest;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::fixture::{Server, put};

/// Bystanders, each with its own connection: the server assigns connections to its threads in turn, so some share a
/// thread with the misbehaving client.
const HOW_MANY: usize = 4;

/// The running bystanders.
pub(crate) struct Bystanders {
    stop: watch::Sender<bool>,
    running: Vec<JoinHandle<(u64, Duration)>>,
}

impl Bystanders {
    pub(crate) async fn start(server: &Server) -> Bystanders {
        let (stop, stopped) = watch::channel(false);
        let mut running = Vec::new();
        for number in 0..HOW_MANY {
            let mut kv = server.kv().await;
            let stopped = stopped.clone();
            running.push(tokio::spawn(async move {
                let (mut asked, mut longest) = (0, Duration::ZERO);
                let key = format!("bystander/{number}");
                while !*stopped.borrow() {
                    let begun = Instant::now();
                    kv.put(put(key.clone(), vec![1; 64])).await.expect("put");
                    let request = RangeRequest {
                        key: key.clone().into(),
                        ..RangeRequest::default()
                    };
                    let answer = kv.range(request).await.expect("read").into_inner();
                    assert_eq!(answer.kvs.len(), 1);
                    longest = longest.max(begun.elapsed());
                    asked += 1;
                    tokio::time::sleep(Duration::from_millis(2)).await;
                }
                (asked, longest)
            }));
        }
        Bystanders { stop, running }
    }

    /// Stops them; returns the number of rounds and the longest one.
    pub(crate) async fn stop(self) -> (u64, Duration) {
        self.stop.send(true).expect("they listen");
        let (mut asked, mut longest) = (0, Duration::ZERO);
        for running in self.running {
            let (more, long) = running.await.expect("no failed request");
            asked += more;
            longest = longest.max(long);
        }
        (asked, longest)
    }
}
