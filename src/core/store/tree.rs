//! A copy-on-write B+tree: cloning one is O(1), and a clone shares every node that has not
//! changed since. Each reference to a node carries what is below it: how many items, how many
//! of them live, and the largest revision, so that counting needs only the edges of a span.
//!
//! Compares only keys, and does not interpret its items.

use std::ops::ControlFlow;
use std::sync::Arc;

use bytes::Bytes;

use super::Revision;
use super::span::Span;

/// The most items in a leaf and children in an inner node.
const MAX: usize = 32;
/// Below this a node is merged with a neighbour if both fit into one.
const MIN: usize = MAX / 4;

/// What the tree holds.
pub(super) trait Item: Clone {
    /// The key; never changes.
    fn key(&self) -> &Bytes;
    /// Whether it counts at the newest revision.
    fn live(&self) -> bool;
    /// Revision of its last change.
    fn modified(&self) -> Revision;
}

#[derive(Clone, Debug)]
pub(super) struct Tree<T> {
    root: Child<T>,
}

#[derive(Clone, Debug)]
enum Node<T> {
    Leaf(Vec<T>),
    Inner(Vec<Child<T>>),
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Summary {
    items: u64,
    live: u64,
    modified: Revision,
}

#[derive(Clone, Debug)]
struct Child<T> {
    /// Not above any key below; not below any key of the child to the left.
    low: Bytes,
    summary: Summary,
    node: Arc<Node<T>>,
}

impl<T: Item> Default for Tree<T> {
    fn default() -> Self {
        Tree {
            root: Child::new(Node::Leaf(Vec::new())),
        }
    }
}

impl<T: Item> Tree<T> {
    /// Number of items.
    pub(super) fn len(&self) -> u64 {
        self.root.summary.items
    }

    /// The item of a key.
    pub(super) fn get(&self, key: &[u8]) -> Option<&T> {
        let mut node = &*self.root.node;
        loop {
            match node {
                Node::Inner(children) => node = &children[child_of(children, key)].node,
                Node::Leaf(items) => {
                    return find(items, key).ok().map(|at| &items[at]);
                }
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
            let left = std::mem::replace(&mut self.root, Child::new(Node::Leaf(Vec::new())));
            self.root = Child::new(Node::Inner(vec![left, right]));
        }
    }

    /// Takes an item out.
    pub(super) fn remove(&mut self, key: &[u8]) -> Option<T> {
        let removed = self.root.remove(key);
        while let Node::Inner(children) = &*self.root.node {
            let [only] = &children[..] else { break };
            self.root = only.clone();
        }
        removed
    }

    /// Visits the items of a span in key order until the callback stops it.
    pub(super) fn visit(&self, span: Span<'_>, visit: &mut impl FnMut(&T) -> ControlFlow<()>) {
        let _ = self.root.visit(span, visit);
    }

    /// Counts the items of a span that exist at a revision; `live_at` decides for one item and is called only where a
    /// part of the tree has changed since.
    pub(super) fn count(
        &self,
        span: Span<'_>,
        revision: Revision,
        live_at: &impl Fn(&T, Revision) -> bool,
    ) -> u64 {
        self.root.count(None, span, revision, live_at)
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
        self.root
            .extra_examined(None, reader, most, &mut left, live_at)
    }
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

impl<T: Item> Child<T> {
    fn new(node: Node<T>) -> Self {
        let low = match &node {
            Node::Leaf(items) => items
                .first()
                .map(|item| item.key().clone())
                .unwrap_or_default(),
            Node::Inner(children) => children[0].low.clone(),
        };
        let mut child = Child {
            low,
            summary: Summary::default(),
            node: Arc::new(node),
        };
        child.summarise();
        child
    }

    fn summarise(&mut self) {
        let mut sum = Summary::default();
        match &*self.node {
            Node::Leaf(items) => {
                for item in items {
                    sum.items += 1;
                    sum.live += u64::from(item.live());
                    sum.modified = sum.modified.max(item.modified());
                }
            }
            Node::Inner(children) => {
                for child in children {
                    sum.items += child.summary.items;
                    sum.live += child.summary.live;
                    sum.modified = sum.modified.max(child.summary.modified);
                }
            }
        }
        self.summary = sum;
    }

    fn modify<R>(&mut self, key: &[u8], change: impl FnOnce(&mut T) -> R) -> Option<R> {
        match Arc::make_mut(&mut self.node) {
            Node::Leaf(items) => {
                let at = find(items, key).ok()?;
                let item = &mut items[at];
                let before = u64::from(item.live());
                let result = change(item);
                self.summary.live = self.summary.live - before + u64::from(item.live());
                self.summary.modified = self.summary.modified.max(item.modified());
                Some(result)
            }
            Node::Inner(children) => {
                let at = child_of(children, key);
                let result = children[at].modify(key, change)?;
                self.summarise();
                Some(result)
            }
        }
    }

    /// Returns the right half if the node had to be split.
    fn insert(&mut self, item: T) -> Option<Child<T>> {
        if *item.key() < self.low {
            self.low = item.key().clone();
        }
        let right = match Arc::make_mut(&mut self.node) {
            Node::Leaf(items) => match find(items, item.key()) {
                Ok(at) => {
                    items[at] = item;
                    None
                }
                Err(at) => {
                    items.insert(at, item);
                    split(items, at).map(Node::Leaf)
                }
            },
            Node::Inner(children) => {
                let at = child_of(children, item.key());
                children[at].insert(item).and_then(|right| {
                    children.insert(at + 1, right);
                    split(children, at + 1).map(Node::Inner)
                })
            }
        };
        self.summarise();
        right.map(Child::new)
    }

    fn remove(&mut self, key: &[u8]) -> Option<T> {
        let removed = match Arc::make_mut(&mut self.node) {
            Node::Leaf(items) => {
                let at = find(items, key).ok()?;
                items.remove(at)
            }
            Node::Inner(children) => {
                let at = child_of(children, key);
                let removed = children[at].remove(key)?;
                merge(children, at);
                removed
            }
        };
        self.summarise();
        Some(removed)
    }

    fn size(&self) -> usize {
        match &*self.node {
            Node::Leaf(items) => items.len(),
            Node::Inner(children) => children.len(),
        }
    }

    fn visit(
        &self,
        span: Span<'_>,
        visit: &mut impl FnMut(&T) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        match &*self.node {
            Node::Leaf(items) => {
                let start = find(items, span.from).unwrap_or_else(|at| at);
                for item in &items[start..] {
                    if span.ends_before(item.key()) {
                        return ControlFlow::Break(());
                    }
                    visit(item)?;
                }
            }
            Node::Inner(children) => {
                for (at, child) in children
                    .iter()
                    .enumerate()
                    .skip(child_of(children, span.from))
                {
                    if at > 0 && span.ends_before(&child.low) {
                        return ControlFlow::Break(());
                    }
                    child.visit(span, visit)?;
                }
            }
        }
        ControlFlow::Continue(())
    }

    /// `next` is a bound that every key below this node stays under.
    fn count(
        &self,
        next: Option<&[u8]>,
        span: Span<'_>,
        revision: Revision,
        live_at: &impl Fn(&T, Revision) -> bool,
    ) -> u64 {
        let newest = self.summary.modified <= revision;
        if newest && span.covers(&self.low, next) {
            return self.summary.live;
        }
        match &*self.node {
            Node::Leaf(items) => {
                let start = find(items, span.from).unwrap_or_else(|at| at);
                let inside = items[start..]
                    .iter()
                    .take_while(|item| !span.ends_before(item.key()));
                let counts = |item: &&T| {
                    if newest {
                        item.live()
                    } else {
                        live_at(item, revision)
                    }
                };
                inside.filter(counts).count() as u64
            }
            Node::Inner(children) => {
                let mut total = 0;
                for (at, child) in children
                    .iter()
                    .enumerate()
                    .skip(child_of(children, span.from))
                {
                    if at > 0 && span.ends_before(&child.low) {
                        break;
                    }
                    let below = children.get(at + 1).map(|right| &right.low[..]).or(next);
                    total += child.count(below, span, revision, live_at);
                }
                total
            }
        }
    }
}

impl<T: Item> Child<T> {
    /// `left` is how many are still to be shown.
    fn extra_examined(
        &self,
        next: Option<&[u8]>,
        reader: &Reader<'_>,
        most: u64,
        left: &mut u64,
        live_at: &impl Fn(&T, Revision) -> bool,
    ) -> u64 {
        let Reader { span, revision, .. } = *reader;
        let Summary {
            items,
            live,
            modified,
        } = self.summary;
        let newest = modified <= revision;
        if *left == 0 && (newest || !reader.counts) {
            return 0;
        }
        if newest && live < *left && span.covers(&self.low, next) {
            *left -= live;
            return items - live;
        }
        let children = match &*self.node {
            Node::Leaf(leaf) => {
                let start = find(leaf, span.from).unwrap_or_else(|at| at);
                for item in &leaf[start..] {
                    if *left == 0 || span.ends_before(item.key()) {
                        break;
                    }
                    let shown = match newest {
                        true => item.live(),
                        false => live_at(item, revision),
                    };
                    *left -= u64::from(shown);
                }
                return items;
            }
            Node::Inner(children) => children,
        };
        let mut total = 0;
        let first = child_of(children, span.from);
        for (at, child) in children.iter().enumerate().skip(first) {
            if total > most || (at > 0 && span.ends_before(&child.low)) {
                break;
            }
            let below = children.get(at + 1).map(|right| &right.low[..]).or(next);
            total += child.extra_examined(below, reader, most - total, left, live_at);
        }
        total
    }
}

fn find<T: Item>(items: &[T], key: &[u8]) -> Result<usize, usize> {
    items.binary_search_by(|item| item.key()[..].cmp(key))
}

/// The child that a key belongs to: the last one that does not start above it, else the first.
fn child_of<T>(children: &[Child<T>], key: &[u8]) -> usize {
    children
        .partition_point(|child| child.low[..] <= *key)
        .max(1)
        - 1
}

/// Halves a list that has grown too long. After an append nearly everything stays on the left,
/// so that keys written in order fill their nodes.
fn split<E>(list: &mut Vec<E>, inserted: usize) -> Option<Vec<E>> {
    if list.len() <= MAX {
        return None;
    }
    let at = if inserted + 1 == list.len() {
        list.len() - 1
    } else {
        list.len() / 2
    };
    let right = list.split_off(at);
    list.shrink_to_fit();
    Some(right)
}

/// Drops a child that has become empty, or merges one that has become small with a neighbour.
fn merge<T: Item>(children: &mut Vec<Child<T>>, at: usize) {
    if children[at].size() == 0 && children.len() > 1 {
        children.remove(at);
        return;
    }
    if children[at].size() >= MIN || children.len() < 2 {
        return;
    }
    let left = at.saturating_sub(1);
    if children[left].size() + children[left + 1].size() > MAX {
        return;
    }
    let right = children.remove(left + 1);
    let target = &mut children[left];
    match (Arc::make_mut(&mut target.node), &*right.node) {
        (Node::Leaf(items), Node::Leaf(more)) => items.extend(more.iter().cloned()),
        (Node::Inner(below), Node::Inner(more)) => below.extend(more.iter().cloned()),
        // Neighbours are at one depth, so both are of one kind; keep them apart otherwise.
        _ => {
            children.insert(left + 1, right);
            return;
        }
    }
    target.summarise();
}
