//! Space that is reserved for a full volume: a file that allocates space without content. Without it a server could not
//! start on a full volume, and so not compact, because a start writes the last segment of the log again. The file is
//! removed when a write has no other space.
//!
//! Never needed for anything that was acknowledged; made again when there is room to spare.

use std::sync::Arc;

use super::device::Disk;
use super::error::{Class, Error, Result};
use super::frame;
use super::identity::Identity;

/// Its name in the data directory.
pub(crate) const NAME: &str = "reserve";
/// A file uses a little more space than its length.
const ROUNDING: u64 = 64 << 10;

/// The reserve of a data directory.
#[derive(Clone, Debug)]
pub struct Reserve {
    disk: Arc<dyn Disk>,
}

impl Reserve {
    /// The reserve on this disk, whether it exists or not.
    pub fn new(disk: Arc<dyn Disk>) -> Self {
        Self { disk }
    }

    /// Reserves up to `most` bytes, and leaves `spare` bytes free: all of it, or what is available if that is at least
    /// half. Returns whether anything is reserved. A directory without an identity was emptied while the server runs, and
    /// stays empty.
    ///
    /// # Errors
    /// Any of this room's but [`Error::Full`].
    pub fn keep(&self, most: u64, spare: u64) -> Result<bool> {
        let kept = self.bytes()?;
        if kept >= most {
            return Ok(true);
        }
        if !Identity::is_there(&*self.disk)? {
            return Ok(kept > 0);
        }
        let path = || self.disk.describe(NAME);
        let free = self.free()?;
        // The space of its own name is left.
        let room = (kept + free).saturating_sub(spare.saturating_add(ROUNDING));
        let wanted = most.min(room);
        if wanted <= kept || wanted < most / 2 {
            return Ok(kept > 0);
        }
        self.give_up()?;
        if let Err(error) = self.disk.allocate(NAME, wanted) {
            self.give_up()?;
            let error = Error::io("allocate", path(), error);
            return match error.class() {
                Class::DiskFull => Ok(false),
                _ => Err(error),
            };
        }
        Ok(true)
    }

    /// Whether there is one.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn is_kept(&self) -> Result<bool> {
        Ok(self.bytes()? > 0)
    }

    /// Deletes it. Returns whether there was one.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn give_up(&self) -> Result<bool> {
        let kept = self.bytes()? > 0;
        if kept {
            frame::remove_if_there(&*self.disk, NAME)?;
        }
        Ok(kept)
    }

    /// Deletes it if there is room for so many bytes then. Where there is not, it would be given up for nothing, and what others
    /// write to the volume would take the space that the next start needs. Returns whether it was deleted.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn give_up_for(&self, needed: u64) -> Result<bool> {
        let free = self.free()?;
        let kept = self.bytes()?;
        if kept.saturating_add(free) < needed {
            return Ok(false);
        }
        self.give_up()
    }

    fn free(&self) -> Result<u64> {
        let free = self.disk.free_bytes();
        free.map_err(|e| Error::io("measure the volume of", self.disk.describe(NAME), e))
    }

    /// How much is kept.
    fn bytes(&self) -> Result<u64> {
        let io = |act, error| Error::io(act, self.disk.describe(NAME), error);
        match self.disk.open(NAME) {
            Ok(file) => file.length().map_err(|e| io("measure", e)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(0),
            Err(error) => Err(io("open", error)),
        }
    }
}

/// Does something that writes, and does it again without the reserve if there was no room.
pub(crate) fn or_without_reserve<T>(
    disk: &Arc<dyn Disk>,
    mut act: impl FnMut() -> Result<T>,
) -> Result<T> {
    match act() {
        Err(error)
            if error.class() == Class::DiskFull
                && Reserve::new(Arc::clone(disk)).give_up().unwrap_or(false) =>
        {
            act()
        }
        done => done,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::double::{Faults, MemoryDisk};

    #[test]
    fn spare_turns_are_taken_and_returned() {
        let disk = MemoryDisk::new();
        let capacity = |bytes| {
            disk.set_faults(Faults {
                capacity: Some(bytes),
                ..Faults::default()
            });
        };
        disk.plant(crate::disk::identity::NAME, b""); // its content is not looked at
        let reserve = Reserve::new(Arc::new(disk.clone()));
        assert!(!reserve.give_up().expect("no fault"), "there is none");
        capacity(ROUNDING + 400);
        assert!(!reserve.keep(1000, 0).expect("no fault"), "not half of it");
        assert!(reserve.keep(800, 0).expect("no fault"));
        assert_eq!(disk.bytes(), 400);
        capacity(ROUNDING + 1000);
        assert!(reserve.keep(800, 500).expect("no fault"));
        assert_eq!(disk.bytes(), 500, "the rest is spare");
        assert!(reserve.keep(800, 0).expect("no fault"));
        assert_eq!(disk.bytes(), 800);
        assert!(
            reserve.keep(800, 900).expect("no fault"),
            "what is kept stays"
        );
        assert_eq!(disk.bytes(), 800);
        assert!(reserve.give_up().expect("no fault"));
        assert_eq!(disk.bytes(), 0);
    }

    /// A checkpoint of 16 MiB found no room on a full volume, the reserve of 5 MiB was given up for it, something else filled
    /// that too, and the server could not be started again.
    #[test]
    fn reserve_is_not_given_up_in_vain() {
        let disk = MemoryDisk::new();
        disk.set_faults(Faults {
            capacity: Some(ROUNDING + 1000),
            ..Faults::default()
        });
        disk.plant(crate::disk::identity::NAME, b"");
        let reserve = Reserve::new(Arc::new(disk.clone()));
        assert!(reserve.keep(400, 0).expect("no fault"));
        let room = 400 + disk.free_bytes().expect("no fault");
        assert!(!reserve.give_up_for(room + 1).expect("no fault"));
        assert!(reserve.is_kept().expect("no fault"));
        assert!(reserve.give_up_for(room).expect("no fault"));
        assert!(!reserve.give_up_for(room).expect("no fault"), "it is gone");
    }
}
