//! From a backup and the archive behind it to a snapshot of a moment, in a file without a name: which backup is begun with,
//! and what there is to say of the result. Never takes a backup that holds more than the moment, and never gives less than
//! was asked for without an error or a note.

use std::fs::File;
use std::path::Path;

use jiff::Timestamp;

use super::attempt::{Attempt, Failed};
use super::moment::{Base, Moment, Unusable, choose, sorted};
use crate::backup::Error;
use crate::backup::cipher::Key;
use crate::backup::repository::Repository;

/// Backups that are named at most where they cannot be used.
const MOST_NAMED: usize = 3;

/// The moment, and what is needed to reach it.
#[derive(Debug)]
pub struct At<'a> {
    /// The moment.
    pub moment: Moment,
    /// The user's keys.
    pub keys: &'a [Key],
    /// A directory for the backup and the result: each needs as many bytes as the data.
    pub scratch: &'a Path,
}

/// What was reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reached {
    /// The backup that was begun with.
    pub base: String,
    /// The last entry of the log that was applied.
    pub index: u64,
    /// Revision of the data.
    pub revision: i64,
    /// Everything that was committed at this time is in them.
    pub as_of: Timestamp,
    /// Which backups were passed over, and why, in words.
    pub notes: Vec<String>,
}

/// Where a backup is looked for.
#[derive(Clone, Debug)]
pub(in crate::backup) struct Source<'a> {
    pub(in crate::backup) folder: &'a Repository,
    /// `None`: the best one of the folder.
    pub(in crate::backup) id: Option<&'a str>,
}

/// The snapshot of a moment, with its digest behind it. Where the best backup is damaged, an older one is begun with.
///
/// # Errors
/// [`Error::Moment`] if nothing leads there, [`Error::Archive`] and [`Error::Damaged`] if what is stored is not what was;
/// those of the store, the key and the file.
pub(in crate::backup) async fn file(
    source: Source<'_>,
    at: &At<'_>,
) -> Result<(File, Reached), Error> {
    let (bases, mut unusable) = bases(&source, at).await?;
    let candidates = choose(&bases, &unusable, at.moment)
        .map_err(|why| Error::Moment(why + &named(&unusable, at.moment, None)))?;
    std::fs::create_dir_all(at.scratch).map_err(Error::file(at.scratch))?;
    let mut why: Option<(String, &Base)> = None;
    let mut nearest: Option<Error> = None;
    for base in candidates {
        // An older one leads no further; one that has the revision already is behind the hole.
        if why.is_some() && !base.has_just(at.moment) {
            continue;
        }
        let attempt = Attempt {
            folder: source.folder,
            base,
            at,
        };
        match attempt.run().await {
            Ok((file, reached)) => {
                let reached = judged(reached, base, &unusable, at.moment)?;
                return Ok((file, reached));
            }
            Err(Failed::Short(short)) => why = why.or(Some((short, base))),
            // Whoever names a backup wants no other one.
            Err(Failed::Base(error)) if source.id.is_some() => return Err(error),
            Err(Failed::Base(error)) => {
                unusable.push(Unusable {
                    id: base.id.clone(),
                    what: what(&error),
                    base: Some(base.clone()),
                    written: None,
                });
                nearest = nearest.or(Some(error));
            }
            Err(Failed::Final(Error::Archive(text))) => {
                let others = named(&unusable, at.moment, Some(base));
                return Err(Error::Archive(text + &others));
            }
            Err(Failed::Final(error)) => return Err(error),
            Err(Failed::Bad(_, error)) => return Err(*error),
            Err(Failed::Gone(range)) => {
                return Err(Error::Unclear {
                    id: base.id.clone(),
                    what: format!("{range} of the archive are listed and not there: repeat"),
                });
            }
        }
    }
    match (why, nearest) {
        (Some((short, base)), _) => {
            let others = named(&unusable, at.moment, Some(base));
            Err(Error::Moment(short + &others))
        }
        // Every one is damaged: the nearest says how.
        (None, Some(error)) => Err(error),
        (None, None) => {
            let text = format!("{} is not reached from any backup", at.moment);
            Err(Error::Moment(text + &named(&unusable, at.moment, None)))
        }
    }
}

/// The backups to begin with, and those that cannot be used.
async fn bases(source: &Source<'_>, at: &At<'_>) -> Result<(Vec<Base>, Vec<Unusable>), Error> {
    let folder = source.folder;
    let Some(id) = source.id else {
        return Ok(sorted(&folder.list(at.keys).await?));
    };
    let stored = folder.find(id, at.keys).await?;
    stored.expect_manifest()?;
    if let Some(what) = stored.damage() {
        return Err(Error::damaged(id, what));
    }
    let base = Base::of(&stored);
    let base = base.ok_or_else(|| {
        Error::Moment(format!(
            "the backup {id} does not say which entry of the log is its last, so nothing can be replayed behind it"
        ))
    })?;
    Ok((vec![base], Vec::new()))
}

/// What was reached, with what there is to say of it.
///
/// # Errors
/// The end was asked for, and a backup that cannot be used is behind what was reached: whoever takes less has to say so.
fn judged(
    mut reached: Reached,
    base: &Base,
    unusable: &[Unusable],
    moment: Moment,
) -> Result<Reached, Error> {
    let newer = unusable.iter().find(|it| match &it.base {
        Some(other) if other.cluster_id == base.cluster_id => other.at.index > reached.index,
        Some(other) => other.completed > base.completed,
        // What an unreadable one holds nobody knows: everything up to when it was written.
        None => it.written.is_none_or(|written| written > reached.as_of),
    });
    if moment == Moment::Latest
        && let Some(Unusable {
            id,
            what,
            base,
            written,
        }) = newer
    {
        let holds = match (base, written) {
            (None, Some(written)) => format!(
                "what it holds is not known: it was written at {written} by the store's clock"
            ),
            _ => "nothing else leads as far as it did".to_owned(),
        };
        return Err(Error::Moment(format!(
            "latest is not reached: the backup {id} cannot be used ({what}), and {holds}. What is there ends with entry {}, revision {}, as of {}: give index:{} to restore that",
            reached.index, reached.revision, reached.as_of, reached.index
        )));
    }
    let passed = relevant(unusable, moment, Some(base));
    let passed = passed.map(|it| format!("the backup {} was passed over: {}", it.id, it.what));
    reached.notes.extend(passed);
    Ok(reached)
}

/// Behind an error: the backups that would have been better.
fn named(unusable: &[Unusable], moment: Moment, base: Option<&Base>) -> String {
    let all: Vec<&Unusable> = relevant(unusable, moment, base).collect();
    let named = all.iter().take(MOST_NAMED);
    let named = named.map(|it| format!("; the backup {} cannot be used: {}", it.id, it.what));
    let mut text: String = named.collect();
    if all.len() > MOST_NAMED {
        text += &format!("; neither can {} others", all.len() - MOST_NAMED);
    }
    text
}

/// Backups that might have been taken instead of this one.
fn relevant<'a>(
    unusable: &'a [Unusable],
    moment: Moment,
    base: Option<&'a Base>,
) -> impl Iterator<Item = &'a Unusable> {
    let better = move |other: &Base| match base {
        None => true,
        Some(base) if other.cluster_id == base.cluster_id => other.at.index > base.at.index,
        Some(base) => other.completed > base.completed,
    };
    unusable.iter().filter(move |it| {
        let other = it.base.as_ref();
        // Nobody knows what an unreadable one holds.
        other.is_none_or(|other| other.precedes(moment) && better(other))
    })
}

/// What is wrong with a backup, without its name.
fn what(error: &Error) -> String {
    match error {
        Error::Damaged { what, .. } => what.clone(),
        Error::NotFound { .. } => "it is gone".to_owned(),
        error => error.to_string(),
    }
}
