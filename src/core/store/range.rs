//! Reading a key or a range, with etcd's options and their quirks. Never changes anything.

use std::cmp::Ordering;
use std::ops::ControlFlow;

use bytes::Bytes;

use super::keys::Keys;
use super::pace::Pace;
use super::reads::Reads;
use super::span::{End, Span};
use super::state::State;
use super::{DamagedValue, Error, KeyValue, Range, RangeResponse, Revision, SortOrder, SortTarget};

impl State {
    /// Carries out a range while `current` is the newest revision.
    ///
    /// # Errors
    /// [`Error::FutureRevision`], [`Error::Compacted`], [`Error::InvalidSortOption`].
    pub(super) fn range(&self, range: &Range, current: Revision) -> Result<RangeResponse, Error> {
        self.range_with(range, current, Counted::Yes, &Pace::default())
    }

    /// The same, counted or not, at a pace.
    pub(super) fn range_with(
        &self,
        range: &Range,
        current: Revision,
        counted: Counted,
        pace: &Pace<'_>,
    ) -> Result<RangeResponse, Error> {
        let order = SortOrder::try_from(range.sort_order).map_err(|_| Error::InvalidSortOption)?;
        let target =
            SortTarget::try_from(range.sort_target).map_err(|_| Error::InvalidSortOption)?;
        let revision = self.readable(range.revision, current)?;
        let span = Span::new(&range.key, &range.range_end);
        let count = match counted {
            Counted::Yes => self.count_paced(span, revision, pace) as i64,
            Counted::No => 0,
        };
        let mut response = RangeResponse {
            revision: current,
            count,
            ..Default::default()
        };
        if range.count_only {
            return Ok(response);
        }
        let limit = fetch_limit(range, order, target);
        let valued = !range.keys_only || target == SortTarget::Value;
        let mut kvs = self.fetch(range, span, revision, (limit, valued), pace)?;
        kvs.retain(|kv| {
            pace.step();
            keeps(range, kv)
        });
        sort(&mut kvs, order, target, pace);
        while range.limit > 0 && kvs.len() as u64 > range.limit.cast_unsigned() {
            // One by one: dropping many keys takes as long as reading them.
            kvs.pop();
            pace.step();
            response.more = true;
        }
        if range.keys_only {
            for kv in &mut kvs {
                kv.value = Bytes::new();
                if target != SortTarget::Value {
                    // etcd 3.7 answers from its index, which contains no leases.
                    kv.lease = 0;
                }
            }
        }
        response.kvs = kvs;
        Ok(response)
    }

    fn fetch(
        &self,
        range: &Range,
        span: Span<'_>,
        revision: Revision,
        (limit, valued): (usize, bool),
        pace: &Pace<'_>,
    ) -> Result<Vec<KeyValue>, DamagedValue> {
        let (mut kvs, mut reads, mut keys) = (Vec::new(), Reads::default(), Keys::default());
        if range.limit > 0 && limit < 1024 {
            kvs.reserve(limit);
        }
        // One key is that of the request.
        let asked = (span.end == End::Single).then_some(&range.key);
        self.visit_paced(span, revision, pace, &mut |record| {
            let key = asked.cloned().unwrap_or_default();
            if asked.is_none() {
                keys.add(record.key());
            }
            let (kv, place) = match valued {
                true => record.to_kv_here(key),
                false => (record.without_value(key), None),
            };
            if let Some(place) = place {
                reads.want(kvs.len(), place);
            }
            kvs.push(kv);
            if kvs.len() >= limit {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        });
        keys.fill(&mut kvs, pace);
        reads.fill(&mut kvs, pace)?;
        Ok(kvs)
    }
}

/// Whether an answer contains the number of keys in the range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counted {
    /// As etcd answers.
    Yes,
    /// It was counted before.
    No,
}

/// How many keys a range is shown at most, before what filters leave of them.
///
/// # Errors
/// [`Error::InvalidSortOption`].
pub(super) fn shown(range: &Range) -> Result<u64, Error> {
    let order = SortOrder::try_from(range.sort_order).map_err(|_| Error::InvalidSortOption)?;
    let target = SortTarget::try_from(range.sort_target).map_err(|_| Error::InvalidSortOption)?;
    Ok(match range.count_only {
        true => 0,
        false => fetch_limit(range, order, target) as u64,
    })
}

/// How many keys, in key order, take part in filtering and sorting. A limit is applied before an implicit ascending
/// sort (as in etcd), but not before any other.
fn fetch_limit(range: &Range, order: SortOrder, target: SortTarget) -> usize {
    let default_order =
        order == SortOrder::None || (target == SortTarget::Key && order == SortOrder::Ascend);
    let filters = range.min_mod_revision != 0
        || range.max_mod_revision != 0
        || range.min_create_revision != 0
        || range.max_create_revision != 0;
    if range.limit <= 0 || !default_order || filters {
        return usize::MAX;
    }
    usize::try_from(range.limit)
        .unwrap_or(usize::MAX)
        .saturating_add(1)
}

fn keeps(range: &Range, kv: &KeyValue) -> bool {
    let above = |bound: Revision, value: Revision| bound == 0 || value >= bound;
    let below = |bound: Revision, value: Revision| bound == 0 || value <= bound;
    above(range.min_mod_revision, kv.mod_revision)
        && below(range.max_mod_revision, kv.mod_revision)
        && above(range.min_create_revision, kv.create_revision)
        && below(range.max_create_revision, kv.create_revision)
}

/// Sorts keys that are in key order. Equal ones stay in key order.
fn sort(kvs: &mut [KeyValue], order: SortOrder, target: SortTarget, pace: &Pace<'_>) {
    let by = |a: &KeyValue, b: &KeyValue| -> Ordering {
        pace.step();
        match target {
            SortTarget::Key => a.key.cmp(&b.key),
            SortTarget::Version => a.version.cmp(&b.version),
            SortTarget::Create => a.create_revision.cmp(&b.create_revision),
            SortTarget::Mod => a.mod_revision.cmp(&b.mod_revision),
            SortTarget::Value => a.value.cmp(&b.value),
        }
    };
    match (order, target) {
        (SortOrder::None | SortOrder::Ascend, SortTarget::Key) => {}
        (SortOrder::None | SortOrder::Ascend, _) => kvs.sort_by(by),
        (SortOrder::Descend, _) => kvs.sort_by(|a, b| by(b, a)),
    }
}
