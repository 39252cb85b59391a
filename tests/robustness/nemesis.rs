//! Executes the schedule: each fault is injected and reverted, and every member must serve again before the next one.
//! Counts the injected faults; a fault that cannot be injected ends the run.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::time::sleep;

use crate::power;
use crate::proxy::Network;
use crate::schedule::{HARD, Hard, Schedule, Strike};
use crate::server::{PATIENCE, Page, Place, Server};
use crate::traffic::client::{self, Directory};

/// Exit codes of a server whose disk is full, fails to sync, or fails to write.
const DISK_FULL: i32 = 22;
const FSYNC: i32 = 23;
const IO: i32 = 26;
const EIO: i64 = 5;
const ENOSPC: i64 = 28;

/// The number of injected faults, by name.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counts(Arc<Mutex<BTreeMap<String, u64>>>);

impl Counts {
    pub(crate) fn add(&self, what: impl Into<String>, number: u64) {
        let mut counts = self.0.lock().expect("unpoisoned");
        *counts.entry(what.into()).or_default() += number;
    }

    pub(crate) fn all(&self) -> BTreeMap<String, u64> {
        self.0.lock().expect("unpoisoned").clone()
    }
}

/// Why the nemesis cannot continue: the cluster did not recover, or a fault did not have its required outcome.
pub(crate) type Broken = String;

/// The members, and the parts that they share.
pub(crate) struct Cluster {
    home: PathBuf,
    pub(crate) servers: Vec<Server>,
    pub(crate) network: Arc<Network>,
    pub(crate) directory: Directory,
    /// The fault pages of all members, including those removed.
    pub(crate) pages: Arc<Mutex<Vec<Page>>>,
    named: usize,
    pub(crate) counts: Counts,
}

impl Cluster {
    /// Starts the initial members of a cluster, and waits until each serves.
    pub(crate) async fn start(
        home: &Path,
        size: usize,
        seed: u64,
        counts: &Counts,
    ) -> Result<Cluster, Broken> {
        let mut cluster = Cluster {
            home: home.to_owned(),
            servers: Vec::new(),
            network: Network::new(seed),
            directory: Directory::default(),
            pages: Arc::default(),
            named: 0,
            counts: counts.clone(),
        };
        for _ in 0..size {
            let server = cluster.another().await;
            cluster.servers.push(server);
        }
        let one = |server: &Server| format!("{}={}", server.name, server.peer_url());
        let initial: Vec<String> = cluster.servers.iter().map(one).collect();
        for server in &mut cluster.servers {
            server.membership = vec![format!("--initial-cluster={}", initial.join(","))];
            server.start();
        }
        cluster.publish();
        cluster.settle("the start").await?;
        Ok(cluster)
    }

    pub(crate) async fn another(&mut self) -> Server {
        self.named += 1;
        let name = format!("m{}", self.named);
        let server = Server::new(&self.home, &name, &self.network).await;
        self.pages
            .lock()
            .expect("unpoisoned")
            .push(server.page.clone());
        server
    }

    /// Publishes the current members to clients and background faults.
    pub(crate) fn publish(&self) {
        let places = self.servers.iter().map(|server| client::Place {
            name: server.name.clone(),
            url: server.client_url(),
            page: server.page.clone(),
        });
        *self.directory.lock().expect("unpoisoned") = places.collect();
    }

    /// Waits until every member serves linearizable reads.
    pub(crate) async fn settle(&mut self, after: &str) -> Result<(), Broken> {
        let begun = Instant::now();
        for at in 0..self.servers.len() {
            while !self.servers[at].serves().await {
                let server = &mut self.servers[at];
                if let Some(status) = server.ended(Duration::ZERO).await {
                    let words = server.last_words();
                    return Err(format!(
                        "after {after} {} ended: {status}\n{words}",
                        server.name
                    ));
                }
                if begun.elapsed() > PATIENCE {
                    let words = server.last_words();
                    return Err(format!(
                        "after {after} {} does not serve:\n{words}",
                        server.name
                    ));
                }
                sleep(Duration::from_millis(50)).await;
            }
        }
        Ok(())
    }

    /// The leader with the newest term; the member at `otherwise` if none reports a leader.
    pub(crate) async fn leader(&self, otherwise: usize) -> usize {
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(10) {
            let mut led = None;
            for (at, server) in self.servers.iter().enumerate() {
                let Some(status) = server.status().await else {
                    continue;
                };
                let own = status.header.as_ref().map_or(0, |header| header.member_id);
                if status.leader == own && own != 0 {
                    led = led.max(Some((status.raft_term, at)));
                }
            }
            if let Some((_, at)) = led {
                return at;
            }
            sleep(Duration::from_millis(50)).await;
        }
        otherwise % self.servers.len()
    }

    /// Injects and reverts one fault.
    async fn strike(&mut self, strike: Strike<Hard>) -> Result<(), Broken> {
        let size = self.servers.len();
        let leader = self.leader(strike.target).await;
        let one = strike.target % size;
        let follower = (leader + 1 + strike.target % (size - 1)) % size;
        let other = (one + 1 + strike.other % (size - 1)) % size;
        let lasts = strike.lasts;
        match strike.fault {
            Hard::KillOne => self.kill(&[one], lasts).await,
            Hard::KillLeader => self.kill(&[leader], lasts).await,
            Hard::KillMost => {
                let most: Vec<usize> = (0..=size / 2).map(|at| (one + at) % size).collect();
                self.kill(&most, lasts).await;
            }
            Hard::KillAll => self.kill(&(0..size).collect::<Vec<_>>(), lasts).await,
            Hard::PowerOne => self.power(&[one], strike).await?,
            Hard::PowerAll => self.power(&(0..size).collect::<Vec<_>>(), strike).await?,
            Hard::StopOne => self.pause(one, lasts).await,
            Hard::StopLeader => self.pause(leader, lasts).await,
            Hard::IsolateLeader => self.cut(&self.ways_of(leader, true, true), lasts).await,
            Hard::IsolateFollower => self.cut(&self.ways_of(follower, true, true), lasts).await,
            Hard::MuteLeader => self.cut(&self.ways_of(leader, true, false), lasts).await,
            Hard::DeafLeader => self.cut(&self.ways_of(leader, false, true), lasts).await,
            Hard::CutLink => self.cut(&[(one, other), (other, one)], lasts).await,
            Hard::CutOneWay => self.cut(&[(one, other)], lasts).await,
            Hard::FailSyncs => self.fail(one, Place::SyncErrno, EIO, FSYNC, lasts).await?,
            Hard::FailWrites => self.fail(one, Place::WriteErrno, EIO, IO, lasts).await?,
            Hard::FillDisk => {
                let code = DISK_FULL;
                self.fail(one, Place::WriteErrno, ENOSPC, code, lasts)
                    .await?;
            }
            Hard::HangDisk => {
                self.servers[one].page.set(Place::SyncMicros, 30_000_000);
                sleep(lasts).await;
                self.servers[one].page.set(Place::SyncMicros, 0);
            }
            Hard::LoseDisk => self.lose_disk(one, lasts).await?,
            Hard::ReplaceMember => self.replace(one).await?,
            Hard::RestartAll => self.restart_all().await?,
            Hard::MoveLeader => self.move_leader(leader, follower).await?,
        }
        self.counts.add(format!("fault {:?}", strike.fault), 1);
        self.settle(&format!("{:?}", strike.fault)).await
    }

    async fn kill(&mut self, target: &[usize], lasts: Duration) {
        for at in target {
            self.servers[*at].kill();
            self.counts.add("kills", 1);
        }
        sleep(lasts).await;
        for at in target {
            self.servers[*at].start();
        }
    }

    /// Loss of power: writes that were not synced are lost. The disks hang for a moment before, so that there are such
    /// writes.
    async fn power(&mut self, target: &[usize], strike: Strike<Hard>) -> Result<(), Broken> {
        for at in target {
            self.servers[*at].page.set(Place::SyncMicros, 30_000_000);
        }
        sleep(strike.lasts / 8).await;
        for at in target {
            let server = &mut self.servers[*at];
            server.kill();
            server.page.set(Place::SyncMicros, 0);
            let seed = (strike.target * 60 + strike.other + at) as u64;
            let lost = power::lose_unsynced(&server.undo(), seed);
            let lost =
                lost.map_err(|error| format!("cannot take power from {}: {error}", server.name))?;
            self.counts.add("power losses", 1);
            self.counts.add("unsynced writes lost", lost);
        }
        sleep(strike.lasts / 2).await;
        for at in target {
            self.servers[*at].start();
        }
        Ok(())
    }

    async fn pause(&mut self, target: usize, lasts: Duration) {
        self.servers[target].signal("STOP");
        self.counts.add("stops", 1);
        sleep(lasts).await;
        self.servers[target].signal("CONT");
    }

    fn ways_of(&self, target: usize, out: bool, back: bool) -> Vec<(usize, usize)> {
        let others = (0..self.servers.len()).filter(|at| *at != target);
        others
            .flat_map(|at| [(out, (target, at)), (back, (at, target))])
            .filter_map(|(cut, way)| cut.then_some(way))
            .collect()
    }

    async fn cut(&self, ways: &[(usize, usize)], lasts: Duration) {
        let change = |cut: bool| {
            for (from, to) in ways {
                let (from, to) = (&self.servers[*from].name, &self.servers[*to].name);
                self.network.change(from, to, |way| way.cut = cut);
            }
        };
        change(true);
        self.counts.add("partitions", 1);
        sleep(lasts).await;
        change(false);
    }

    /// A failing disk must end its server with the right exit code and message; then the disk is repaired.
    async fn fail(
        &mut self,
        target: usize,
        place: Place,
        errno: i64,
        code: i32,
        lasts: Duration,
    ) -> Result<(), Broken> {
        let server = &mut self.servers[target];
        server.page.set(place, errno);
        let ended = server.ended(PATIENCE).await;
        server.page.set(place, 0);
        if ended.and_then(|status| status.code()) != Some(code) {
            let words = server.last_words();
            return Err(format!(
                "errno {errno} must end {} with {code}: {ended:?}\n{words}",
                server.name
            ));
        }
        self.counts.add("disk faults", 1);
        sleep(lasts).await;
        self.servers[target].start();
        Ok(())
    }

    /// Injects faults until the time is over and each kind has occurred.
    pub(crate) async fn nemesis(&mut self, seed: u64, lasts: Duration) -> Result<(), Broken> {
        let begun = Instant::now();
        for (number, strike) in Schedule::new(HARD, seed, (1_500, 4_000)).enumerate() {
            if begun.elapsed() > lasts && number >= HARD.len() {
                break;
            }
            sleep(strike.after).await;
            self.strike(strike).await?;
        }
        Ok(())
    }
}
