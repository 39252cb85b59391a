//! The log of revisions of a store that is being rebuilt, before it is in its order.
//!
//! Never knows where the records come from.

use super::block::{Block, is_packable};
use super::log::LogEntry;
use super::pieces::damaged;
use super::record::Record;
use super::state::State;
use super::{Error, Revision};
use crate::mutants::mutant;

/// Records of the log that are not in its order yet. Those of which there is a newer one are packed at once: if each had a record of its
/// own until all are there, the memory of these would stay with the process, since others lie between them.
#[derive(Debug, Default)]
pub(super) struct Recents {
    all: Vec<Recent>,
    /// Full blocks of those that are packed.
    blocks: Vec<Block>,
    /// Those that will be the next block.
    block: Vec<LogEntry>,
}

/// Rows in one of these blocks.
const ROWS: usize = 128;

/// A record of the log, and what compaction past it frees.
#[derive(Debug)]
struct Recent {
    /// Its place is kept beside it: sorting by it does not touch the record.
    main: Revision,
    sub: u32,
    /// Its number among those that are packed, if it is one.
    packed: u32,
    frees: u64,
    record: Option<Record>,
}

impl Recent {
    fn place(&self) -> (Revision, u32) {
        (self.main, self.sub)
    }
}

impl Recents {
    /// `before` is the revision of the key that the record superseded, if there was one.
    pub(super) fn push(&mut self, record: &Record, before: Option<&Record>) {
        let superseded = before.filter(|before| !before.tombstone);
        let own = if record.tombstone { record.size() } else { 0 };
        self.all.push(Recent {
            main: record.main,
            sub: record.sub,
            packed: 0,
            frees: superseded.map_or(0, Record::size) + own,
            record: Some(record.clone()),
        });
    }

    /// The last one is not the newest of its key any more.
    pub(super) fn pack_last(&mut self) {
        let number = self.blocks.len() * ROWS + self.block.len();
        let (Some(last), Ok(number)) = (self.all.last_mut(), u32::try_from(number)) else {
            return;
        };
        let Some(record) = last.record.take_if(|record| is_packable(record)) else {
            return;
        };
        last.packed = number;
        self.block.push(LogEntry { record, frees: 0 });
        if self.block.len() == ROWS {
            self.blocks.push(Block::of(&self.block));
            self.block.clear();
        }
    }

    fn record(&self, recent: Recent) -> Record {
        let at = recent.packed as usize;
        recent
            .record
            .unwrap_or_else(|| match self.blocks.get(at / ROWS) {
                Some(block) => block.entry(at % ROWS).record,
                None => self.block[at % ROWS].record.clone(),
            })
    }

    /// Puts them into their order, as the log. A revision is found in the log by its place alone, so no two may have the same.
    ///
    /// # Errors
    /// [`Error::Checkpoint`] if two have.
    pub(super) fn index(mut self, state: &mut State) -> Result<(), Error> {
        let mut all = std::mem::take(&mut self.all);
        all.sort_unstable_by_key(Recent::place);
        let mut pairs = all.windows(2);
        if pairs.any(|pair| pair[0].place() == pair[1].place()) && !mutant!(TwoAtOnePlace) {
            return Err(damaged("two of its rows are of one place"));
        }
        for recent in all {
            state.frees += recent.frees;
            let record = self.record(recent);
            state.logged += record.size();
            let frees = state.frees;
            state.log.push_packed(LogEntry { record, frees });
        }
        Ok(())
    }
}
