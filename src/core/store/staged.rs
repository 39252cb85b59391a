//! A revision of the followed cluster that is larger than an entry of the log: its parts, until the last one is there. Part
//! of the replicated state; nobody reads them before they are whole.

use std::sync::Arc;

use super::follow::{FollowedEvent, FollowedRevision};

/// The parts, in order and without a hole.
#[derive(Clone, Debug, Default)]
pub(super) struct Staged(Arc<Vec<Arc<FollowedRevision>>>);

impl Staged {
    /// Takes a part that does not end its revision. False if it does not follow those that are here: they are to be sent
    /// again from the first one on.
    pub(super) fn push(&mut self, part: FollowedRevision) -> bool {
        let fits = self.continues(&part);
        if fits {
            Arc::make_mut(&mut self.0).push(Arc::new(part));
        }
        fits
    }

    /// The whole revision, with its last part. `None` if that does not follow those that are here.
    pub(super) fn end(&mut self, last: &FollowedRevision) -> Option<Vec<FollowedEvent>> {
        if !self.continues(last) {
            return None;
        }
        let parts = std::mem::take(self);
        let before = parts.0.iter().flat_map(|part| &part.events);
        Some(before.chain(&last.events).cloned().collect())
    }

    /// Those that are here.
    pub(super) fn parts(&self) -> impl Iterator<Item = &FollowedRevision> {
        self.0.iter().map(|part| &**part)
    }

    /// A first part replaces whatever another sender has left.
    fn continues(&mut self, part: &FollowedRevision) -> bool {
        if part.before == 0 {
            *self = Staged::default();
        }
        let events: usize = self.parts().map(|it| it.events.len()).sum();
        let same = self.parts().all(|it| it.revision == part.revision);
        same && u64::try_from(events) == Ok(part.before)
    }
}
