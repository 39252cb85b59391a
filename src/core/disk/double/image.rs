//! The two images of a disk in memory: files with live and durable bytes, names with a journal
//! of changes that are not durable yet.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Arc, Weak};

use super::SECTOR;

/// A file, whatever its names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Node(u64);

/// A change of names.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    Set(String, Node),
    Remove(String),
    /// Several that survive together or not at all.
    Both(Vec<Change>),
}

#[derive(Clone, Debug, Default)]
struct Contents {
    live: Vec<u8>,
    durable: Vec<u8>,
    /// Sectors whose live bytes may differ from the durable ones.
    dirty: BTreeSet<usize>,
}

/// Both images.
#[derive(Clone, Debug, Default)]
pub(crate) struct Image {
    files: BTreeMap<Node, Contents>,
    live: BTreeMap<String, Node>,
    durable: BTreeMap<String, Node>,
    journal: Vec<Change>,
    directories: BTreeSet<String>,
    /// Alive as long as a handle of the file is.
    open: BTreeMap<Node, Weak<()>>,
    next: u64,
}

impl Image {
    pub(crate) fn fork(&self) -> Self {
        Image {
            open: BTreeMap::new(),
            ..self.clone()
        }
    }

    /// What a handle of a file holds.
    pub(crate) fn hold(&mut self, node: Node) -> Arc<()> {
        if let Some(held) = self.open.get(&node).and_then(Weak::upgrade) {
            return held;
        }
        let held = Arc::new(());
        self.open.insert(node, Arc::downgrade(&held));
        held
    }

    pub(crate) fn create_directory(&mut self, directory: &str) {
        self.directories.insert(directory.to_owned());
    }

    pub(crate) fn create(&mut self, name: &str) -> io::Result<Node> {
        if self.live.contains_key(name) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        if let Some((directory, _)) = name.rsplit_once('/')
            && !self.directories.contains(directory)
        {
            return Err(io::ErrorKind::NotFound.into());
        }
        self.next += 1;
        let node = Node(self.next);
        self.files.insert(node, Contents::default());
        self.change(Change::Set(name.to_owned(), node));
        Ok(node)
    }

    pub(crate) fn plant(&mut self, name: &str, bytes: &[u8]) {
        if let Some((directory, _)) = name.rsplit_once('/') {
            self.create_directory(directory);
        }
        self.next += 1;
        let node = Node(self.next);
        let contents = Contents {
            live: bytes.to_vec(),
            durable: bytes.to_vec(),
            dirty: BTreeSet::new(),
        };
        self.files.insert(node, contents);
        self.live.insert(name.to_owned(), node);
        self.durable.insert(name.to_owned(), node);
    }

    pub(crate) fn find(&self, name: &str) -> io::Result<Node> {
        self.live
            .get(name)
            .copied()
            .ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    pub(crate) fn change(&mut self, change: Change) {
        apply(&mut self.live, &change);
        self.journal.push(change);
    }

    pub(crate) fn join_last_two(&mut self) {
        let at = self.journal.len().saturating_sub(2);
        let pair = self.journal.split_off(at);
        self.journal.push(Change::Both(pair));
    }

    pub(crate) fn list(&self, directory: &str) -> io::Result<Vec<String>> {
        if !directory.is_empty() && !self.directories.contains(directory) {
            return Err(io::ErrorKind::NotFound.into());
        }
        let prefix = if directory.is_empty() {
            String::new()
        } else {
            format!("{directory}/")
        };
        let mut names = BTreeSet::new();
        for name in self.live.keys().chain(&self.directories) {
            if let Some(rest) = name.strip_prefix(&prefix)
                && !rest.is_empty()
            {
                names.insert(rest.split('/').next().unwrap_or(rest).to_owned());
            }
        }
        Ok(names.into_iter().collect())
    }

    /// Makes the names in `directory` durable, or (a failed sync) forgets that they are not.
    pub(crate) fn sync_names(&mut self, directory: &str, keep: bool) {
        let journal = std::mem::take(&mut self.journal);
        for change in journal {
            if !inside(&change, directory) {
                self.journal.push(change);
            } else if keep {
                apply(&mut self.durable, &change);
            }
        }
        self.collect();
    }

    /// Makes a file's bytes durable, or (a failed sync) forgets that they are not.
    pub(crate) fn sync(&mut self, node: Node, keep: bool) {
        let Some(file) = self.files.get_mut(&node) else {
            return;
        };
        let dirty = std::mem::take(&mut file.dirty);
        if keep {
            file.durable.resize(file.live.len(), 0);
            for sector in dirty {
                file.keep_sector(sector);
            }
        }
    }

    pub(crate) fn read(&self, node: Node, offset: u64, buffer: &mut [u8]) -> usize {
        let Some(file) = self.files.get(&node) else {
            return 0;
        };
        let start = usize::try_from(offset)
            .unwrap_or(usize::MAX)
            .min(file.live.len());
        let n = buffer.len().min(file.live.len() - start);
        buffer[..n].copy_from_slice(&file.live[start..start + n]);
        n
    }

    pub(crate) fn write(&mut self, node: Node, offset: u64, bytes: &[u8]) {
        let Some(file) = self.files.get_mut(&node) else {
            return;
        };
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        let end = start + bytes.len();
        if file.live.len() < end {
            file.live.resize(end, 0);
        }
        file.live[start..end].copy_from_slice(bytes);
        file.dirty.extend(start / SECTOR..end.div_ceil(SECTOR));
    }

    pub(crate) fn growth(&self, node: Node, offset: u64, bytes: usize) -> u64 {
        (offset + bytes as u64).saturating_sub(self.length(node))
    }

    pub(crate) fn length(&self, node: Node) -> u64 {
        self.files
            .get(&node)
            .map_or(0, |file| file.live.len() as u64)
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.live.values().map(|node| self.length(*node)).sum()
    }

    pub(crate) fn names(&self) -> Vec<String> {
        self.live.keys().cloned().collect()
    }

    pub(crate) fn contents(&self, name: &str) -> io::Result<Vec<u8>> {
        let node = self.find(name)?;
        Ok(self
            .files
            .get(&node)
            .map(|file| file.live.clone())
            .unwrap_or_default())
    }

    pub(crate) fn poke(
        &mut self,
        name: &str,
        offset: u64,
        act: impl Fn(&mut u8),
    ) -> io::Result<()> {
        let node = self.find(name)?;
        let file = self.files.get_mut(&node).ok_or(io::ErrorKind::NotFound)?;
        let at = usize::try_from(offset).unwrap_or(usize::MAX);
        act(file.live.get_mut(at).ok_or(io::ErrorKind::NotFound)?);
        if let Some(byte) = file.durable.get_mut(at) {
            act(byte);
        }
        Ok(())
    }

    pub(crate) fn unsynced_names(&self) -> usize {
        self.journal.len()
    }

    /// The images after a crash: unsynced sectors selected by `keep`, and the first `names` changes of names. Returns
    /// (lost, kept) sectors.
    pub(crate) fn settle(
        &mut self,
        keep: &mut dyn FnMut(usize) -> bool,
        names: usize,
    ) -> (u64, u64) {
        for change in std::mem::take(&mut self.journal).into_iter().take(names) {
            apply(&mut self.durable, &change);
        }
        self.live = self.durable.clone();
        let (mut lost, mut kept) = (0, 0);
        for file in self.files.values_mut() {
            for sector in std::mem::take(&mut file.dirty) {
                if keep(sector) {
                    kept += 1;
                    let end = ((sector + 1) * SECTOR).min(file.live.len());
                    if file.durable.len() < end {
                        file.durable.resize(end, 0);
                    }
                    file.keep_sector(sector);
                } else {
                    lost += 1;
                }
            }
            // Data that a failed sync dropped is lost now, too.
            file.live.clone_from(&file.durable);
        }
        self.collect();
        (lost, kept)
    }

    /// Frees files that no image names. Open handles of removed files read nothing after a
    /// crash, and until then the names in the journal keep most of them.
    fn collect(&mut self) {
        if !self.journal.is_empty() {
            return;
        }
        let named: BTreeSet<Node> = self
            .live
            .values()
            .chain(self.durable.values())
            .copied()
            .collect();
        // Handles of removed files stay readable while the process lives.
        self.open.retain(|_, handles| handles.strong_count() > 0);
        let open = &self.open;
        self.files
            .retain(|node, _| named.contains(node) || open.contains_key(node));
    }
}

impl Contents {
    fn keep_sector(&mut self, sector: usize) {
        let start = (sector * SECTOR).min(self.live.len());
        let end = ((sector + 1) * SECTOR).min(self.live.len());
        self.durable[start..end].copy_from_slice(&self.live[start..end]);
    }
}

fn apply(names: &mut BTreeMap<String, Node>, change: &Change) {
    match change {
        Change::Set(name, node) => {
            names.insert(name.clone(), *node);
        }
        Change::Remove(name) => {
            names.remove(name);
        }
        Change::Both(changes) => changes.iter().for_each(|change| apply(names, change)),
    }
}

fn inside(change: &Change, directory: &str) -> bool {
    match change {
        Change::Set(name, _) | Change::Remove(name) => {
            name.rsplit_once('/').map_or("", |(head, _)| head) == directory
        }
        Change::Both(changes) => changes.iter().all(|change| inside(change, directory)),
    }
}
