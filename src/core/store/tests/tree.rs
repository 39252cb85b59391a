//! The tree against a sorted map.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use bytes::Bytes;

use super::generator::Generator;
use crate::store::Revision;
use crate::store::span::Span;
use crate::store::tree::{Builder, Item, Reader, Tree};

#[derive(Clone, Debug, PartialEq)]
struct Row {
    key: Bytes,
    live: bool,
    modified: Revision,
}

impl Item for Row {
    fn key(&self) -> &[u8] {
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
            key.extend(vec![0; number as usize % 4]);
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

/// A tree and what it should hold.
struct Pair {
    generator: Generator,
    keys: Keys,
    tree: Tree<Row>,
    map: BTreeMap<Bytes, Row>,
}

impl Pair {
    fn new(seed: u64) -> Pair {
        Pair {
            generator: Generator::new(seed),
            keys: [Keys::Numbers, Keys::Paths, Keys::Letters][seed as usize % 3],
            tree: Tree::default(),
            map: BTreeMap::new(),
        }
    }

    fn put(&mut self, key: Bytes, step: i64) {
        let row = Row {
            key: key.clone(),
            live: !self.generator.one_in(3),
            modified: step,
        };
        match self.map.contains_key(&key) {
            true => drop(self.tree.modify(&key, |old: &mut Row| *old = row.clone())),
            false => self.tree.insert(row.clone()),
        }
        self.map.insert(key, row);
    }

    /// Puts keys that follow each other, up or down.
    fn put_run(&mut self, from: u64, step: i64) {
        let down = self.generator.one_in(2);
        for number in 0..self.generator.below(300) {
            let number = if down {
                from.saturating_sub(number)
            } else {
                from + number
            };
            self.put(key(self.keys, number), step);
        }
    }

    fn remove(&mut self, from: &Bytes) {
        let next = self.map.range(from.clone()..).next();
        let key = next.map(|(key, _)| key.clone()).unwrap_or_default();
        assert_eq!(self.tree.remove(&key), self.map.remove(&key));
    }

    fn span_key(&mut self, space: u64) -> Bytes {
        match self.generator.below(10) {
            0 => Bytes::new(),
            1 => Bytes::from_static(&[0]),
            _ => key(self.keys, self.generator.below(space + 100)),
        }
    }

    fn check(&mut self, space: u64, step: i64) {
        assert_eq!(self.tree.len(), self.map.len() as u64);
        self.tree.checked();
        for _ in 0..10 {
            let (from, end) = (self.span_key(space), self.span_key(space));
            let span = Span::new(&from, &end);
            let revision = self.generator.between(step - 300, step);
            let inside = || self.map.values().filter(|row| span.contains(&row.key));
            let expected = inside().filter(|row| live_at(row, revision)).count() as u64;
            assert_eq!(self.tree.count(span, revision, &live_at), expected);
            assert_eq!(
                rows(&self.tree, span),
                inside().cloned().collect::<Vec<_>>()
            );
            self.check_examined(span, step);
        }
    }

    /// A reader of the newest revision is told of the dead rows that it passes, and of little more.
    fn check_examined(&mut self, span: Span<'_>, step: i64) {
        let shown = self.generator.below(50);
        let reader = Reader {
            span,
            revision: step,
            shown,
            counts: self.generator.one_in(2),
        };
        let told = self.tree.extra_examined(&reader, u64::MAX, &live_at);
        let (mut dead, mut left) = (0, shown);
        for row in self.map.values().filter(|row| span.contains(&row.key)) {
            if left == 0 {
                break;
            }
            dead += u64::from(!row.live);
            left -= u64::from(row.live);
        }
        // Where the span begins and where the last row is shown, a whole leaf counts.
        assert!(
            (dead..=dead + 32).contains(&told),
            "{dead} dead, {told} told"
        );
    }
}

/// `space` keys in `steps` steps: they grow, shrink to nothing, and grow again.
fn run(seed: u64, space: u64, steps: i64) -> usize {
    let mut pair = Pair::new(seed);
    let mut clones = Vec::new();
    let mut deepest = 0;
    for step in 0..steps {
        let shrinking = (steps / 3..steps * 3 / 4).contains(&step);
        let number = pair.generator.below(space);
        let key = key(pair.keys, number);
        if pair.generator.one_in(1000) && !shrinking {
            pair.put_run(number, step);
        } else if pair.generator.one_in(if shrinking { 10 } else { 2 }) {
            pair.put(key, step);
        } else if shrinking || pair.generator.one_in(5) {
            pair.remove(&key);
        } else {
            assert_eq!(pair.tree.get(&key), pair.map.get(&key));
        }
        if step % (steps / 6) == 0 {
            clones.push((pair.tree.clone(), pair.map.clone()));
        }
        if step % (steps / 90) == 0 {
            let keys = [0, 1, number].map(|other| self::key(pair.keys, other));
            pair.tree.touch(keys.iter().map(|key| &key[..]));
            pair.check(space, step);
            deepest = deepest.max(pair.tree.checked().1);
        }
    }
    for (tree, map) in clones {
        tree.checked();
        let expected: Vec<Row> = map.into_values().collect();
        assert_eq!(rows(&tree, Span::ALL), expected);
    }
    deepest
}

#[test]
fn tree_equals_a_sorted_map() {
    for seed in 0..6 {
        run(seed, 3_000, 9_000);
    }
    // Enough for inner nodes below inner nodes to be split and merged.
    for seed in 6..9 {
        let deepest = run(seed, 60_000, 60_000);
        assert!(deepest >= 4, "only {deepest} levels");
    }
}

/// A full leaf with a neighbour was split for the key behind its last one as if it were the end of the tree: each of
/// many keys in descending order got a leaf, and between two full inner nodes an inner node, of its own.
#[test]
fn keys_in_any_order_fill_their_nodes() {
    let up = |name: &str, count: u64| -> Vec<String> {
        (0..count)
            .map(|number| format!("{name}{number:06}"))
            .collect()
    };
    let down = |name: &str, count| up(name, count).into_iter().rev().collect::<Vec<_>>();
    for before in [0, 1000, 1008, 1024, 5000] {
        for (what, more) in [("down", down("b", 3000)), ("up", up("b", 3000))] {
            let mut tree = Tree::default();
            for after in [up("a", before), up("c", before), more] {
                for key in after {
                    tree.insert(Row {
                        key: Bytes::from(key),
                        live: true,
                        modified: 0,
                    });
                }
            }
            let (nodes, depth) = tree.checked();
            let keys = 2 * before + 3000;
            assert!(
                nodes as u64 <= keys / 7,
                "{what} after {before}: {nodes} nodes, {depth} levels"
            );
        }
    }
}

/// Items in order make a tree like any other: of any number of them, the borders of its nodes included, and it can be
/// changed everywhere.
#[test]
fn tree_built_in_order_is_like_one_of_insertions() {
    let border: u64 = 16 * 32;
    let counts = [0, 1, 2, 15, 16, 17, 32, 33, border - 1, border, border + 1];
    let deep = [32 * border, 32 * border + 1, 33 * border + 7];
    for count in counts.into_iter().chain(deep) {
        let row = |number: u64| Row {
            key: key(Keys::Numbers, number * 2),
            live: !number.is_multiple_of(3),
            modified: number as Revision,
        };
        let (mut builder, mut map) = (Builder::default(), BTreeMap::new());
        for number in 0..count {
            builder.push(row(number));
            map.insert(row(number).key, row(number));
        }
        let mut tree = builder.finish();
        let (nodes, _) = tree.checked();
        let most = count.div_ceil(16) + count.div_ceil(border) + count.div_ceil(32 * border);
        assert!(nodes as u64 <= most + 1, "{nodes} nodes for {count} items");
        assert_eq!(tree.len(), count);
        for number in (0..count * 2 + 2).step_by(7) {
            let key = key(Keys::Numbers, number);
            assert_eq!(tree.get(&key), map.get(&key));
            let new = Row {
                key: key.clone(),
                live: true,
                modified: number as Revision,
            };
            match number % 2 {
                0 => assert_eq!(tree.remove(&key), map.remove(&key)),
                _ => {
                    tree.insert(new.clone());
                    map.insert(key, new);
                }
            }
        }
        tree.checked();
        let expected: Vec<Row> = map.into_values().collect();
        assert_eq!(rows(&tree, Span::ALL), expected, "{count} items");
    }
}
