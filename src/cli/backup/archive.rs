//! `quorate backup archive`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;

use super::report::Report;
use super::source::MemberFlags;
use super::store::Store;
use super::{Ended, read_key, signalled};
use crate::backup::Error;
use crate::backup::archive::{self, Archive};
use crate::backup_plan::{Archived, JobResult};

/// The exit code where the log no longer holds what comes next.
const GAP: u8 = 3;
/// The shortest and the longest interval.
const INTERVALS: std::ops::RangeInclusive<Duration> =
    Duration::from_millis(200)..=Duration::from_secs(60);

/// Stores what a cluster writes, entry by entry of its log, behind its backups in the same folder, so that a restore can
/// stop at any moment. Goes on where the last one ended; runs until it is terminated, twelve hours at most. Ends with 3 if
/// the log no longer holds what comes next: then it goes on behind the next backup.
#[derive(Debug, Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    store: Store,
    #[command(flatten)]
    members: MemberFlags,
    /// File with 32 random bytes in base64, with which the archive is encrypted: the key of the backups. May be given
    /// several times: with the others is read what was stored before.
    #[arg(long = "key-file", value_name = "FILE")]
    key_files: Vec<PathBuf>,
    /// New entries are stored after this at the latest: 200ms to 60s.
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = interval)]
    interval: Duration,
    /// What the members are told, and describe, of the place that is archived to; by default the folder's URL.
    #[arg(long, value_name = "TEXT")]
    location: Option<String>,
    #[command(flatten)]
    pub(super) report: Report,
}

fn interval(text: &str) -> Result<Duration, String> {
    let time: jiff::SignedDuration = text
        .parse()
        .map_err(|error: jiff::Error| error.to_string())?;
    let time = Duration::try_from(time).map_err(|error| error.to_string())?;
    match INTERVALS.contains(&time) {
        true => Ok(time),
        false => Err("give 200ms to 60s".to_owned()),
    }
}

pub(super) async fn run(arguments: Arguments) -> Result<Ended, Error> {
    let keys = arguments.key_files.iter().map(|file| read_key(file));
    let archive = Archive {
        members: arguments.members.members()?,
        keys: keys.collect::<Result<_, Error>>()?,
        interval: arguments.interval,
        location: arguments.location,
    };
    let repository = arguments.store.open()?;
    // What was read is stored then.
    let stop = signalled()?;
    let ended = archive.run(&repository, stop).await?;
    println!("{}", text(&ended));
    Ok(Ended {
        code: match ended.gap {
            true => ExitCode::from(GAP),
            false => ExitCode::SUCCESS,
        },
        result: Some(JobResult::Archived(result(ended))),
    })
}

fn result(ended: archive::Ended) -> Archived {
    Archived {
        cluster_id: match ended.cluster_id {
            0 => String::new(),
            id => format!("{id:x}"),
        },
        first: ended.first,
        last: ended.last,
        as_of: ended.as_of,
        objects: ended.objects,
        gap: ended.gap,
        message: ended.message,
    }
}

fn text(ended: &archive::Ended) -> String {
    let held = match ended.first {
        0 => "nothing is archived".to_owned(),
        first => format!("entries {first} to {} are archived", ended.last),
    };
    let as_of = match ended.as_of {
        Some(as_of) => format!(", as of {as_of}"),
        None => String::new(),
    };
    let objects = ended.objects;
    format!(
        "{held}{as_of}; {objects} objects were written; {}",
        ended.message
    )
}
