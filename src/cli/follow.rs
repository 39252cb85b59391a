//! `quorate follow`: a cluster that takes its writes from another living one, until it takes that one's place. Parses
//! arguments, prints results; `crate::backup::follow` does the work. The operator runs it in its Jobs.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use clap::{Args, Subcommand, ValueEnum};
use jiff::Timestamp;

use super::backup::{Ended, MemberFlags, Report, TargetFlags, run_reported, signalled};
use crate::backup::Error;
use crate::backup::follow::{self, Follow, Seed};
use crate::backup::source::Clients;
use crate::backup_plan::{Followed, JobResult, Restored, size};

/// Follow another living cluster, etcd's or ours.
#[derive(Debug, Args)]
pub(super) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Seed(Box<SeedArguments>),
    Run(Box<RunArguments>),
}

/// Gives the standby that is to found a cluster a snapshot of the cluster that is to be followed. The operator founds the
/// cluster from it; what is written there meanwhile comes by `quorate follow run`.
#[derive(Debug, Args)]
struct SeedArguments {
    #[command(flatten)]
    from: From,
    /// Directory for the snapshot while it is sent: as many bytes as the data. By default that of temporary files.
    #[arg(long, value_name = "DIRECTORY")]
    scratch: Option<PathBuf>,
    #[command(flatten)]
    target: TargetFlags,
    #[command(flatten)]
    report: Report,
}

/// Brings a cluster the writes of the one that it follows, at the same revisions, until it is terminated, twelve hours at
/// most. With --cutover=when-caught-up it then closes the followed cluster to writes by the alarm CORRUPT, brings over
/// what it wrote last, lets clients write here, and ends. With --cutover=source-lost it brings over nothing any more: it
/// makes sure that no member of the followed cluster answers as one of a living cluster, raises the revision by
/// 1000000000, so that no client mistakes what is here for what it has seen there, and lets clients write here.
#[derive(Debug, Args)]
struct RunArguments {
    #[command(flatten)]
    from: From,
    #[command(flatten)]
    members: MemberFlags,
    /// When the followed cluster is left.
    #[arg(long, value_enum, default_value = "manual")]
    cutover: Cutover,
    /// With --cutover=source-lost: the revision that has to be here at least, as it was reviewed.
    #[arg(
        long,
        value_name = "REVISION",
        value_parser = clap::value_parser!(i64).range(1..),
        required_if_eq("cutover", "source-lost")
    )]
    revision: Option<i64>,
    /// Directory for a snapshot of the followed cluster, where its users have changed: as many bytes as its data. By
    /// default that of temporary files.
    #[arg(long, value_name = "DIRECTORY")]
    scratch: Option<PathBuf>,
    #[command(flatten)]
    report: Report,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Cutover {
    /// Not by this command.
    Manual,
    /// As soon as everything that it wrote is here.
    WhenCaughtUp,
    /// Now, because it is lost: what it wrote and is not here is lost as well.
    SourceLost,
}

/// The followed cluster.
#[derive(Debug, Args)]
struct From {
    /// Client endpoint of the followed cluster; may be given several times, or comma-separated.
    #[arg(
        long = "from",
        value_name = "URL",
        value_delimiter = ',',
        required = true
    )]
    endpoints: Vec<String>,
    /// PEM roots of its servers' certificates; by default those that this machine trusts.
    #[arg(long = "from-cacert", value_name = "FILE")]
    cacert: Option<PathBuf>,
    /// PEM certificate of this client. Where neither this file nor that of the key is there, none is shown.
    #[arg(long = "from-cert", value_name = "FILE", requires = "key")]
    cert: Option<PathBuf>,
    /// PEM key of this client.
    #[arg(long = "from-key", value_name = "FILE", requires = "cert")]
    key: Option<PathBuf>,
    /// File with the name of a user who has the role root there, if authentication is enabled.
    #[arg(long = "from-user-file", value_name = "FILE", requires = "password")]
    user: Option<PathBuf>,
    /// File with the user's password.
    #[arg(long = "from-password-file", value_name = "FILE", requires = "user")]
    password: Option<PathBuf>,
}

/// Runs the subcommand.
pub(super) fn run(arguments: Arguments) -> ExitCode {
    match arguments.command {
        Command::Seed(seed) => {
            let report = seed.report.clone();
            run_reported("quorate follow seed", &report, false, seed.run())
        }
        Command::Run(run) => {
            let report = run.report.clone();
            // What it has closed it opens again before it ends.
            run_reported("quorate follow run", &report, true, run.run())
        }
    }
}

impl SeedArguments {
    async fn run(self) -> Result<Ended, Error> {
        let began = Instant::now();
        let path = self.from.endpoints.join(",");
        let (target, rate) = self.target.read()?;
        let host = target.host.clone();
        let seed = Seed {
            from: self.from.read()?,
            rate,
            scratch: self.scratch.unwrap_or_else(std::env::temp_dir),
            target,
        };
        let sent = Box::pin(seed.run()).await?;
        println!(
            "{host} has a snapshot of {path}: {}, revision {}, {} keys\nSHA-256 {}",
            size(sent.size),
            sent.revision,
            sent.keys,
            sent.sha256
        );
        Ok(Ended {
            code: ExitCode::SUCCESS,
            result: Some(JobResult::Restored(Restored {
                path,
                at: Timestamp::now(),
                seconds: began.elapsed().as_secs(),
                sha256: sent.sha256,
                revision: sent.revision,
                keys: sent.keys,
                size: sent.size,
                raft_index: None,
                as_of: None,
            })),
        })
    }
}

impl RunArguments {
    async fn run(self) -> Result<Ended, Error> {
        let follow = Follow {
            from: self.from.read()?,
            members: self.members.members()?,
            cutover: when(self.cutover, self.revision)?,
            scratch: self.scratch.unwrap_or_else(std::env::temp_dir),
        };
        let stop = signalled()?;
        let ended = Box::pin(follow.run(stop)).await?;
        let result = match ended {
            follow::Ended::Stopped(why) => {
                println!("the cluster still follows: {why}");
                None
            }
            follow::Ended::CutOver(None) => {
                println!("the cluster follows none any more");
                Some(Followed::default())
            }
            follow::Ended::CutOver(Some(done)) => {
                println!("{}", in_words(done));
                Some(Followed {
                    revision: done.revision,
                    frozen_unix_ms: done.frozen_unix_ms,
                    writable_unix_ms: done.writable_unix_ms,
                })
            }
        };
        Ok(Ended {
            code: ExitCode::SUCCESS,
            result: result.map(JobResult::Followed),
        })
    }
}

fn when(cutover: Cutover, revision: Option<i64>) -> Result<follow::Cutover, Error> {
    match (cutover, revision) {
        (Cutover::Manual, None) => Ok(follow::Cutover::Manual),
        (Cutover::WhenCaughtUp, None) => Ok(follow::Cutover::WhenCaughtUp),
        (Cutover::SourceLost, Some(least)) => Ok(follow::Cutover::SourceLost { least }),
        (Cutover::SourceLost, None) | (_, Some(_)) => Err(Error::Usage(
            "--revision and --cutover=source-lost go together: the revision that was reviewed"
                .to_owned(),
        )),
    }
}

fn in_words(done: follow::CutOver) -> String {
    let revision = done.revision;
    match done.frozen_unix_ms {
        0 => format!(
            "the cluster takes writes, from revision {revision} on: what the followed one wrote and is not here is lost"
        ),
        frozen => format!(
            "the cluster has taken over at revision {revision}, {} ms after the followed one was closed to writes",
            done.writable_unix_ms - frozen
        ),
    }
}

impl From {
    fn read(self) -> Result<Clients, Error> {
        let identity = match (&self.cert, &self.key) {
            // A Secret may have neither: then the cluster asks for none.
            (Some(certificate), Some(key)) if certificate.exists() || key.exists() => {
                Some((read(certificate)?, read(key)?))
            }
            _ => None,
        };
        let user = match (&self.user, &self.password) {
            (Some(name), Some(password)) => Some((text(name)?, text(password)?)),
            _ => None,
        };
        Ok(Clients {
            endpoints: self.endpoints,
            ca: self.cacert.as_deref().map(read).transpose()?,
            identity,
            user,
            under_corrupt: false,
        })
    }
}

/// The text of a file, without the end of its line.
fn text(file: &Path) -> Result<String, Error> {
    let text = String::from_utf8(read(file)?);
    let text = text.map_err(|_| Error::Usage(format!("{} holds no text", file.display())))?;
    Ok(text.trim_end_matches(['\r', '\n']).to_owned())
}

fn read(file: &Path) -> Result<Vec<u8>, Error> {
    std::fs::read(file).map_err(|source| Error::File {
        path: file.to_owned(),
        source,
    })
}

#[cfg(test)]
mod tests {
    /// The operator of a followed cluster knows the alarms by which that is closed by their ID, and leaves them alone.
    #[test]
    fn closing_and_plan_agree_on_the_alarms() {
        assert_eq!(crate::backup::follow::CLOSED, crate::plan::CLOSED_BY);
    }
}
