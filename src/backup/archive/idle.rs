//! The mark of an archive that stands still: as of when its last entry is everything, where nothing was written behind it.
//! One small object a cluster, which each archiver overwrites: an older one says less, and nothing that is wrong. Never
//! says anything of entries that are not stored.

use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use jiff::Timestamp;
use object_store::path::Path;
use object_store::{ObjectStoreExt as _, PutPayload};
use serde::{Deserialize, Serialize};

use super::Horizon;
use super::names::folder;
use super::retention::outlived;
use super::segment::Mark;
use crate::backup::Error;
use crate::backup::cipher::Key;
use crate::backup::manifest::{ARCHIVE, CIPHER, Encryption, keys_of, open, seal};
use crate::backup::repository::Repository;

/// Its name in the folder of its cluster.
const NAME: &str = "idle";
/// The format that is written, and the newest that is read.
const FORMAT: u32 = 1;
/// Longest text.
const MOST_TEXT: u64 = 64 << 10;

/// How often it is written: a time behind the last entry can be restored to so long after it was.
pub(super) const EVERY: Duration = Duration::from_secs(60);

/// Its text, for people to read, with its sum and its signature as those of a manifest.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Text {
    format: u32,
    cluster_id: String,
    /// Of the last entry that is stored.
    mark: Mark,
    /// With which key it is signed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    encryption: Option<Encryption>,
}

/// The object. `key` with 32 random bytes signs it.
pub(super) fn encode(
    cluster_id: u64,
    mark: Mark,
    key: Option<(&Key, [u8; 32])>,
) -> Result<Vec<u8>, Error> {
    let keys = key.map(|(key, salt)| key.of_attempt(&salt)).transpose()?;
    let text = Text {
        format: FORMAT,
        cluster_id: folder(cluster_id),
        mark,
        encryption: key.map(|(key, salt)| Encryption {
            cipher: CIPHER.to_owned(),
            key_id: key.id().to_owned(),
            salt: BASE64_STANDARD.encode(salt),
        }),
    };
    let sign = |text: &[u8]| keys.as_ref().map(|keys| keys.sign(text));
    seal(&name(cluster_id), &text, sign)
}

/// What an object says.
///
/// # Errors
/// [`Error::Archive`] if it is not what was written, [`Error::Key`] if the keys do not fit.
pub(super) fn decode(cluster_id: u64, object: &[u8], keys: &[Key]) -> Result<Mark, Error> {
    let name = name(cluster_id);
    let broken = |what: &str| Error::Archive(format!("{name} is not what was written: {what}"));
    let (text, signature) = open(&name, object).map_err(|_| broken("it is cut off or damaged"))?;
    let read: Text = serde_json::from_slice(text).map_err(|error| broken(&error.to_string()))?;
    // What a newer version means by it is not known.
    if read.format != FORMAT || read.cluster_id != folder(cluster_id) {
        return Err(broken("it is another cluster's, or of another version"));
    }
    let signed = match (keys_of(&name, read.encryption.as_ref(), keys)?, signature) {
        (None, _) => true,
        (Some(keys), Some(signature)) => keys.signed(text, signature),
        (Some(_), None) => false,
    };
    match signed {
        true => Ok(read.mark),
        false => Err(broken("it was changed by somebody without the key")),
    }
}

fn name(cluster_id: u64) -> String {
    format!("{ARCHIVE}/{}/{NAME}", folder(cluster_id))
}

impl Repository {
    /// Writes the mark of a cluster, in the place of an earlier one.
    pub(super) async fn put_idle_mark(
        &self,
        cluster_id: u64,
        object: Vec<u8>,
    ) -> Result<(), Error> {
        let path = self.idle_path(cluster_id);
        let put = self.store.put(&path, PutPayload::from(object)).await;
        put.map_err(self.failed("recording how far the archive is"))?;
        Ok(())
    }

    /// The mark of a cluster, if there is one.
    ///
    /// # Errors
    /// Those of [`decode`] and of the store.
    pub(super) async fn idle_mark(
        &self,
        cluster_id: u64,
        keys: &[Key],
    ) -> Result<Option<Mark>, Error> {
        let path = self.idle_path(cluster_id);
        let doing = "reading how far the archive is";
        let object = self.get(&path, MOST_TEXT, doing).await?;
        object
            .map(|object| decode(cluster_id, &object, keys))
            .transpose()
    }

    /// The clusters whose marks nobody needs any more: those without any backup, as their entries.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn outlived_marks(
        &self,
        known: &Horizon,
        unread: bool,
        now: Timestamp,
    ) -> Result<Vec<u64>, Error> {
        let listed = self.below_archive(None).await?.into_iter();
        let gone = listed.filter(|it| {
            let needed = known.contains_key(&it.cluster_id);
            it.name == NAME && !needed && outlived(it.modified, unread, now)
        });
        Ok(gone.map(|it| it.cluster_id).collect())
    }

    /// Deletes the mark of a cluster; one that is gone already is no error.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn delete_idle_mark(&self, cluster_id: u64) -> Result<(), Error> {
        self.delete(&self.idle_path(cluster_id)).await
    }

    fn idle_path(&self, cluster_id: u64) -> Path {
        let root = self.prefix.clone().join(ARCHIVE);
        root.join(folder(cluster_id)).join(NAME)
    }
}
