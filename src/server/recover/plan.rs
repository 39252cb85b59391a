//! Which data directory a new cluster is made from, and what is lost with the others. Compares what was found; reads
//! nothing.

use std::collections::BTreeSet;
use std::path::PathBuf;

use super::{Content, Found, Member};

/// The directory to recover from.
#[derive(Debug)]
pub struct Choice<'a> {
    /// The directory.
    pub directory: &'a PathBuf,
    /// What it holds.
    pub member: &'a Member,
    /// So many of the cluster's voters are here, and so many are a quorum.
    pub present: usize,
    /// See `present`.
    pub quorum: usize,
    /// Directories that were not compared with it, and might hold more.
    pub left_out: Vec<&'a PathBuf>,
}

impl Choice<'_> {
    /// The cluster has not lost its quorum: its servers can be started.
    #[must_use]
    pub fn has_quorum(&self) -> bool {
        self.present >= self.quorum
    }
}

/// Why none is chosen.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum NoChoice {
    /// Nothing says which cluster is meant.
    #[error(
        "the directories are of several clusters or incarnations ({0}): give those of one alone; of two incarnations of one resource the higher one is the newer"
    )]
    SeveralClusters(String),
    /// It might hold the longest log.
    #[error("a server runs in {0}: stop it, so that its log can be compared with the others")]
    Running(String),
    /// There are none.
    #[error(
        "no directory holds a member's data: look for another disk, or restore a backup with `quorate restore`"
    )]
    NoData,
}

/// Chooses the longest log, as Raft compares logs: by the term of the last entry, then by its index. Every write that
/// was acknowledged is in the longest log of a quorum.
///
/// # Errors
/// [`NoChoice`].
pub fn choose(found: &[Found]) -> Result<Choice<'_>, NoChoice> {
    let running = found
        .iter()
        .find(|it| matches!(it.content, Content::Running));
    if let Some(running) = running {
        return Err(NoChoice::Running(running.directory.display().to_string()));
    }
    let members = || {
        found.iter().filter_map(|it| match &it.content {
            Content::Member(member) => Some((&it.directory, &**member)),
            _ => None,
        })
    };
    let clusters: BTreeSet<(u64, u64)> = members()
        .map(|(_, it)| (it.cluster_id, it.incarnation))
        .collect();
    if clusters.len() > 1 {
        let clusters = clusters.iter();
        let clusters =
            clusters.map(|(id, incarnation)| format!("{id:x}, incarnation {incarnation}"));
        let clusters: Vec<String> = clusters.collect();
        return Err(NoChoice::SeveralClusters(clusters.join("; ")));
    }
    let longest = members().max_by_key(|(_, it)| (it.last.term, it.last.index));
    let (directory, member) = longest.ok_or(NoChoice::NoData)?;
    let here: BTreeSet<u64> = members().map(|(_, it)| it.member_id).collect();
    let present = member.voters.iter().filter(|id| here.contains(id)).count();
    let left_out = found
        .iter()
        .filter(|it| matches!(it.content, Content::Unusable { .. }));
    Ok(Choice {
        directory,
        member,
        present,
        quorum: member.voters.len() / 2 + 1,
        left_out: left_out.map(|it| &it.directory).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::Position;

    fn found(directory: &str, content: Content) -> Found {
        Found {
            directory: PathBuf::from(directory),
            content,
        }
    }

    fn member(id: u64, cluster_id: u64, (term, index): (u64, u64)) -> Content {
        Content::Member(Box::new(Member {
            disk_uuid: String::new(),
            name: String::new(),
            member_id: id,
            cluster_id,
            incarnation: 1,
            last: Position { index, term },
            commit: 1,
            appended_ms: None,
            revision: 1,
            keys: 0,
            voters: vec![1, 2, 3],
        }))
    }

    fn damaged() -> Content {
        Content::Unusable {
            state: "damaged",
            why: String::new(),
        }
    }

    #[test]
    fn longest_log_is_that_of_the_newest_term() {
        let all = [
            found("a", member(1, 7, (2, 900))),
            found("b", member(2, 7, (3, 12))),
            found("c", Content::Empty),
            found("d", damaged()),
            found("e", Content::Removed),
        ];
        let choice = choose(&all).expect("a choice");
        assert_eq!(choice.directory, &PathBuf::from("b"));
        assert_eq!((choice.present, choice.quorum), (2, 2));
        assert!(choice.has_quorum());
        assert_eq!(choice.left_out, [&PathBuf::from("d")]);
        // The same member twice, as from a copy, is one.
        let all = [
            found("a", member(1, 7, (2, 9))),
            found("b", member(1, 7, (2, 8))),
        ];
        assert!(!choose(&all).expect("a choice").has_quorum());
    }

    #[test]
    fn nothing_is_chosen_where_something_may_be_missed() {
        let two = [
            found("a", member(1, 7, (1, 1))),
            found("b", member(2, 8, (1, 1))),
        ];
        assert!(matches!(choose(&two), Err(NoChoice::SeveralClusters(_))));
        let running = [
            found("a", member(1, 7, (1, 1))),
            found("b", Content::Running),
        ];
        assert_eq!(
            choose(&running).err(),
            Some(NoChoice::Running("b".to_owned()))
        );
        let none = [found("a", Content::Empty), found("b", damaged())];
        assert_eq!(choose(&none).err(), Some(NoChoice::NoData));
    }
}
