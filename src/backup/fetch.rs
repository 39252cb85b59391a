//! `fetch`: a backup back into one file, as `etcdctl snapshot save` writes it. Checks every part and the whole; a file
//! under the final name is complete.

use std::fs::File;
use std::io::{self, Seek as _, Write as _};
use std::path::{Path, PathBuf};

use futures::{StreamExt as _, TryStreamExt as _};
use sha2::{Digest as _, Sha256};

use super::archive::{At, Reached, Source};
use super::cipher::{AttemptKeys, Key};
use super::manifest::Manifest;
use super::repository::{Repository, read_signed};
use super::save::ended;
use super::{Error, archive, hex, part};

/// Parts on their way at once.
const IN_FLIGHT: usize = 2;

/// Fetches a backup into a file that does not exist yet.
///
/// # Errors
/// [`Error::Damaged`] if it is not what was saved; those of the store, the key and the file.
pub async fn fetch(
    repository: &Repository,
    id: &str,
    keys: &[Key],
    file: &Path,
) -> Result<Manifest, Error> {
    check_absent(file)?;
    let stored = repository.find(id, &[]).await?;
    stored.expect_manifest()?;
    fetch_text(repository, id, &stored.text, keys, file).await
}

/// The same of a moment: of a backup, or of the best one there is, and the archive behind it.
///
/// # Errors
/// [`Error::Moment`] if nothing leads there; those of [`fetch`] and of the archive.
pub async fn fetch_at(
    repository: &Repository,
    id: Option<&str>,
    at: &At<'_>,
    file: &Path,
) -> Result<Reached, Error> {
    check_absent(file)?;
    let folder = repository;
    let (from, reached) = archive::file(Source { folder, id }, at).await?;
    let (partial, mut open) = Partial::create(file)?;
    let failed = Error::file(&partial.0);
    let copied = tokio::task::spawn_blocking(move || {
        (&from).rewind()?;
        io::copy(&mut &from, &mut open)?;
        open.sync_all()
    });
    copied.await.map_err(ended)?.map_err(failed)?;
    partial.publish(file)?;
    Ok(reached)
}

fn check_absent(file: &Path) -> Result<(), Error> {
    if file.exists() {
        let text = format!("{} exists: give another name, or delete it", file.display());
        return Err(Error::Usage(text));
    }
    Ok(())
}

/// The same of a manifest that was read already.
pub(super) async fn fetch_text(
    repository: &Repository,
    id: &str,
    text: &[u8],
    keys: &[Key],
    file: &Path,
) -> Result<Manifest, Error> {
    let (manifest, attempt) = read_signed(id, text, keys)?;
    let (partial, mut open) = Partial::create(file)?;
    download(
        repository,
        &manifest,
        attempt.as_ref(),
        &mut open,
        &partial.0,
    )
    .await?;
    partial.publish(file)?;
    Ok(manifest)
}

async fn download(
    repository: &Repository,
    manifest: &Manifest,
    keys: Option<&AttemptKeys>,
    file: &mut File,
    path: &Path,
) -> Result<(), Error> {
    let id = manifest.id.as_str();
    let mut digest = Sha256::new();
    let gets = (1..).zip(&manifest.parts).map(|(number, part)| async move {
        let object = repository.get_part(id, &manifest.attempt, number).await?;
        Ok::<_, Error>((number, part, object))
    });
    let mut objects = futures::stream::iter(gets).buffered(IN_FLIGHT);
    while let Some((number, part, object)) = objects.try_next().await? {
        let Some(object) = object else {
            return Err(missing(repository, manifest, number).await);
        };
        let bytes =
            part::unpack(number, part, object, keys).map_err(|what| Error::damaged(id, what))?;
        digest.update(&bytes);
        file.write_all(&bytes).map_err(Error::file(path))?;
    }
    let found = digest.finalize();
    if hex(&found) != manifest.snapshot.sha256 {
        return Err(Error::damaged(
            id,
            "its parts together are not what was saved",
        ));
    }
    file.write_all(&found).map_err(Error::file(path))?;
    file.sync_all().map_err(Error::file(path))
}

/// A part is not there. It is gone if a listing says so as well; an answer alone may be the store's mistake.
async fn missing(repository: &Repository, manifest: &Manifest, number: u32) -> Error {
    let id = manifest.id.as_str();
    let stored = match repository.find(id, &[]).await {
        Ok(stored) => stored,
        Err(error) => return error,
    };
    match stored.known() {
        None => repository.not_found(id),
        Some(now) if now.attempt != manifest.attempt => repository.not_found(id),
        Some(_) if stored.part_sizes(&manifest.attempt).contains_key(&number) => Error::Unclear {
            id: id.to_owned(),
            what: format!("part {number} is listed and cannot be read: repeat"),
        },
        Some(_) => Error::damaged(id, format!("part {number} is gone")),
    }
}

/// A file that is deleted when it is dropped, of a name that nobody else uses.
struct Partial(PathBuf);

impl Partial {
    fn create(file: &Path) -> Result<(Partial, File), Error> {
        use std::os::unix::fs::OpenOptionsExt as _;
        let mut name = file.as_os_str().to_owned();
        name.push(format!(".{}.partial", uuid::Uuid::new_v4().simple()));
        let path = PathBuf::from(name);
        let mut options = File::options();
        // It holds everybody's data, so nobody else may read it.
        let created = options.write(true).create_new(true).mode(0o600).open(&path);
        let open = created.map_err(Error::file(&path))?;
        Ok((Partial(path), open))
    }

    /// Gives the file its name, unless somebody else has taken it.
    fn publish(self, file: &Path) -> Result<(), Error> {
        match std::fs::hard_link(&self.0, file) {
            Ok(()) => {}
            // Not every file system has links; there somebody else's file may be replaced.
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists && !file.exists() => {
                std::fs::rename(&self.0, file).map_err(Error::file(file))?;
            }
            Err(error) => return Err(Error::file(file)(error)),
        }
        sync_parent(file)
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn sync_parent(file: &Path) -> Result<(), Error> {
    let parent = match file.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let synced = File::open(parent).and_then(|directory| directory.sync_all());
    synced.map_err(Error::file(parent))
}
