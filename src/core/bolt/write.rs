//! Writes a file front to back. Keeps one page a level of the tree that is being written, and
//! what has not been taken yet.
//!
//! The first [`HEAD_BYTES`] are known last: leave them free, append everything that
//! [`Writer::take`] gives, and put [`Finished::head`] in their place at the end.

use std::collections::BTreeMap;

use super::layout::{
    BRANCH, BUCKET_HEADER, ELEMENT, FREELIST, HEAD_BYTES, INLINE_BYTES, IS_BUCKET, LEAF, META,
    Meta, PAGE_BYTES, PAGE_HEADER, PageHeader,
};
use super::{Error, MAX_KEY_BYTES, MAX_VALUE_BYTES, Result};

/// The page of the empty freelist, right behind the metas.
const FREELIST_PAGE: u64 = 2;

/// A file in the making.
#[derive(Debug)]
pub struct Writer {
    out: Vec<u8>,
    /// Number of the next page.
    next: u64,
    /// Values of the buckets that are complete.
    buckets: BTreeMap<Vec<u8>, Vec<u8>>,
    /// The bucket that is being written.
    open: Option<Open>,
}

/// The end of a file.
#[derive(Debug)]
pub struct Finished {
    /// Bytes to append behind everything else.
    pub rest: Vec<u8>,
    /// The first bytes of the file: [`HEAD_BYTES`] of them.
    pub head: Vec<u8>,
    /// Length of the whole file, in bytes.
    pub length: u64,
}

#[derive(Debug)]
struct Open {
    name: Vec<u8>,
    last: Vec<u8>,
    tree: Tree,
}

/// A tree that is filled in key order.
#[derive(Debug, Default)]
struct Tree {
    leaf: Leaf,
    /// The unfinished page of each level above the leaves.
    branches: Vec<Branch>,
}

#[derive(Debug, Default)]
struct Leaf {
    /// Flags, length of the key and of the value.
    elements: Vec<(u32, u32, u32)>,
    /// Keys and values, each value behind its key.
    data: Vec<u8>,
}

#[derive(Debug, Default)]
struct Branch {
    children: Vec<(Vec<u8>, u64)>,
    bytes: usize,
}

impl Default for Writer {
    fn default() -> Self {
        Writer::new()
    }
}

impl Writer {
    /// Begins a file.
    #[must_use]
    pub fn new() -> Self {
        let mut writer = Writer {
            out: Vec::new(),
            next: FREELIST_PAGE,
            buckets: BTreeMap::new(),
            open: None,
        };
        let header = PageHeader {
            id: FREELIST_PAGE,
            flags: FREELIST,
            count: 0,
            overflow: 0,
        };
        writer.append(&[&header.bytes()]);
        writer
    }

    /// Begins the next bucket. Each name once, in any order.
    ///
    /// # Errors
    /// [`Error::Bucket`], [`Error::Size`], and those of [`Writer::put`].
    pub fn bucket(&mut self, name: &[u8]) -> Result<()> {
        self.close();
        if self.buckets.contains_key(name) {
            return Err(Error::Bucket);
        }
        check_sizes(name, &[])?;
        self.open = Some(Open {
            name: name.to_vec(),
            last: Vec::new(),
            tree: Tree::default(),
        });
        Ok(())
    }

    /// Adds a key to the bucket. Keys come in ascending order.
    ///
    /// # Errors
    /// [`Error::Order`], [`Error::Size`], [`Error::Bucket`] before the first bucket.
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        check_sizes(key, value)?;
        let mut open = self.open.take().ok_or(Error::Bucket)?;
        if key <= open.last.as_slice() {
            return Err(Error::Order {
                bucket: String::from_utf8_lossy(&open.name).into_owned(),
                key: key.escape_ascii().to_string(),
            });
        }
        open.last.clear();
        open.last.extend_from_slice(key);
        self.add(&mut open.tree, 0, key, value);
        self.open = Some(open);
        Ok(())
    }

    /// The bytes that have been made since they were last taken; append them to the file.
    #[must_use]
    pub fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.out)
    }

    /// How many bytes wait to be taken.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.out.len()
    }

    /// Ends the file.
    #[must_use]
    pub fn finish(mut self) -> Finished {
        self.close();
        let mut tree = Tree::default();
        for (name, value) in std::mem::take(&mut self.buckets) {
            self.add(&mut tree, IS_BUCKET, &name, &value);
        }
        let root = self.root(tree);
        let meta = |transaction| Meta {
            page_size: PAGE_BYTES as u32,
            root,
            freelist: FREELIST_PAGE,
            end: self.next,
            transaction,
        };
        let mut head = Vec::with_capacity(HEAD_BYTES);
        // The record of the later transaction counts; the other is as good.
        for (id, transaction) in [(0, 2), (1, 1)] {
            let header = PageHeader {
                id,
                flags: META,
                count: 0,
                overflow: 0,
            };
            head.extend_from_slice(&header.bytes());
            head.extend_from_slice(&meta(transaction).bytes());
            head.resize((id as usize + 1) * PAGE_BYTES, 0);
        }
        Finished {
            rest: self.out,
            head,
            length: self.next * PAGE_BYTES as u64,
        }
    }

    /// Ends the bucket that is being written.
    fn close(&mut self) {
        let Some(open) = self.open.take() else { return };
        let small = open.tree.branches.is_empty() && open.tree.leaf.size() <= INLINE_BYTES;
        let mut value = vec![0; BUCKET_HEADER];
        if small {
            open.tree.leaf.encode(0, 0, &mut value);
        } else {
            let root = self.root(open.tree);
            value[..8].copy_from_slice(&root.to_le_bytes());
        }
        self.buckets.insert(open.name, value);
    }

    fn add(&mut self, tree: &mut Tree, flags: u32, key: &[u8], value: &[u8]) {
        if !tree.leaf.fits(key, value) {
            self.end_leaf(tree);
        }
        tree.leaf.push(flags, key, value);
    }

    /// Writes the leaf and adds it to the level above.
    fn end_leaf(&mut self, tree: &mut Tree) {
        let leaf = std::mem::take(&mut tree.leaf);
        let (page, overflow) = self.claim(leaf.size());
        leaf.encode(page, overflow, &mut self.out);
        self.pad();
        self.add_child(tree, 0, leaf.first_key(), page);
    }

    fn add_child(&mut self, tree: &mut Tree, level: usize, key: Vec<u8>, page: u64) {
        if level == tree.branches.len() {
            tree.branches.push(Branch::default());
        }
        if !tree.branches[level].fits(&key) {
            self.end_branch(tree, level);
        }
        tree.branches[level].push(key, page);
    }

    fn end_branch(&mut self, tree: &mut Tree, level: usize) {
        let branch = std::mem::take(&mut tree.branches[level]);
        let (page, overflow) = self.claim(branch.size());
        branch.encode(page, overflow, &mut self.out);
        self.pad();
        let first = branch.children.into_iter().next();
        let first = first.map(|(key, _)| key).unwrap_or_default();
        self.add_child(tree, level + 1, first, page);
    }

    /// Writes what is left of a tree and gives the page of its root.
    fn root(&mut self, mut tree: Tree) -> u64 {
        self.end_leaf(&mut tree);
        let mut level = 0;
        loop {
            if let ([(_, root)], true) = (
                tree.branches[level].children.as_slice(),
                level + 1 == tree.branches.len(),
            ) {
                return *root;
            }
            self.end_branch(&mut tree, level);
            level += 1;
        }
    }

    /// Takes the next pages for so many bytes; gives the first and how many follow it.
    fn claim(&mut self, bytes: usize) -> (u64, u32) {
        let page = self.next;
        let pages = bytes.div_ceil(PAGE_BYTES).max(1);
        self.next += pages as u64;
        // A leaf holds one value of at most 2 GiB, or many that fit into one page.
        (page, (pages - 1) as u32)
    }

    /// Fills the last page up. What is taken are whole pages.
    fn pad(&mut self) {
        self.out
            .resize(self.out.len().next_multiple_of(PAGE_BYTES), 0);
    }

    fn append(&mut self, parts: &[&[u8]]) {
        let bytes: usize = parts.iter().map(|part| part.len()).sum();
        self.claim(bytes);
        for part in parts {
            self.out.extend_from_slice(part);
        }
        self.pad();
    }
}

impl Leaf {
    fn size(&self) -> usize {
        PAGE_HEADER + self.elements.len() * ELEMENT + self.data.len()
    }

    /// Whether one more stays within a page; a page that holds nothing takes anything.
    fn fits(&self, key: &[u8], value: &[u8]) -> bool {
        self.elements.is_empty() || self.size() + ELEMENT + key.len() + value.len() <= PAGE_BYTES
    }

    fn push(&mut self, flags: u32, key: &[u8], value: &[u8]) {
        // Sizes were checked against the format's bounds.
        self.elements
            .push((flags, key.len() as u32, value.len() as u32));
        self.data.extend_from_slice(key);
        self.data.extend_from_slice(value);
    }

    fn first_key(&self) -> Vec<u8> {
        let length = self.elements.first().map_or(0, |first| first.1 as usize);
        self.data[..length].to_vec()
    }

    fn encode(&self, page: u64, overflow: u32, out: &mut Vec<u8>) {
        let header = PageHeader {
            id: page,
            flags: LEAF,
            // A page of 4096 bytes holds at most 254.
            count: self.elements.len() as u16,
            overflow,
        };
        out.extend_from_slice(&header.bytes());
        let mut position = self.elements.len() * ELEMENT;
        for (flags, key, value) in &self.elements {
            // Counted from the element itself.
            for field in [*flags, position as u32, *key, *value] {
                out.extend_from_slice(&field.to_le_bytes());
            }
            position = position - ELEMENT + *key as usize + *value as usize;
        }
        out.extend_from_slice(&self.data);
    }
}

impl Branch {
    fn size(&self) -> usize {
        PAGE_HEADER + self.children.len() * ELEMENT + self.bytes
    }

    /// As a leaf, but with two children at least: a tree must become narrower upwards.
    fn fits(&self, key: &[u8]) -> bool {
        self.children.len() < 2 || self.size() + ELEMENT + key.len() <= PAGE_BYTES
    }

    fn push(&mut self, key: Vec<u8>, page: u64) {
        self.bytes += key.len();
        self.children.push((key, page));
    }

    fn encode(&self, page: u64, overflow: u32, out: &mut Vec<u8>) {
        let header = PageHeader {
            id: page,
            flags: BRANCH,
            // At most 254, as in a leaf.
            count: self.children.len() as u16,
            overflow,
        };
        out.extend_from_slice(&header.bytes());
        let mut position = self.children.len() * ELEMENT;
        for (key, child) in &self.children {
            out.extend_from_slice(&(position as u32).to_le_bytes());
            out.extend_from_slice(&(key.len() as u32).to_le_bytes());
            out.extend_from_slice(&child.to_le_bytes());
            position = position - ELEMENT + key.len();
        }
        for (key, _) in &self.children {
            out.extend_from_slice(key);
        }
    }
}

fn check_sizes(key: &[u8], value: &[u8]) -> Result<()> {
    if key.is_empty() || key.len() > MAX_KEY_BYTES || value.len() > MAX_VALUE_BYTES {
        return Err(Error::Size {
            key: key.len(),
            value: value.len(),
        });
    }
    Ok(())
}
