//! A simulated object store: backups by their path, and how it fails. Knows no Kubernetes, and who reads or writes it has
//! only what its arguments and its environment name.

use std::collections::BTreeMap;

use jiff::Timestamp;
use jiff::tz::TimeZone;

use crate::backup::retention::{Candidate, Decision, Retention, decide};
use crate::backup_plan::{FailureClass, Saved};

/// Why nothing came of a request: class and text of a Job's failure.
pub(crate) type Refused = (FailureClass, String);

/// What is wrong with a stored backup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Damage {
    /// Its end is missing, which its length shows to whoever lists it.
    Truncated,
    /// A bit is another one, which only reading it shows.
    Flipped,
}

/// A backup with its manifest.
#[derive(Clone, Debug)]
pub(crate) struct Object {
    pub(crate) saved: Saved,
    pub(crate) damage: Option<Damage>,
    pub(crate) damaged_ms: u64,
    /// What the last verification found; `None`: there was none.
    pub(crate) verified: Option<bool>,
}

/// What a prune has deleted.
#[derive(Clone, Debug)]
pub(crate) struct Deletion {
    pub(crate) path: String,
    /// It was whole, and no whole one of its folder is left.
    pub(crate) last_whole: bool,
    /// It was whole, and none that was verified is newer.
    pub(crate) newest_verified: bool,
}

/// All stores of a world, as one: paths begin with the URL.
#[derive(Debug, Default)]
pub(crate) struct Store {
    pub(crate) objects: BTreeMap<String, Object>,
    /// Nobody reaches it.
    pub(crate) unreachable: bool,
    /// Nothing more can be stored.
    pub(crate) full: bool,
    /// So many times as long as usual.
    pub(crate) slow: u64,
    /// The value of AWS_SECRET_ACCESS_KEY that it takes, as a Secret has it; `None`: it asks for none.
    pub(crate) accepts: Option<String>,
    /// What prunes have deleted.
    pub(crate) deletions: Vec<Deletion>,
}

impl Object {
    pub(crate) fn is_whole(&self) -> bool {
        self.damage.is_none()
    }

    /// Nothing is known against it without reading it.
    fn seems_good(&self) -> bool {
        self.damage != Some(Damage::Truncated) && self.verified != Some(false)
    }
}

impl Store {
    /// Whether somebody with this environment is let in.
    pub(crate) fn opens(&self, environment: &BTreeMap<String, String>) -> Result<(), Refused> {
        if self.unreachable {
            let why = "listing failed in the store: connection refused".to_owned();
            return Err((FailureClass::Store, why));
        }
        let given = environment.get("AWS_SECRET_ACCESS_KEY");
        match &self.accepts {
            Some(accepts) if given != Some(accepts) => {
                let why = "listing failed in the store: 403 SignatureDoesNotMatch".to_owned();
                Err((FailureClass::Credentials, why))
            }
            _ => Ok(()),
        }
    }

    /// Stores a backup, if there is none of this name. Returns what is there then.
    pub(crate) fn put(&mut self, path: &str, saved: Saved) -> Result<Saved, Refused> {
        if let Some(there) = self.objects.get(path) {
            return Ok(there.saved.clone());
        }
        if self.full {
            let why = "writing failed in the store: 507 no space".to_owned();
            return Err((FailureClass::Store, why));
        }
        let object = Object {
            saved: saved.clone(),
            damage: None,
            damaged_ms: 0,
            verified: None,
        };
        self.objects.insert(path.to_owned(), object);
        Ok(saved)
    }

    /// Something happens to a backup behind everybody's back.
    pub(crate) fn damage(&mut self, path: &str, damage: Damage, now_ms: u64) {
        if let Some(object) = self.objects.get_mut(path) {
            (object.damage, object.damaged_ms) = (Some(damage), now_ms);
        }
    }

    /// The backups of a folder: name and backup.
    pub(crate) fn of_folder(&self, folder: &str) -> impl Iterator<Item = (&str, &Object)> {
        let below = format!("{folder}/");
        self.objects.iter().filter_map(move |(path, object)| {
            let name = path.strip_prefix(&below)?;
            (!name.contains('/')).then_some((name, object))
        })
    }

    /// Deletes what the shipped retention does not keep. Returns what it has deleted and what is left.
    pub(crate) fn prune(
        &mut self,
        folder: &str,
        policy: &Retention,
        zone: &TimeZone,
    ) -> (Vec<String>, Vec<String>) {
        let of = |(name, object): (&str, &Object)| Candidate {
            id: name.to_owned(),
            at: object.saved.started,
            good: object.seems_good(),
            verified: object.verified == Some(true),
        };
        let candidates: Vec<Candidate> = self.of_folder(folder).map(of).collect();
        let decided = decide(policy, &candidates, zone);
        let mut deleted = Vec::new();
        for (id, decision) in &decided {
            if *decision == Decision::Delete {
                self.delete(folder, id);
                deleted.push(id.clone());
            }
        }
        let kept = self.of_folder(folder).map(|(name, _)| name.to_owned());
        (deleted, kept.collect())
    }

    fn delete(&mut self, folder: &str, id: &str) {
        let path = format!("{folder}/{id}");
        let Some(object) = self.objects.remove(&path) else {
            return;
        };
        let whole = object.is_whole();
        let last_whole = whole && !self.of_folder(folder).any(|(_, other)| other.is_whole());
        let newer = |other: &Object| {
            other.verified == Some(true) && other.saved.started > object.saved.started
        };
        let newer = self.of_folder(folder).any(|(_, other)| newer(other));
        self.deletions.push(Deletion {
            path,
            last_whole,
            newest_verified: whole && object.verified == Some(true) && !newer,
        });
    }
}

/// A moment as Jobs report it.
pub(crate) fn timestamp(ms: u64) -> Timestamp {
    let ms = i64::try_from(ms).unwrap_or(i64::MAX);
    Timestamp::from_millisecond(ms).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn saved(at_ms: u64) -> Saved {
        Saved {
            id: String::new(),
            started: timestamp(at_ms),
            completed: timestamp(at_ms),
            cluster_id: "9f".to_owned(),
            member_id: "1".to_owned(),
            revision: 7,
            raft_index: 7,
            raft_term: 1,
            hash: 0,
            keys: 1,
            size: 1,
            stored: 1,
            key_id: None,
        }
    }

    /// The oracle of the retention judges by these: a deletion that takes the last whole backup has to show.
    #[test]
    fn deletion_of_the_last_whole_backup_is_noted() {
        let mut store = Store::default();
        for (name, at) in [("a", 1_000), ("b", 2_000)] {
            let path = format!("s3://b/{name}");
            assert!(store.put(&path, saved(at)).is_ok());
        }
        store.damage("s3://b/b", Damage::Flipped, 3_000);
        let policy = Retention {
            last: 1,
            min_keep: 1,
            ..Retention::default()
        };
        let (deleted, kept) = store.prune("s3://b", &policy, &TimeZone::UTC);
        assert_eq!(
            (deleted, kept),
            (vec!["a".to_owned()], vec!["b".to_owned()])
        );
        assert!(store.deletions[0].last_whole && !store.deletions[0].newest_verified);
    }

    #[test]
    fn who_comes_second_finds_the_first_ones_backup() {
        let mut store = Store::default();
        assert!(store.put("s3://b/a", saved(1_000)).is_ok());
        let there = store.put("s3://b/a", saved(2_000)).expect("it is there");
        assert_eq!(there.started, timestamp(1_000));
        store.full = true;
        assert!(store.put("s3://b/c", saved(2_000)).is_err());
    }
}
