//! Planted faults, to prove that the tests can fail: each is a small wrong turn somewhere in the
//! server or in an oracle, and names what must notice it. `make mutants` plants one after the
//! other and prints which test noticed which.
//!
//! Never part of a shipped binary: without the feature `mutants` the question [`planted`] is a
//! constant `false`, and no name or text of a fault is compiled. With it one build holds them
//! all, and a run chooses by `switch::with`, for its own thread alone.

mod faults;
#[cfg(feature = "mutants")]
mod switch;

pub use faults::Mutant;
#[cfg(feature = "mutants")]
pub use faults::{ALL, Fault, Killer, STORY};
#[cfg(feature = "mutants")]
pub use switch::{planted, with};

/// The place of a fault, in one line: `mutant!(Name)` asks whether it is planted,
/// `mutant!(Name => wrong)` takes the wrong turn if it is, and
/// `mutant!(Name => wrong, else right)` is the wrong value or the right one.
#[macro_export]
macro_rules! mutant {
    ($fault:ident) => {
        $crate::planted($crate::Mutant::$fault)
    };
    ($fault:ident => $wrong:expr, else $right:expr) => {
        if $crate::mutant!($fault) {
            $wrong
        } else {
            $right
        }
    };
    ($fault:ident => $wrong:expr) => {
        if $crate::mutant!($fault) {
            $wrong;
        }
    };
}
/// Whether this fault is planted: never, in a build without the feature `mutants`.
#[cfg(not(feature = "mutants"))]
#[must_use]
#[inline(always)]
pub const fn planted(_: Mutant) -> bool {
    false
}

/// What the compiler knows it can leave out.
#[cfg(not(feature = "mutants"))]
const _: () = assert!(!planted(Mutant::AckBeforeFsync));
