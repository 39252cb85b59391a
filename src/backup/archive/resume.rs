//! Where an archiver goes on: behind what an earlier one has stored, or behind the newest backup. Reads the store, and never
//! asks a member.

use super::chain::newest_run;
use super::moment::Base;
use super::segment::Mark;
use crate::backup::Error;
use crate::backup::cipher::Key;
use crate::backup::repository::Repository;
use crate::snapshot::replay::Position;

/// What an earlier archiver has stored.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Run {
    /// Its first entry; 0: nothing without a hole.
    pub(super) first: u64,
    /// What is known of the time of the entry that it ended with, or of a backup's behind which nothing was stored.
    pub(super) mark: Option<Mark>,
    pub(super) as_of_ms: Option<i64>,
}

/// What is stored, and the entries behind which an archive may go on, the last choice first.
pub(super) async fn starts(
    repository: &Repository,
    cluster_id: u64,
    keys: &[Key],
) -> Result<(Run, Vec<Position>), Error> {
    // It is not needed: one that cannot be read is written again.
    let idle = repository.idle_mark(cluster_id, keys).await.ok().flatten();
    let nothing = Run {
        mark: idle,
        ..Run::default()
    };
    let archived = repository.archived(Some(cluster_id)).await?;
    let run = newest_run(archived.iter().map(|it| it.range));
    let mut starts = Vec::new();
    let stored = repository.list(keys).await?;
    let bases = stored.iter().filter_map(Base::of);
    let own = bases.filter(|base| base.cluster_id == cluster_id);
    let newest = own.max_by_key(|base| base.at.index);
    if let Some(base) = &newest
        && run.is_none_or(|run| run.last < base.at.index)
    {
        starts.push(base.at);
    }
    let Some(run) = run else {
        return Ok((nothing, starts));
    };
    let last = archived.iter().filter(|it| it.range.last == run.last);
    // Of several, the shortest.
    let last = last.map(|it| it.range).max();
    let segment = match last {
        Some(range) => match repository.archived_segment(cluster_id, range, keys).await {
            // It leads nowhere: the archive goes on behind a backup, which a restore begins with as well.
            Err(error @ (Error::Archive(_) | Error::Key(_))) => {
                eprintln!("quorate backup archive: {error}: it goes on behind the newest backup");
                let start = newest.map(|base| base.at);
                return Ok((nothing, start.into_iter().collect()));
            }
            read => read?,
        },
        None => None,
    };
    let segment = segment.ok_or_else(|| Error::Unclear {
        id: "archive".to_owned(),
        what: "its newest object is listed and not there".to_owned(),
    })?;
    let term = segment.term(run.last).unwrap_or_default();
    starts.push(Position {
        index: run.last,
        term,
    });
    let marks = segment.marks.iter().copied();
    let marks: Vec<Mark> = marks
        .chain(idle.filter(|mark| mark.index == run.last))
        .collect();
    let run = Run {
        first: run.first,
        // Behind a newer backup nothing may be stored yet.
        mark: idle
            .filter(|mark| mark.index > run.last)
            .or(of_entry(&marks, run.last)),
        as_of_ms: marks.iter().filter_map(|mark| mark.as_of_ms).max(),
    };
    Ok((run, starts))
}

/// All that is known of the time of an entry.
fn of_entry(marks: &[Mark], index: u64) -> Option<Mark> {
    let own = || marks.iter().filter(|mark| mark.index == index);
    Some(Mark {
        index,
        known_ms: own().map(|mark| mark.known_ms).min()?,
        as_of_ms: own().filter_map(|mark| mark.as_of_ms).max(),
    })
}
