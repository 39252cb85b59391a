//! Which values a command will read, so that the disk fetches those in files while the command waits for its quorum: whoever
//! applies it must not wait for a disk. A hint on the state of now; the command is applied to a later one.
//!
//! Never reads a value itself, and never decides anything about the command.

use std::ops::ControlFlow;

use super::record::Record;
use super::span::Span;
use super::view::View;
use super::{CompareTarget, DeleteRange, Op, Operation, Put, Range, Revision, Txn};

/// Values that are fetched for one command at most.
const MOST: usize = 1000;

impl View {
    /// Has the values fetched that applying this will read. Does not wait for them.
    pub fn read_ahead(&self, operation: &Operation) {
        let mut ahead = Ahead {
            view: self,
            left: MOST,
        };
        match operation {
            Operation::Put(put) => ahead.put(put),
            Operation::DeleteRange(delete) => ahead.delete(delete),
            Operation::Txn(txn) => ahead.txn(txn),
            _ => {}
        }
    }
}

struct Ahead<'a> {
    view: &'a View,
    left: usize,
}

impl Ahead<'_> {
    fn put(&mut self, put: &Put) {
        if put.prev_kv || put.ignore_value {
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
        if range.keys_only || range.count_only {
            return;
        }
        let revision = match range.revision {
            0 => Revision::MAX,
            revision => revision,
        };
        let limit = usize::try_from(range.limit).unwrap_or(MOST);
        let span = Span::new(&range.key, &range.range_end);
        self.span(span, revision, if limit == 0 { MOST } else { limit });
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

    fn span(&mut self, span: Span<'_>, revision: Revision, limit: usize) {
        let mut left = limit.min(self.left);
        self.left -= left;
        self.view.state.visit(span, revision, &mut |record| {
            if left == 0 {
                return ControlFlow::Break(());
            }
            left -= 1;
            fetch(record);
            ControlFlow::Continue(())
        });
        self.left += left;
    }
}

fn fetch(record: &Record) {
    if let Some(place) = record.value.place() {
        place.read_ahead();
    }
}
