//! What an archiver has read and not stored yet. Pure: the time is an argument.

use super::segment::{Mark, Segment};
use crate::snapshot::replay::{Entry, Position};
use crate::wire::member::EntriesResponse;

/// Answers in a row that no quorum confirms, after which another member is asked.
const UNCONFIRMED: u32 = 3;
/// Bytes of entries with which an object is full.
const FULL: u64 = 8 << 20;

/// Bytes of an entry beside its data, roughly.
const OVERHEAD: u64 = 32;

/// Entries behind those that are stored.
#[derive(Debug)]
pub(super) struct Collector {
    /// The last entry that is here or stored.
    at: Position,
    /// Term of the entry before the first one that is here.
    term_before: u64,
    entries: Vec<Entry>,
    bytes: u64,
    /// Of the last entry that is stored, and of the last one that is here.
    stored: Option<Mark>,
    mark: Option<Mark>,
    /// When the first entry arrived, in milliseconds of any clock.
    since_ms: Option<u64>,
    /// Everything that was committed then is here or stored.
    caught_up: bool,
    /// Answers that no quorum has confirmed since the last one that was.
    unconfirmed: u32,
}

impl Collector {
    /// Goes on behind an entry, of whose time this is known: what was recorded of it is not forgotten when the next one
    /// comes.
    pub(super) fn new(at: Position, known: Option<Mark>) -> Collector {
        Collector {
            at,
            term_before: at.term,
            entries: Vec::new(),
            bytes: 0,
            stored: known,
            mark: known,
            since_ms: None,
            caught_up: false,
            unconfirmed: 0,
        }
    }

    /// The last entry that is here or stored.
    pub(super) fn at(&self) -> Position {
        self.at
    }

    /// Index of the last entry that is stored.
    pub(super) fn stored_index(&self) -> u64 {
        match self.entries.first() {
            Some(first) => first.index - 1,
            None => self.at.index,
        }
    }

    /// Bytes of the entries that are here.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Takes an answer to a call that was sent and received at these Unix milliseconds; `now_ms` is of any clock.
    ///
    /// # Errors
    /// It is not what was asked for: nothing is taken.
    pub(super) fn take(
        &mut self,
        answer: EntriesResponse,
        (sent, received): (i64, i64),
        now_ms: u64,
    ) -> Result<(), String> {
        let mut at = self.at;
        for entry in &answer.entries {
            if entry.index != at.index + 1 || entry.term < at.term.max(1) {
                return Err(format!(
                    "entry {} of term {} was sent behind entry {} of term {}",
                    entry.index, entry.term, at.index, at.term
                ));
            }
            at = Position {
                index: entry.index,
                term: entry.term,
            };
        }
        if answer.confirmed && answer.committed < self.at.index {
            return Err(format!(
                "the archive holds entry {}, and a quorum confirms that the log ends with entry {}: the cluster has lost entries, or another one has taken its ID",
                self.at.index, answer.committed
            ));
        }
        self.unconfirmed = match answer.confirmed {
            true => 0,
            false => self.unconfirmed + 1,
        };
        self.caught_up = answer.confirmed && answer.committed == at.index;
        let as_of_ms = self.caught_up.then_some(sent);
        match self.mark.as_mut().filter(|mark| mark.index == at.index) {
            Some(mark) => mark.as_of_ms = as_of_ms.or(mark.as_of_ms),
            None => {
                self.mark = Some(Mark {
                    index: at.index,
                    known_ms: received,
                    as_of_ms,
                });
            }
        }
        if self.entries.is_empty() {
            self.since_ms = (!answer.entries.is_empty()).then_some(now_ms);
        }
        for entry in answer.entries {
            self.bytes += entry.payload.len() as u64 + OVERHEAD;
            self.entries.push(Entry {
                term: entry.term,
                index: entry.index,
                kind: entry.kind,
                data: entry.payload,
            });
        }
        self.at = at;
        if self.entries.is_empty() {
            self.stored = self.mark;
        }
        Ok(())
    }

    /// Whether what is here is to be stored now, `delay_ms` after its first entry.
    pub(super) fn is_due(&self, now_ms: u64, delay_ms: u64) -> bool {
        let waited = self.since_ms.map(|since| now_ms.saturating_sub(since));
        waited.is_some_and(|waited| waited >= delay_ms || self.bytes >= FULL)
    }

    /// Whether the last answer held everything.
    pub(super) fn is_caught_up(&self) -> bool {
        self.caught_up
    }

    /// Whether the member that answers may be cut off from the others, which go on; asked once, it begins anew.
    pub(super) fn is_cut_off(&mut self) -> bool {
        let cut_off = self.unconfirmed >= UNCONFIRMED;
        if cut_off {
            self.unconfirmed = 0;
        }
        cut_off
    }

    /// Milliseconds until what is here is to be stored; `None` if nothing is here.
    pub(super) fn due_in(&self, now_ms: u64, delay_ms: u64) -> Option<u64> {
        let since = self.since_ms?;
        Some((since + delay_ms).saturating_sub(now_ms))
    }

    /// What is here, to be stored; `None` if it is nothing.
    pub(super) fn segment(&self) -> Option<Segment> {
        if self.entries.is_empty() {
            return None;
        }
        let marks = self.stored.into_iter().chain(self.mark);
        Some(Segment {
            term_before: self.term_before,
            entries: self.entries.clone(),
            marks: marks.collect(),
        })
    }

    /// What was here is stored.
    pub(super) fn is_stored(&mut self) {
        self.entries.clear();
        self.bytes = 0;
        self.since_ms = None;
        self.term_before = self.at.term;
        self.stored = self.mark;
    }

    /// What is known of the last entry that is stored, if nothing was written behind it and that is known of a later time
    /// than `since_ms` (Unix milliseconds).
    pub(super) fn idle_mark(&self, since_ms: Option<i64>) -> Option<Mark> {
        let mark = self.stored.filter(|_| self.entries.is_empty())?;
        let later = mark.as_of_ms? > since_ms.unwrap_or(i64::MIN);
        later.then_some(mark)
    }

    /// Everything that was committed at this time is stored, in Unix milliseconds.
    pub(super) fn as_of_ms(&self) -> Option<i64> {
        self.stored?.as_of_ms
    }
}
