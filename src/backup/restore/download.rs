//! From the store into a file without a name: nothing is sent before all of it is here and was checked.

use std::fs::File;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::sync::Arc;

use futures::{StreamExt as _, TryStreamExt as _};

use super::{Contents, Restore, Sent, Snapshot};
use crate::backup::fetch::fetch_text;
use crate::backup::manifest::{Manifest, check_id};
use crate::backup::repository::{Repository, read_signed};
use crate::backup::save::ended;
use crate::backup::{Error, chain};
use crate::bolt;
use crate::server::snapshot_file::{DIGEST, Mismatch, SnapshotFile, sha256};
use crate::snapshot::{self, summarize};
use crate::wire::member::StagedSnapshot;

/// Bytes of an object that are read by one request, so that a failed one costs little.
const PIECE: u64 = 16 << 20;
/// Requests on their way at once.
const IN_FLIGHT: usize = 2;

/// What is in the store, and was not downloaded yet.
pub(super) struct Located {
    folder: Repository,
    name: String,
    what: What,
}

enum What {
    /// With the manifest, and its text.
    Backup(Box<Manifest>, Vec<u8>),
    /// Its length, and the version that was measured.
    Object(u64, Option<String>),
}

impl Located {
    /// What a standby has, if it has all of this one. The SHA-256 of what is sent is known only once a backup is here,
    /// so what its manifest says is compared; of an object nothing is known.
    pub(super) fn is_there(&self, staged: &StagedSnapshot) -> Option<Sent> {
        let What::Backup(manifest, _) = &self.what else {
            return None;
        };
        let found = Contents {
            revision: staged.revision,
            keys: staged.keys,
            hash: staged.hash,
        };
        let length = manifest.snapshot.size + DIGEST;
        let same = staged.complete && staged.length == length && found == contents(manifest);
        same.then(|| Sent {
            sha256: staged.sha256.clone(),
            size: length,
            revision: found.revision,
            keys: found.keys,
            moment: None,
        })
    }
}

impl Restore {
    /// A backup if there is a manifest, else the object of that name.
    pub(super) async fn locate(&self, repository: &Repository) -> Result<Located, Error> {
        let (folders, name) = self.path.split();
        let folder = repository.below(&folders);
        // What is no backup's name is the name of no backup.
        let manifest = match check_id(name) {
            Ok(()) => folder.manifest_bytes(name).await?,
            Err(_) => None,
        };
        let what = match manifest {
            Some(text) => {
                let (manifest, _) = read_signed(name, &text, &self.keys)?;
                What::Backup(Box::new(manifest), text)
            }
            None => {
                let measured = folder.measure(name).await?;
                let (length, e_tag) = measured.ok_or_else(|| Error::NothingThere {
                    path: self.path.text.clone(),
                    url: repository.url().to_owned(),
                })?;
                What::Object(length, e_tag)
            }
        };
        Ok(Located {
            folder,
            name: name.to_owned(),
            what,
        })
    }

    pub(super) async fn download(&self, located: Located) -> Result<Snapshot, Error> {
        std::fs::create_dir_all(&self.scratch).map_err(Error::file(&self.scratch))?;
        let (folder, name) = (&located.folder, located.name.as_str());
        match located.what {
            What::Backup(_, text) => self.backup(folder, name, &text).await,
            What::Object(length, e_tag) => {
                self.object(folder, name, length, e_tag.as_deref()).await
            }
        }
    }

    async fn backup(&self, folder: &Repository, id: &str, text: &[u8]) -> Result<Snapshot, Error> {
        let number = uuid::Uuid::new_v4().simple();
        let path = self.scratch.join(format!("quorate-restore-{number}.db"));
        let manifest = fetch_text(folder, id, text, &self.keys, &path).await?;
        let file = File::open(&path).map_err(Error::file(&path));
        std::fs::remove_file(&path).map_err(Error::file(&path))?;
        let known = Some(contents(&manifest));
        ready(&self.path.text, &self.scratch, file?, known).await
    }

    async fn object(
        &self,
        folder: &Repository,
        name: &str,
        length: u64,
        e_tag: Option<&str>,
    ) -> Result<Snapshot, Error> {
        let file = nameless(&self.scratch)?;
        let gets = (0..length.div_ceil(PIECE)).map(|number| async move {
            let bytes = number * PIECE..((number + 1) * PIECE).min(length);
            let piece = folder.get_piece(name, bytes.clone(), e_tag).await?;
            Ok::<_, Error>((bytes, piece))
        });
        let mut pieces = futures::stream::iter(gets).buffered(IN_FLIGHT);
        while let Some((bytes, piece)) = pieces.try_next().await? {
            if piece.len() as u64 != bytes.end - bytes.start {
                let what = "the store gave less of it than was asked for: repeat".to_owned();
                let id = self.path.text.clone();
                return Err(Error::Unclear { id, what });
            }
            let written = file.write_all_at(&piece, bytes.start);
            written.map_err(Error::file(&self.scratch))?;
        }
        ready(&self.path.text, &self.scratch, file, None).await
    }
}

/// Reads the file through, which errors name by `name`; what a manifest says of it was checked before, what another one
/// holds is found here.
pub(in crate::backup) async fn ready(
    name: &str,
    scratch: &Path,
    file: File,
    known: Option<Contents>,
) -> Result<Snapshot, Error> {
    let (name, scratch) = (name.to_owned(), scratch.to_owned());
    let read = tokio::task::spawn_blocking(move || {
        let failed = || Error::file(&scratch);
        let length = file.metadata().map_err(failed())?.len();
        let sha256 = sha256(&file, length).map_err(failed())?;
        let saved = known.is_some();
        let contents = match known {
            Some(contents) => contents,
            None => look(&name, &scratch, &file)?,
        };
        Ok(Snapshot {
            file: Arc::new(file),
            length,
            sha256,
            contents,
            source: 0,
            saved,
        })
    });
    read.await.map_err(ended)?
}

/// What a snapshot that no manifest describes holds.
fn look(path: &str, scratch: &Path, file: &File) -> Result<Contents, Error> {
    let failed = || Error::file(scratch);
    let snapshot = file.try_clone().and_then(SnapshotFile::new);
    let snapshot = snapshot.map_err(failed())?;
    let digest = snapshot.check_digest().map_err(failed())?;
    digest.map_err(|Mismatch { expected, found }| {
        let what = format!("it ends with the SHA-256 {expected}, and that of its data is {found}");
        Error::damaged(path, what)
    })?;
    match summarize(snapshot) {
        Ok(summary) => Ok(Contents {
            revision: summary.revision,
            keys: summary.keys,
            hash: summary.hash,
        }),
        Err(snapshot::Error::Bolt(bolt::Error::Read(source))) => Err(failed()(source)),
        Err(error) => Err(Error::damaged(path, chain(&error))),
    }
}

fn contents(manifest: &Manifest) -> Contents {
    Contents {
        revision: manifest.snapshot.revision,
        keys: manifest.snapshot.keys,
        hash: manifest.snapshot.hash,
    }
}

/// A file that nobody else can read, and that is gone with the process.
pub(in crate::backup) fn nameless(directory: &Path) -> Result<File, Error> {
    let number = uuid::Uuid::new_v4().simple();
    let path = directory.join(format!("quorate-restore-{number}.db"));
    let mut options = File::options();
    let options = options.read(true).write(true).create_new(true).mode(0o600);
    let file = options.open(&path).map_err(Error::file(&path))?;
    std::fs::remove_file(&path).map_err(Error::file(&path))?;
    Ok(file)
}
