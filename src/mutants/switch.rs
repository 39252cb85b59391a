//! Which faults are planted, in a build with the feature `mutants`. Each thread has its own, so
//! that runs beside each other differ; a thread begins with those that `QUORATE_MUTANT` names,
//! for tests in a process of their own.

use std::cell::Cell;

use super::{ALL, Mutant};

thread_local! {
    static PLANTED: Cell<Set> = Cell::new(named());
}

const _: () = assert!(ALL.len() <= 128 * WORDS);

/// A bit a fault.
type Set = [u128; WORDS];

const WORDS: usize = 4;

const NONE: Set = [0; WORDS];

fn and(set: Set, mutant: Mutant) -> Set {
    let (word, bit) = (mutant as usize / 128, mutant as usize % 128);
    let mut set = set;
    set[word] |= 1 << bit;
    set
}

/// The faults that the environment names.
fn named() -> Set {
    let names = std::env::var("QUORATE_MUTANT").unwrap_or_default();
    let chosen = |name: &str| ALL.iter().find(|fault| fault.name == name);
    let chosen = names.split(',').filter_map(chosen);
    chosen.fold(NONE, |all, fault| and(all, fault.mutant))
}

/// Whether this fault is planted in this thread.
#[must_use]
#[inline]
pub fn planted(mutant: Mutant) -> bool {
    let set = PLANTED.get();
    and(set, mutant) == set
}

/// Acts with faults planted, in this thread; what was planted before is planted afterwards, also
/// if the act panics.
pub fn with<T>(mutants: &[Mutant], act: impl FnOnce() -> T) -> T {
    struct Before(Set);
    impl Drop for Before {
        fn drop(&mut self) {
            PLANTED.set(self.0);
        }
    }
    let chosen = mutants.iter().copied().fold(NONE, and);
    let _before = Before(PLANTED.replace(chosen));
    act()
}
