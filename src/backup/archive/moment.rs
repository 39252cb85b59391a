//! The moment to which a cluster is restored, and the backup from which it is reached. Pure.

use std::fmt;
use std::str::FromStr;

use jiff::Timestamp;

use crate::backup::repository::Stored;
use crate::mutants::mutant;
use crate::snapshot::replay::Position;

/// A moment of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// The end of what follows the backup without a hole.
    Latest,
    /// Up to the entry that reaches this revision, and nothing behind it.
    Revision(i64),
    /// Up to this entry of the log.
    Index(u64),
    /// Nothing that was committed later.
    Time(Timestamp),
}

impl FromStr for Moment {
    type Err = String;

    fn from_str(text: &str) -> Result<Moment, String> {
        let number = |number: &str| number.parse::<i64>().ok().filter(|number| *number > 0);
        let moment = match text.split_once(':') {
            Some(("revision", n)) => number(n).map(Moment::Revision),
            Some(("index", n)) => number(n).map(|n| Moment::Index(n.unsigned_abs())),
            None if text == "latest" => Some(Moment::Latest),
            _ => text.parse().ok().map(Moment::Time),
        };
        moment.ok_or_else(|| {
            "no moment: give latest, revision:N, index:N, or a time such as 2026-01-31T12:00:00Z"
                .to_owned()
        })
    }
}

impl fmt::Display for Moment {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Moment::Latest => write!(to, "latest"),
            Moment::Revision(revision) => write!(to, "revision:{revision}"),
            Moment::Index(index) => write!(to, "index:{index}"),
            Moment::Time(time) => write!(to, "{time}"),
        }
    }
}

/// A backup that a moment may be reached from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Base {
    pub(super) id: String,
    pub(super) cluster_id: u64,
    /// Its last entry.
    pub(super) at: Position,
    pub(super) revision: i64,
    /// Everything that was committed then is in it.
    pub(super) started: Timestamp,
    /// Nothing that was committed later is in it.
    pub(super) completed: Timestamp,
}

/// A backup that nothing begins with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Unusable {
    pub(super) id: String,
    /// Why not.
    pub(super) what: String,
    /// What its manifest says of it, if that can be read.
    pub(super) base: Option<Base>,
    /// When its manifest was written, by the store's clock.
    pub(super) written: Option<Timestamp>,
}

/// The backups of a folder that know their last entry: those to begin with, and those that cannot be used.
pub(super) fn sorted(stored: &[Stored]) -> (Vec<Base>, Vec<Unusable>) {
    let (mut bases, mut unusable) = (Vec::new(), Vec::new());
    for backup in stored {
        let id = || backup.id.clone();
        let what = match &backup.manifest {
            // Not a backup yet.
            None => continue,
            Some(Err(unreadable)) => Some(unreadable.what.clone()),
            Some(Ok(_)) => backup.damage(),
        };
        match (Base::read(backup), what) {
            (base, Some(what)) => unusable.push(Unusable {
                id: id(),
                what,
                base,
                written: backup.written(),
            }),
            (base, None) => bases.extend(base),
        }
    }
    (bases, unusable)
}

impl Base {
    /// A backup against which nothing is known.
    pub(super) fn of(stored: &Stored) -> Option<Base> {
        Base::read(stored).filter(|_| stored.damage().is_none())
    }

    /// What a manifest says; `None` if it names no entry of a log.
    fn read(stored: &Stored) -> Option<Base> {
        let manifest = stored.known()?;
        let at = Position {
            index: manifest.snapshot.raft_index,
            term: manifest.snapshot.raft_term,
        };
        if at.index == 0 || at.term == 0 {
            return None;
        }
        Some(Base {
            id: manifest.id.clone(),
            cluster_id: u64::from_str_radix(&manifest.source.cluster_id, 16).ok()?,
            at,
            revision: manifest.snapshot.revision,
            started: manifest.started,
            completed: manifest.completed,
        })
    }

    /// Whether the moment is in it or behind it.
    pub(super) fn precedes(&self, moment: Moment) -> bool {
        mutant!(ArchiveNewerBase => return true);
        match moment {
            Moment::Latest => true,
            Moment::Revision(revision) => self.revision <= revision,
            Moment::Index(index) => self.at.index <= index,
            Moment::Time(time) => self.completed <= time,
        }
    }

    /// Whether it has the revision that is asked for already. It may hold more than the entry that reached it (a lease,
    /// a user).
    pub(super) fn has_just(&self, moment: Moment) -> bool {
        moment == Moment::Revision(self.revision)
    }

    /// Of which entry and revision it is, in words.
    pub(super) fn place(&self) -> String {
        format!(
            "the backup {} (entry {}, revision {}, complete at {})",
            self.id, self.at.index, self.revision, self.completed
        )
    }
}

/// The backups from which the moment may be reached, the best one first; never one that holds more. Which cluster is meant,
/// where one was replaced by another, is not decided by what is damaged: what cannot be used counts as well for that.
///
/// # Errors
/// There is none: why, in words.
pub(super) fn choose<'a>(
    bases: &'a [Base],
    unusable: &[Unusable],
    moment: Moment,
) -> Result<Vec<&'a Base>, String> {
    let known = || {
        bases
            .iter()
            .chain(unusable.iter().filter_map(|it| it.base.as_ref()))
    };
    let none = "there is no good backup to begin with";
    let newest = known().max_by_key(|base| base.completed).ok_or(none)?;
    let by_time = known().filter(|base| base.precedes(moment));
    let cluster_id = match moment {
        // The cluster may have been replaced by another one since.
        Moment::Time(_) => by_time.max_by_key(|base| base.completed),
        _ => Some(newest),
    };
    let cluster_id = cluster_id.map_or(newest.cluster_id, |base| base.cluster_id);
    let own = bases.iter().filter(|base| base.cluster_id == cluster_id);
    let before = own.clone().filter(|base| base.precedes(moment));
    let (mut exact, mut chosen): (Vec<&Base>, Vec<&Base>) =
        before.partition(|base| base.has_just(moment));
    // No older one leads further than the nearest, but that one may be damaged.
    chosen.sort_by_key(|base| std::cmp::Reverse(base.at.index));
    // The last resort, of which the earliest holds the least.
    exact.sort_by_key(|base| base.at.index);
    chosen.extend(exact);
    if !chosen.is_empty() {
        return Ok(chosen);
    }
    let Some(oldest) = own.min_by_key(|base| base.at.index) else {
        return Err(format!(
            "there is no good backup of the cluster {cluster_id:x}, of which {moment} is: name a backup to restore what an earlier cluster held"
        ));
    };
    Err(format!(
        "{moment} is before the oldest good backup of the cluster {cluster_id:x}: that is {}",
        oldest.place()
    ))
}
