//! Which values commands will read, so that the disk fetches those in files while the commands wait for their quorum: whoever
//! applies them must not wait for a disk. A hint on the state of now; the commands are applied to a later one.
//!
//! Never reads a value itself, and never decides anything about a command.

use std::ops::ControlFlow;
use std::sync::Arc;

use super::span::Span;
use super::view::View;
use super::{CompareTarget, DeleteRange, Op, Operation, Put, Range, Revision, SortTarget, Txn};

/// Keys that are looked at for one batch of commands at most, deleted ones included.
const MOST: usize = 1000;

/// What a batch of commands has looked at.
#[derive(Debug)]
pub struct ReadAhead {
    view: Arc<View>,
    left: usize,
}

impl ReadAhead {
    /// Whether applying a command reads any value. Looks at the command alone.
    #[must_use]
    pub fn is_needed_for(operation: &Operation) -> bool {
        match operation {
            Operation::Put(put) => reads_previous(put),
            Operation::DeleteRange(delete) => delete.prev_kv,
            Operation::Txn(txn) => reads_values(txn),
            _ => false,
        }
    }

    /// Begins with a batch.
    #[must_use]
    pub fn new(view: Arc<View>) -> Self {
        Self { view, left: MOST }
    }

    /// Has the values fetched that applying this will read, as long as the batch has not looked at too many. May wait for
    /// the disk where its queue is full.
    pub fn command(&mut self, operation: &Operation) {
        match operation {
            Operation::Put(put) => self.put(put),
            Operation::DeleteRange(delete) => self.delete(delete),
            Operation::Txn(txn) => self.txn(txn),
            _ => {}
        }
    }

    fn put(&mut self, put: &Put) {
        if reads_previous(put) {
            self.span(Span::new(&put.key, &[]), Revision::MAX, MOST);
        }
    }

    fn delete(&mut self, delete: &DeleteRange) {
        if delete.prev_kv {
            let span = Span::new(&delete.key, &delete.range_end);
            self.span(span, Revision::MAX, MOST);
        }
    }

    fn range(&mut self, range: &Range) {
        if !has_values(range) {
            return;
        }
        let revision = match range.revision {
            0 => Revision::MAX,
            revision => revision,
        };
        let limit = match usize::try_from(range.limit) {
            Ok(0) | Err(_) => MOST,
            Ok(limit) => limit,
        };
        let span = Span::new(&range.key, &range.range_end);
        self.span(span, revision, limit);
    }

    fn txn(&mut self, txn: &Txn) {
        for compare in &txn.compare {
            if compare.target == CompareTarget::Value as i32 {
                let span = Span::new(&compare.key, &compare.range_end);
                self.span(span, Revision::MAX, MOST);
            }
        }
        for request in txn.success.iter().chain(&txn.failure) {
            match &request.op {
                Some(Op::Range(range)) => self.range(range),
                Some(Op::Put(put)) => self.put(put),
                Some(Op::DeleteRange(delete)) => self.delete(delete),
                Some(Op::Txn(nested)) => self.txn(nested),
                None => {}
            }
        }
    }

    /// Up to so many values of this range.
    fn span(&mut self, span: Span<'_>, revision: Revision, mut limit: usize) {
        let (left, view) = (&mut self.left, &self.view);
        if *left == 0 {
            return;
        }
        view.state.keys.visit(span, &mut |entry| {
            *left -= 1;
            if let Some(found) = entry.live_at(revision) {
                limit -= 1;
                let record = view.state.seen(entry, found);
                if let Some(place) = record.value.place() {
                    place.read_ahead();
                }
            }
            match *left == 0 || limit == 0 {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        });
    }
}

fn reads_previous(put: &Put) -> bool {
    put.prev_kv || put.ignore_value
}

fn has_values(range: &Range) -> bool {
    // What sorts by value reads it, shown or not.
    let reads = !range.keys_only || range.sort_target() == SortTarget::Value;
    reads && !range.count_only
}

/// Whichever of its branches is taken.
fn reads_values(txn: &Txn) -> bool {
    let compares = txn.compare.iter();
    let mut requests = txn.success.iter().chain(&txn.failure);
    compares
        .map(|compare| compare.target)
        .any(|target| target == CompareTarget::Value as i32)
        || requests.any(|request| match &request.op {
            Some(Op::Range(range)) => has_values(range),
            Some(Op::Put(put)) => reads_previous(put),
            Some(Op::DeleteRange(delete)) => delete.prev_kv,
            Some(Op::Txn(nested)) => reads_values(nested),
            None => false,
        })
}
