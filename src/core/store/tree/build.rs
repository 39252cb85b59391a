//! Builds a tree from items in the order of their keys, from the leaves up: its nodes are full, and nothing is searched,
//! split or written twice. Never checks the order: whoever reads the items does.

use arrayvec::ArrayVec;
use bytes::Bytes;

use super::node::{Child, INNER, LEAF, SEPARATORS};
use super::{Item, Tree};

/// A tree in the making.
#[derive(Debug)]
pub(in crate::store) struct Builder<T> {
    /// The items of the last leaf.
    leaf: ArrayVec<T, LEAF>,
    /// The last node of each level above the leaves, the lowest first.
    levels: Vec<Open<T>>,
}

/// A node that may get more children.
#[derive(Debug)]
struct Open<T> {
    /// The first key below it.
    low: Bytes,
    keys: ArrayVec<Bytes, SEPARATORS>,
    children: ArrayVec<Child<T>, INNER>,
}

impl<T> Default for Builder<T> {
    fn default() -> Self {
        Builder {
            leaf: ArrayVec::new(),
            levels: Vec::new(),
        }
    }
}

impl<T: Item> Builder<T> {
    /// Adds an item whose key is above all others.
    pub(in crate::store) fn push(&mut self, item: T) {
        if self.leaf.is_full() {
            self.end_leaf();
        }
        self.leaf.push(item);
    }

    /// The tree of all items.
    pub(in crate::store) fn finish(mut self) -> Tree<T> {
        if self.leaf.is_empty() {
            return Tree::default();
        }
        self.end_leaf();
        let mut level = 0;
        // Every level goes below the one above it. That may add a level, which the loop reaches then.
        while level + 1 < self.levels.len() {
            let (low, node) = self.levels[level].end();
            self.add(level + 1, low, node);
            level += 1;
        }
        let (_, root) = self.levels[level].end();
        Tree {
            root: root.only_child().unwrap_or(root),
        }
    }

    fn end_leaf(&mut self) {
        let (low, leaf) = Child::leaf(std::mem::take(&mut self.leaf));
        self.add(0, low, leaf);
    }

    /// Adds a node of the level below this one, whose first key is `low`.
    fn add(&mut self, level: usize, low: Bytes, child: Child<T>) {
        let Some(open) = self.levels.get_mut(level) else {
            self.levels.push(Open::of(low, child));
            return;
        };
        if !open.children.is_full() {
            open.keys.push(low);
            open.children.push(child);
            return;
        }
        let (first, full) = open.end();
        *open = Open::of(low, child);
        self.add(level + 1, first, full);
    }
}

impl<T: Item> Open<T> {
    fn of(low: Bytes, child: Child<T>) -> Self {
        Open {
            low,
            keys: ArrayVec::new(),
            children: [child].into_iter().collect(),
        }
    }

    /// Its first key, and the node.
    fn end(&mut self) -> (Bytes, Child<T>) {
        let keys = std::mem::take(&mut self.keys);
        let children = std::mem::take(&mut self.children);
        (self.low.clone(), Child::inner(keys, children))
    }
}
