//! The tree against a sorted map.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use bytes::Bytes;

use super::generator::Generator;
use crate::store::Revision;
use crate::store::span::Span;
use crate::store::tree::{Item, Tree};

#[derive(Clone, Debug, PartialEq)]
struct Row {
    key: Bytes,
    live: bool,
    modified: Revision,
}

impl Item for Row {
    fn key(&self) -> &Bytes {
        &self.key
    }

    fn live(&self) -> bool {
        self.live
    }

    fn modified(&self) -> Revision {
        self.modified
    }
}

/// How the keys of a run look.
#[derive(Clone, Copy)]
enum Keys {
    /// Of one length and without a common prefix.
    Numbers,
    /// Below a few long prefixes, as those of kube-apiserver.
    Paths,
    /// Of three letters, the smallest and the largest byte among them: many begin with others, end in zeros, or differ
    /// only after dozens of bytes.
    Letters,
}

fn key(keys: Keys, number: u64) -> Bytes {
    match keys {
        Keys::Numbers => Bytes::from(format!("{number:05}")),
        Keys::Paths => {
            let kind = ["pods", "podtemplates", "leases/kube-node-lease"][number as usize % 3];
            Bytes::from(format!("/registry/{kind}/n-{}/{}", number % 7, number / 5))
        }
        Keys::Letters => {
            let mut left = number * number * 31;
            let mut key = vec![b'a'; if number.is_multiple_of(5) { 20 } else { 0 }];
            while left > 0 {
                key.push([0, b'a', 0xff][left as usize % 3]);
                left /= 3;
            }
            Bytes::from(key)
        }
    }
}

/// Stands for a history: at an even distance from its last change a row lived.
fn live_at(row: &Row, revision: Revision) -> bool {
    if row.modified <= revision {
        row.live
    } else {
        (row.modified - revision) % 2 == 0
    }
}

fn rows(tree: &Tree<Row>, span: Span<'_>) -> Vec<Row> {
    let mut rows = Vec::new();
    tree.visit(span, &mut |row| {
        rows.push(row.clone());
        ControlFlow::Continue(())
    });
    rows
}

#[test]
fn tree_equals_a_sorted_map() {
    for seed in 0..6 {
        let keys = [Keys::Numbers, Keys::Paths, Keys::Letters][seed as usize % 3];
        let mut generator = Generator::new(seed);
        let mut tree = Tree::default();
        let mut map: BTreeMap<Bytes, Row> = BTreeMap::new();
        let mut clones = Vec::new();
        // Grow, shrink to nothing, and grow again.
        for step in 0..9000_i64 {
            let shrinking = (3000..6500).contains(&step);
            let key = key(keys, generator.below(3000));
            if generator.one_in(if shrinking { 10 } else { 2 }) {
                let row = Row {
                    key: key.clone(),
                    live: !generator.one_in(3),
                    modified: step,
                };
                match map.contains_key(&key) {
                    true => drop(tree.modify(&key, |old: &mut Row| *old = row.clone())),
                    false => tree.insert(row.clone()),
                }
                map.insert(key, row);
            } else if shrinking || generator.one_in(3) {
                let key = map
                    .range(key..)
                    .next()
                    .map(|(key, _)| key.clone())
                    .unwrap_or_default();
                assert_eq!(tree.remove(&key), map.remove(&key));
            } else {
                assert_eq!(tree.get(&key), map.get(&key));
            }
            if step % 1500 == 0 {
                clones.push((tree.clone(), map.clone()));
            }
            if step % 100 == 0 {
                check(&mut generator, keys, &tree, &map, step);
            }
        }
        for (tree, map) in clones {
            assert_eq!(
                rows(&tree, Span::ALL),
                map.values().cloned().collect::<Vec<_>>()
            );
        }
    }
}

fn check(
    generator: &mut Generator,
    keys: Keys,
    tree: &Tree<Row>,
    map: &BTreeMap<Bytes, Row>,
    step: i64,
) {
    assert_eq!(tree.len(), map.len() as u64);
    for _ in 0..10 {
        let (from, end) = (
            key(keys, generator.below(3100)),
            key(keys, generator.below(3100)),
        );
        let end = if generator.one_in(4) {
            Bytes::from_static(&[0])
        } else {
            end
        };
        let span = Span::new(&from, &end);
        let revision = generator.between(step - 300, step);
        let inside = || map.values().filter(|row| span.contains(&row.key));
        let expected = inside().filter(|row| live_at(row, revision)).count() as u64;
        assert_eq!(tree.count(span, revision, &live_at), expected);
        assert_eq!(rows(tree, span), inside().cloned().collect::<Vec<_>>());
    }
}
