//! What can be refused before a command is proposed: form and limits. Never part of apply:
//! limits are settings of one member, and apply must not depend on those.

use std::collections::BTreeSet;

use bytes::Bytes;

use super::follow;
use super::span::Span;
use super::{
    Command, Compare, DeleteRange, Error, Op, Operation, Overview, Put, Range, RequestOp,
    SortOrder, SortTarget, Txn,
};

/// Limits that a member sets for what it proposes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The most compares, and the most operations in each list, of a transaction; what an outer
    /// one uses its nested ones lack.
    pub max_txn_ops: usize,
    /// Logical bytes from which writes are refused; 0 for no bound.
    pub quota_bytes: u64,
}

/// The logical size that etcd adds for a put to its key and value.
const PUT_COST: u64 = 256;
/// The same for a lease.
const LEASE_COST: u64 = 64;

impl Default for Limits {
    fn default() -> Self {
        Limits {
            max_txn_ops: 128,
            quota_bytes: 2 << 30,
        }
    }
}

/// Checks a command before it is proposed: its form, the limits and the quota. What depends on
/// the order of the log (leases, revisions) is decided when it is applied.
///
/// # Errors
/// What is wrong with the command.
pub fn check(command: &Command, limits: &Limits, overview: &Overview) -> Result<(), Error> {
    let operation = command.operation.as_ref().ok_or(Error::UnknownCommand)?;
    overview.check_following(operation)?;
    match operation {
        Operation::Put(put) => check_put(put)?,
        Operation::DeleteRange(delete) => check_delete(delete)?,
        Operation::Txn(txn) => check_txn(txn, limits)?,
        // The TTL of a lease is checked when it is granted: an alarm is reported first.
        Operation::LeaseGrant(_)
        | Operation::Compact(_)
        | Operation::LeaseRevoke(_)
        | Operation::LeaseExpire(_)
        | Operation::SetAlarm(_)
        | Operation::LeaseCheckpoint(_)
        | Operation::Follow(_)
        | Operation::Auth(_) => {}
    }
    let cost = cost(operation);
    if limits.quota_bytes > 0 && cost > 0 && overview.db_size() + cost >= limits.quota_bytes {
        return Err(Error::NoSpace);
    }
    Ok(())
}

/// Checks the form of a range.
///
/// # Errors
/// [`Error::EmptyKey`], [`Error::InvalidSortOption`].
pub fn check_range(range: &Range) -> Result<(), Error> {
    if range.key.is_empty() {
        return Err(Error::EmptyKey);
    }
    if SortOrder::try_from(range.sort_order).is_err()
        || SortTarget::try_from(range.sort_target).is_err()
    {
        return Err(Error::InvalidSortOption);
    }
    Ok(())
}

/// Checks the form of a transaction, also of one that only reads.
///
/// # Errors
/// What is wrong with it.
pub fn check_txn(txn: &Txn, limits: &Limits) -> Result<(), Error> {
    check_ops(txn, limits.max_txn_ops)?;
    written(&txn.success)?;
    written(&txn.failure)?;
    Ok(())
}

fn check_put(put: &Put) -> Result<(), Error> {
    if put.key.is_empty() {
        return Err(Error::EmptyKey);
    }
    if put.ignore_value && !put.value.is_empty() {
        return Err(Error::ValueProvided);
    }
    if put.ignore_lease && put.lease != 0 {
        return Err(Error::LeaseProvided);
    }
    Ok(())
}

fn check_delete(delete: &DeleteRange) -> Result<(), Error> {
    if delete.key.is_empty() {
        Err(Error::EmptyKey)
    } else {
        Ok(())
    }
}

fn check_ops(txn: &Txn, allowed: usize) -> Result<(), Error> {
    let used = txn
        .compare
        .len()
        .max(txn.success.len())
        .max(txn.failure.len());
    let left = allowed.checked_sub(used).ok_or(Error::TooManyOps)?;
    if txn.compare.iter().any(|Compare { key, .. }| key.is_empty()) {
        return Err(Error::EmptyKey);
    }
    for RequestOp { op } in txn.success.iter().chain(&txn.failure) {
        match op {
            Some(Op::Range(range)) => check_range(range)?,
            Some(Op::Put(put)) => check_put(put)?,
            Some(Op::DeleteRange(delete)) => check_delete(delete)?,
            Some(Op::Txn(nested)) => check_ops(nested, left)?,
            None => return Err(Error::KeyNotFound),
        }
    }
    Ok(())
}

/// Keys put and spans deleted by a list of operations.
#[derive(Default)]
struct Written<'a> {
    puts: BTreeSet<&'a Bytes>,
    deletes: Vec<Span<'a>>,
}

impl Written<'_> {
    fn deletes(&self, key: &[u8]) -> bool {
        self.deletes.iter().any(|span| span.contains(key))
    }
}

/// Collects what a list of operations writes and refuses to write a key twice. Nested lists
/// count with the outer one; the two lists of one nested transaction exclude each other.
///
/// Unlike etcd this also detects that an open-ended delete covers a put: etcd accepts that and may then lose the key in
/// a compaction.
fn written(ops: &[RequestOp]) -> Result<Written<'_>, Error> {
    let mut all = Written::default();
    for op in ops {
        if let Some(Op::DeleteRange(delete)) = &op.op {
            all.deletes.push(Span::new(&delete.key, &delete.range_end));
        }
    }
    for op in ops {
        let Some(Op::Txn(nested)) = &op.op else {
            continue;
        };
        let (then, otherwise) = (written(&nested.success)?, written(&nested.failure)?);
        for put in then.puts.union(&otherwise.puts) {
            if all.puts.contains(put) || all.deletes(put) {
                return Err(Error::DuplicateKey);
            }
        }
        all.puts.extend(then.puts);
        all.puts.extend(otherwise.puts);
        all.deletes.extend(then.deletes);
        all.deletes.extend(otherwise.deletes);
    }
    for op in ops {
        let Some(Op::Put(put)) = &op.op else { continue };
        if all.deletes(&put.key) || !all.puts.insert(&put.key) {
            return Err(Error::DuplicateKey);
        }
    }
    Ok(all)
}

/// What a command is predicted to add to the logical size, as etcd predicts it; 0 for what is
/// allowed without space.
pub(super) fn cost(operation: &Operation) -> u64 {
    match operation {
        Operation::Put(put) => put_cost(&put.key, &put.value),
        Operation::Txn(txn) => txn_cost(txn),
        Operation::LeaseGrant(_) => LEASE_COST,
        Operation::Follow(step) => follow::cost(step),
        _ => 0,
    }
}

pub(super) fn put_cost(key: &[u8], value: &[u8]) -> u64 {
    PUT_COST + key.len() as u64 + value.len() as u64
}

fn txn_cost(txn: &Txn) -> u64 {
    let list = |ops: &[RequestOp]| -> u64 {
        let one = |RequestOp { op }: &RequestOp| match op {
            Some(Op::Put(put)) => put_cost(&put.key, &put.value),
            Some(Op::Txn(nested)) => txn_cost(nested),
            _ => 0,
        };
        ops.iter().map(one).sum()
    };
    list(&txn.success).max(list(&txn.failure))
}
