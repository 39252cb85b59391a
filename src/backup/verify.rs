//! `verify`: restores a backup into a member that is thrown away, compares what the member says with what was saved,
//! and records the result beside the backup. What speaks against this machine (no space, no port) is an error and no
//! result.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use tokio::process::{Child, Command};
use tonic::Code;
use tonic::transport::{Channel, Endpoint};

use super::Error;
use super::cipher::Key;
use super::fetch::fetch_text;
use super::manifest::{Manifest, Verification};
use super::repository::{Repository, Stored, read_signed};
use super::save::ended;
use super::{chain, sha256};
use crate::bolt;
use crate::server::restore::{Restore, RestoreError, Restored};
use crate::snapshot::Changes;
use crate::wire::etcd::HashKvRequest;
use crate::wire::etcd::maintenance_client::MaintenanceClient;

/// A member whose files were just made serves and is hashed within this, however large it is: as long as a member takes for a hash.
const START: Duration = Duration::from_secs(600);
/// Longest path of a directory with a socket in it: the system's limit is 107 bytes with the socket's name.
const SOCKET_BYTES: usize = 95;
/// Between two attempts to reach it.
const RETRY: Duration = Duration::from_millis(50);
/// The member's log, of which an error shows the end.
const LOG: &str = "member.log";

/// Restores a backup below `scratch`, which is left empty, with the program `quorate`.
///
/// # Errors
/// Whatever kept it from being judged. A backup that cannot be restored is a result.
pub async fn verify(
    repository: &Repository,
    id: &str,
    keys: &[Key],
    scratch: &Path,
    quorate: &Path,
) -> Result<Verification, Error> {
    let stored = repository.find(id, &[]).await?;
    stored.expect_manifest()?;
    let (_, signing) = read_signed(id, &stored.text, keys)?;
    let began = Instant::now();
    let directory = Arc::new(Scratch::new(scratch)?);
    let failure = match restore(repository, &stored, keys, &directory, quorate).await {
        Ok(()) => None,
        Err(Error::Damaged { what, .. }) => Some(what),
        Err(error) => return Err(error),
    };
    // Deleted meanwhile, it is not to come back as a record of itself.
    if repository.manifest_bytes(id).await?.as_ref() != Some(&stored.text) {
        return Err(repository.not_found(id));
    }
    let verification = Verification {
        manifest: sha256(&stored.text),
        at: Timestamp::now(),
        seconds: began.elapsed().as_secs_f64(),
        failure,
    };
    let signing = signing.as_ref();
    repository
        .put_verification(id, &verification, signing)
        .await?;
    Ok(verification)
}

async fn restore(
    repository: &Repository,
    stored: &Stored,
    keys: &[Key],
    scratch: &Arc<Scratch>,
    quorate: &Path,
) -> Result<(), Error> {
    let id = stored.id.as_str();
    let directory = scratch.0.as_path();
    let file = directory.join("snapshot.db");
    let manifest = fetch_text(repository, id, &stored.text, keys, &file).await?;
    let data_dir = directory.join("data");
    let restored = {
        // It goes on when nobody waits any more, and what it writes is to be deleted after that.
        let scratch = Arc::clone(scratch);
        let (file, data_dir) = (file.clone(), data_dir.clone());
        tokio::task::spawn_blocking(move || {
            let restored = Member::restore(file, data_dir);
            drop(scratch);
            restored
        })
    };
    let restored = restored.await.map_err(ended)?;
    let restored = restored.map_err(|error| judge(id, directory, error))?;
    same(&manifest, &restored)?;
    let mut member = Member::start(directory, &data_dir, quorate)?;
    let hash = member.hash(manifest.snapshot.revision).await;
    // Before its directory is deleted.
    member.stop().await;
    let hash = hash?;
    match hash == (manifest.snapshot.hash, manifest.snapshot.compact_revision) {
        true => Ok(()),
        false => {
            let (found, compacted) = hash;
            let what = format!(
                "a member restored from it has the hash {found} at revision {} (compacted at {compacted}), and {} was saved (compacted at {})",
                manifest.snapshot.revision,
                manifest.snapshot.hash,
                manifest.snapshot.compact_revision
            );
            Err(Error::damaged(id, what))
        }
    }
}

/// Whether a refused restore speaks against the backup or against this machine, whose disk holds bytes that were just
/// proved, and whose version may be older than the backup.
fn judge(id: &str, directory: &Path, error: RestoreError) -> Error {
    use crate::snapshot::Error as Unreadable;
    match &error {
        RestoreError::Database { source, .. }
            if !matches!(
                source,
                Unreadable::Bolt(bolt::Error::Read(_)) | Unreadable::Unknown(_)
            ) =>
        {
            Error::damaged(id, chain(&error))
        }
        other => Error::Member(format!("{}: {}", directory.display(), chain(other))),
    }
}

fn same(manifest: &Manifest, restored: &Restored) -> Result<(), Error> {
    let saved = &manifest.snapshot;
    let pairs = [
        (
            "revision",
            saved.revision.unsigned_abs(),
            restored.revision.unsigned_abs(),
        ),
        ("keys", saved.keys, restored.keys),
        ("leases", saved.leases, restored.leases as u64),
        ("users", saved.users, restored.users as u64),
        ("roles", saved.roles, restored.roles as u64),
    ];
    for (what, before, after) in pairs {
        if before != after {
            let what = format!("{what}: {before} saved, {after} restored");
            return Err(Error::damaged(&manifest.id, what));
        }
    }
    Ok(())
}

/// A directory that is deleted when it is dropped. Only this user may enter: it holds everybody's data.
struct Scratch(PathBuf);

impl Scratch {
    fn new(below: &Path) -> Result<Scratch, Error> {
        use std::os::unix::fs::DirBuilderExt as _;
        std::fs::create_dir_all(below).map_err(Error::file(below))?;
        let below = below.canonicalize().map_err(Error::file(below))?;
        let name = uuid::Uuid::new_v4().simple().to_string();
        let path = below.join(format!("quorate-verify-{}", &name[..8]));
        if path.as_os_str().len() > SOCKET_BYTES {
            return Err(Error::Usage(format!(
                "--scratch: {} is too long a path for a socket: give one of at most {} bytes",
                below.display(),
                SOCKET_BYTES - 24
            )));
        }
        let mut builder = std::fs::DirBuilder::new();
        let made = builder.mode(0o700).create(&path);
        made.map_err(Error::file(&path))?;
        Ok(Scratch(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What remains is in a directory for scratch.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A member without peers. Its clients' socket is in a directory that nobody else may enter; its peer port, on
/// loopback, admits members alone.
struct Member {
    child: Child,
    channel: Channel,
    log: PathBuf,
}

impl Member {
    const NAME: &'static str = "verify";
    const PEER: &'static str = "http://127.0.0.1:2380";

    fn restore(file: PathBuf, data_dir: PathBuf) -> Result<Restored, RestoreError> {
        let members = [(Self::NAME.to_owned(), vec![Self::PEER.to_owned()])];
        Restore {
            file,
            name: Self::NAME.to_owned(),
            members: members.into(),
            token: Self::NAME.to_owned(),
            data_dir,
            skip_hash_check: false,
            // Only this process reaches it, and has no user's password.
            changes: Changes {
                disable_auth: true,
                ..Changes::default()
            },
        }
        .run()
    }

    fn start(directory: &Path, data_dir: &Path, quorate: &Path) -> Result<Member, Error> {
        let log = directory.join(LOG);
        let output = std::fs::File::create(&log).map_err(Error::file(&log))?;
        let errors = output.try_clone().map_err(Error::file(&log))?;
        let mut command = Command::new(quorate);
        for (name, _) in std::env::vars_os() {
            // Flags of another server.
            if name.to_string_lossy().starts_with("ETCD_") {
                command.env_remove(name);
            }
        }
        let child = command
            .current_dir(directory)
            .arg("server")
            .arg(format!("--name={}", Self::NAME))
            .arg(format!("--data-dir={}", data_dir.display()))
            .arg("--listen-client-urls=unix://client.sock")
            .arg("--advertise-client-urls=unix://client.sock")
            .arg("--listen-peer-urls=http://127.0.0.1:0")
            .arg(format!("--initial-advertise-peer-urls={}", Self::PEER))
            .arg(format!("--initial-cluster={}={}", Self::NAME, Self::PEER))
            .arg(format!("--initial-cluster-token={}", Self::NAME))
            .stdin(Stdio::null())
            .stdout(output)
            .stderr(errors)
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| Error::Member(format!("{}: {error}", quorate.display())))?;
        let socket = format!("unix://{}", directory.join("client.sock").display());
        let endpoint = Endpoint::from_shared(socket);
        let endpoint = endpoint.map_err(|error| Error::Member(error.to_string()))?;
        Ok(Member {
            child,
            channel: endpoint.connect_lazy(),
            log,
        })
    }

    /// The hash at a revision and the revision of the last compaction, as soon as it answers.
    async fn hash(&mut self, revision: i64) -> Result<(u32, i64), Error> {
        let answered = tokio::time::timeout(START, self.hash_of(revision)).await;
        answered.unwrap_or_else(|_| {
            let seconds = START.as_secs();
            let text = format!("no answer in {seconds} s; {}", self.last_lines());
            Err(Error::Member(text))
        })
    }

    async fn hash_of(&mut self, revision: i64) -> Result<(u32, i64), Error> {
        loop {
            let mut client = MaintenanceClient::new(self.channel.clone());
            let failed = match client.hash_kv(HashKvRequest { revision }).await {
                Ok(response) => {
                    let response = response.into_inner();
                    return Ok((response.hash, response.compact_revision));
                }
                Err(status) => status,
            };
            if let Ok(Some(status)) = self.child.try_wait() {
                return Err(Error::Member(format!("{status}; {}", self.last_lines())));
            }
            let starts = matches!(failed.code(), Code::Unavailable | Code::DeadlineExceeded);
            if !starts {
                let text = failed.message().to_owned();
                return Err(Error::Member(format!("{text}; {}", self.last_lines())));
            }
            tokio::time::sleep(RETRY).await;
        }
    }

    fn last_lines(&self) -> String {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().rev().take(3).collect();
        lines.into_iter().rev().collect::<Vec<_>>().join(" / ")
    }

    async fn stop(&mut self) {
        // Its data are thrown away: it need not end well.
        let _ = self.child.kill().await;
    }
}
