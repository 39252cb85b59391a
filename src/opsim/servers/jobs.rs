//! What simulated servers do for a Job that calls them: give their data, and take a snapshot as a standby. Each call is
//! refused without the key that the Job's kind of call has.

use crate::server::operator_api::auth::Key;

use crate::wire::member as proto;

use super::restore::{LENGTH, PACE, Snapshot};
use super::{Phase, Process, Servers};

/// What a member has given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Given {
    pub(crate) cluster_id: u64,
    pub(crate) member_id: u64,
    /// The last entry, which stands for the revision too.
    pub(crate) index: u64,
    pub(crate) term: u64,
}

/// Who answers where a Job wants to send a snapshot to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Receiver {
    /// Nobody.
    Silent,
    /// A server that does not know the Job's key.
    Strange,
    /// A standby, of this resource and on this volume.
    Standby(String, String),
    /// A server with data.
    Member,
}

impl Servers {
    /// The state of the member of a resource that holds most; why there is none.
    pub(crate) fn give(&self, cluster_uid: &str, key: &[u8]) -> Result<Given, String> {
        let processes = self.processes.values().filter(|process| {
            process.container.cluster_uid == cluster_uid && self.answers(process)
        });
        let disks = processes.filter_map(|process| self.disks.get(&process.container.volume));
        let members = disks.filter(|disk| disk.phase == Phase::Member);
        let best = members.max_by_key(|disk| (disk.incarnation, disk.matched));
        let best = best.ok_or("no member answers")?;
        self.admits(cluster_uid, key, Key::for_backups)?;
        Ok(self.given(best))
    }

    /// The state of the member at this host, if it holds what is expected of it.
    pub(crate) fn give_of(
        &self,
        host: &str,
        key: &[u8],
        (disk_uuid, least): (&str, u64),
    ) -> Result<Given, String> {
        let process = self.at(host).ok_or("the survivor does not answer")?;
        self.admits(&process.container.cluster_uid, key, Key::for_backups)?;
        let disk = self.disks.get(&process.container.volume);
        let disk = disk.filter(|disk| disk.phase == Phase::Member);
        let disk = disk.ok_or("the survivor is no member")?;
        if disk.uuid != disk_uuid || disk.matched < least {
            return Err("the survivor does not hold what is expected of it".to_owned());
        }
        Ok(self.given(disk))
    }

    /// An archiver tells where it has stored the log, up to which entry, and when.
    pub(crate) fn told_of_archive(
        &mut self,
        cluster_uid: &str,
        (location, index, at_ms): (&str, u64, u64),
    ) {
        let told = proto::Archived {
            index,
            as_of_unix_ms: i64::try_from(at_ms).unwrap_or(0),
            location: location.to_owned(),
        };
        self.archived.insert(cluster_uid.to_owned(), told);
    }

    fn given(&self, disk: &super::Disk) -> Given {
        let group = self.groups.get(&disk.cluster_id);
        Given {
            cluster_id: disk.cluster_id,
            member_id: disk.member_id,
            index: disk.matched,
            term: group.map_or(0, |group| group.term),
        }
    }

    fn admits(&self, cluster_uid: &str, key: &[u8], of: fn(&Key) -> Key) -> Result<(), String> {
        let own = self.keys.get(cluster_uid).map(|own| of(&Key::new(own)));
        match own.is_some_and(|own| own.bytes() == key) {
            true => Ok(()),
            false => Err("the member does not know the key".to_owned()),
        }
    }

    fn at(&self, host: &str) -> Option<&Process> {
        let mut processes = self.processes.values();
        processes.find(|process| {
            let url = &process.container.peer_url;
            let own = url.split_once("://").map_or(&**url, |(_, rest)| rest);
            let connected = process.container.connected;
            own.split(':').next() == Some(host) && connected && self.answers(process)
        })
    }

    /// Who answers at this host to the key of restores.
    pub(crate) fn receiver(&self, host: &str, key: &[u8]) -> Receiver {
        let Some(process) = self.at(host) else {
            return Receiver::Silent;
        };
        let container = &process.container;
        if self
            .admits(&container.cluster_uid, key, Key::for_restores)
            .is_err()
        {
            return Receiver::Strange;
        }
        match self.disks.get(&container.volume).map(|disk| disk.phase) {
            Some(Phase::Standby) => {
                Receiver::Standby(container.cluster_uid.clone(), container.volume.clone())
            }
            _ => Receiver::Member,
        }
    }

    /// A piece of a snapshot arrives on a volume. Returns whether all of it is there. What arrives where data are is noted,
    /// and refused, as every server does.
    pub(crate) fn arrives(&mut self, (uid, volume): (&str, &str), sha256: &str, ms: u64) -> bool {
        let known = self.snapshots.get(uid);
        if known.is_none_or(|known| known.sha256 != sha256) {
            let snapshot = Snapshot::of_a_job(sha256);
            self.snapshots.insert(uid.to_owned(), snapshot);
            if let Some(disk) = self.disks.get_mut(volume) {
                disk.staged = 0;
            }
        }
        let Some(disk) = self.disks.get_mut(volume) else {
            return false;
        };
        if disk.phase != Phase::Standby {
            let what = format!("{sha256} was sent to {volume}, which holds data");
            self.overwrites.push(what);
            return false;
        }
        disk.staged = LENGTH.min(disk.staged + ms * PACE);
        disk.staged == LENGTH
    }
}
