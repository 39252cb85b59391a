//! The log of revisions of a store that is being rebuilt, before it is in its order.
//!
//! Never knows where the revisions come from.

use std::hint::black_box;

use super::block::{LONGEST_KEY, Line};
use super::chunk::{CHUNK, Loaded, Sealed};
use super::log::LogEntry;
use super::pieces::damaged;
use super::placed;
use super::record::Record;
use super::replaced::Replaced;
use super::state::State;
use super::unkeyed::Unkeyed;
use super::{Error, Revision};
use crate::mutants::mutant;

/// Revisions of the log that are not in its order yet. Those that can be packed have no record of their own: the memory of these would stay
/// with the process, since others lie between them.
#[derive(Debug, Default)]
pub(super) struct Recents {
    all: Vec<Recent>,
    replaced: Replaced,
}

/// A revision of the log, and what compaction past it frees.
#[derive(Debug)]
struct Recent {
    /// Its place is kept beside it: sorting by it does not touch the record.
    main: Revision,
    sub: u32,
    frees: u64,
    held: Held,
}

#[derive(Debug)]
enum Held {
    Record(Record),
    /// Its position among those that were replaced.
    Replaced(u64),
}

impl Recent {
    fn place(&self) -> (Revision, u32) {
        (self.main, self.sub)
    }
}

/// One of these, which is not looked at again.
fn taken(all: &mut [Recent], at: usize) -> Recent {
    let left = Recent {
        held: Held::Replaced(0),
        ..all[at]
    };
    std::mem::replace(&mut all[at], left)
}

impl Recents {
    /// `before` is the size of the revision of the key that the record replaced, if there was one that was no tombstone.
    pub(super) fn push(&mut self, record: &Record, before: u64) {
        let own = if record.tombstone { record.size() } else { 0 };
        self.all.push(Recent {
            main: record.main,
            sub: record.sub,
            frees: before + own,
            held: Held::Record(record.clone()),
        });
    }

    /// The same of a revision that is not the newest of its key. The newest is named by `end_key`, before the next key.
    pub(super) fn push_replaced(&mut self, key: &[u8], revision: Unkeyed, before: u64) {
        if !revision.is_packable() || key.len() > LONGEST_KEY {
            return self.push(&revision.into_replaced(key), before);
        }
        let own = match revision.tombstone {
            true => revision.size(key.len()),
            false => 0,
        };
        let (main, sub) = revision.place;
        self.all.push(Recent {
            main,
            sub,
            frees: before + own,
            held: Held::Replaced(self.replaced.push(&revision)),
        });
    }

    /// All revisions of a key have been pushed, and this is the newest.
    pub(super) fn end_key(&mut self, newest: &Record) {
        self.replaced.end_key(newest);
    }

    /// Puts them into their order, as the log. A revision is found in the log by its place alone, so no two may have the same.
    ///
    /// # Errors
    /// [`Error::Checkpoint`] if two have.
    pub(super) fn index(mut self, state: &mut State) -> Result<(), Error> {
        let mut all = std::mem::take(&mut self.all);
        let order = placed::order(&all, Recent::place);
        let place = |at: &usize| all[*at].place();
        let mut pairs = order.windows(2);
        if pairs.any(|pair| place(&pair[0]) == place(&pair[1])) && !mutant!(TwoAtOnePlace) {
            return Err(damaged("two of its rows are of one place"));
        }
        let (chunks, rest) = order.as_chunks::<CHUNK>();
        for chunk in chunks {
            let next: Vec<Recent> = chunk.iter().map(|at| taken(&mut all, *at)).collect();
            self.load(&next);
            let first = next[0].place();
            let chunk = next.into_iter();
            let chunk = chunk.map(|recent| self.loaded(recent, state)).collect();
            let sealed = Sealed::loaded(chunk);
            // What came as a record, since it was not known to be replaced.
            sealed.pack(1);
            state.log.push_chunk(first, sealed);
        }
        for at in rest {
            let entry = match self.loaded(taken(&mut all, *at), state) {
                Loaded::Entry(entry) => entry,
                Loaded::Line(line) => line.into_entry(),
            };
            state.log.push(entry);
        }
        Ok(())
    }

    /// They are read next, each at another place in memory.
    fn load(&self, next: &[Recent]) {
        let replaced = next.iter().filter_map(|recent| match recent.held {
            Held::Replaced(at) => Some(at),
            Held::Record(_) => None,
        });
        self.replaced.load(replaced);
        for recent in next {
            if let Held::Record(record) = &recent.held {
                black_box(record.is_superseded());
            }
        }
    }

    /// The next entry of the log.
    fn loaded(&self, recent: Recent, state: &mut State) -> Loaded<'_> {
        state.frees += recent.frees;
        let frees = state.frees;
        let place = recent.place();
        match recent.held {
            Held::Record(record) => {
                state.logged += record.size();
                Loaded::Entry(LogEntry { record, frees })
            }
            Held::Replaced(at) => {
                let (key, revision) = self.replaced.get(at, place);
                state.logged += revision.size(key.len());
                Loaded::Line(Line {
                    key,
                    revision,
                    frees,
                })
            }
        }
    }
}
