//! A naive reckoning of one operation on a map of keys: what it changes and what it answers. Knows
//! the kinds of operations that the simulated clients send, and no history.

use std::collections::BTreeMap;

use bytes::Bytes;

use crate::store::{
    Compare, CompareResult, CompareTarget, DeleteRange, KeyValue, Op, Operation, Put, Range,
    RequestOp, Response, ResponseOp, Revision,
};

/// The keys while an operation is carried out, and what it answers.
#[derive(Clone, Debug)]
pub(super) struct ReferenceModel {
    keys: BTreeMap<Bytes, KeyValue>,
    revision: Revision,
    changed: bool,
    succeeded: bool,
    responses: Vec<ReferenceResponse>,
}

/// What is recorded of one operation.
#[derive(Clone, Debug, PartialEq)]
enum ReferenceResponse {
    Put(Option<KeyValue>),
    Deleted(i64, Vec<KeyValue>),
    Found(Vec<KeyValue>, i64),
}

impl ReferenceModel {
    /// Keys, and the revision at which changes would be made.
    pub(super) fn new(keys: BTreeMap<Bytes, KeyValue>, revision: Revision) -> Self {
        Self {
            keys,
            revision,
            changed: false,
            succeeded: false,
            responses: Vec::new(),
        }
    }

    /// Whether the operation changed anything.
    pub(super) fn changed(&self) -> bool {
        self.changed
    }

    /// The keys afterwards.
    pub(super) fn state(&self) -> &BTreeMap<Bytes, KeyValue> {
        &self.keys
    }

    /// Whether this is what was answered.
    pub(super) fn fits(&self, response: &Response) -> bool {
        match response {
            Response::Put(put) => self.responses == [ReferenceResponse::Put(put.prev_kv.clone())],
            Response::DeleteRange(delete) => {
                self.responses
                    == [ReferenceResponse::Deleted(
                        delete.deleted,
                        delete.prev_kvs.clone(),
                    )]
            }
            Response::Txn(txn) => {
                let responses: Vec<ReferenceResponse> = txn
                    .responses
                    .iter()
                    .filter_map(reference_response)
                    .collect();
                txn.succeeded == self.succeeded && responses == self.responses
            }
            _ => false,
        }
    }

    fn put(&mut self, put: &Put) {
        let old = self.keys.get(&put.key).cloned();
        let kv = KeyValue {
            key: put.key.clone(),
            value: put.value.clone(),
            create_revision: old
                .as_ref()
                .map_or(self.revision, |old| old.create_revision),
            mod_revision: self.revision,
            version: old.as_ref().map_or(0, |old| old.version) + 1,
            lease: put.lease,
        };
        self.keys.insert(put.key.clone(), kv);
        self.changed = true;
        self.responses
            .push(ReferenceResponse::Put(old.filter(|_| put.prev_kv)));
    }

    fn delete(&mut self, delete: &DeleteRange) {
        let gone = inside(&self.keys, &delete.key, &delete.range_end);
        for kv in &gone {
            self.keys.remove(&kv.key);
            self.changed = true;
        }
        let count = i64::try_from(gone.len()).unwrap_or(i64::MAX);
        let shown = if delete.prev_kv { gone } else { Vec::new() };
        self.responses
            .push(ReferenceResponse::Deleted(count, shown));
    }

    fn one(&mut self, RequestOp { op }: &RequestOp) {
        match op {
            Some(Op::Put(put)) => self.put(put),
            Some(Op::DeleteRange(delete)) => self.delete(delete),
            Some(Op::Range(wanted)) => {
                let (kvs, count) = range(&self.keys, wanted);
                self.responses.push(ReferenceResponse::Found(kvs, count));
            }
            Some(Op::Txn(_)) | None => {}
        }
    }
}

/// Carries out one operation.
pub(super) fn evaluate(mut model: ReferenceModel, operation: &Operation) -> ReferenceModel {
    match operation {
        Operation::Put(put) => model.put(put),
        Operation::DeleteRange(delete) => model.delete(delete),
        Operation::Txn(txn) => {
            model.succeeded = txn.compare.iter().all(|one| holds(&model.keys, one));
            let branch = match model.succeeded {
                true => &txn.success,
                false => &txn.failure,
            };
            branch.iter().for_each(|one| model.one(one));
        }
        _ => {}
    }
    model
}

/// What a read gives: the keys up to the limit, and how many there are.
pub(super) fn range(keys: &BTreeMap<Bytes, KeyValue>, range: &Range) -> (Vec<KeyValue>, i64) {
    let mut found = inside(keys, &range.key, &range.range_end);
    let count = i64::try_from(found.len()).unwrap_or(i64::MAX);
    if let Ok(limit @ 1..) = usize::try_from(range.limit) {
        found.truncate(limit);
    }
    (found, count)
}

/// The values that an operation may write, whichever way it goes.
pub(super) fn values(operation: &Operation) -> Vec<Bytes> {
    let written = |RequestOp { op }: &RequestOp| match op {
        Some(Op::Put(put)) => Some(put.value.clone()),
        _ => None,
    };
    match operation {
        Operation::Put(put) => vec![put.value.clone()],
        Operation::Txn(txn) => {
            let ops = txn.success.iter().chain(&txn.failure);
            ops.filter_map(written).collect()
        }
        _ => Vec::new(),
    }
}

fn reference_response(response: &ResponseOp) -> Option<ReferenceResponse> {
    match response {
        ResponseOp::Put(put) => Some(ReferenceResponse::Put(put.prev_kv.clone())),
        ResponseOp::DeleteRange(delete) => Some(ReferenceResponse::Deleted(
            delete.deleted,
            delete.prev_kvs.clone(),
        )),
        ResponseOp::Range(found) => Some(ReferenceResponse::Found(found.kvs.clone(), found.count)),
        ResponseOp::Txn(_) => None,
    }
}

fn inside(keys: &BTreeMap<Bytes, KeyValue>, key: &[u8], end: &[u8]) -> Vec<KeyValue> {
    let wanted = |kv: &&KeyValue| match end {
        [] => kv.key == key,
        [0] => kv.key[..] >= *key,
        _ => kv.key[..] >= *key && kv.key[..] < *end,
    };
    keys.values().filter(wanted).cloned().collect()
}

fn holds(keys: &BTreeMap<Bytes, KeyValue>, compare: &Compare) -> bool {
    let kv = keys.get(&compare.key);
    let number = |of: fn(&KeyValue) -> i64| kv.map_or(0, of).cmp(&compare.number);
    let ordering = match CompareTarget::try_from(compare.target) {
        Ok(CompareTarget::Version) => number(|kv| kv.version),
        Ok(CompareTarget::Create) => number(|kv| kv.create_revision),
        Ok(CompareTarget::Mod) => number(|kv| kv.mod_revision),
        Ok(CompareTarget::Lease) => number(|kv| kv.lease),
        Ok(CompareTarget::Value) => match kv {
            Some(kv) => kv.value.cmp(&compare.value),
            None => return false,
        },
        Err(_) => return true,
    };
    match CompareResult::try_from(compare.result) {
        Ok(CompareResult::Equal) => ordering.is_eq(),
        Ok(CompareResult::NotEqual) => ordering.is_ne(),
        Ok(CompareResult::Greater) => ordering.is_gt(),
        Ok(CompareResult::Less) => ordering.is_lt(),
        Err(_) => true,
    }
}
