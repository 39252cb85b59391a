//! Creates a new member's data directory from a snapshot that etcd or this server saved, as
//! `etcdutl snapshot restore` does for etcd: same data, new cluster. The whole snapshot is checked
//! before the directory is touched, and the directory holds a member only once it is complete.
//!
//! Never looks at a running member, and never keeps the membership of the saved cluster.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sha2::{Digest as _, Sha256};

use super::core::open;
use super::flags::Flags;
use super::flags::config::{Config, Formation};
use super::flags::from_flags::ConfigError;
use super::process::host_facts;
use super::snapshot_file::{Mismatch, SnapshotFile};
use crate::disk::{self, Checkpoints, DataDirectory, FileDisk, Identity, LogOptions, Phase};
use crate::node::{InitialMember, Membership, MembershipError, StateMachine};
use crate::persist::{self, Saver, ValuesTo};
use crate::snapshot::{self, Changes, Imported};
use crate::store::Export;

/// The subdirectory in which a member's files are prepared.
const WORKSHOP: &str = "restoring";

/// What to restore, and for which member.
#[derive(Debug)]
pub struct Restore {
    /// The snapshot.
    pub file: PathBuf,
    /// Name of the new member.
    pub name: String,
    /// Every member of the new cluster with its peer URLs.
    pub members: BTreeMap<String, Vec<String>>,
    /// `--initial-cluster-token`.
    pub token: String,
    /// The data directory of the new member.
    pub data_dir: PathBuf,
    /// Accept a file without a digest, or with a wrong one.
    pub skip_hash_check: bool,
    /// What the member has otherwise than the snapshot.
    pub changes: Changes,
}

/// What was restored.
#[derive(Debug)]
pub struct Restored {
    /// ID of the member.
    pub member_id: u64,
    /// ID of the new cluster.
    pub cluster_id: u64,
    /// Revision of the store.
    pub revision: i64,
    /// Keys at that revision.
    pub keys: u64,
    /// Leases.
    pub leases: usize,
    /// Alarms that are on.
    pub alarms: usize,
    /// Users.
    pub users: usize,
    /// Roles.
    pub roles: usize,
    /// Whether authentication is enabled.
    pub auth_enabled: bool,
    /// Warnings for the user.
    pub warnings: Vec<String>,
}

/// Why nothing was restored.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// The flags contradict each other.
    #[error("{0}")]
    Flags(String),
    /// The snapshot cannot be read.
    #[error("cannot read the snapshot {}", file.display())]
    Read {
        /// The snapshot.
        file: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The snapshot carries no digest.
    #[error(
        "{} does not end with a digest, as a saved snapshot does: it is cut off, or copied from a data directory; if that is so, give --skip-hash-check", file.display()
    )]
    NoDigest {
        /// The snapshot.
        file: PathBuf,
    },
    /// The digest does not match.
    #[error(
        "{} is damaged: its SHA-256 is {found} and it ends with {expected}; use another copy", file.display()
    )]
    Digest {
        /// The snapshot.
        file: PathBuf,
        /// The digest in the file.
        expected: String,
        /// The digest of the data.
        found: String,
    },
    /// The database in it cannot be used.
    #[error("cannot use the snapshot {}", file.display())]
    Database {
        /// The snapshot.
        file: PathBuf,
        /// Why.
        source: snapshot::Error,
    },
    /// The data directory is not empty.
    #[error(
        "the data directory {} is not empty: give --data-dir a directory that does not exist yet, or empty it", directory.display()
    )]
    NotEmpty {
        /// The directory.
        directory: PathBuf,
    },
    /// The members conflict with each other.
    #[error("--initial-cluster")]
    Members(#[from] MembershipError),
    /// The member's files cannot be made.
    #[error("cannot make the data directory {}", directory.display())]
    Directory {
        /// The directory.
        directory: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The same, as an error of the rooms that write them.
    #[error("cannot make the data directory")]
    Files(#[from] persist::Error),
}

impl From<disk::Error> for RestoreError {
    fn from(error: disk::Error) -> Self {
        RestoreError::Files(error.into())
    }
}

impl Restore {
    /// Parses the flags that it shares with the server, with the server's rules and errors.
    ///
    /// # Errors
    /// The server's errors for the same flags.
    pub fn from_server_flags(file: PathBuf, arguments: &[String]) -> Result<Restore, RestoreError> {
        let flags = Flags::parse(arguments, &BTreeMap::new())
            .map_err(|error| RestoreError::Flags(error.to_string()))?;
        let refused = |error: ConfigError| RestoreError::Flags(error.to_string());
        let config = Config::from_flags(&flags, host_facts::read()).map_err(refused)?;
        config.check_initial_cluster().map_err(refused)?;
        let Formation::InitialCluster { members, token, .. } = config.formation else {
            return Err(RestoreError::Flags(
                "a snapshot is restored for a cluster of --initial-cluster".to_owned(),
            ));
        };
        Ok(Restore {
            file,
            name: config.name,
            members,
            token,
            data_dir: config.data_dir,
            skip_hash_check: false,
            changes: Changes::default(),
        })
    }

    /// Restores. After an error no file of a member is left behind.
    ///
    /// # Errors
    /// Any failure before the member is complete.
    pub fn run(&self) -> Result<Restored, RestoreError> {
        let existed = self.check_empty()?;
        let mut membership = self.membership()?;
        let imported = self.import()?;
        let mut warnings: Vec<String> = Vec::new();
        if !imported.unknown.is_empty() {
            let names = imported.unknown.join(", ");
            warnings.push(format!(
                "left out what is no part of etcd's schema: buckets {names}"
            ));
        }
        let view = imported.store.publish();
        membership.cluster_id = bound(membership.cluster_id, view.export());
        let (member_id, cluster_id) = self.ids(&membership)?;
        let restored = Restored {
            member_id,
            cluster_id,
            revision: view.revision(),
            keys: view.key_count(),
            leases: view.leases().len(),
            alarms: view.alarms().len(),
            users: view.auth().users().count(),
            roles: view.auth().roles().count(),
            auth_enabled: view.auth().is_enabled(),
            warnings,
        };
        let machine = StateMachine::restored(membership, imported.store);
        if let Err(error) = self.make(&machine, member_id, cluster_id) {
            // Incomplete files must not be taken for a member; the first error is the one returned.
            let _ = fs::remove_dir_all(self.data_dir.join(WORKSHOP));
            if !existed {
                let _ = fs::remove_dir_all(&self.data_dir);
            }
            return Err(error);
        }
        Ok(restored)
    }

    /// Whether the data directory exists. Refuses one that holds anything.
    fn check_empty(&self) -> Result<bool, RestoreError> {
        let names = match fs::read_dir(&self.data_dir) {
            Ok(names) => names,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(source) => return Err(self.directory(source)),
        };
        for name in names {
            // The root of a volume has this from the start.
            if name.map_err(|error| self.directory(error))?.file_name() != "lost+found" {
                let directory = self.data_dir.clone();
                return Err(RestoreError::NotEmpty { directory });
            }
        }
        Ok(true)
    }

    fn membership(&self) -> Result<Membership, RestoreError> {
        let member = |(name, urls): (&String, &Vec<String>)| InitialMember {
            name: name.clone(),
            peer_urls: urls.clone(),
            ..InitialMember::default()
        };
        let initial: Vec<InitialMember> = self.members.iter().map(member).collect();
        Ok(Membership::bootstrap("", 0, &self.token, &initial)?)
    }

    fn ids(&self, membership: &Membership) -> Result<(u64, u64), RestoreError> {
        let mut members = membership.members.values();
        let own = members.find(|member| member.name == self.name);
        let own = own.ok_or_else(|| {
            RestoreError::Flags(format!("--initial-cluster does not name {:?}", self.name))
        })?;
        Ok((own.id, membership.cluster_id))
    }

    fn import(&self) -> Result<Imported, RestoreError> {
        let read = |source| RestoreError::Read {
            file: self.file.clone(),
            source,
        };
        let snapshot = SnapshotFile::open(&self.file).map_err(read)?;
        if !self.skip_hash_check {
            if !snapshot.has_digest() {
                let file = self.file.clone();
                return Err(RestoreError::NoDigest { file });
            }
            let checked = snapshot.check_digest().map_err(read)?;
            checked.map_err(|Mismatch { expected, found }| RestoreError::Digest {
                file: self.file.clone(),
                expected,
                found,
            })?;
        }
        let imported = snapshot.import(&self.changes);
        imported.map_err(|source| RestoreError::Database {
            file: self.file.clone(),
            source,
        })
    }

    /// Creates the member's files in a subdirectory and moves them to their place, the identity
    /// last: before that, a server treats the directory neither as a member's nor as an empty one.
    fn make(
        &self,
        machine: &StateMachine,
        member_id: u64,
        cluster_id: u64,
    ) -> Result<(), RestoreError> {
        let workshop = self.data_dir.join(WORKSHOP);
        FileDisk::new(&self.data_dir).map_err(|error| self.directory(error))?;
        let disk: Arc<dyn disk::Disk> =
            Arc::new(FileDisk::new(&workshop).map_err(|error| self.directory(error))?);
        let mut directory = DataDirectory::open(disk)?;
        let mut identity = Identity::standby(*uuid::Uuid::new_v4().as_bytes(), &self.name);
        directory.store_identity(identity.clone())?;
        let saver = Saver::new(
            Checkpoints::new(Arc::clone(directory.disk())),
            ValuesTo::Memory,
        );
        open::create(&directory, Some(machine), &saver, LogOptions::default())?;
        identity.cluster_id = cluster_id;
        identity.member_id = member_id;
        identity.phase = Phase::Member.into();
        directory.store_identity(identity)?;
        drop(directory);
        self.move_up(&workshop)
            .map_err(|error| self.directory(error))
    }

    fn move_up(&self, workshop: &Path) -> io::Result<()> {
        for names in [&["log", "checkpoints"][..], &["identity"]] {
            for name in names {
                fs::rename(workshop.join(name), self.data_dir.join(name))?;
            }
            File::open(workshop)?.sync_all()?;
            File::open(&self.data_dir)?.sync_all()?;
        }
        fs::remove_dir_all(workshop)?;
        File::open(&self.data_dir)?.sync_all()
    }

    fn directory(&self, source: io::Error) -> RestoreError {
        RestoreError::Directory {
            directory: self.data_dir.clone(),
            source,
        }
    }
}

/// A cluster's ID, derived from its initial data as well: members that were restored from different
/// snapshots refuse each other, where etcd's would continue with different data.
fn bound(cluster_id: u64, chunks: Export) -> u64 {
    let mut digest = Sha256::new();
    digest.update(cluster_id.to_be_bytes());
    chunks.for_each(|chunk| digest.update(chunk));
    let digest = digest.finalize();
    digest[..8]
        .iter()
        .fold(0, |id, byte| (id << 8) | u64::from(*byte))
}
