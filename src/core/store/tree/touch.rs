//! Loads what finding some keys will look at, level by level. Whoever finds one key after the other waits for memory at each level of
//! each; here the processor fetches each level for many keys at once.
//!
//! Changes and returns nothing, and may be left out.

use std::hint::black_box;

use arrayvec::ArrayVec;

use super::node::Node;
use super::{Item, Tree};

/// So many keys at once: what they need fits into the cache nearest to the processor.
pub const TOGETHER: usize = 16;

impl<T: Item> Tree<T> {
    /// For up to [`TOGETHER`] keys; what is beyond is left out.
    pub(in crate::store) fn touch<'a>(&self, keys: impl Iterator<Item = &'a [u8]>) {
        let root = self.root.node();
        let mut ways: ArrayVec<(&Node<T>, &[u8]), TOGETHER> =
            keys.take(TOGETHER).map(|key| (root, key)).collect();
        if ways.len() < 2 {
            return;
        }
        // Every leaf is as deep.
        while let Some((Node::Inner(_), _)) = ways.first() {
            // Each loop has loads that do not depend on each other.
            each(&ways, Node::touch_node);
            each(&ways, Node::touch_keys);
            for (node, key) in &mut ways {
                if let Node::Inner(inner) = node {
                    *node = inner.child_of(key).node();
                }
            }
        }
        each(&ways, Node::touch_node);
        let items: ArrayVec<&T, TOGETHER> = ways
            .iter()
            .filter_map(|(node, key)| match node {
                Node::Leaf(leaf) => leaf.near(key),
                Node::Inner(_) => None,
            })
            .collect();
        items.iter().for_each(|item| item.load());
        items.iter().for_each(|item| {
            black_box(item.key().first());
        });
    }
}

fn each<T>(ways: &[(&Node<T>, &[u8])], touch: impl Fn(&Node<T>) -> u64) {
    let all = ways.iter().map(|(node, _)| touch(node));
    black_box(all.fold(0, |all, one| all ^ one));
}
