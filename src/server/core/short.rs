//! Which entries are applied at once by the task of consensus, which knows first that they are committed: few, and each a
//! change of single keys that reads no value, as that may be on a disk. To wake the applier for them would cost several times what they do.
//! And which may change the store while readers wait: the same, and some more of them.
//!
//! Pure. Never lets through what may wait for a disk, or grows with what the store holds.

use std::time::{Duration, Instant};

use crate::mutants::mutant;
use crate::node::{LogPayload, PayloadBody, UnknownEntry};
use crate::raft::Entry;
use crate::store::{Op, Operation, ReadAhead, RequestOp, Txn};

/// So many entries are applied in some hundred microseconds, which is short beside a tick.
const MOST: usize = 64;
/// The same of their bytes: they are copied.
const MOST_BYTES: usize = 128 << 10;
/// Compares and operations of a transaction.
const MOST_PARTS: usize = 16;

/// Longer than this is not short, whatever it was: many ranges are watched, for instance.
const LONG: Duration = Duration::from_millis(2);
/// For so long after it the applier's thread applies everything; twice as long each time that it was so again.
const ELSEWHERE: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(64);

/// So many entries may be applied while readers wait, and so many bytes.
pub(super) const MOST_IN_PLACE: usize = 256;
const MOST_BYTES_IN_PLACE: usize = 1 << 20;
/// Longer than this none should have waited: a thread that is not run for a while is less.
pub(super) const LONG_IN_PLACE: Duration = Duration::from_millis(25);

/// The payload of an entry, or why it cannot be applied.
pub(super) type Decoded = Result<Option<LogPayload>, UnknownEntry>;

/// Whether what looks short has been so.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lately {
    /// Longer than this is not.
    limit: Duration,
    /// When it was not, and how long that is remembered.
    long: Option<(Instant, Duration)>,
}

impl Default for Lately {
    fn default() -> Self {
        Lately::with(LONG)
    }
}

impl Lately {
    /// With another limit.
    pub(super) fn with(limit: Duration) -> Self {
        Lately { limit, long: None }
    }

    /// Whether the task of consensus may apply anything, or readers wait for it.
    pub(super) fn was_short(&self, now: Instant) -> bool {
        self.long.is_none_or(|(long, time)| now >= long + time)
    }

    /// What it applied took so long.
    pub(super) fn took(&mut self, now: Instant, duration: Duration) {
        let time = self
            .long
            .map_or(ELSEWHERE, |(_, time)| LONGEST.min(time * 2));
        self.long = (duration > self.limit).then_some((now, time));
    }
}

/// Whether readers may wait for these.
pub(super) fn may_wait_for(entries: &[(Entry, Decoded)]) -> bool {
    let bytes: usize = entries.iter().map(|(entry, _)| entry.data.len()).sum();
    let short = |(_, payload): &(_, Decoded)| matches!(payload, Ok(Some(payload)) if is_short_command(payload));
    entries.len() <= MOST_IN_PLACE && bytes <= MOST_BYTES_IN_PLACE && entries.iter().all(short)
}

/// Whether all of these are.
pub(super) fn are_short(entries: &[Entry]) -> bool {
    let bytes: usize = entries.iter().map(|entry| entry.data.len()).sum();
    let mut all = entries.iter();
    entries.len() <= MOST && bytes <= MOST_BYTES && all.all(is_short)
}

fn is_short(entry: &Entry) -> bool {
    // What cannot be decoded is found when it is applied.
    matches!(LogPayload::of(entry), Ok(Some(payload)) if is_short_command(&payload))
}

/// Whether this is a change of single keys that reads no value.
fn is_short_command(payload: &LogPayload) -> bool {
    let Some(PayloadBody::Command(command)) = &payload.body else {
        return false;
    };
    let operation = command.operation.as_ref();
    operation.is_some_and(|operation| {
        let reads = ReadAhead::is_needed_for(operation) && !mutant!(ShortReadsValues);
        is_of_single_keys(operation) && !reads
    })
}

fn is_of_single_keys(operation: &Operation) -> bool {
    match operation {
        Operation::Put(_) => true,
        Operation::DeleteRange(delete) => delete.range_end.is_empty(),
        Operation::Txn(txn) => is_small(txn),
        _ => false,
    }
}

fn is_small(txn: &Txn) -> bool {
    let (compares, mut all) = (&txn.compare, txn.success.iter().chain(&txn.failure));
    compares.len() + txn.success.len() + txn.failure.len() <= MOST_PARTS
        && compares.iter().all(|compare| compare.range_end.is_empty())
        && all.all(part)
}

fn part(request: &RequestOp) -> bool {
    match &request.op {
        Some(Op::Range(range)) => range.range_end.is_empty(),
        Some(Op::Put(_)) => true,
        Some(Op::DeleteRange(delete)) => delete.range_end.is_empty(),
        Some(Op::Txn(_)) | None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{
        Command, Compact, Compare, CompareTarget, DeleteRange, Put, Range, SortTarget,
    };
    use bytes::Bytes;

    fn entry(operation: Operation) -> Entry {
        let command = Command {
            operation: Some(operation),
            ..Command::default()
        };
        Entry {
            term: 1,
            index: 1,
            kind: 0,
            data: LogPayload::command(None, command),
        }
    }

    fn put(bytes: usize) -> Put {
        Put {
            key: "a".into(),
            value: vec![7; bytes].into(),
            ..Put::default()
        }
    }

    fn is_short(operation: Operation) -> bool {
        are_short(&[entry(operation)])
    }

    fn txn(success: Vec<Op>) -> Operation {
        Operation::Txn(Txn {
            compare: vec![Compare {
                key: "a".into(),
                ..Compare::default()
            }],
            success: success.into_iter().map(RequestOp::from).collect(),
            failure: vec![Op::DeleteRange(delete("")).into()],
        })
    }

    fn range(range_end: &'static str) -> Range {
        Range {
            key: "a".into(),
            range_end: range_end.into(),
            ..Range::default()
        }
    }

    fn delete(range_end: &'static str) -> DeleteRange {
        DeleteRange {
            key: "a".into(),
            range_end: range_end.into(),
            ..DeleteRange::default()
        }
    }

    #[test]
    fn changes_of_single_keys_are() {
        assert!(is_short(Operation::Put(put(256))));
        assert!(is_short(Operation::DeleteRange(delete(""))));
        assert!(is_short(txn(vec![
            Op::Put(put(9)),
            Op::DeleteRange(delete(""))
        ])));
    }

    #[test]
    fn what_grows_with_the_store_is_not() {
        assert!(!is_short(Operation::DeleteRange(delete("b"))));
        assert!(!is_short(txn(vec![Op::DeleteRange(delete("b"))])));
        assert!(!is_short(txn(vec![Op::Range(range("b"))])));
        assert!(!is_short(txn(vec![Op::Txn(Txn::default())])));
        assert!(!is_short(txn(vec![Op::Put(put(9)); MOST_PARTS])));
        assert!(!is_short(Operation::Compact(Compact { revision: 2 })));
        let compares_all = Txn {
            compare: vec![Compare {
                key: "a".into(),
                range_end: "b".into(),
                ..Compare::default()
            }],
            ..Txn::default()
        };
        assert!(!is_short(Operation::Txn(compares_all)));
    }

    #[test]
    fn readers_wait_for_few_changes_of_single_keys() {
        let of = |operation| {
            let entry = entry(operation);
            let payload = LogPayload::of(&entry);
            (entry, payload)
        };
        let all = vec![of(Operation::Put(put(9))); MOST_IN_PLACE + 1];
        assert!(may_wait_for(&all[1..]));
        assert!(!may_wait_for(&all), "too many");
        assert!(!may_wait_for(&[of(Operation::Put(put(
            MOST_BYTES_IN_PLACE
        )))]));
        let mut one_reads = all[2..].to_vec();
        one_reads.push(of(txn(vec![Op::Range(range(""))])));
        assert!(!may_wait_for(&one_reads));
    }

    #[test]
    fn many_are_not() {
        let entries = vec![entry(Operation::Put(put(9))); MOST + 1];
        assert!(are_short(&entries[1..]));
        assert!(!are_short(&entries));
        assert!(!is_short(Operation::Put(put(MOST_BYTES))));
    }

    /// What a value is compared with, or answered with, may have to be read from a disk.
    #[test]
    fn what_reads_a_value_is_not() {
        let previous = Put {
            prev_kv: true,
            ..put(9)
        };
        let compares = Txn {
            compare: vec![Compare {
                key: "a".into(),
                target: CompareTarget::Value as i32,
                ..Compare::default()
            }],
            ..Txn::default()
        };
        let sorted = Range {
            keys_only: true,
            sort_target: SortTarget::Value as i32,
            ..range("")
        };
        for operation in [
            Operation::Put(previous),
            Operation::Txn(compares),
            txn(vec![Op::Range(range(""))]),
            txn(vec![Op::Range(sorted)]),
        ] {
            assert!(!is_short(operation));
        }
    }

    #[test]
    fn what_took_long_is_left_to_the_thread_for_a_while() {
        let (mut lately, begun) = (Lately::default(), Instant::now());
        assert!(lately.was_short(begun));
        lately.took(begun, LONG);
        assert!(lately.was_short(begun));
        lately.took(begun, LONG + Duration::from_millis(1));
        assert!(!lately.was_short(begun));
        let later = begun + ELSEWHERE;
        assert!(!lately.was_short(later - Duration::from_millis(1)));
        assert!(lately.was_short(later));
        lately.took(later, 2 * LONG);
        assert!(!lately.was_short(later + ELSEWHERE), "again");
        assert!(lately.was_short(later + 2 * ELSEWHERE));
        for second in 0..999 {
            lately.took(begun + Duration::from_secs(second), 2 * LONG);
        }
        assert!(lately.was_short(begun + Duration::from_secs(998) + LONGEST));
        lately.took(later, LONG);
        assert!(lately.was_short(later), "it was short");
    }

    #[test]
    fn what_is_no_command_is_not() {
        let empty = Entry {
            data: Bytes::new(),
            ..entry(Operation::Put(put(9)))
        };
        assert!(!are_short(&[empty]), "the first one of a leader");
        let unknown = Entry {
            data: Bytes::from_static(&[0xff; 9]),
            ..entry(Operation::Put(put(9)))
        };
        assert!(!are_short(&[unknown]));
    }
}
