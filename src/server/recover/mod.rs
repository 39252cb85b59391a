//! Which of the data directories that are left of a cluster holds the longest log, and its data with that log's end as a
//! snapshot that a new cluster is restored from. For servers that are stopped; reads their directories and never changes
//! one, and never starts anything.

mod plan;
mod save;

use std::path::{Path, PathBuf};

use super::core::open;
use super::core::tail::{TailError, apply_tail};
use crate::disk::{self, Class, Identity, Position, Stopped, StoppedMember, open_stopped};
use crate::node::StateMachine;
use crate::store::AlarmKind;
pub use plan::{Choice, NoChoice, choose};
pub use save::{SaveError, Saved, save};

/// A data directory.
#[derive(Debug)]
pub struct Found {
    /// The directory, as it was given.
    pub directory: PathBuf,
    /// What is in it.
    pub content: Content,
}

/// What a data directory holds.
#[derive(Debug)]
pub enum Content {
    /// A member's data.
    Member(Box<Member>),
    /// No data.
    Empty,
    /// Those of a member that was removed from its cluster for good.
    Removed,
    /// A server runs in it.
    Running,
    /// What cannot be used, and why.
    Unusable {
        /// The state in a word.
        state: &'static str,
        /// Why.
        why: String,
    },
}

/// A member's data, with the end of its log.
#[derive(Clone, Debug)]
pub struct Member {
    /// UUID of the disk.
    pub disk_uuid: String,
    /// The member's name.
    pub name: String,
    /// Its ID.
    pub member_id: u64,
    /// ID of its cluster.
    pub cluster_id: u64,
    /// Which life of its cluster's resource; 0 by hand.
    pub incarnation: u64,
    /// The last entry of its log.
    pub last: Position,
    /// What it knows to be committed; the cluster may have committed more.
    pub commit: u64,
    /// When its log last grew, in Unix milliseconds.
    pub appended_ms: Option<i64>,
    /// Revision of the data with the end of the log.
    pub revision: i64,
    /// Keys in them.
    pub keys: u64,
    /// The voters of its cluster, as it knows them.
    pub voters: Vec<u64>,
}

/// Why a directory gives no data.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failed {
    #[error(transparent)]
    Disk(#[from] disk::Error),
    #[error(transparent)]
    Tail(#[from] TailError),
    /// The checkpoint, or the alarm CORRUPT.
    #[error("{0}")]
    Damaged(String),
    #[error("{0}")]
    Newer(String),
}

/// Looks at a data directory. Reads all of it: as much memory as its member needs.
pub fn look(directory: &Path) -> Found {
    let content = match read(directory) {
        Ok(content) => content,
        Err(error) => unusable(&error),
    };
    Found {
        directory: directory.to_owned(),
        content,
    }
}

fn read(directory: &Path) -> Result<Content, Failed> {
    let (stopped, identity) = match open_stopped(directory)? {
        Stopped::Member(stopped) => {
            let identity = stopped.identity.clone();
            (Some(stopped), Some(identity))
        }
        Stopped::Empty(identity) => (None, identity),
    };
    let removed = identity.is_some_and(|it| it.phase() == disk::Phase::Removed);
    match stopped {
        _ if removed => Ok(Content::Removed),
        None => Ok(Content::Empty),
        Some(stopped) => {
            let machine = machine(&stopped)?;
            match machine.membership().is_removed(stopped.identity.member_id) {
                true => Ok(Content::Removed),
                false => Ok(Content::Member(Box::new(member(&stopped, &machine)))),
            }
        }
    }
}

fn member(stopped: &StoppedMember, machine: &StateMachine) -> Member {
    let Identity {
        name,
        member_id,
        cluster_id,
        incarnation,
        ..
    } = stopped.identity.clone();
    let view = machine.view();
    let voters = machine.membership().voters();
    Member {
        disk_uuid: uuid::Uuid::from_bytes(stopped.identity.uuid()).to_string(),
        name,
        member_id,
        cluster_id,
        incarnation,
        last: position(machine),
        commit: stopped
            .hard_state
            .commit
            .max(stopped.checkpoint.position.index),
        appended_ms: stopped.log.grown_ms(),
        revision: view.revision(),
        keys: view.key_count(),
        voters: voters.map(|voter| voter.id).collect(),
    }
}

fn position(machine: &StateMachine) -> Position {
    Position {
        index: machine.index(),
        term: machine.term(),
    }
}

/// The state of a stopped member, with the end of its log.
fn machine(stopped: &StoppedMember) -> Result<StateMachine, Failed> {
    let own = stopped.identity.member_id;
    let at = stopped.checkpoint.position;
    let restored = open::restore(&stopped.checkpoints, at, (own, 0), || ());
    let mut machine = restored.map_err(|stop| match stop.class == Class::TooNew.name() {
        true => Failed::Newer(stop.message),
        false => Failed::Damaged(stop.message),
    })?;
    apply_tail(&mut machine, &stopped.log)?;
    let alarms = machine.view().alarms();
    let corrupt = alarms
        .iter()
        .any(|alarm| alarm.kind == AlarmKind::Corrupt && [0, own].contains(&alarm.member));
    match corrupt {
        true => Err(Failed::Damaged(
            "the alarm CORRUPT is raised for this member: its data differ from the others'"
                .to_owned(),
        )),
        false => Ok(machine),
    }
}

fn unusable(error: &Failed) -> Content {
    let why = chain(error);
    let disk = match error {
        Failed::Disk(error) | Failed::Tail(TailError::Disk(error)) => Some(error),
        _ => None,
    };
    let state = match (error, disk.map(disk::Error::class)) {
        (_, Some(Class::InUse)) => return Content::Running,
        (Failed::Newer(_) | Failed::Tail(TailError::Entry(_)), _) | (_, Some(Class::TooNew)) => {
            "newer"
        }
        (Failed::Tail(TailError::Value(value)), _) if value.io => "unreadable",
        (Failed::Damaged(_) | Failed::Tail(TailError::Value(_)), _)
        | (_, Some(Class::Corrupt | Class::Bug)) => "damaged",
        _ => "unreadable",
    };
    Content::Unusable { state, why }
}

/// An error with its causes, on one line.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let more = cause.to_string();
        if !text.contains(&more) {
            text += &format!(": {more}");
        }
        source = cause.source();
    }
    text
}
