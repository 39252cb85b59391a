//! The older revisions of keys, read from the log of revisions for a checkpoint that goes by keys. The log has them by age, so each alone
//! is at another place in memory: many are looked for at a time, in the order of the log. Never decides which ones a
//! checkpoint has, and never reads a file.

use std::collections::VecDeque;
use std::ops::ControlFlow;

use super::Revision;
use super::checkpoint::kept;
use super::history::Found;
use super::span::{End, Span};
use super::state::State;
use super::tree::Item as _;
use super::unkeyed::Unkeyed;

/// So many are read at a time: ten megabytes of memory.
const MANY: usize = if cfg!(test) { 100 } else { 1 << 17 };

/// Revisions that have been read and not been asked for yet, in the order of their keys, and of each key by age.
#[derive(Debug, Default)]
pub(super) struct Marked(VecDeque<Unkeyed>);

impl Marked {
    /// The revision of this key at this place. Asked for one after the other: each that [`kept`] gives and that is a mark.
    pub(super) fn next(&mut self, state: &State, key: &[u8], place: (Revision, u32)) -> Unkeyed {
        if self.0.front().is_none_or(|first| first.place != place) {
            self.read(state, key, place);
        }
        // A mark goes when what it stands for leaves the log, and is made for what is in it (see `KeyEntry`).
        self.0
            .pop_front()
            .expect("the log has what a key has a mark of")
    }

    /// Reads that one and those behind it.
    fn read(&mut self, state: &State, key: &[u8], from: (Revision, u32)) {
        let mut places = Vec::new();
        let span = Span {
            from: key,
            end: End::Open,
        };
        state.keys.visit(span, &mut |entry| {
            for found in kept(entry, state.compacted) {
                let Found::Mark(mark) = found else { continue };
                if entry.key() == key && mark.place < from {
                    continue;
                }
                places.push((mark.place, places.len()));
                if places.len() == MANY {
                    return ControlFlow::Break(());
                }
            }
            ControlFlow::Continue(())
        });
        places.sort_unstable();
        let mut finder = state.log.finder();
        let mut found: Vec<Option<Unkeyed>> = Vec::new();
        found.resize_with(places.len(), || None);
        for (place, number) in places {
            found[number] = finder.find(place);
        }
        self.0 = found.into_iter().flatten().collect();
    }
}
