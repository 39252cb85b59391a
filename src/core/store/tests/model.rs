//! The store done naively: a map for each revision, a list of everything ever written. Slow,
//! and as plain as possible.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use bytes::Bytes;
use prost::Message;

use crate::store::*;

pub(super) type Map = BTreeMap<Bytes, KeyValue>;

/// A stored revision: place, whether a tombstone, and what is stored.
type Row = ((Revision, u64), bool, KeyValue);

#[derive(Clone)]
pub(super) struct Model {
    pub(super) revision: Revision,
    pub(super) compacted: Revision,
    /// The keys at each revision from 1 on.
    history: Vec<Rc<Map>>,
    rows: Vec<Row>,
    pub(super) leases: BTreeMap<LeaseId, i64>,
    /// The change under way: the keys as it leaves them, and its writes.
    now: Map,
    writes: u64,
}

impl Model {
    pub(super) fn new() -> Self {
        Model {
            revision: 1,
            compacted: -1,
            history: vec![Rc::default(), Rc::default()],
            rows: Vec::new(),
            leases: BTreeMap::new(),
            now: Map::new(),
            writes: 0,
        }
    }

    fn at(&self, revision: Revision) -> &Map {
        if revision > self.revision {
            &self.now
        } else {
            &self.history[revision as usize]
        }
    }

    fn current(&self) -> Revision {
        if self.writes > 0 {
            self.revision + 1
        } else {
            self.revision
        }
    }

    fn commit(&mut self) -> Revision {
        if self.writes > 0 {
            self.history.push(Rc::new(self.now.clone()));
            self.revision += 1;
            self.writes = 0;
        }
        self.revision
    }

    pub(super) fn apply(&mut self, command: &Command, term: u64) -> Result<Response, Error> {
        match command.operation.clone().expect("an operation") {
            Operation::Put(put) => {
                self.check_put(&put)?;
                let response = self.put(&put);
                self.commit();
                Ok(Response::Put(response))
            }
            Operation::DeleteRange(delete) => {
                let response = self.delete_range(&delete);
                self.commit();
                Ok(Response::DeleteRange(response))
            }
            Operation::Txn(txn) => {
                let mut path = Vec::new();
                self.choose(&txn, &mut path);
                self.check(&txn, &mut path.iter().copied())?;
                let mut response = self.txn(&txn, &mut path.iter().copied());
                response.revision = self.commit();
                Ok(Response::Txn(response))
            }
            Operation::Compact(Compact { revision }) => {
                if revision <= self.compacted {
                    return Err(Error::Compacted {
                        compacted: self.compacted,
                    });
                }
                if revision > self.revision {
                    return Err(Error::FutureRevision {
                        current: self.revision,
                    });
                }
                self.compacted = revision;
                Ok(Response::Compact(CompactResponse {
                    revision: self.revision,
                }))
            }
            Operation::LeaseGrant(LeaseGrant { id, ttl }) => {
                if self.leases.contains_key(&id) {
                    return Err(Error::LeaseExists);
                }
                self.leases.insert(id, ttl);
                let revision = self.revision;
                Ok(Response::LeaseGrant(LeaseGrantResponse {
                    revision,
                    id,
                    ttl,
                }))
            }
            Operation::LeaseRevoke(LeaseRevoke { id }) => {
                if !self.end_lease(id) {
                    return Err(Error::LeaseNotFound);
                }
                Ok(Response::LeaseRevoke(LeaseRevokeResponse {
                    revision: self.revision,
                }))
            }
            Operation::LeaseExpire(expire) => {
                let mut expired = expire.ids.clone();
                expired.retain(|id| expire.term == term && self.end_lease(*id));
                Ok(Response::LeaseExpire(LeaseExpireResponse {
                    revision: self.revision,
                    expired,
                }))
            }
            Operation::SetAlarm(_)
            | Operation::LeaseCheckpoint(_)
            | Operation::Auth(_)
            | Operation::Follow(_) => {
                unreachable!("random runs raise no alarm; alarms have tests of their own")
            }
        }
    }

    fn end_lease(&mut self, id: LeaseId) -> bool {
        if self.leases.remove(&id).is_none() {
            return false;
        }
        for key in self.lease_keys(id) {
            self.delete(&key);
        }
        self.commit();
        true
    }

    pub(super) fn lease_keys(&self, id: LeaseId) -> Vec<Bytes> {
        self.now
            .values()
            .filter(|kv| kv.lease == id)
            .map(|kv| kv.key.clone())
            .collect()
    }

    fn check_put(&self, put: &Put) -> Result<(), Error> {
        if put.lease != 0 && !self.leases.contains_key(&put.lease) {
            return Err(Error::LeaseNotFound);
        }
        let known = self.now.contains_key(&put.key);
        if (put.ignore_value || put.ignore_lease) && !known {
            return Err(Error::KeyNotFound);
        }
        Ok(())
    }

    fn put(&mut self, put: &Put) -> PutResponse {
        let main = self.revision + 1;
        let old = self.now.get(&put.key).cloned();
        let kv = KeyValue {
            key: put.key.clone(),
            create_revision: old.as_ref().map_or(main, |old| old.create_revision),
            mod_revision: main,
            version: old.as_ref().map_or(1, |old| old.version + 1),
            value: match &old {
                Some(old) if put.ignore_value => old.value.clone(),
                _ => put.value.clone(),
            },
            lease: match &old {
                Some(old) if put.ignore_lease => old.lease,
                _ => put.lease,
            },
        };
        self.rows.push(((main, self.writes), false, kv.clone()));
        self.writes += 1;
        self.now.insert(put.key.clone(), kv);
        PutResponse {
            revision: main,
            prev_kv: if put.prev_kv { old } else { None },
        }
    }

    fn delete(&mut self, key: &Bytes) {
        self.now.remove(key);
        let kv = KeyValue {
            key: key.clone(),
            ..Default::default()
        };
        self.rows.push(((self.revision + 1, self.writes), true, kv));
        self.writes += 1;
    }

    fn delete_range(&mut self, delete: &DeleteRange) -> DeleteRangeResponse {
        let gone = select(&self.now, &delete.key, &delete.range_end);
        gone.iter().for_each(|kv| self.delete(&kv.key));
        DeleteRangeResponse {
            revision: self.current(),
            deleted: gone.len() as i64,
            prev_kvs: if delete.prev_kv { gone } else { Vec::new() },
        }
    }

    fn choose(&self, txn: &Txn, path: &mut Vec<bool>) {
        let succeeded = txn.compare.iter().all(|compare| self.holds(compare));
        path.push(succeeded);
        for op in if succeeded {
            &txn.success
        } else {
            &txn.failure
        } {
            if let Some(Op::Txn(nested)) = &op.op {
                self.choose(nested, path);
            }
        }
    }

    fn holds(&self, compare: &Compare) -> bool {
        let relates = |ordering: Ordering| match compare.result {
            0 => ordering == Ordering::Equal,
            1 => ordering == Ordering::Greater,
            2 => ordering == Ordering::Less,
            3 => ordering != Ordering::Equal,
            _ => true,
        };
        let one = |kv: &KeyValue| match compare.target {
            0 => relates(kv.version.cmp(&compare.number)),
            1 => relates(kv.create_revision.cmp(&compare.number)),
            2 => relates(kv.mod_revision.cmp(&compare.number)),
            3 => relates(kv.value.cmp(&compare.value)),
            4 => relates(kv.lease.cmp(&compare.number)),
            _ => relates(Ordering::Equal),
        };
        let kvs = select(&self.now, &compare.key, &compare.range_end);
        if kvs.is_empty() {
            return compare.target != 3 && one(&KeyValue::default());
        }
        kvs.iter().all(one)
    }

    fn check(&self, txn: &Txn, path: &mut impl Iterator<Item = bool>) -> Result<(), Error> {
        for op in if path.next() == Some(true) {
            &txn.success
        } else {
            &txn.failure
        } {
            match op.op.as_ref().expect("an operation") {
                Op::Range(range) if range.revision > self.revision => {
                    return Err(Error::FutureRevision {
                        current: self.revision,
                    });
                }
                Op::Range(range) if range.revision != 0 && range.revision < self.compacted => {
                    return Err(Error::Compacted {
                        compacted: self.compacted,
                    });
                }
                Op::Put(put) => self.check_put(put)?,
                Op::Txn(nested) => self.check(nested, path)?,
                _ => {}
            }
        }
        Ok(())
    }

    fn txn(&mut self, txn: &Txn, path: &mut impl Iterator<Item = bool>) -> TxnResponse {
        let succeeded = path.next() == Some(true);
        let mut responses = Vec::new();
        for op in if succeeded {
            &txn.success
        } else {
            &txn.failure
        } {
            responses.push(match op.op.as_ref().expect("an operation") {
                Op::Range(range) => ResponseOp::Range(self.range(range).expect("was checked")),
                Op::Put(put) => ResponseOp::Put(self.put(put)),
                Op::DeleteRange(delete) => ResponseOp::DeleteRange(self.delete_range(delete)),
                Op::Txn(nested) => ResponseOp::Txn(self.txn(nested, path)),
            });
        }
        TxnResponse {
            revision: 0,
            succeeded,
            responses,
        }
    }

    pub(super) fn range(&self, range: &Range) -> Result<RangeResponse, Error> {
        let current = self.current();
        if range.revision > current {
            return Err(Error::FutureRevision { current });
        }
        let revision = if range.revision <= 0 {
            current
        } else {
            range.revision
        };
        if revision < self.compacted {
            return Err(Error::Compacted {
                compacted: self.compacted,
            });
        }
        let mut kvs = select(self.at(revision), &range.key, &range.range_end);
        let count = kvs.len() as i64;
        if range.count_only {
            return Ok(RangeResponse {
                revision: current,
                count,
                ..Default::default()
            });
        }
        let limit = if range.limit > 0 {
            range.limit as usize
        } else {
            usize::MAX
        };
        let (order, target) = (range.sort_order, range.sort_target);
        let bounds = [
            range.min_mod_revision,
            range.max_mod_revision,
            range.min_create_revision,
            range.max_create_revision,
        ];
        let unsorted = order == 0 || (order == 1 && target == 0);
        if unsorted && bounds == [0; 4] {
            kvs.truncate(limit.saturating_add(1));
        }
        let [min_mod, max_mod, min_create, max_create] = bounds;
        kvs.retain(|kv| {
            let max = |bound: i64| if bound == 0 { i64::MAX } else { bound };
            (min_mod..=max(max_mod)).contains(&kv.mod_revision)
                && (min_create..=max(max_create)).contains(&kv.create_revision)
        });
        kvs.sort_by(|a, b| {
            let ordering = match target {
                0 => a.key.cmp(&b.key),
                1 => a.version.cmp(&b.version),
                2 => a.create_revision.cmp(&b.create_revision),
                3 => a.mod_revision.cmp(&b.mod_revision),
                _ => a.value.cmp(&b.value),
            };
            if order == 2 {
                ordering.reverse()
            } else {
                ordering
            }
        });
        let more = kvs.len() > limit;
        kvs.truncate(limit);
        if range.keys_only {
            for kv in &mut kvs {
                kv.value = Bytes::new();
                kv.lease = if target == 4 { kv.lease } else { 0 };
            }
        }
        Ok(RangeResponse {
            revision: current,
            kvs,
            count,
            more,
        })
    }

    /// The events of `from..=to`, each with the key before it, whether compacted or not.
    pub(super) fn events(&self, from: Revision, to: Revision) -> Vec<Event> {
        let rows = self
            .rows
            .iter()
            .filter(|row| (from..=to).contains(&row.0.0));
        rows.map(|((main, _), tombstone, kv)| {
            let mut kv = kv.clone();
            kv.mod_revision = *main;
            let prev_kv = self.at(main - 1).get(&kv.key).cloned();
            let kind = if *tombstone {
                EventKind::Delete
            } else {
                EventKind::Put
            };
            Event { kind, kv, prev_kv }
        })
        .collect()
    }

    /// What etcd's backend holds once the last compaction has run to its end.
    fn backend(&self) -> Vec<&Row> {
        self.surviving(
            |row| row.0.0 <= self.compacted,
            |row| row.0.0 == self.compacted,
        )
    }

    /// What counts for the size: history from the compacted revision on, and what lives there.
    pub(super) fn records_kept(&self) -> Vec<&Row> {
        self.surviving(
            |row| row.0.0 <= self.compacted,
            |row| row.0.0 == self.compacted,
        )
    }

    /// All rows but, of those that are old, the superseded and the tombstones not spared.
    fn surviving(&self, old: impl Fn(&Row) -> bool, spare: impl Fn(&Row) -> bool) -> Vec<&Row> {
        let mut newest = BTreeMap::new();
        for row in self.rows.iter().filter(|row| old(row)) {
            newest.insert(&row.2.key, row.0);
        }
        let stays =
            |row: &&Row| !old(row) || (newest[&row.2.key] == row.0 && (!row.1 || spare(row)));
        self.rows.iter().filter(stays).collect()
    }

    /// etcd's HashKV, following its implementation: what to keep at the revision, then a walk over the backend.
    pub(super) fn hash_kv(&self, revision: Revision) -> u32 {
        let mut newest: BTreeMap<&Bytes, &Row> = BTreeMap::new();
        for row in self.rows.iter().filter(|row| row.0.0 <= revision) {
            newest.insert(&row.2.key, row);
        }
        let keep: BTreeSet<_> = newest
            .values()
            .filter(|row| !row.1)
            .map(|row| row.0)
            .collect();
        let mut bytes = b"key".to_vec();
        for ((main, sub), tombstone, kv) in self.backend() {
            let (main, sub) = (*main, *sub);
            let scheduled = main <= self.compacted && !keep.is_empty();
            if main > revision
                || (scheduled && !keep.contains(&(main, sub)))
                || (main == self.compacted && *tombstone)
            {
                continue;
            }
            bytes.extend(main.to_be_bytes());
            bytes.push(b'_');
            bytes.extend(sub.to_be_bytes());
            bytes.extend(tombstone.then_some(b't'));
            bytes.extend(kv.encode_to_vec());
        }
        crc32c::crc32c(&bytes)
    }

    pub(super) fn db_size(&self) -> u64 {
        let size = |row: &&Row| (row.2.key.len() + row.2.value.len()) as u64 + 128;
        let records: u64 = self.records_kept().iter().map(size).sum();
        records + 64 * self.leases.len() as u64
    }
}

fn select(map: &Map, key: &[u8], end: &[u8]) -> Vec<KeyValue> {
    let inside = |other: &[u8]| match end {
        [] => other == key,
        [0] => other >= key,
        end => other >= key && other < end,
    };
    map.values().filter(|kv| inside(&kv.key)).cloned().collect()
}
