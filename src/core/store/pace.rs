//! Long reads yield. A scan of all keys uses a core for tens of milliseconds, and with lazy preemption in the kernel a
//! thread that serves clients waits for it until the next tick, for 4 ms. So a long read calls a callback every few
//! keys. Does not know what the callback does.

use std::cell::Cell;

/// Keys, or comparisons of two, between two calls: some tens of microseconds.
const STEPS: u32 = 256;

/// What a read does now and then while it goes on.
#[derive(Default)]
pub struct Pace<'a> {
    pause: Option<&'a dyn Fn()>,
    steps: Cell<u32>,
}

impl<'a> Pace<'a> {
    /// Calls `pause` every few keys: giving up the thread's core, where it is a thread of low priority.
    #[must_use]
    pub fn new(pause: &'a dyn Fn()) -> Pace<'a> {
        Pace {
            pause: Some(pause),
            steps: Cell::new(0),
        }
    }

    /// Another key was examined.
    pub(super) fn step(&self) {
        let Some(pause) = self.pause else { return };
        let steps = self.steps.get() + 1;
        self.steps.set(steps % STEPS);
        if steps == STEPS {
            pause();
        }
    }
}

impl std::fmt::Debug for Pace<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pace").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::tests::helpers;
    use crate::store::{Counted, Range, SortOrder, SortTarget};

    /// A sorted range, dropping the end of its answer, a transaction and a hash ran for tens of milliseconds without a
    /// pause, and a put waited for the kernel's next tick.
    #[test]
    fn long_reads_pause_regularly() {
        let names: Vec<String> = (0..20_000).map(|number| format!("k{number}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let view = helpers::filled(&names).publish();
        let pauses = Cell::new(0);
        let count = || pauses.set(pauses.get() + 1);
        let pace = Pace::new(&count);
        let since = |read: &dyn Fn()| {
            pauses.set(0);
            read();
            pauses.get()
        };
        let sorted = Range {
            key: vec![0].into(),
            range_end: vec![0].into(),
            sort_order: SortOrder::Descend.into(),
            sort_target: SortTarget::Value.into(),
            limit: 1,
            ..Range::default()
        };
        let plain = Range {
            sort_order: 0,
            sort_target: 0,
            limit: 0,
            ..sorted.clone()
        };
        let plain = since(&|| drop(view.range_paced(&plain, Counted::Yes, &pace)));
        assert!(plain >= 20_000 / STEPS, "{plain}");
        let sorted = since(&|| drop(view.range_paced(&sorted, Counted::Yes, &pace)));
        // Read, compared, and thrown away.
        assert!(sorted >= plain + 2 * (20_000 / STEPS), "{sorted}");
        let hashed = since(&|| drop(view.hash_kv_paced(0, &pace)));
        assert!(hashed >= 20_000 / STEPS, "{hashed}");
    }
}
