//! A disk in memory for tests and the simulation. It keeps two images of everything: what the
//! process sees (live) and what would survive a power loss (durable). A crash keeps, by seed,
//! some of the sectors and some of the names that were written but not synced.
//!
//! Faults are chosen by counting: stop before the Nth write or sync, fail the Nth sync, a full
//! disk, unreadable files, flipped bits, sectors that went elsewhere, syncs that lie. Never touches
//! a real file.

mod image;
#[cfg(test)]
mod tests;

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::device::{Disk, DiskFile, DiskLock, SECTOR};
use image::{Change, Image, Node};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

/// What goes wrong, and when. Counts are of operations since the disk was made or
/// [`MemoryDisk::set_faults`] was last called; the first operation is number 1.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    /// From this sync on (file or directory) every operation fails; the sync has no effect.
    pub stop_at_sync: Option<u64>,
    /// From this write on (create, write, rename, remove) every operation fails; the write
    /// itself reaches the live image.
    pub stop_at_write: Option<u64>,
    /// This sync reports an error, and drops what it should have made durable while reads still
    /// see it, as Linux does.
    pub fail_sync: Option<u64>,
    /// Total bytes of all files; writes beyond fail with `StorageFull`.
    pub capacity: Option<u64>,
    /// Reads of names that contain this text fail.
    pub unreadable: Option<String>,
    /// Syncs succeed and do nothing: a broken disk, to prove that the tests can fail.
    pub lying_syncs: bool,
}

/// What a crash keeps of the things that were written but not synced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// Nothing: only synced bytes and names survive.
    Nothing,
    /// Everything, as when only the process dies.
    Everything,
    /// Each sector, and a prefix of the changes of names, by this seed.
    Seeded(u64),
}

/// Counts of operations since the faults were last set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Creates, writes, renames and removes.
    pub writes: u64,
    /// Syncs of files and directories.
    pub syncs: u64,
    /// Reads of files.
    pub reads: u64,
}

/// A disk in memory. Clones share one state.
#[derive(Clone, Debug, Default)]
pub struct MemoryDisk {
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    image: Image,
    faults: Faults,
    counts: Counts,
    stopped: bool,
    /// A stop or a failed sync has happened since the faults were set.
    tripped: bool,
    /// So has a write for which there was no space.
    filled: bool,
    locked: bool,
    /// Bumped at each crash: handles of the dead process stay dead.
    life: u64,
}

impl MemoryDisk {
    /// An empty disk.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the faults to come and resets the counts.
    pub fn set_faults(&self, faults: Faults) {
        let mut state = self.state();
        state.faults = faults;
        state.counts = Counts::default();
        state.tripped = false;
        state.filled = false;
    }

    /// Operations since the faults were last set.
    pub fn counts(&self) -> Counts {
        self.state().counts
    }

    /// Whether a stop point was reached.
    pub fn stopped(&self) -> bool {
        self.state().stopped
    }

    /// Whether a fault that was set has struck: a stop, a failed sync, or a full disk.
    pub fn tripped(&self) -> bool {
        self.state().tripped
    }

    /// Whether a write has found no space since the faults were set.
    pub fn filled(&self) -> bool {
        self.state().filled
    }

    /// Bytes of all files.
    pub fn bytes(&self) -> u64 {
        self.state().image.bytes()
    }

    /// The names of all files, sorted.
    pub fn files(&self) -> Vec<String> {
        self.state().image.names()
    }

    /// Loses power, or just the process: unsynced data survives as selected by `keep`, open handles and locks are
    /// dropped, and the disk works again without faults (except lying syncs). Returns how many unsynced sectors were
    /// lost and how many were kept.
    pub fn crash(&self, keep: Keep) -> (u64, u64) {
        self.crash_process();
        let mut state = self.state();
        match keep {
            Keep::Everything => state.image.settle(&mut |_| true, usize::MAX),
            Keep::Nothing => state.image.settle(&mut |_| false, 0),
            Keep::Seeded(seed) => {
                let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
                let names = random.next_u64() as usize % (state.image.unsynced_names() + 1);
                // One sector in 2, 4 or 8 is lost, or nearly all are.
                let odds = 1 << (random.next_u64() % 4);
                state
                    .image
                    .settle(&mut |_| !random.next_u64().is_multiple_of(odds), names)
            }
        }
    }

    /// The process dies, the machine does not: the live images stay, as do the differences from
    /// the durable ones. A sector that a failed sync forgot is still read and still not durable.
    pub fn crash_process(&self) {
        let mut state = self.state();
        let lying_syncs = state.faults.lying_syncs;
        state.faults = Faults {
            lying_syncs,
            ..Faults::default()
        };
        state.counts = Counts::default();
        state.stopped = false;
        state.tripped = false;
        state.filled = false;
        state.locked = false;
        state.life += 1;
    }

    /// A copy of this disk with a life of its own.
    pub fn fork(&self) -> Self {
        let state = self.state();
        let copy = State {
            image: state.image.fork(),
            faults: state.faults.clone(),
            counts: state.counts,
            stopped: state.stopped,
            tripped: state.tripped,
            filled: state.filled,
            locked: false,
            life: 0,
        };
        Self {
            state: Arc::new(Mutex::new(copy)),
        }
    }

    /// Flips one bit of a file, in both images.
    ///
    /// # Errors
    /// `NotFound` if there is no such file or byte.
    pub fn flip_bit(&self, name: &str, offset: u64, bit: u8) -> io::Result<()> {
        self.state()
            .image
            .poke(name, offset, |byte| *byte ^= 1 << (bit % 8))
    }

    /// Sets a whole sector to zero in both images, as a disk that lost a synced write.
    ///
    /// # Errors
    /// `NotFound` if there is no such file or sector.
    pub fn zero_sector(&self, name: &str, sector: u64) -> io::Result<()> {
        let mut state = self.state();
        for offset in 0..SECTOR as u64 {
            state
                .image
                .poke(name, sector * SECTOR as u64 + offset, |byte| *byte = 0)?;
        }
        Ok(())
    }

    /// Moves a whole sector to another place in both images and leaves zeros behind: a misdirected write whose sync
    /// reported success.
    ///
    /// # Errors
    /// `NotFound` if there is no such file or sector.
    pub fn misdirect(&self, from: (&str, u64), to: (&str, u64)) -> io::Result<()> {
        let start = from.1 as usize * SECTOR;
        let bytes = self.contents(from.0)?;
        let sector = bytes.get(start..start + SECTOR);
        let sector = sector.ok_or(io::ErrorKind::NotFound)?.to_vec();
        for (offset, byte) in (to.1 * SECTOR as u64..).zip(&sector) {
            self.state()
                .image
                .poke(to.0, offset, |there| *there = *byte)?;
        }
        self.zero_sector(from.0, from.1)
    }

    /// The live bytes of a file.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn contents(&self, name: &str) -> io::Result<Vec<u8>> {
        self.state().image.contents(name)
    }

    /// Puts a file there, durable at once.
    pub fn plant(&self, name: &str, bytes: &[u8]) {
        self.state().image.plant(name, bytes);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A panic of a test thread leaves plain data behind; it is still consistent enough.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn stopped() -> io::Error {
    io::Error::other("the disk has stopped")
}

impl State {
    fn check(&self) -> io::Result<()> {
        if self.stopped { Err(stopped()) } else { Ok(()) }
    }

    /// Counts a write; true if it is the last one to have an effect.
    fn count_write(&mut self) -> io::Result<bool> {
        self.check()?;
        self.counts.writes += 1;
        let last = self.faults.stop_at_write == Some(self.counts.writes);
        self.stopped |= last;
        self.tripped |= last;
        Ok(last)
    }

    fn write<T>(&mut self, act: impl FnOnce(&mut Image) -> io::Result<T>) -> io::Result<T> {
        let last = self.count_write()?;
        let done = act(&mut self.image)?;
        if last { Err(stopped()) } else { Ok(done) }
    }

    fn sync(&mut self, act: impl FnOnce(&mut Image, bool)) -> io::Result<()> {
        self.check()?;
        self.counts.syncs += 1;
        if self.faults.stop_at_sync == Some(self.counts.syncs) {
            self.stopped = true;
            self.tripped = true;
            return Err(stopped());
        }
        if self.faults.lying_syncs {
            return Ok(());
        }
        let fails = self.faults.fail_sync == Some(self.counts.syncs);
        self.tripped |= fails;
        act(&mut self.image, !fails);
        if fails {
            Err(io::Error::other("injected sync failure"))
        } else {
            Ok(())
        }
    }
}

impl Disk for MemoryDisk {
    fn create_directory(&self, directory: &str) -> io::Result<()> {
        let mut state = self.state();
        state.check()?;
        state.image.create_directory(directory);
        Ok(())
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        let mut state = self.state();
        let node = state.write(|image| image.create(name))?;
        Ok(self.handle(&mut state, name, node))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        let mut state = self.state();
        state.check()?;
        let node = state.image.find(name)?;
        Ok(self.handle(&mut state, name, node))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.state().write(|image| {
            let node = image.find(from)?;
            image.change(Change::Remove(from.to_owned()));
            image.change(Change::Set(to.to_owned(), node));
            // One step of the journal: both or none survive.
            image.join_last_two();
            Ok(())
        })
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.state().write(|image| {
            image.find(name)?;
            image.change(Change::Remove(name.to_owned()));
            Ok(())
        })
    }

    fn list(&self, directory: &str) -> io::Result<Vec<String>> {
        let state = self.state();
        state.check()?;
        state.image.list(directory)
    }

    fn sync_directory(&self, directory: &str) -> io::Result<()> {
        self.state()
            .sync(|image, keep| image.sync_names(directory, keep))
    }

    fn lock(&self, _name: &str) -> io::Result<Box<dyn DiskLock>> {
        let mut state = self.state();
        state.check()?;
        if state.locked {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        state.locked = true;
        Ok(Box::new(MemoryLock {
            disk: self.clone(),
            life: state.life,
        }))
    }

    fn free_bytes(&self) -> io::Result<u64> {
        let state = self.state();
        state.check()?;
        Ok(state
            .faults
            .capacity
            .unwrap_or(1 << 40)
            .saturating_sub(state.image.bytes()))
    }

    fn total_bytes(&self) -> io::Result<u64> {
        let state = self.state();
        state.check()?;
        Ok(state.faults.capacity.unwrap_or(1 << 40))
    }

    fn describe(&self, name: &str) -> String {
        if name.is_empty() {
            "memory:".to_owned()
        } else {
            format!("memory:{name}")
        }
    }
}

impl MemoryDisk {
    fn handle(&self, state: &mut State, name: &str, node: Node) -> Arc<dyn DiskFile> {
        Arc::new(MemoryFile {
            _held: state.image.hold(node),
            disk: self.clone(),
            name: name.to_owned(),
            node,
            life: state.life,
        })
    }
}

#[derive(Debug)]
struct MemoryLock {
    disk: MemoryDisk,
    life: u64,
}

impl DiskLock for MemoryLock {}

impl Drop for MemoryLock {
    fn drop(&mut self) {
        let mut state = self.disk.state();
        if state.life == self.life {
            state.locked = false;
        }
    }
}

#[derive(Debug)]
struct MemoryFile {
    disk: MemoryDisk,
    name: String,
    node: Node,
    _held: Arc<()>,
    life: u64,
}

impl MemoryFile {
    fn state(&self) -> io::Result<MutexGuard<'_, State>> {
        let state = self.disk.state();
        state.check()?;
        if state.life == self.life {
            Ok(state)
        } else {
            Err(stopped())
        }
    }
}

impl DiskFile for MemoryFile {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let mut state = self.state()?;
        state.counts.reads += 1;
        if state
            .faults
            .unreadable
            .as_ref()
            .is_some_and(|text| self.name.contains(text.as_str()))
        {
            return Err(io::Error::other("injected read error"));
        }
        Ok(state.image.read(self.node, offset, buffer))
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let mut state = self.state()?;
        if let Some(capacity) = state.faults.capacity {
            let grown = state.image.growth(self.node, offset, bytes.len());
            if state.image.bytes() + grown > capacity {
                (state.tripped, state.filled) = (true, true);
                return Err(io::ErrorKind::StorageFull.into());
            }
        }
        state.write(|image| {
            image.write(self.node, offset, bytes);
            Ok(())
        })
    }

    fn sync(&self) -> io::Result<()> {
        self.state()?
            .sync(|image, keep| image.sync(self.node, keep))
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.state()?.image.length(self.node))
    }
}
