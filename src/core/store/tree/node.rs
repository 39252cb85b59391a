//! The nodes of the tree and their changes: what is shared with a clone is copied on the way, the rest is changed in
//! place. Never reads a span.

use std::sync::Arc;

use arrayvec::ArrayVec;
use bytes::Bytes;

use super::Item;
use super::heads::Heads;
use crate::mutants::mutant;
use crate::store::Revision;

/// The most items in a leaf: each is copied when one of them changes for the first time after a clone.
pub(super) const LEAF: usize = 16;
/// The most children of an inner node.
pub(super) const INNER: usize = 32;
/// The most keys between those.
pub(super) const SEPARATORS: usize = INNER - 1;

/// A reference to a node, and what is below it.
#[derive(Clone, Debug)]
pub(super) struct Child<T> {
    pub(super) summary: Summary,
    node: Node<T>,
}

/// A node.
#[derive(Clone, Debug)]
pub(super) enum Node<T> {
    Leaf(Arc<Leaf<T>>),
    Inner(Arc<Inner<T>>),
}

/// What is below a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Summary {
    pub(super) items: u64,
    pub(super) live: u64,
    /// No item has been changed after this revision.
    pub(super) modified: Revision,
}

/// Items in the order of their keys.
#[derive(Debug)]
pub(super) struct Leaf<T> {
    heads: Heads<LEAF>,
    items: ArrayVec<T, LEAF>,
}

/// Children in the order of their keys.
#[derive(Debug)]
pub(super) struct Inner<T> {
    /// Shared apart, since most changes below leave them alone.
    separators: Arc<Separators>,
    children: ArrayVec<Child<T>, INNER>,
}

/// The keys between the children: each is above every key of the child to its left, and not above any of the right one.
#[derive(Clone, Debug)]
struct Separators {
    heads: Heads<SEPARATORS>,
    keys: ArrayVec<Bytes, SEPARATORS>,
}

/// The right part of a node that was split, and the key between the parts.
pub(super) struct Right<T> {
    low: Bytes,
    child: Child<T>,
}

impl<T: Item> Child<T> {
    pub(super) fn empty() -> Self {
        Self::of_leaf(Leaf::of(ArrayVec::new()))
    }

    /// What replaces a root that was split.
    pub(super) fn above(left: Self, right: Right<T>) -> Self {
        let keys = [right.low].into_iter().collect();
        let children = [left, right.child].into_iter().collect();
        Self::of_inner(Inner::of(keys, children))
    }

    /// A leaf of items in the order of their keys, and its first key.
    pub(super) fn leaf(items: ArrayVec<T, LEAF>) -> (Bytes, Self) {
        let leaf = Leaf::of(items);
        (leaf.low(), Self::of_leaf(leaf))
    }

    /// A node above children in order, with the keys between them.
    pub(super) fn inner(
        keys: ArrayVec<Bytes, SEPARATORS>,
        children: ArrayVec<Self, INNER>,
    ) -> Self {
        Self::of_inner(Inner::of(keys, children))
    }

    pub(super) fn items(&self) -> u64 {
        self.summary.items
    }

    pub(super) fn node(&self) -> &Node<T> {
        &self.node
    }

    pub(super) fn only_child(&self) -> Option<Self> {
        match &self.node {
            Node::Inner(inner) if inner.children.len() == 1 => inner.children.first().cloned(),
            _ => None,
        }
    }

    fn of_leaf(leaf: Leaf<T>) -> Self {
        Self::of(Node::Leaf(Arc::new(leaf)))
    }

    fn of_inner(inner: Inner<T>) -> Self {
        Self::of(Node::Inner(Arc::new(inner)))
    }

    fn of(node: Node<T>) -> Self {
        let summary = node.summary();
        Child { summary, node }
    }

    /// Changes an item that is here.
    pub(super) fn modify<R>(&mut self, key: &[u8], change: impl FnOnce(&mut T) -> R) -> Option<R> {
        let summary = &mut self.summary;
        match &mut self.node {
            Node::Leaf(leaf) => {
                let leaf = Arc::make_mut(leaf);
                let at = leaf.find(key)?;
                let item = &mut leaf.items[at];
                summary.take(item);
                let result = change(item);
                summary.add(item);
                Some(result)
            }
            Node::Inner(inner) => {
                let inner = Arc::make_mut(inner);
                let at = inner.position(key);
                let child = &mut inner.children[at];
                let before = child.summary;
                let result = child.modify(key, change)?;
                summary.replace(&before, &child.summary);
                Some(result)
            }
        }
    }

    /// Returns the right part if the node had to be split.
    pub(super) fn insert(&mut self, item: T) -> Option<Right<T>> {
        let right = match &mut self.node {
            Node::Leaf(leaf) => {
                let leaf = Arc::make_mut(leaf);
                match leaf.search(item.key()) {
                    Ok(at) => {
                        self.summary.take(&leaf.items[at]);
                        self.summary.add(&item);
                        leaf.items[at] = item;
                        return None;
                    }
                    Err(at) if leaf.items.is_full() => leaf.split_for(at, item),
                    Err(at) => {
                        self.summary.add(&item);
                        leaf.insert(at, item);
                        return None;
                    }
                }
            }
            Node::Inner(inner) => {
                let inner = Arc::make_mut(inner);
                let at = inner.position(item.key());
                let before = inner.children[at].summary;
                let Some(right) = inner.children[at].insert(item) else {
                    self.summary.replace(&before, &inner.children[at].summary);
                    return None;
                };
                inner.insert(at, right)
            }
        };
        self.summary = self.node.summary();
        right
    }

    /// Takes an item out that is here.
    pub(super) fn remove(&mut self, key: &[u8]) -> Option<T> {
        let summary = &mut self.summary;
        match &mut self.node {
            Node::Leaf(leaf) => {
                let leaf = Arc::make_mut(leaf);
                let at = leaf.find(key)?;
                let item = leaf.items.remove(at);
                leaf.heads.removed(at, |at| leaf.items[at].key());
                summary.take(&item);
                Some(item)
            }
            Node::Inner(inner) => {
                let inner = Arc::make_mut(inner);
                let at = inner.position(key);
                let before = inner.children[at].summary;
                let removed = inner.children[at].remove(key)?;
                summary.replace(&before, &inner.children[at].summary);
                inner.merge(at);
                Some(removed)
            }
        }
    }

    fn size(&self) -> usize {
        match &self.node {
            Node::Leaf(leaf) => leaf.items.len(),
            Node::Inner(inner) => inner.children.len(),
        }
    }

    fn is_full(&self) -> bool {
        match &self.node {
            Node::Leaf(leaf) => leaf.items.is_full(),
            Node::Inner(inner) => inner.children.is_full(),
        }
    }

    /// Below this many it is merged with a neighbour if both fit into one.
    fn is_small(&self) -> bool {
        match &self.node {
            Node::Leaf(leaf) => leaf.items.len() < LEAF / 4,
            Node::Inner(inner) => inner.children.len() < INNER / 4,
        }
    }
}

impl<T> Node<T> {
    /// Loads what is in the node itself, of a leaf its heads.
    pub(super) fn touch_node(&self) -> u64 {
        match self {
            Node::Leaf(leaf) => leaf.heads.touch() ^ leaf.items.len() as u64,
            Node::Inner(inner) => inner.children.len() as u64,
        }
    }

    /// Loads what an inner node has of the keys between its children.
    pub(super) fn touch_keys(&self) -> u64 {
        let Node::Inner(inner) = self else { return 0 };
        let Separators { heads, keys } = &*inner.separators;
        heads.touch() ^ keys.len() as u64
    }
}

impl<T: Item> Node<T> {
    fn summary(&self) -> Summary {
        match self {
            Node::Leaf(leaf) => {
                let mut sum = Summary::default();
                leaf.items.iter().for_each(|item| sum.add(item));
                sum
            }
            Node::Inner(inner) => inner.summary(),
        }
    }
}

impl Summary {
    fn add<T: Item>(&mut self, item: &T) {
        self.items += 1;
        self.live += u64::from(item.live());
        self.modified = self.modified.max(item.modified());
    }

    /// Leaves the bound of revisions, which still is one.
    fn take<T: Item>(&mut self, item: &T) {
        self.items -= 1;
        self.live -= u64::from(item.live());
    }

    /// Follows the change of a part from `before` to `after`.
    fn replace(&mut self, before: &Summary, after: &Summary) {
        self.items = self.items - before.items + after.items;
        if !mutant!(TreeCountOff) {
            self.live = self.live - before.live + after.live;
        }
        self.modified = self.modified.max(after.modified);
    }
}

impl<T: Item> Clone for Leaf<T> {
    fn clone(&self) -> Self {
        self.items.iter().for_each(Item::load);
        Leaf {
            heads: self.heads.clone(),
            items: self.items.clone(),
        }
    }
}

impl<T: Item> Leaf<T> {
    fn of(items: ArrayVec<T, LEAF>) -> Self {
        let heads = Heads::of(items.len(), |at| items[at].key());
        Leaf { heads, items }
    }

    pub(super) fn items(&self) -> &[T] {
        &self.items
    }

    /// Its first key, to stand between it and the leaf to its left.
    fn low(&self) -> Bytes {
        let first = self.items.first().map(Item::key);
        Bytes::copy_from_slice(first.unwrap_or_default())
    }

    pub(super) fn get(&self, key: &[u8]) -> Option<&T> {
        self.find(key).map(|at| &self.items[at])
    }

    /// The item of a key, if it is here and no other has its head.
    pub(super) fn near(&self, key: &[u8]) -> Option<&T> {
        self.items.get(self.heads.near(key))
    }

    fn find(&self, key: &[u8]) -> Option<usize> {
        self.heads.find(key, |at| self.items[at].key())
    }

    pub(super) fn search(&self, key: &[u8]) -> Result<usize, usize> {
        self.heads.search(key, |at| self.items[at].key())
    }

    fn insert(&mut self, at: usize, item: T) {
        self.items.insert(at, item);
        self.heads.inserted(at, |at| self.items[at].key());
    }

    /// Splits a full leaf and puts an item in. At the end nothing of it moves, so that keys written in order fill
    /// their leaves.
    fn split_for(&mut self, at: usize, item: T) -> Option<Right<T>> {
        let cut = if at == LEAF { LEAF } else { LEAF / 2 };
        let mut right = Leaf::of(self.items.drain(cut..).collect());
        self.heads = Heads::of(cut, |at| self.items[at].key());
        match at.checked_sub(cut) {
            Some(at) if at > 0 || cut == LEAF => right.insert(at, item),
            _ => self.insert(at, item),
        }
        let low = right.low();
        let child = Child::of_leaf(right);
        Some(Right { low, child })
    }
}

impl Separators {
    fn of(keys: ArrayVec<Bytes, SEPARATORS>) -> Self {
        let heads = Heads::of(keys.len(), |at| &keys[at]);
        Separators { heads, keys }
    }

    fn insert(&mut self, at: usize, key: Bytes) {
        self.keys.insert(at, key);
        self.heads.inserted(at, |at| &self.keys[at]);
    }

    fn remove(&mut self, at: usize) {
        self.keys.remove(at);
        self.heads.removed(at, |at| &self.keys[at]);
    }
}

impl<T> Clone for Inner<T>
where
    Child<T>: Clone,
{
    fn clone(&self) -> Self {
        // As in `Item::load`.
        let counts = self.children.iter().map(|child| match &child.node {
            Node::Leaf(leaf) => Arc::strong_count(leaf),
            Node::Inner(inner) => Arc::strong_count(inner),
        });
        std::hint::black_box(counts.fold(0, |all, count| all ^ count));
        Inner {
            separators: Arc::clone(&self.separators),
            children: self.children.clone(),
        }
    }
}

impl<T: Item> Inner<T> {
    fn of(keys: ArrayVec<Bytes, SEPARATORS>, children: ArrayVec<Child<T>, INNER>) -> Self {
        Inner {
            separators: Arc::new(Separators::of(keys)),
            children,
        }
    }

    pub(super) fn children(&self) -> &[Child<T>] {
        &self.children
    }

    /// A key that no key of this child is below, and that every key of the child to its left is below. The first child
    /// has none of its own.
    pub(super) fn low(&self, at: usize) -> Option<&[u8]> {
        let before = at.checked_sub(1)?;
        self.separators.keys.get(before).map(|key| &key[..])
    }

    pub(super) fn child_of(&self, key: &[u8]) -> &Child<T> {
        &self.children[self.position(key)]
    }

    /// Which child a key belongs to.
    pub(super) fn position(&self, key: &[u8]) -> usize {
        let Separators { heads, keys } = &*self.separators;
        match heads.search(key, |at| &keys[at]) {
            Ok(at) => at + 1,
            Err(at) => at,
        }
    }

    fn summary(&self) -> Summary {
        let mut sum = Summary::default();
        for Child { summary, .. } in &self.children {
            sum.replace(&Summary::default(), summary);
        }
        sum
    }

    /// Puts the right part of a child in beside it; splits itself if it is full.
    fn insert(&mut self, at: usize, new: Right<T>) -> Option<Right<T>> {
        // A part of one goes into the node behind it. Otherwise keys written in descending order between two full nodes
        // would each get a node of their own.
        if new.child.size() == 1
            && let Some(next) = self.children.get_mut(at + 1)
            && next.take_front(&new.child, &self.separators.keys[at])
        {
            let separators = Arc::make_mut(&mut self.separators);
            separators.keys[at] = new.low;
            separators.heads = Heads::of(separators.keys.len(), |at| &separators.keys[at]);
            return None;
        }
        if !self.children.is_full() {
            Arc::make_mut(&mut self.separators).insert(at, new.low);
            self.children.insert(at + 1, new.child);
            return None;
        }
        // As in a leaf, nothing moves for what is put in at the end.
        if at + 1 == INNER {
            let children = [new.child].into_iter().collect();
            let child = Child::of_inner(Inner::of(ArrayVec::new(), children));
            let low = new.low;
            return Some(Right { low, child });
        }
        let cut = INNER / 2;
        let mut left: ArrayVec<Bytes, SEPARATORS> = self.separators.keys.clone();
        let keys = left.drain(cut..).collect();
        let low = left.pop()?;
        let children = self.children.drain(cut..).collect();
        let mut right = Inner::of(keys, children);
        self.separators = Arc::new(Separators::of(left));
        let nothing = match at.checked_sub(cut) {
            Some(at) => right.insert(at, new),
            None => self.insert(at, new),
        };
        debug_assert!(nothing.is_none(), "half a node has room");
        let child = Child::of_inner(right);
        Some(Right { low, child })
    }

    /// Drops a child that has become empty, or merges one that has become small with a neighbour.
    fn merge(&mut self, at: usize) {
        if self.children.len() < 2 || !self.children[at].is_small() {
            return;
        }
        if self.children[at].size() == 0 {
            self.children.remove(at);
            self.drop_separator(at.saturating_sub(1));
            return;
        }
        let left = at.saturating_sub(1);
        let (head, tail) = self.children.split_at_mut(left + 1);
        let low = &self.separators.keys[left];
        if head[left].absorb(low, &tail[0]) {
            self.children.remove(left + 1);
            self.drop_separator(left);
        }
    }

    fn drop_separator(&mut self, at: usize) {
        Arc::make_mut(&mut self.separators).remove(at);
    }
}

impl<T: Item> Child<T> {
    /// Puts what a node of one has before its own, if it has room. `between` is the key between the two.
    fn take_front(&mut self, one: &Self, between: &Bytes) -> bool {
        if self.is_full() {
            return false;
        }
        match (&mut self.node, &one.node) {
            (Node::Leaf(leaf), Node::Leaf(one)) => {
                let [item] = &one.items[..] else { return false };
                Arc::make_mut(leaf).insert(0, item.clone());
            }
            (Node::Inner(inner), Node::Inner(one)) => {
                let [child] = &one.children[..] else {
                    return false;
                };
                let inner = Arc::make_mut(inner);
                if child.size() > 1 || !inner.children[0].take_front(child, between) {
                    inner.children.insert(0, child.clone());
                    Arc::make_mut(&mut inner.separators).insert(0, between.clone());
                }
            }
            // Neighbours are at one depth, so both are of one kind; they stay apart otherwise.
            _ => return false,
        }
        self.summary.replace(&Summary::default(), &one.summary);
        true
    }

    /// Takes over what its right neighbour has, if both fit into one node; `low` is the key between them.
    fn absorb(&mut self, low: &Bytes, right: &Self) -> bool {
        match (&mut self.node, &right.node) {
            (Node::Leaf(left), Node::Leaf(more)) => {
                if left.items.len() + more.items.len() > LEAF {
                    return false;
                }
                let left = Arc::make_mut(left);
                left.items.extend(more.items.iter().cloned());
                left.heads = Heads::of(left.items.len(), |at| left.items[at].key());
            }
            (Node::Inner(left), Node::Inner(more)) => {
                if left.children.len() + more.children.len() > INNER {
                    return false;
                }
                let left = Arc::make_mut(left);
                let mut keys = left.separators.keys.clone();
                keys.push(low.clone());
                keys.extend(more.separators.keys.iter().cloned());
                left.separators = Arc::new(Separators::of(keys));
                left.children.extend(more.children.iter().cloned());
            }
            // Neighbours are at one depth, so both are of one kind; they stay apart otherwise.
            _ => return false,
        }
        self.summary.replace(&Summary::default(), &right.summary);
        true
    }
}

#[cfg(test)]
impl<T: Item> Child<T> {
    /// Checks everything that the tree relies on below a node, and returns how many nodes there are and how deep.
    pub(super) fn checked(&self, bounds: super::read::Bounds<'_>) -> (usize, usize) {
        let summary = self.node.summary();
        assert_eq!(
            (self.summary.items, self.summary.live),
            (summary.items, summary.live)
        );
        assert!(self.summary.modified >= summary.modified, "it is a bound");
        match &self.node {
            Node::Leaf(leaf) => {
                let keys: Vec<&[u8]> = leaf.items.iter().map(Item::key).collect();
                leaf.heads.check(&keys);
                let inside =
                    |key: &&&[u8]| **key >= bounds.0 && bounds.1.is_none_or(|next| **key < next);
                assert_eq!(keys.iter().filter(inside).count(), keys.len());
                (1, 1)
            }
            Node::Inner(inner) => {
                let keys: Vec<&[u8]> = inner.separators.keys.iter().map(|key| &key[..]).collect();
                inner.separators.heads.check(&keys);
                assert_eq!(keys.len() + 1, inner.children.len());
                let mut below = inner.children.iter().enumerate().map(|(at, child)| {
                    let (low, next) = (inner.low(at), inner.low(at + 1));
                    child.checked((low.unwrap_or(bounds.0), next.or(bounds.1)))
                });
                let (mut nodes, depth) = below.next().expect("it has children");
                for (more, other) in below {
                    assert_eq!(other, depth, "every leaf is as deep");
                    nodes += more;
                }
                (nodes + 1, depth + 1)
            }
        }
    }
}
