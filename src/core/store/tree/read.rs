//! Reads spans of the tree: in key order, or from the summaries of its nodes alone. Never changes anything.

use std::ops::ControlFlow;

use super::node::{Child, Inner, Node, Summary};
use super::{Item, Reader};
use crate::store::Revision;
use crate::store::span::Span;

/// The keys that may be below a node: from the first on, up to the second if there is one.
pub(super) type Bounds<'a> = (&'a [u8], Option<&'a [u8]>);

/// Those of a root.
pub(super) const EVERYTHING: Bounds<'static> = (&[], None);

/// What is known of a node below which a span is read: comparing its keys with the span is most of what reading them takes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Known {
    /// No key below it lies before the span.
    begun: bool,
    /// No key below it lies behind the span.
    whole: bool,
}

/// Visits the items of a span in key order until the callback stops it.
pub(super) fn visit<T: Item>(
    child: &Child<T>,
    span: Span<'_>,
    known: Known,
    visit_one: &mut impl FnMut(&T) -> ControlFlow<()>,
) -> ControlFlow<()> {
    let Known { begun, whole } = known;
    match child.node() {
        Node::Leaf(leaf) => {
            let start = match begun {
                true => 0,
                false => leaf.search(span.from).unwrap_or_else(|at| at),
            };
            for item in &leaf.items()[start..] {
                if !whole && span.ends_before(item.key()) {
                    return ControlFlow::Break(());
                }
                visit_one(item)?;
            }
        }
        Node::Inner(inner) => {
            let first = match begun {
                true => 0,
                false => inner.position(span.from),
            };
            for (at, child) in inner.children().iter().enumerate().skip(first) {
                let behind = |low: &[u8]| span.ends_before(low);
                if !whole && inner.low(at).is_some_and(behind) {
                    return ControlFlow::Break(());
                }
                let known = Known {
                    begun: begun || at > first,
                    whole: whole || inner.low(at + 1).is_some_and(|next| !behind(next)),
                };
                visit(child, span, known, visit_one)?;
            }
        }
    }
    ControlFlow::Continue(())
}

/// The children of a node that may hold keys of a span, with their bounds.
fn inside<'a, T: Item>(
    inner: &'a Inner<T>,
    (low, next): Bounds<'a>,
    span: Span<'a>,
) -> impl Iterator<Item = (Bounds<'a>, &'a Child<T>)> {
    let children = inner.children().iter().enumerate();
    let from = children.skip(inner.position(span.from));
    let bounded = from.map(move |(at, child)| {
        let bounds = (inner.low(at).unwrap_or(low), inner.low(at + 1).or(next));
        (at, bounds, child)
    });
    let until = bounded.take_while(move |(at, (low, _), _)| *at == 0 || !span.ends_before(low));
    until.map(|(_, bounds, child)| (bounds, child))
}

/// Counts the items of a span that exist at a revision.
pub(super) fn count<T: Item>(
    child: &Child<T>,
    bounds: Bounds<'_>,
    span: Span<'_>,
    revision: Revision,
    live_at: &impl Fn(&T, Revision) -> bool,
) -> u64 {
    let newest = child.summary.modified <= revision;
    if newest && span.covers(bounds.0, bounds.1) {
        return child.summary.live;
    }
    match child.node() {
        Node::Leaf(leaf) => {
            let start = leaf.search(span.from).unwrap_or_else(|at| at);
            let inside = leaf.items()[start..]
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
        Node::Inner(inner) => inside(inner, bounds, span)
            .map(|(bounds, child)| count(child, bounds, span, revision, live_at))
            .sum(),
    }
}

/// How many items a reader may have to examine in addition to those that it gets. `left` is how many are still to be
/// shown.
pub(super) fn extra_examined<T: Item>(
    child: &Child<T>,
    bounds: Bounds<'_>,
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
    } = child.summary;
    let newest = modified <= revision;
    if *left == 0 && (newest || !reader.counts) {
        return 0;
    }
    if newest && live < *left && span.covers(bounds.0, bounds.1) {
        *left -= live;
        return items - live;
    }
    let inner = match child.node() {
        Node::Leaf(leaf) => {
            let start = leaf.search(span.from).unwrap_or_else(|at| at);
            for item in &leaf.items()[start..] {
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
        Node::Inner(inner) => inner,
    };
    let mut total = 0;
    for (bounds, child) in inside(inner, bounds, span) {
        if total > most {
            break;
        }
        total += extra_examined(child, bounds, reader, most - total, left, live_at);
    }
    total
}
