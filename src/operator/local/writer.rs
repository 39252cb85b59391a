//! A client that writes continuously while members are added and removed, and records what was acknowledged. It uses
//! the etcd v3 API with the given endpoints and fails over among them, like any client with several endpoints.
//!
//! Each write has a key of its own, so trying it again after an unknown outcome cannot do harm;
//! a write is *failed* if no endpoint acknowledged it within the deadline. Attempts that had to
//! be repeated are counted apart, so that the figures hide nothing.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tonic::transport::{Channel, Endpoint};

use crate::wire::etcd::kv_client::KvClient;
use crate::wire::etcd::{PutRequest, RangeRequest};

/// One attempt at one endpoint.
const ATTEMPT: Duration = Duration::from_millis(1500);
/// A write without acknowledgement within this time counts as failed.
const DEADLINE: Duration = Duration::from_secs(8);
/// Between two writes.
const PACE: Duration = Duration::from_millis(5);
/// Between two attempts at one write.
const RETRY: Duration = Duration::from_millis(20);
/// Keys of one answer when reading back.
const PAGE: i64 = 1000;

/// What has been written so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Writes acknowledged.
    pub acknowledged: u64,
    /// Writes that were not acknowledged in time.
    pub failed: u64,
    /// Attempts that were repeated, mostly at another endpoint.
    pub repeated: u64,
    /// The longest time from the first attempt to the acknowledgement.
    pub longest: Duration,
    /// What the last attempt without an answer met.
    pub last_error: Option<String>,
}

/// What reading back found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Acknowledged writes found with their value.
    pub found: u64,
    /// Acknowledged writes that are missing or differ.
    pub missing: Vec<String>,
}

/// A client over several endpoints; keeps to one while it works.
#[derive(Debug)]
pub struct Client {
    endpoints: watch::Receiver<Vec<String>>,
    next: usize,
    current: Option<(String, KvClient<Channel>)>,
}

impl Client {
    /// A client of these endpoints (`http://host:port`), which may change at any time.
    pub fn new(endpoints: watch::Receiver<Vec<String>>) -> Self {
        Self {
            endpoints,
            next: 0,
            current: None,
        }
    }

    /// Puts a key. On failure returns the reason and moves to the next endpoint for the next call.
    pub async fn put(&mut self, key: &str, value: &str) -> Result<(), String> {
        let request = PutRequest {
            key: key.to_owned().into(),
            value: value.to_owned().into(),
            ..PutRequest::default()
        };
        let mut client = self.connection()?;
        let answer = tokio::time::timeout(ATTEMPT, client.put(request)).await;
        self.judge(answer).map(|_| ())
    }

    /// All keys and values under a prefix, by linearizable reads pinned to one revision.
    pub async fn list(&mut self, prefix: &str) -> Result<Vec<(String, String)>, String> {
        let (mut from, end) = (prefix.as_bytes().to_vec(), prefix_end(prefix));
        let (mut all, mut revision) = (Vec::new(), 0);
        loop {
            let request = RangeRequest {
                key: from.clone().into(),
                range_end: end.clone().into(),
                limit: PAGE,
                revision,
                ..RangeRequest::default()
            };
            let mut client = self.connection()?;
            let answer = tokio::time::timeout(DEADLINE, client.range(request)).await;
            let answer = self.judge(answer)?.into_inner();
            if revision == 0 {
                revision = answer.header.map_or(0, |header| header.revision);
            }
            for pair in &answer.kvs {
                let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                all.push((text(&pair.key), text(&pair.value)));
            }
            match answer.kvs.last() {
                Some(last) if answer.more => from = [last.key.as_ref(), b"\0"].concat(),
                _ => return Ok(all),
            }
        }
    }

    /// The connection in use, or a lazy one to the next endpoint.
    fn connection(&mut self) -> Result<KvClient<Channel>, String> {
        let endpoints = self.endpoints.borrow().clone();
        if let Some((endpoint, client)) = &self.current
            && endpoints.contains(endpoint)
        {
            return Ok(client.clone());
        }
        if endpoints.is_empty() {
            return Err("no member to write to yet".into());
        }
        let endpoint = endpoints[self.next % endpoints.len()].clone();
        let channel = Endpoint::from_shared(endpoint.clone())
            .map_err(|error| format!("{endpoint}: {error}"))?
            .connect_timeout(ATTEMPT)
            .connect_lazy();
        let client = KvClient::new(channel);
        self.current = Some((endpoint, client.clone()));
        Ok(client)
    }

    fn judge<T>(
        &mut self,
        answer: Result<Result<T, tonic::Status>, tokio::time::error::Elapsed>,
    ) -> Result<T, String> {
        let endpoint = self.current.as_ref().map(|(endpoint, _)| endpoint.clone());
        let endpoint = endpoint.unwrap_or_default();
        let error = match answer {
            Ok(Ok(answer)) => return Ok(answer),
            Ok(Err(status)) => format!("{endpoint}: {} ({:?})", status.message(), status.code()),
            Err(_) => format!("{endpoint}: no answer in {} ms", ATTEMPT.as_millis()),
        };
        self.current = None;
        self.next = self.next.wrapping_add(1);
        Err(error)
    }
}

/// The end of the range of all keys that begin with this (not empty) prefix.
fn prefix_end(prefix: &str) -> Vec<u8> {
    let mut end = prefix.as_bytes().to_vec();
    // UTF-8 has no byte 0xff, so adding one to the last never carries.
    if let Some(last) = end.last_mut() {
        *last += 1;
    }
    end
}

/// A writer at work.
#[derive(Debug)]
pub struct Writer {
    endpoints: watch::Receiver<Vec<String>>,
    prefix: String,
    progress: Arc<Mutex<Progress>>,
    stop: watch::Sender<bool>,
    task: tokio::task::JoinHandle<()>,
}

#[derive(Debug, Default)]
struct Progress {
    tally: Tally,
    /// Numbers of the writes that were acknowledged, in order.
    acknowledged: Vec<u64>,
}

impl Writer {
    /// Starts writing keys under this prefix.
    pub fn start(endpoints: watch::Receiver<Vec<String>>, prefix: &str) -> Self {
        let progress = Arc::new(Mutex::new(Progress::default()));
        let (stop, stopping) = watch::channel(false);
        let client = Client::new(endpoints.clone());
        let task = tokio::spawn(write(client, prefix.to_owned(), progress.clone(), stopping));
        Self {
            endpoints,
            prefix: prefix.to_owned(),
            progress,
            stop,
            task,
        }
    }

    /// What has been written so far.
    pub fn tally(&self) -> Tally {
        self.progress
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .tally
            .clone()
    }

    /// Stops writing, then reads everything back through the cluster and compares.
    pub async fn stop_and_verify(self) -> Result<(Tally, Verdict), String> {
        let _ = self.stop.send(true);
        let _ = self.task.await;
        let mut client = Client::new(self.endpoints);
        let started = Instant::now();
        let present = loop {
            match client.list(&self.prefix).await {
                Ok(present) => break present,
                Err(error) if started.elapsed() > DEADLINE => return Err(error),
                Err(_) => tokio::time::sleep(RETRY * 10).await,
            }
        };
        let present: std::collections::BTreeMap<_, _> = present.into_iter().collect();
        let progress = self.progress.lock().unwrap_or_else(PoisonError::into_inner);
        let missing: Vec<String> = progress
            .acknowledged
            .iter()
            .filter(|number| present.get(&key(&self.prefix, **number)) != Some(&value(**number)))
            .map(|number| key(&self.prefix, *number))
            .collect();
        let found = progress.tally.acknowledged - missing.len() as u64;
        Ok((progress.tally.clone(), Verdict { found, missing }))
    }
}

fn key(prefix: &str, number: u64) -> String {
    format!("{prefix}{number:08}")
}

fn value(number: u64) -> String {
    format!("write {number}")
}

async fn write(
    mut client: Client,
    prefix: String,
    progress: Arc<Mutex<Progress>>,
    stopping: watch::Receiver<bool>,
) {
    let mut number = 0_u64;
    while !*stopping.borrow() {
        let started = Instant::now();
        let (key, value) = (key(&prefix, number), value(number));
        let acknowledged = loop {
            match client.put(&key, &value).await {
                Ok(()) => break true,
                Err(error) => {
                    let mut progress = progress.lock().unwrap_or_else(PoisonError::into_inner);
                    progress.tally.repeated += 1;
                    progress.tally.last_error = Some(error);
                }
            }
            if started.elapsed() >= DEADLINE {
                break false;
            }
            tokio::time::sleep(RETRY).await;
        };
        {
            let mut progress = progress.lock().unwrap_or_else(PoisonError::into_inner);
            if acknowledged {
                progress.acknowledged.push(number);
                progress.tally.acknowledged += 1;
                progress.tally.longest = progress.tally.longest.max(started.elapsed());
            } else {
                progress.tally.failed += 1;
            }
        }
        number += 1;
        tokio::time::sleep(PACE).await;
    }
}

#[cfg(test)]
#[path = "writer_test.rs"]
mod tests;
