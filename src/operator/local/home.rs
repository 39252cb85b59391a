//! The directory of a local cluster, in place of the API server's objects. PVCs are directories with their own record,
//! so that a removed directory is a lost disk; sets, ports, the identity Secret and the cluster's UID are one small
//! file. Independent of processes and plans.
//!
//! ```text
//! <dir>/lock              held while a `quorate local` runs here
//! <dir>/state.json        UID, epoch, identity Secret, sets, ports (written whole, renamed into place)
//! <dir>/operator-secret   the key that authorises calls to the members
//! <dir>/claims/<PVC>/claim.json, data/
//! <dir>/logs/<member>.log
//! ```

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::net::TcpListener;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::crd::member_number;

/// What went wrong with the directory.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file operation failed.
    #[error("cannot {act} {}", path.display())]
    File {
        /// What was tried.
        act: &'static str,
        /// On what.
        path: PathBuf,
        /// Why it failed.
        #[source]
        source: std::io::Error,
    },
    /// Another `quorate local` runs in this directory.
    #[error("{} is in use by another `quorate local`: stop it, or choose another --dir", .0.display())]
    InUse(PathBuf),
    /// The directory belongs to another cluster.
    #[error("{} holds the cluster {found}, not {wanted}: choose another --dir", path.display())]
    OtherCluster {
        /// The directory.
        path: PathBuf,
        /// The cluster found.
        found: String,
        /// The requested cluster.
        wanted: String,
    },
    /// A record is not what was written.
    #[error("{} is damaged: restore the directory from a copy of it, or choose another --dir; the members' data in it are left alone", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The decoder's error.
        #[source]
        source: serde_json::Error,
    },
    /// Another process listens on a member's port.
    #[error(
        "port {port} on 127.0.0.1, of {member}, is taken by another process: end that, or choose other ports by --client-port, or another --dir"
    )]
    Taken {
        /// The port.
        port: u16,
        /// Whose it is.
        member: String,
    },
    /// A member's number leads beyond the last port.
    #[error("--client-port {first} leaves no port for {member}: choose a lower one")]
    Beyond {
        /// The first member's port.
        first: u16,
        /// Whose it would be.
        member: String,
    },
    /// A fixed port is recorded as another one of this cluster.
    #[error(
        "port {port}, by --client-port that of clients of {member}, is recorded as the {kind} port of {other}: choose another --client-port, or another --dir"
    )]
    Recorded {
        /// The port.
        port: u16,
        /// Whose it would be.
        member: String,
        /// Which one it is: client or peer.
        kind: &'static str,
        /// Whose it is; may be the same member, whose peer port it is.
        other: String,
    },
    /// No pair of ports is free.
    #[error("no two free ports on 127.0.0.1 from {from} on: choose another --base-port")]
    NoPorts {
        /// Where the search began.
        from: u16,
    },
}

/// So many ports after the first fixed one are left to members.
const RESERVED: u16 = 100;

fn is_free(port: u16) -> bool {
    TcpListener::bind(("127.0.0.1", port)).is_ok()
}

/// A port for the search for free ones to begin at. Two clusters that are started at the same time
/// would find the same ports free, so each process begins elsewhere: below the ports from which
/// systems dial.
pub fn any_port() -> u16 {
    const FIRST: u16 = 12_000;
    const APART: u16 = 40;
    const PLACES: u16 = 500;
    // Below PLACES, so it fits.
    let place = (std::process::id() % u32::from(PLACES)) as u16;
    FIRST + APART * place
}

/// The loopback ports of one member, kept for its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ports {
    /// Of the etcd API.
    pub client: u16,
    /// Of Raft and `quorate.v1`.
    pub peer: u16,
}

/// The immutable identity Secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdentityRecord {
    /// The resource's incarnation.
    pub incarnation: u64,
    /// The member that bootstraps.
    pub seed: String,
    /// What makes the bootstrap call idempotent.
    pub nonce: String,
}

/// That a member's process is wanted, and how.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetRecord {
    /// This record's own identity.
    pub uid: String,
    /// The PVC that it mounts.
    #[serde(rename = "claim")]
    pub pvc: String,
    /// Hash of the inputs that it was rendered from.
    pub input_hash: String,
    /// When it was made, in Unix milliseconds.
    pub created_ms: u64,
    /// No process is wanted for now.
    #[serde(default, rename = "asleep")]
    pub hibernated: bool,
    /// The server's arguments, as rendered.
    pub arguments: Vec<String>,
}

/// A directory that represents a PVC.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PvcRecord {
    /// This PVC's own identity.
    pub uid: String,
    /// The member that it belongs to.
    pub member: String,
    /// The incarnation of the cluster that it belongs to.
    pub cluster_uid: String,
    /// What it has been.
    pub state: PvcState,
    /// It goes once no process uses it.
    pub terminating: bool,
    /// Requested bytes. A directory has no size: stored so that a raised size is detected.
    pub bytes: u64,
    /// Whether it goes with the resource.
    pub owned: bool,
}

/// What a PVC has been.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PvcState {
    /// No member lived on it, as far as is recorded.
    New,
    /// A member uses it.
    Joined,
    /// Its member was removed; it is kept.
    Retired,
}

/// What `state.json` holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    /// The resource's name.
    pub cluster: String,
    /// The resource's UID: one for the life of the directory.
    pub cluster_uid: String,
    /// Incremented by every start, in place of the Lease's transitions.
    pub epoch: u64,
    /// The resource's generation: raised by every edit of the file.
    pub generation: i64,
    /// The file's specification as of that generation.
    pub spec: serde_json::Value,
    /// The specification that was last admitted.
    #[serde(default)]
    pub admitted: serde_json::Value,
    /// The status as last written.
    pub status: serde_json::Value,
    /// The identity Secret, once created.
    #[serde(rename = "latch")]
    pub identity_secret: Option<IdentityRecord>,
    /// Wanted processes by member.
    pub sets: BTreeMap<String, SetRecord>,
    /// Ports by member; never assigned to another name.
    pub ports: BTreeMap<String, Ports>,
}

/// The opened directory.
#[derive(Debug)]
pub struct Home {
    root: PathBuf,
    base_port: u16,
    /// The client port of the first member, if they are fixed.
    client_port: Option<u16>,
    state: State,
    _lock: File,
}

impl Home {
    /// Opens or creates the directory for this cluster and takes its lock.
    pub fn open(root: &Path, cluster: &str, base_port: u16) -> Result<Self, Error> {
        for directory in [root.to_owned(), root.join("claims"), root.join("logs")] {
            fs::create_dir_all(&directory).map_err(file("create", &directory))?;
        }
        // Children get absolute paths, whatever their working directory.
        let root = &root.canonicalize().map_err(file("resolve", root))?;
        let lock = take_lock(root)?;
        let path = root.join("state.json");
        let mut state = match fs::read(&path) {
            Ok(bytes) => State::read(&bytes).map_err(|source| Error::Damaged {
                path: path.clone(),
                source,
            })?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                State::new(cluster.to_owned())
            }
            Err(source) => return Err(file("read", &path)(source)),
        };
        if state.cluster != cluster {
            let (found, wanted) = (state.cluster, cluster.to_owned());
            return Err(Error::OtherCluster {
                path: root.to_owned(),
                found,
                wanted,
            });
        }
        state.epoch += 1;
        let mut home = Self {
            root: root.to_owned(),
            base_port,
            client_port: None,
            state,
            _lock: lock,
        };
        home.update(|_| ())?;
        home.secret()?;
        Ok(home)
    }

    /// The directory itself.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// What is recorded.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// Changes the record; written whole and renamed into place before this returns. A failed
    /// write changes nothing.
    pub fn update<T>(&mut self, change: impl FnOnce(&mut State) -> T) -> Result<T, Error> {
        let mut state = self.state.clone();
        let answer = change(&mut state);
        let path = self.root.join("state.json");
        write_json(&path, &state)?;
        self.state = state;
        Ok(answer)
    }

    /// Path of the key file that authorises calls to the members, and the key.
    pub fn secret(&self) -> Result<(PathBuf, Vec<u8>), Error> {
        let path = self.root.join("operator-secret");
        if !path.exists() {
            let key = format!(
                "{}{}",
                uuid::Uuid::new_v4().simple(),
                uuid::Uuid::new_v4().simple()
            );
            let mut options = OpenOptions::new();
            let mut new = options
                .write(true)
                .create_new(true)
                .mode(0o600)
                .open(&path)
                .map_err(file("create", &path))?;
            new.write_all(key.as_bytes())
                .map_err(file("write", &path))?;
        }
        let key = fs::read(&path).map_err(file("read", &path))?;
        Ok((path, key))
    }

    /// From now on the client port of the member with the number 1 is this, and so on.
    pub fn fix_client_ports(&mut self, first: u16) {
        self.client_port = Some(first);
    }

    fn fixed_port(&self, member: &str) -> Result<Option<u16>, Error> {
        let Some(first) = self.client_port else {
            return Ok(None);
        };
        let number = member_number(&self.state.cluster, member).unwrap_or(1);
        let above = u16::try_from(number.saturating_sub(1)).ok();
        let port = above.and_then(|above| first.checked_add(above));
        let member = member.to_owned();
        let Some(port) = port else {
            return Err(Error::Beyond { first, member });
        };
        for (other, ports) in &self.state.ports {
            let kind = if ports.peer == port {
                "peer"
            } else if ports.client == port && *other != member {
                "client"
            } else {
                continue;
            };
            let other = other.clone();
            return Err(Error::Recorded {
                port,
                member,
                kind,
                other,
            });
        }
        Ok(Some(port))
    }

    /// Whether nobody else listens on the ports of these members; none of them runs.
    pub fn check_ports(&mut self, members: &[String]) -> Result<(), Error> {
        // All of them before the first is recorded: what is refused changes nothing.
        for member in members {
            self.fixed_port(member)?;
        }
        for member in members {
            let ports = self.ports(member)?;
            for port in [ports.client, ports.peer] {
                if !is_free(port) {
                    let member = member.clone();
                    return Err(Error::Taken { port, member });
                }
            }
        }
        Ok(())
    }

    /// The ports of a member, allotted at the first call and kept.
    pub fn ports(&mut self, member: &str) -> Result<Ports, Error> {
        let fixed = self.fixed_port(member)?;
        if let Some(ports) = self.state.ports.get(member).copied() {
            let client = fixed.unwrap_or(ports.client);
            let ports = Ports { client, ..ports };
            if self.state.ports.get(member) != Some(&ports) {
                self.update(|state| state.ports.insert(member.to_owned(), ports))?;
            }
            return Ok(ports);
        }
        let taken: Vec<u16> = self
            .state
            .ports
            .values()
            .flat_map(|ports| [ports.client, ports.peer])
            .collect();
        // Members to come have the ports after the first one.
        let reserved = self
            .client_port
            .map(|first| first..=first.saturating_add(RESERVED));
        let is_reserved = |port: &u16| reserved.as_ref().is_some_and(|all| all.contains(port));
        let mut free = (self.base_port..u16::MAX)
            .filter(|port| !taken.contains(port) && !is_reserved(port) && is_free(*port));
        let from = self.base_port;
        let client = fixed.or_else(|| free.next());
        let (Some(client), Some(peer)) = (client, free.next()) else {
            return Err(Error::NoPorts { from });
        };
        let ports = Ports { client, peer };
        self.update(|state| state.ports.insert(member.to_owned(), ports))?;
        Ok(ports)
    }

    /// All current PVCs, by name, read from the disk.
    pub fn pvcs(&self) -> Result<BTreeMap<String, PvcRecord>, Error> {
        let directory = self.root.join("claims");
        let mut pvcs = BTreeMap::new();
        for entry in fs::read_dir(&directory).map_err(file("list", &directory))? {
            let entry = entry.map_err(file("list", &directory))?;
            let path = entry.path().join("claim.json");
            match fs::read(&path) {
                Ok(bytes) => {
                    let pvc = PvcRecord::read(&bytes)
                        .map_err(|source| Error::Damaged { path, source })?;
                    pvcs.insert(entry.file_name().to_string_lossy().into_owned(), pvc);
                }
                // A directory without its record is a lost disk, like a lost directory.
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(source) => return Err(file("read", &path)(source)),
            }
        }
        Ok(pvcs)
    }

    /// Where the server of this PVC keeps its data.
    pub fn data_dir(&self, pvc: &str) -> PathBuf {
        self.root.join("claims").join(pvc).join("data")
    }

    /// Where the output of this member's server goes.
    pub fn log(&self, member: &str) -> PathBuf {
        self.root.join("logs").join(format!("{member}.log"))
    }

    /// Creates a PVC, or keeps the existing one. Returns its record.
    pub fn create_pvc(&self, pvc: &str, member: &str, bytes: u64) -> Result<PvcRecord, Error> {
        if let Some(found) = self.pvcs()?.remove(pvc) {
            return Ok(found);
        }
        let data = self.data_dir(pvc);
        fs::create_dir_all(&data).map_err(file("create", &data))?;
        let record = PvcRecord {
            uid: uuid::Uuid::new_v4().to_string(),
            member: member.to_owned(),
            cluster_uid: self.state.cluster_uid.clone(),
            state: PvcState::New,
            terminating: false,
            bytes,
            owned: false,
        };
        self.write_pvc(pvc, &record)?;
        Ok(record)
    }

    /// Changes a PVC's record if it is still the one meant. True if it was there.
    pub fn update_pvc(
        &self,
        pvc: &str,
        uid: &str,
        change: impl FnOnce(&mut PvcRecord),
    ) -> Result<bool, Error> {
        match self.pvcs()?.remove(pvc) {
            Some(mut found) if found.uid == uid => {
                change(&mut found);
                self.write_pvc(pvc, &found)?;
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    /// Removes the directories of unused PVCs that are to be deleted, and directories without a record.
    pub fn collect(&self, in_use: impl Fn(&str) -> bool) -> Result<(), Error> {
        let pvcs = self.pvcs()?;
        let root = self.root.join("claims");
        for entry in fs::read_dir(&root).map_err(file("list", &root))? {
            let entry = entry.map_err(file("list", &root))?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let goes = pvcs.get(&name).is_none_or(|pvc| pvc.terminating);
            if goes && !in_use(&name) {
                fs::remove_dir_all(entry.path()).map_err(file("remove", &entry.path()))?;
            }
        }
        Ok(())
    }

    fn write_pvc(&self, pvc: &str, record: &PvcRecord) -> Result<(), Error> {
        write_json(
            &self.root.join("claims").join(pvc).join("claim.json"),
            record,
        )
    }
}

impl PvcRecord {
    /// Reads `pvc.json`.
    pub fn read(bytes: &[u8]) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(bytes)
    }
}

impl State {
    /// Reads `state.json`. Implausibly large numbers count as damage.
    pub fn read(bytes: &[u8]) -> Result<Self, serde_json::Error> {
        let state: Self = serde_json::from_slice(bytes)?;
        let wrong = |what| Err(<serde_json::Error as serde::de::Error>::custom(what));
        if state.epoch == u64::MAX {
            return wrong("the epoch is at its end");
        }
        if !(0..i64::MAX).contains(&state.generation) {
            return wrong("the generation is out of range");
        }
        Ok(state)
    }

    fn new(cluster: String) -> Self {
        Self {
            cluster,
            cluster_uid: uuid::Uuid::new_v4().to_string(),
            epoch: 0,
            generation: 0,
            spec: serde_json::Value::Null,
            admitted: serde_json::Value::Null,
            status: serde_json::Value::Null,
            identity_secret: None,
            sets: BTreeMap::new(),
            ports: BTreeMap::new(),
        }
    }
}

fn take_lock(root: &Path) -> Result<File, Error> {
    let path = root.join("lock");
    let lock = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(&path)
        .map_err(file("open", &path))?;
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        Err(std::fs::TryLockError::WouldBlock) => Err(Error::InUse(root.to_owned())),
        Err(std::fs::TryLockError::Error(source)) => Err(file("lock", &path)(source)),
    }
}

fn write_json(path: &Path, value: &impl Serialize) -> Result<(), Error> {
    let bytes = serde_json::to_vec_pretty(value).map_err(|source| Error::Damaged {
        path: path.to_owned(),
        source,
    })?;
    let new = path.with_extension("json.new");
    let mut out = File::create(&new).map_err(file("create", &new))?;
    out.write_all(&bytes).map_err(file("write", &new))?;
    out.sync_data().map_err(file("sync", &new))?;
    fs::rename(&new, path).map_err(file("rename", &new))
}

fn file(act: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Error {
    let path = path.to_owned();
    move |source| Error::File { act, path, source }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(directory: &tempfile::TempDir) -> Result<Home, Error> {
        Home::open(directory.path(), "demo", 42_000)
    }

    #[test]
    fn directory_keeps_identity_and_raises_epoch() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let mut home = open(&directory).expect("a new home");
        let (uid, epoch) = (home.state().cluster_uid.clone(), home.state().epoch);
        let ports = home.ports("demo-1").expect("ports");
        let (_, key) = home.secret().expect("a key");
        drop(home);
        let mut home = open(&directory).expect("the same home");
        assert_eq!(home.state().cluster_uid, uid);
        assert_eq!(home.state().epoch, epoch + 1);
        assert_eq!(home.ports("demo-1").expect("ports"), ports);
        let other = home.ports("demo-2").expect("ports");
        assert!(![other.client, other.peer].contains(&ports.client));
        assert_eq!(home.secret().expect("a key").1, key);
    }

    /// A fixed port that was recorded as another one of the cluster was given to two servers, of which the second failed to
    /// listen, again and again; and a member's client port could be its own peer port.
    #[test]
    fn a_fixed_port_is_no_other_one_of_the_cluster() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let mut home = open(&directory).expect("a new home");
        let recorded = [
            (1, 21_000, 22_000),
            (2, 21_001, 21_003),
            (3, 21_002, 22_002),
        ];
        home.update(|state| {
            for (number, client, peer) in recorded {
                let ports = Ports { client, peer };
                state.ports.insert(format!("demo-{number}"), ports);
            }
        })
        .expect("recorded");
        let before = home.state().clone();
        for (first, member, expected) in [
            (
                22_000,
                "demo-1",
                "port 22000, by --client-port that of clients of demo-1, is recorded as the peer port of demo-1: choose another",
            ),
            (
                22_001,
                "demo-2",
                "of clients of demo-2, is recorded as the peer port of demo-3",
            ),
            (
                21_001,
                "demo-1",
                "of clients of demo-1, is recorded as the client port of demo-2",
            ),
            // One that is added later.
            (
                21_000,
                "demo-4",
                "of clients of demo-4, is recorded as the peer port of demo-2",
            ),
        ] {
            home.fix_client_ports(first);
            let error = home.ports(member).expect_err("it is refused");
            assert!(error.to_string().contains(expected), "{error}");
        }
        // The second one's: the first keeps its port then.
        home.fix_client_ports(22_001);
        let members = ["demo-1".to_owned(), "demo-2".to_owned()];
        let error = home.check_ports(&members).expect_err("it is refused");
        assert!(matches!(error, Error::Recorded { .. }), "{error}");
        home.fix_client_ports(21_000);
        for (number, client, peer) in recorded {
            let ports = home.ports(&format!("demo-{number}")).expect("its own");
            assert_eq!(ports, Ports { client, peer });
        }
        assert_eq!(*home.state(), before);
    }

    /// A damaged record had an epoch or a generation at the end of its numbers: the start, or the next
    /// edit, overflowed instead of saying which file is damaged.
    #[test]
    fn numbers_at_their_end_are_damage() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        drop(open(&directory).expect("a new home"));
        let path = directory.path().join("state.json");
        let whole = fs::read_to_string(&path).expect("the record");
        for (sound, damaged) in [
            ("\"epoch\": 1,", "\"epoch\": 18446744073709551615,"),
            ("\"generation\": 0,", "\"generation\": 9223372036854775807,"),
            ("\"generation\": 0,", "\"generation\": -1,"),
        ] {
            let text = whole.replace(sound, damaged);
            assert_ne!(text, whole, "{whole}");
            fs::write(&path, text).expect("written");
            let error = open(&directory).expect_err("it is damaged");
            assert!(matches!(error, Error::Damaged { .. }), "{error}");
        }
    }

    #[test]
    fn one_at_a_time_and_one_cluster_a_directory() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let home = open(&directory).expect("a new home");
        let second = open(&directory).expect_err("the lock is held");
        assert!(second.to_string().contains("in use"), "{second}");
        drop(home);
        let error = Home::open(directory.path(), "other", 42_000).expect_err("another cluster's");
        assert!(
            error
                .to_string()
                .contains("holds the cluster demo, not other"),
            "{error}"
        );
    }

    /// A field that was renamed in the code was another key on the disk: a cluster of the previous release was read as
    /// one without members.
    #[test]
    fn stored_keys_are_those_of_0_1_0() {
        let set = SetRecord {
            uid: "u".into(),
            pvc: "data-demo-1".into(),
            input_hash: "h".into(),
            created_ms: 1,
            hibernated: true,
            arguments: vec![],
        };
        let expected = serde_json::json!({"uid": "u", "claim": "data-demo-1", "input_hash": "h",
            "created_ms": 1, "asleep": true, "arguments": []});
        assert_eq!(serde_json::to_value(&set).expect("JSON"), expected);
        let directory = tempfile::tempdir().expect("a temporary directory");
        let home = open(&directory).expect("a new home");
        let state = serde_json::to_value(home.state()).expect("JSON");
        let state = state.as_object().expect("an object");
        let mut keys: Vec<&str> = state.keys().map(String::as_str).collect();
        keys.sort_unstable();
        let expected = "admitted cluster cluster_uid epoch generation latch ports sets spec status";
        assert_eq!(keys.join(" "), expected);
    }

    #[test]
    fn removed_directory_is_a_lost_pvc() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let home = open(&directory).expect("a new home");
        let pvc = home.create_pvc("data-demo-1", "demo-1", 1).expect("a PVC");
        assert_eq!(
            home.create_pvc("data-demo-1", "demo-1", 1)
                .expect("the same"),
            pvc
        );
        let joined = |pvc: &mut PvcRecord| pvc.state = PvcState::Joined;
        assert!(
            home.update_pvc("data-demo-1", &pvc.uid, joined)
                .expect("marked")
        );
        assert_eq!(
            home.pvcs().expect("claims")["data-demo-1"].state,
            PvcState::Joined
        );
        let goes = |pvc: &mut PvcRecord| pvc.terminating = true;
        assert!(
            !home
                .update_pvc("data-demo-1", "someone else's", goes)
                .expect("no failure")
        );
        home.collect(|_| false).expect("nothing to collect");
        assert!(home.data_dir("data-demo-1").is_dir());
        fs::remove_dir_all(home.data_dir("data-demo-1").parent().expect("its PVC"))
            .expect("removed by hand");
        assert!(home.pvcs().expect("claims").is_empty());
        let again = home
            .create_pvc("data-demo-1", "demo-1", 1)
            .expect("a new PVC");
        assert_ne!(again.uid, pvc.uid);
        assert!(
            home.update_pvc("data-demo-1", &again.uid, goes)
                .expect("deleted")
        );
        home.collect(|_| true).expect("in use");
        assert!(home.data_dir("data-demo-1").is_dir(), "a PVC in use stays");
        home.collect(|_| false).expect("collected");
        assert!(!home.data_dir("data-demo-1").exists());
    }

    #[test]
    fn a_damaged_record_is_named() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        drop(open(&directory).expect("a new home"));
        fs::write(directory.path().join("state.json"), "{").expect("written");
        let error = open(&directory).expect_err("damaged");
        assert!(
            error.to_string().contains("state.json is damaged"),
            "{error}"
        );
    }
}
