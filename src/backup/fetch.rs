//! `fetch`: a backup back into one file, as `etcdctl snapshot save` writes it. Checks every part and the whole; a file
//! under the final name is complete.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use futures::{StreamExt as _, TryStreamExt as _};
use sha2::{Digest as _, Sha256};

use super::cipher::{AttemptKeys, Key};
use super::manifest::Manifest;
use super::repository::Repository;
use super::{Error, hex, part};

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
    let stored = repository.find(id).await?;
    let bytes = match repository.manifest_bytes(id).await? {
        Some(bytes) => bytes,
        None if stored.objects.is_empty() => return Err(gone(repository, id)),
        None => {
            let what = "it has no manifest: `save` has not ended, or did not end";
            return Err(Error::damaged(id, what));
        }
    };
    let manifest = Manifest::open(id, &bytes)?;
    let attempt = manifest.keys(keys)?;
    Manifest::authenticate(id, &bytes, attempt.as_ref())?;
    if file.exists() {
        let text = format!("{} exists: give another name, or delete it", file.display());
        return Err(Error::Usage(text));
    }
    let partial = Partial::new(file);
    download(repository, &manifest, attempt.as_ref(), &partial.path).await?;
    std::fs::rename(&partial.path, file).map_err(Error::file(file))?;
    sync_parent(file)?;
    Ok(manifest)
}

async fn download(
    repository: &Repository,
    manifest: &Manifest,
    keys: Option<&AttemptKeys>,
    path: &Path,
) -> Result<(), Error> {
    let id = manifest.id.as_str();
    let mut file = File::create(path).map_err(Error::file(path))?;
    let mut digest = Sha256::new();
    let gets = (1..).zip(&manifest.parts).map(|(number, part)| async move {
        let object = repository.get_part(id, &manifest.attempt, number).await?;
        Ok::<_, Error>((number, part, object))
    });
    let mut objects = futures::stream::iter(gets).buffered(IN_FLIGHT);
    while let Some((number, part, object)) = objects.try_next().await? {
        let Some(object) = object else {
            return Err(missing(repository, id, number).await);
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

/// A part is not there: of a backup that was deleted meanwhile none is, of a damaged one the manifest is.
async fn missing(repository: &Repository, id: &str, number: u32) -> Error {
    match repository.manifest_bytes(id).await {
        Ok(None) => gone(repository, id),
        Ok(Some(_)) => Error::damaged(id, format!("part {number} is gone")),
        Err(error) => error,
    }
}

fn gone(repository: &Repository, id: &str) -> Error {
    Error::NotFound {
        id: id.to_owned(),
        url: repository.url().to_owned(),
    }
}

/// A file that is deleted when it is dropped, unless it was renamed.
struct Partial {
    path: PathBuf,
}

impl Partial {
    fn new(file: &Path) -> Partial {
        let mut name = file.as_os_str().to_owned();
        name.push(".partial");
        Partial { path: name.into() }
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
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
