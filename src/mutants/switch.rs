//! Which faults are planted, in a build with the feature `mutants`. Each thread has its own, so
//! that runs beside each other differ; a thread begins with those that `QUORATE_MUTANT` names,
//! for tests in a process of their own.

use std::cell::Cell;

use super::{ALL, Mutant};

thread_local! {
    static PLANTED: Cell<u128> = Cell::new(named());
}

const _: () = assert!(ALL.len() <= 128);

fn bit(mutant: Mutant) -> u128 {
    1 << mutant as u32
}

/// The faults that the environment names.
fn named() -> u128 {
    let names = std::env::var("QUORATE_MUTANT").unwrap_or_default();
    let chosen = |name: &str| {
        let fault = ALL.iter().find(|fault| fault.name == name);
        fault.map_or(0, |fault| bit(fault.mutant))
    };
    names.split(',').map(chosen).fold(0, |all, one| all | one)
}

/// Whether this fault is planted in this thread.
#[must_use]
pub fn planted(mutant: Mutant) -> bool {
    PLANTED.get() & bit(mutant) != 0
}

/// Acts with faults planted, in this thread; what was planted before is planted afterwards, also
/// if the act panics.
pub fn with<T>(mutants: &[Mutant], act: impl FnOnce() -> T) -> T {
    struct Before(u128);
    impl Drop for Before {
        fn drop(&mut self) {
            PLANTED.set(self.0);
        }
    }
    let chosen = mutants.iter().map(|mutant| bit(*mutant));
    let _before = Before(PLANTED.replace(chosen.fold(0, |all, one| all | one)));
    act()
}
