//! `quorate backup prune`.

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use jiff::Timestamp;
use jiff::tz::TimeZone;

use super::report::Report;
use super::store::Backups;
use super::{Ended, chain, printable};
use crate::backup::Error;
use crate::backup::archive::Archived;
use crate::backup::cipher::Key;
use crate::backup::prune::{Plan, carry_out, carry_out_archive, plan, plan_archive};
use crate::backup::repository::{Repository, Stored};
use crate::backup::retention::Retention;
use crate::backup_plan::{JobResult, Pruned};

/// Deletes backups that no rule keeps, and what a `save` that was interrupted a day ago left. The newest good backup
/// and the newest verified one always stay.
#[derive(Debug, Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    backups: Backups,
    /// Keep the newest so many.
    #[arg(long, value_name = "COUNT", default_value_t = 0)]
    keep_last: usize,
    /// Keep the newest of each of the last so many hours that have one.
    #[arg(long, value_name = "COUNT", default_value_t = 0)]
    keep_hourly: usize,
    /// The same of days.
    #[arg(long, value_name = "COUNT", default_value_t = 0)]
    keep_daily: usize,
    /// The same of weeks.
    #[arg(long, value_name = "COUNT", default_value_t = 0)]
    keep_weekly: usize,
    /// Keep so many good ones whatever the other flags say.
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    min_keep: u64,
    /// Where days and weeks begin: a name such as Europe/Berlin.
    #[arg(long, value_name = "ZONE", default_value = "UTC")]
    time_zone: String,
    /// Keep the archive from the newest good backup on that is older than this: 7d, 12h and so on. 0 keeps all that is
    /// behind a backup that is kept.
    #[arg(long, value_name = "TIME", default_value = "7d", value_parser = window)]
    archive_window: Duration,
    /// Say what would be deleted, and delete nothing.
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    pub(super) report: Report,
}

pub(super) async fn run(arguments: Arguments) -> Result<Ended, Error> {
    let policy = Retention {
        last: arguments.keep_last,
        hourly: arguments.keep_hourly,
        daily: arguments.keep_daily,
        weekly: arguments.keep_weekly,
        min_keep: usize::try_from(arguments.min_keep).unwrap_or(usize::MAX),
    };
    if [policy.last, policy.hourly, policy.daily, policy.weekly] == [0; 4] {
        let text = "nothing says what to keep: give --keep-last, --keep-hourly, --keep-daily or --keep-weekly";
        return Err(Error::Usage(text.to_owned()));
    }
    let zone = TimeZone::get(&arguments.time_zone);
    let zone = zone.map_err(|error| Error::Usage(format!("--time-zone: {error}")))?;
    let what = (arguments.archive_window, arguments.dry_run);
    let (repository, keys) = arguments.backups.open()?;
    let stored = repository.list(&keys).await?;
    let now = Timestamp::now();
    let mut plan = plan(&stored, &policy, &zone, now);
    let later = match arguments.report.is_asked_for() {
        true => postpone(&mut plan),
        false => 0,
    };
    print!("{}", text(&plan, arguments.dry_run));
    if later > 0 {
        println!("{later} others are deleted by the next prune: a result holds no more names");
    }
    let mut deleted = Vec::new();
    let done = match arguments.dry_run {
        true => Ok(()),
        false => carry_out(&repository, &plan, &policy, &zone, &keys, now, &mut deleted).await,
    };
    let done = match done {
        Ok(()) => prune_archive(&repository, &keys, &plan, what, now).await,
        Err(error) => Err(error),
    };
    let whole = done.is_ok();
    match done {
        Ok(()) => {}
        Err(error) if deleted.is_empty() => return Err(error),
        // What is gone is reported as such; a repetition continues.
        Err(error) => eprintln!("quorate backup prune: {}", printable(&chain(&error))),
    }
    let planned = plan.deleted.iter().map(|deletion| &deletion.id);
    let all = plan.kept.keys().chain(planned);
    let pruned = Pruned {
        kept: all.filter(|id| !deleted.contains(id)).cloned().collect(),
        deleted,
        listed: Some(now),
        shortened: !whole,
    };
    Ok(Ended {
        code: match whole {
            true => ExitCode::SUCCESS,
            false => ExitCode::FAILURE,
        },
        result: Some(JobResult::Pruned(pruned)),
    })
}

/// Leaves for the next prune what a result cannot name: whoever reads it knows a backup as deleted only by its name there.
/// How many those are.
fn postpone(plan: &mut Plan) -> usize {
    let all = plan.deleted.len();
    while !is_named(plan) {
        if let Some(last) = plan.deleted.pop() {
            plan.kept.insert(last.id, vec!["deleted by the next prune"]);
        }
    }
    all - plan.deleted.len()
}

/// Whether a result names each backup that is to be deleted.
fn is_named(plan: &Plan) -> bool {
    let deleted: Vec<String> = plan.deleted.iter().map(|it| it.id.clone()).collect();
    let result = JobResult::Pruned(Pruned {
        kept: plan.kept.keys().cloned().collect(),
        deleted: deleted.clone(),
        listed: Some(Timestamp::MAX),
        shortened: true,
    });
    deleted.is_empty()
        || matches!(JobResult::read(&result.line()), Some(JobResult::Pruned(read)) if read.deleted == deleted)
}

fn window(text: &str) -> Result<Duration, String> {
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    let unfit = |error: jiff::Error| error.to_string();
    let span: jiff::Span = text.parse().map_err(unfit)?;
    let time = span.to_duration(jiff::SpanRelativeTo::days_are_24_hours());
    Duration::try_from(time.map_err(unfit)?).map_err(|_| "a time in the past".to_owned())
}

/// Prunes the archive behind the backups that are left.
async fn prune_archive(
    repository: &Repository,
    keys: &[Key],
    plan: &Plan,
    (window, dry_run): (Duration, bool),
    now: Timestamp,
) -> Result<(), Error> {
    let stored = repository.list(keys).await?;
    let goes = |stored: &&Stored| {
        let mut deleted = plan.deleted.iter();
        dry_run && deleted.any(|deletion| deletion.id == stored.id)
    };
    let left: Vec<&Stored> = stored.iter().filter(|stored| !goes(stored)).collect();
    let plan = plan_archive(repository, &left, window, now).await?;
    print!("{}", archive_text(&plan.objects, dry_run));
    match dry_run {
        true => Ok(()),
        false => carry_out_archive(repository, &plan).await,
    }
}

fn archive_text(objects: &[Archived], dry_run: bool) -> String {
    let verb = if dry_run { "would delete" } else { "delete" };
    let clusters = objects.chunk_by(|a, b| a.cluster_id == b.cluster_id);
    let line = |of_one: &[Archived]| {
        let last = of_one.iter().map(|it| it.range.last).max();
        format!(
            "{verb} {} objects of the archive of the cluster {:x}, up to entry {}\n",
            of_one.len(),
            of_one[0].cluster_id,
            last.unwrap_or_default()
        )
    };
    clusters.map(line).collect()
}

fn text(plan: &Plan, dry_run: bool) -> String {
    let verb = if dry_run { "would delete" } else { "delete" };
    let mut text = String::new();
    for (id, reasons) in &plan.kept {
        text += &format!("keep {id}: {}\n", reasons.join(", "));
    }
    for deletion in &plan.deleted {
        text += &format!("{verb} {}\n", deletion.id);
    }
    for id in &plan.left_over {
        text += &format!("{verb} parts of {id} that no manifest names\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backup::prune::Deletion;

    /// The first retention of a store with many backups: of those that no result named, the resources stayed as if they
    /// were there.
    #[test]
    fn no_more_is_deleted_than_a_result_names() {
        let name = |number: usize| format!("nightly-2026030100{number:02}-1a2b3c4d-5e6f");
        for (deleted, kept) in [(0, 200), (3, 3), (40, 500), (200, 3), (200, 200)] {
            let deletion = |number| Deletion {
                id: name(number),
                attempt: "0a1b2c3d".to_owned(),
                damaged: false,
            };
            let mut plan = Plan {
                deleted: (0..deleted).map(deletion).collect(),
                kept: (0..kept)
                    .map(|number| (name(1_000 + number), vec!["last"]))
                    .collect(),
                left_over: Vec::new(),
            };
            let later = postpone(&mut plan);
            assert_eq!(plan.deleted.len() + later, deleted);
            assert_eq!(plan.kept.len(), kept + later, "what stays is there");
            assert!(
                later == 0 || plan.deleted.len() > 50,
                "{}",
                plan.deleted.len()
            );
            let names: Vec<String> = plan.deleted.iter().map(|it| it.id.clone()).collect();
            let line = JobResult::Pruned(Pruned {
                deleted: names.clone(),
                kept: plan.kept.keys().cloned().collect(),
                listed: Some(Timestamp::now()),
                shortened: false,
            })
            .line();
            assert!(line.len() <= 4096, "{}", line.len());
            let Some(JobResult::Pruned(read)) = JobResult::read(&line) else {
                panic!("{line}");
            };
            assert_eq!(read.deleted, names);
            let whole = read.kept.len() == plan.kept.len();
            assert_eq!(read.shortened, !whole, "what is missing there says nothing");
        }
    }
}
