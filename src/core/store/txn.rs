//! Transactions: which path the compares choose, whether it can be carried out, and doing so.
//! All compares, nested ones included, and all checks see the state before the transaction; the
//! operations see one another. Never leaves a transaction half done: everything that can be refused is
//! checked before the first write, and where a value in a file cannot be read behind it, what was written is taken back.

use std::cmp::Ordering;
use std::ops::ControlFlow;

use crate::mutants::mutant;
use bytes::Bytes;

use super::pace::Pace;
use super::record::Record;
use super::span::Span;
use super::state::State;
use super::{
    Compare, CompareResult, CompareTarget, Counted, DeleteRange, DeleteRangeResponse, Error, Op,
    Put, PutResponse, RequestOp, ResponseOp, Revision, Txn, TxnResponse,
};

/// Keys that are looked at for where their values are, before an operation of more keys is taken to read files.
const FEW: usize = 16;

/// A change under way: all its writes share one main revision.
pub(super) struct Change<'a> {
    state: &'a mut State,
    /// Writes so far, which is the next sub revision.
    writes: u32,
}

impl<'a> Change<'a> {
    pub(super) fn begin(state: &'a mut State) -> Self {
        Change { state, writes: 0 }
    }

    /// The revision that the change is, or would be, written at.
    fn main(&self) -> Revision {
        self.state.revision + 1
    }

    /// The newest revision that an operation of the change sees.
    fn current(&self) -> Revision {
        self.state.revision + Revision::from(self.writes > 0)
    }

    fn next_place(&mut self) -> (Revision, u32) {
        let place = (self.main(), self.writes);
        self.writes += 1;
        place
    }

    /// Makes the change count; returns the revision afterwards.
    pub(super) fn end(self) -> Revision {
        self.state.revision = self.current();
        self.state.revision
    }

    /// # Errors
    /// [`Error::Value`], before anything is changed.
    pub(super) fn put(&mut self, put: &Put) -> Result<PutResponse, Error> {
        let last = self
            .state
            .keys
            .get(&put.key)
            .map(|entry| entry.newest().clone());
        let old = last.as_ref().filter(|last| !last.tombstone);
        let value = match old {
            Some(old) if put.ignore_value => old.value.load()?,
            _ => Bytes::copy_from_slice(&put.value),
        };
        let lease = match old {
            Some(old) if put.ignore_lease => old.details().lease,
            _ => put.lease,
        };
        let prev_kv = old.filter(|_| put.prev_kv).map(Record::to_kv).transpose()?;
        let place = self.next_place();
        self.state.put(&put.key, last.as_ref(), value, lease, place);
        Ok(PutResponse {
            revision: place.0,
            prev_kv,
        })
    }

    /// # Errors
    /// [`Error::Value`], before anything is changed.
    pub(super) fn delete_range(
        &mut self,
        delete: &DeleteRange,
    ) -> Result<DeleteRangeResponse, Error> {
        let span = Span::new(&delete.key, &delete.range_end);
        let mut gone = Vec::new();
        self.state.visit(span, Revision::MAX, &mut |record| {
            gone.push(record.clone());
            ControlFlow::Continue(())
        });
        let shown = if delete.prev_kv { &gone[..] } else { &[] };
        let prev_kvs = shown.iter().map(|record| record.to_kv());
        let prev_kvs = prev_kvs.collect::<Result<_, _>>()?;
        for record in &gone {
            self.delete(record);
        }
        Ok(DeleteRangeResponse {
            revision: self.current(),
            deleted: gone.len() as i64,
            prev_kvs,
        })
    }

    /// Deletes a key by its newest record.
    fn delete(&mut self, record: &Record) {
        let place = self.next_place();
        self.state.delete(record, place);
        if mutant!(DeleteKeepsRevision) && self.writes == 1 {
            self.writes = 0;
        }
    }

    /// Deletes a key if it exists.
    pub(super) fn delete_key(&mut self, key: &[u8]) {
        if let Some(record) = self.state.current(key).cloned() {
            self.delete(&record);
        }
    }

    fn txn(&mut self, txn: &Txn, path: &mut Path) -> Result<TxnResponse, Error> {
        let succeeded = path.next();
        let mut response = TxnResponse {
            succeeded,
            ..Default::default()
        };
        for op in operations(txn, succeeded) {
            let answer = match &op.op {
                Some(Op::Range(range)) => {
                    ResponseOp::Range(self.state.range(range, self.current())?)
                }
                Some(Op::Put(put)) => ResponseOp::Put(self.put(put)?),
                Some(Op::DeleteRange(delete)) => {
                    ResponseOp::DeleteRange(self.delete_range(delete)?)
                }
                Some(Op::Txn(txn)) => ResponseOp::Txn(self.txn(txn, path)?),
                None => continue,
            };
            response.responses.push(answer);
        }
        Ok(response)
    }
}

/// The outcomes of the compares along the path that is carried out, in its order.
struct Path {
    outcomes: Vec<bool>,
    at: usize,
}

impl Path {
    fn choose(state: &State, txn: &Txn) -> Result<Path, Error> {
        let mut path = Path {
            outcomes: Vec::new(),
            at: 0,
        };
        path.extend(state, txn)?;
        Ok(path)
    }

    fn extend(&mut self, state: &State, txn: &Txn) -> Result<(), Error> {
        let mut succeeded = true;
        for compare in &txn.compare {
            succeeded = succeeded && holds(state, compare)?;
        }
        self.outcomes.push(succeeded);
        for op in operations(txn, succeeded) {
            if let Some(Op::Txn(nested)) = &op.op {
                self.extend(state, nested)?;
            }
        }
        Ok(())
    }

    /// The outcome of the next transaction in the order of execution, which is the order in
    /// which they were chosen.
    fn next(&mut self) -> bool {
        let outcome = self.outcomes.get(self.at).copied().unwrap_or_default();
        self.at += 1;
        outcome
    }

    fn again(&mut self) -> &mut Path {
        self.at = 0;
        self
    }
}

fn operations(txn: &Txn, succeeded: bool) -> &[RequestOp] {
    if succeeded {
        &txn.success
    } else {
        &txn.failure
    }
}

impl State {
    /// Carries out a transaction, or refuses it and changes nothing.
    ///
    /// # Errors
    /// What [`State::check_txn`] refuses, and [`Error::Value`].
    pub(super) fn txn(&mut self, txn: &Txn) -> Result<TxnResponse, Error> {
        let mut path = Path::choose(self, txn)?;
        self.check_txn(txn, &mut path)?;
        // Seldom: what is written next to a copy costs one of each piece of the state that it touches.
        let reads_files = self.reads_files_late(txn, path.again(), &mut false);
        let before = reads_files.then(|| self.clone());
        let mut change = Change::begin(self);
        let result = change.txn(txn, path.again());
        let revision = change.end();
        if let (Err(Error::Value(_)), Some(before)) = (&result, before)
            && !mutant!(HalfDoneStays)
        {
            *self = before;
        }
        let mut response = result?;
        response.revision = revision;
        Ok(response)
    }

    /// Answers a transaction that only reads.
    ///
    /// # Errors
    /// [`Error::NotReadOnly`], and what a range refuses.
    pub(super) fn read_txn(&self, txn: &Txn, pace: &Pace<'_>) -> Result<TxnResponse, Error> {
        if !txn.is_read_only() {
            return Err(Error::NotReadOnly);
        }
        let mut path = Path::choose(self, txn)?;
        self.check_txn(txn, &mut path)?;
        let succeeded = path.again().next();
        let mut responses = Vec::new();
        for op in operations(txn, succeeded) {
            let Some(Op::Range(range)) = &op.op else {
                return Err(Error::NotReadOnly);
            };
            let (current, counted) = (self.revision, Counted::Yes);
            let range = self.range_with(range, current, counted, pace)?;
            responses.push(ResponseOp::Range(range));
        }
        Ok(TxnResponse {
            revision: self.revision,
            succeeded,
            responses,
        })
    }

    /// Whether every operation on the chosen path can be carried out.
    fn check_txn(&self, txn: &Txn, path: &mut Path) -> Result<(), Error> {
        for op in operations(txn, path.next()) {
            match &op.op {
                Some(Op::Range(_)) if mutant!(TxnHalfDone) => {}
                Some(Op::Range(range)) => self.check_range_revision(range.revision)?,
                Some(Op::Put(put)) => self.check_put(put)?,
                Some(Op::Txn(nested)) => self.check_txn(nested, path)?,
                Some(Op::DeleteRange(_)) | None => {}
            }
        }
        Ok(())
    }

    /// Whether an operation on the chosen path may need a value of a file when there was a write before it.
    fn reads_files_late(&self, txn: &Txn, path: &mut Path, wrote: &mut bool) -> bool {
        for op in operations(txn, path.next()) {
            let (reads, key, range_end, writes) = match &op.op {
                Some(Op::Range(it)) => (!it.count_only, &it.key, &it.range_end[..], false),
                Some(Op::Put(it)) => (it.prev_kv || it.ignore_value, &it.key, &[][..], true),
                Some(Op::DeleteRange(it)) => (it.prev_kv, &it.key, &it.range_end[..], true),
                Some(Op::Txn(nested)) if self.reads_files_late(nested, path, wrote) => return true,
                Some(Op::Txn(_)) | None => continue,
            };
            let old = matches!(&op.op, Some(Op::Range(it)) if it.revision != 0);
            if reads && *wrote && (old || self.may_be_in_files(Span::new(key, range_end))) {
                return true;
            }
            *wrote |= writes;
        }
        false
    }

    /// Whether one of these values may be in a file: of many it is taken for granted. A checkpoint may move one there at any
    /// time.
    fn may_be_in_files(&self, span: Span<'_>) -> bool {
        let (mut looked, mut may_be) = (0, false);
        self.visit(span, Revision::MAX, &mut |record| {
            looked += 1;
            may_be = looked > FEW || record.value.place().is_some();
            match may_be {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        });
        may_be
    }

    fn check_range_revision(&self, revision: Revision) -> Result<(), Error> {
        if revision > self.revision {
            return Err(Error::FutureRevision {
                current: self.revision,
            });
        }
        if revision != 0 && revision < self.compacted {
            return Err(Error::Compacted {
                compacted: self.compacted,
            });
        }
        Ok(())
    }

    /// Whether a put can be carried out on this state.
    pub(super) fn check_put(&self, put: &Put) -> Result<(), Error> {
        // Never proposed, but it would produce unreadable checkpoints.
        if put.key.is_empty() {
            return Err(Error::EmptyKey);
        }
        if put.lease != 0 && self.leases.get(put.lease).is_none() {
            return Err(Error::LeaseNotFound);
        }
        if (put.ignore_value || put.ignore_lease) && self.current(&put.key).is_none() {
            return Err(Error::KeyNotFound);
        }
        Ok(())
    }
}

impl Txn {
    /// Whether it has nothing but ranges on both paths, so that a view can answer it. As etcd's `IsTxnReadonly` has it,
    /// one with another transaction in it goes through the log, even if that writes nothing.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        let mut ops = self.success.iter().chain(&self.failure);
        ops.all(|op| matches!(op.op, Some(Op::Range(_))))
    }
}

fn holds(state: &State, compare: &Compare) -> Result<bool, Error> {
    let span = Span::new(&compare.key, &compare.range_end);
    let (mut any, mut all, mut failure) = (false, true, None);
    state.visit(span, Revision::MAX, &mut |record| {
        any = true;
        let number = match target(compare) {
            Some(CompareTarget::Value) => {
                match record.value.load() {
                    Ok(value) => all = relates(compare, value.cmp(&compare.value)),
                    Err(error) => failure = Some(error),
                }
                return if all && failure.is_none() {
                    ControlFlow::Continue(())
                } else {
                    ControlFlow::Break(())
                };
            }
            Some(CompareTarget::Version) if mutant!(CompareWrongField) => record.main,
            Some(CompareTarget::Version) => record.details().version,
            Some(CompareTarget::Create) => record.details().create,
            Some(CompareTarget::Mod) => record.main,
            Some(CompareTarget::Lease) => record.details().lease,
            None => compare.number,
        };
        all = relates(compare, number.cmp(&compare.number));
        if all {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(())
        }
    });
    if let Some(damaged) = failure {
        return Err(Error::Value(damaged));
    }
    Ok(match target(compare) {
        _ if any => all,
        // An empty value is a value; a missing key has none.
        Some(CompareTarget::Value) => false,
        Some(_) => relates(compare, 0.cmp(&compare.number)),
        None => relates(compare, Ordering::Equal),
    })
}

fn target(compare: &Compare) -> Option<CompareTarget> {
    CompareTarget::try_from(compare.target).ok()
}

fn relates(compare: &Compare, ordering: Ordering) -> bool {
    match CompareResult::try_from(compare.result) {
        Ok(CompareResult::Equal) => ordering.is_eq(),
        Ok(CompareResult::NotEqual) => ordering.is_ne(),
        Ok(CompareResult::Greater) => ordering.is_gt(),
        Ok(CompareResult::Less) => ordering.is_lt(),
        Err(_) => true,
    }
}
