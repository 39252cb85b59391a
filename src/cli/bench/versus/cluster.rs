//! The members of one side on loopback, as processes of this machine, with data on real disk.
//! Both sides get the same flags. Stops every process that it has started.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;
use tonic::transport::{Channel, Endpoint};

use super::super::Error;
use super::figures::Side;
use crate::wire::etcd::kv_client::KvClient;
use crate::wire::etcd::maintenance_client::MaintenanceClient;
use crate::wire::etcd::{RangeRequest, StatusRequest};

/// Time for anything that a cluster does between measurements.
const PATIENCE: Duration = Duration::from_secs(120);
/// Poll interval.
const CHECK_EVERY: Duration = Duration::from_millis(2);
/// The kernel reports a process's CPU time in hundredths of a second.
const TICKS_A_SECOND: f64 = 100.0;

/// A running cluster.
pub(super) struct Cluster {
    side: Side,
    program: PathBuf,
    /// The cores of the members, as `taskset` reads them.
    cores: Option<String>,
    folder: PathBuf,
    members: Vec<Option<Child>>,
    runtime: Runtime,
}

impl Cluster {
    /// Starts the members with empty disks below `folder` and waits until each serves.
    pub(super) fn start(
        side: Side,
        program: &Path,
        cores: Option<&str>,
        members: usize,
        folder: &Path,
    ) -> Result<Cluster, Error> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let folder = folder.join(match side {
            Side::Ours => "ours",
            Side::Etcd => "etcd",
        });
        fs::create_dir_all(&folder)?;
        let mut cluster = Cluster {
            side,
            program: program.to_owned(),
            cores: cores.map(str::to_owned),
            folder,
            members: (0..members).map(|_| None).collect(),
            runtime,
        };
        for member in 0..members {
            cluster.members[member] = Some(cluster.spawn(member)?);
        }
        for member in 0..members {
            cluster.serves(member)?;
        }
        Ok(cluster)
    }

    /// The client endpoints, the leader's first: a single client uses the first, and a request to a follower costs a
    /// hop more, on either side. Measured without that, a member of the same binary had 1.4 times the reads of another.
    pub(super) fn endpoints(&self) -> Result<Vec<String>, Error> {
        let mut endpoints = Vec::new();
        for member in 0..self.members.len() {
            let at = if self.leads(member)? {
                0
            } else {
                endpoints.len()
            };
            endpoints.insert(at, self.client(member));
        }
        Ok(endpoints)
    }

    /// One loopback address per member, distinct from those of other runs on this machine.
    fn host(&self, member: usize) -> String {
        let [.., high, low] = std::process::id().to_be_bytes();
        let side = match self.side {
            Side::Ours => 100,
            Side::Etcd => 200,
        };
        format!("127.{}.{low}.{}", high | 128, side + member)
    }

    fn client(&self, member: usize) -> String {
        format!("http://{}:2379", self.host(member))
    }

    fn peer(&self, member: usize) -> String {
        format!("http://{}:2380", self.host(member))
    }

    fn log(&self, member: usize) -> PathBuf {
        self.folder.join(format!("{member}.log"))
    }

    fn spawn(&self, member: usize) -> Result<Child, Error> {
        let log = || {
            let mut options = File::options();
            options.create(true).append(true).open(self.log(member))
        };
        let initial: Vec<String> = (0..self.members.len())
            .map(|member| format!("m{member}={}", self.peer(member)))
            .collect();
        let mut command = match &self.cores {
            // It becomes the program, so that the process is the member's.
            Some(cores) => {
                let mut command = Command::new("taskset");
                command.arg("-c").arg(cores).arg(&self.program);
                command
            }
            None => Command::new(&self.program),
        };
        if self.side == Side::Ours {
            command.arg("server");
        }
        command
            .arg(format!("--name=m{member}"))
            .arg(format!(
                "--data-dir={}",
                self.folder.join(format!("m{member}")).display()
            ))
            .arg(format!("--listen-client-urls={}", self.client(member)))
            .arg(format!("--advertise-client-urls={}", self.client(member)))
            .arg(format!("--listen-peer-urls={}", self.peer(member)))
            .arg(format!(
                "--initial-advertise-peer-urls={}",
                self.peer(member)
            ))
            .arg(format!("--initial-cluster={}", initial.join(",")))
            .arg("--initial-cluster-token=bench")
            .arg("--quota-backend-bytes=6442450944")
            .arg("--log-level=warn")
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .stdin(Stdio::null())
            .stdout(log()?)
            .stderr(log()?);
        command.spawn().map_err(|error| {
            Error::Cluster(format!("cannot start {}: {error}", self.program.display()))
        })
    }

    fn channel(&self, member: usize) -> Result<Channel, Error> {
        let endpoint = Endpoint::from_shared(self.client(member));
        let endpoint = endpoint.map_err(|error| Error::Cluster(error.to_string()))?;
        Ok(endpoint.timeout(Duration::from_secs(5)).connect_lazy())
    }

    /// Waits until a member answers a linearizable read; returns how long that took.
    fn serves(&mut self, member: usize) -> Result<Duration, Error> {
        let begun = Instant::now();
        while begun.elapsed() < PATIENCE {
            // A new connection each time, so that none waits for a back-off.
            let answered = self.runtime.block_on(async {
                let request = RangeRequest {
                    key: bytes::Bytes::from_static(b"none"),
                    ..RangeRequest::default()
                };
                let channel = self.channel(member)?;
                Ok::<_, Error>(KvClient::new(channel).range(request).await.is_ok())
            })?;
            if answered {
                return Ok(begun.elapsed());
            }
            self.alive(member)?;
            self.pause();
        }
        Err(self.complaint(member, "does not serve"))
    }

    /// A timer must also be created inside of a runtime.
    fn pause(&self) {
        self.runtime
            .block_on(async { tokio::time::sleep(CHECK_EVERY).await });
    }

    fn alive(&mut self, member: usize) -> Result<(), Error> {
        let child = self.members[member].as_mut();
        match child.map(Child::try_wait).transpose()?.flatten() {
            Some(status) => Err(self.complaint(member, &format!("ended with {status}"))),
            None => Ok(()),
        }
    }

    fn complaint(&self, member: usize, what: &str) -> Error {
        let log = fs::read_to_string(self.log(member)).unwrap_or_default();
        let lines: Vec<&str> = log.lines().rev().take(8).collect();
        let lines: Vec<&str> = lines.into_iter().rev().collect();
        Error::Cluster(format!(
            "member {member} of {:?} {what}:\n{}",
            self.side,
            lines.join("\n")
        ))
    }

    /// Seconds of CPU that all members have used since they started.
    pub(super) fn cpu(&self) -> Result<f64, Error> {
        let mut ticks = 0;
        for child in self.members.iter().flatten() {
            ticks += ticks_of(&child.id().to_string())?;
        }
        Ok(ticks as f64 / TICKS_A_SECOND)
    }

    /// MiB that an average member holds: all of it, and what is not backed by a file.
    pub(super) fn memory(&self) -> Result<(f64, f64), Error> {
        let (mut all, mut anonymous) = (0, 0);
        for child in self.members.iter().flatten() {
            let status = fs::read_to_string(format!("/proc/{}/status", child.id()))?;
            let field = |name| {
                kibibytes(&status, name)
                    .ok_or_else(|| Error::Cluster(format!("/proc/PID/status has no {name}")))
            };
            all += field("VmRSS:")?;
            anonymous += field("RssAnon:")?;
        }
        let mean = |sum: u64| sum as f64 / 1024.0 / self.members.len() as f64;
        Ok((mean(all), mean(anonymous)))
    }

    /// Stops a follower (or the only member) as an init system would, starts it, and returns the seconds from its start to
    /// its first linearizable answer.
    pub(super) fn restart(&mut self) -> Result<f64, Error> {
        let member = self.follower()?;
        self.stop(member)?;
        let begun = Instant::now();
        self.members[member] = Some(self.spawn(member)?);
        self.serves(member)?;
        Ok(begun.elapsed().as_secs_f64())
    }

    /// Stops all members, starts them together, and returns the seconds until each has given a linearizable answer.
    pub(super) fn restart_all(&mut self) -> Result<f64, Error> {
        for member in 0..self.members.len() {
            self.stop(member)?;
        }
        let begun = Instant::now();
        for member in 0..self.members.len() {
            self.members[member] = Some(self.spawn(member)?);
        }
        for member in 0..self.members.len() {
            self.serves(member)?;
        }
        Ok(begun.elapsed().as_secs_f64())
    }

    fn stop(&mut self, member: usize) -> Result<(), Error> {
        let Some(mut child) = self.members[member].take() else {
            return Err(Error::Cluster(format!("member {member} does not run")));
        };
        let asked = Command::new("kill")
            .args(["-TERM", &child.id().to_string()])
            .status()?;
        let begun = Instant::now();
        while child.try_wait()?.is_none() {
            if !asked.success() || begun.elapsed() > PATIENCE {
                self.members[member] = Some(child);
                return Err(self.complaint(member, "does not stop"));
            }
            self.pause();
        }
        Ok(())
    }

    /// Some member that does not lead, if there is more than one.
    fn follower(&self) -> Result<usize, Error> {
        for member in 0..self.members.len() {
            if self.members.len() == 1 || !self.leads(member)? {
                return Ok(member);
            }
        }
        Err(Error::Cluster(
            "every member reports that it leads".to_owned(),
        ))
    }

    fn leads(&self, member: usize) -> Result<bool, Error> {
        let status = self.runtime.block_on(async {
            let mut client = MaintenanceClient::new(self.channel(member)?);
            let answer = client.status(StatusRequest {}).await;
            answer.map_err(|status| Error::Cluster(status.to_string()))
        })?;
        let status = status.into_inner();
        let own = status.header.map_or(0, |header| header.member_id);
        match status.leader {
            0 => Err(Error::Cluster(format!("member {own:x} knows no leader"))),
            leader => Ok(leader == own),
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for child in self.members.iter_mut().flatten() {
            // It may have exited already.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Seconds of CPU that this process has used since it started.
pub(super) fn own_cpu() -> Result<f64, Error> {
    Ok(ticks_of("self")? as f64 / TICKS_A_SECOND)
}

fn ticks_of(process: &str) -> Result<u64, Error> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat"))?;
    cpu_ticks(&stat).ok_or_else(|| Error::Cluster(format!("/proc/PID/stat reads {stat:?}")))
}

/// User and system time in `/proc/PID/stat`; the name in it may hold anything.
fn cpu_ticks(stat: &str) -> Option<u64> {
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let field = |at: usize| fields.get(at)?.parse::<u64>().ok();
    Some(field(11)? + field(12)?)
}

fn kibibytes(status: &str, name: &str) -> Option<u64> {
    let line = status.lines().find(|line| line.starts_with(name))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_is_found_behind_any_name() {
        let stat = "12 (a) b (c)) S 1 2 3 4 5 6 7 8 9 10 250 31 0 0 20 0";
        assert_eq!(cpu_ticks(stat), Some(281));
        assert_eq!(cpu_ticks("12 (short) S 1"), None);
    }

    #[test]
    fn memory_is_found_by_name() {
        let status = "Name:\tx\nVmRSS:\t  2048 kB\nRssAnon:\t 1024 kB\n";
        assert_eq!(kibibytes(status, "RssAnon:"), Some(1024));
        assert_eq!(kibibytes(status, "VmSwap:"), None);
    }
}
