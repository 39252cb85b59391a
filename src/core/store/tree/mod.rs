//! A copy-on-write B+tree: cloning one is O(1), and a clone shares every node that has not
//! changed since. Each reference to a node carries what is below it: how many items, how many
//! of them live, and a bound of their revisions, so that counting needs only the edges of a span.
//!
//! Compares only keys, and does not interpret its items. docs/decisions/059-a-tree-with-heads-of-keys.md

mod build;
mod heads;
mod node;
mod read;
mod touch;

use std::ops::ControlFlow;

use super::Revision;
use super::span::Span;
pub(super) use build::Builder;
use node::{Child, Node};
pub use touch::TOGETHER;

/// What the tree holds.
pub(super) trait Item: Clone {
    /// The key; never changes.
    fn key(&self) -> &[u8];
    /// Whether it counts at the newest revision.
    fn live(&self) -> bool;
    /// Revision of its last change.
    fn modified(&self) -> Revision;
    /// Loads what a clone writes to. The loads of several items overlap, which writes of shared counters do not.
    fn load(&self) {}
}

#[derive(Clone, Debug)]
pub(super) struct Tree<T> {
    root: Child<T>,
}

/// Who reads a span.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reader<'a> {
    pub(super) span: Span<'a>,
    pub(super) revision: Revision,
    /// How many items it is shown at most.
    pub(super) shown: u64,
    /// Whether it counts the others as well.
    pub(super) counts: bool,
}

impl<T: Item> Default for Tree<T> {
    fn default() -> Self {
        Tree {
            root: Child::empty(),
        }
    }
}

impl<T: Item> Tree<T> {
    /// Number of items.
    pub(super) fn len(&self) -> u64 {
        self.root.items()
    }

    /// The item of a key.
    pub(super) fn get(&self, key: &[u8]) -> Option<&T> {
        let mut node = self.root.node();
        loop {
            match node {
                Node::Inner(inner) => node = inner.child_of(key).node(),
                Node::Leaf(leaf) => return leaf.get(key),
            }
        }
    }

    /// Changes the item of a key, if there is one. The change must keep the key.
    pub(super) fn modify<R>(&mut self, key: &[u8], change: impl FnOnce(&mut T) -> R) -> Option<R> {
        self.root.modify(key, change)
    }

    /// Puts an item in, over one of the same key.
    pub(super) fn insert(&mut self, item: T) {
        if let Some(right) = self.root.insert(item) {
            let left = std::mem::replace(&mut self.root, Child::empty());
            self.root = Child::above(left, right);
        }
    }

    /// Takes an item out.
    pub(super) fn remove(&mut self, key: &[u8]) -> Option<T> {
        let removed = self.root.remove(key);
        while let Some(only) = self.root.only_child() {
            self.root = only;
        }
        removed
    }

    /// Checks the tree's own order, and returns how many nodes it has and how deep it is.
    #[cfg(test)]
    pub(super) fn checked(&self) -> (usize, usize) {
        self.root.checked(read::EVERYTHING)
    }

    /// Visits the items of a span in key order until the callback stops it.
    pub(super) fn visit(&self, span: Span<'_>, visit: &mut impl FnMut(&T) -> ControlFlow<()>) {
        let _ = read::visit(&self.root, span, read::Known::default(), visit);
    }

    /// Counts the items of a span that exist at a revision; `live_at` decides for one item and is called only where a
    /// part of the tree has changed since.
    pub(super) fn count(
        &self,
        span: Span<'_>,
        revision: Revision,
        live_at: &impl Fn(&T, Revision) -> bool,
    ) -> u64 {
        read::count(&self.root, read::EVERYTHING, span, revision, live_at)
    }

    /// How many items a reader of a span at a revision may have to examine in addition to those that it gets: dead ones
    /// up to the last of those, and, if the reader counts, all of each part of the tree that has changed since. Stops
    /// soon after `most`.
    pub(super) fn extra_examined(
        &self,
        reader: &Reader<'_>,
        most: u64,
        live_at: &impl Fn(&T, Revision) -> bool,
    ) -> u64 {
        let mut left = reader.shown;
        read::extra_examined(
            &self.root,
            read::EVERYTHING,
            reader,
            most,
            &mut left,
            live_at,
        )
    }
}
