//! Pure: `Observed` to `Plan`; a file per situation.
//!
//! The shell observes, calls [`plan`], executes the first step of the answer and nothing else,
//! reports from the same view, and observes again. One mutating step a pass makes every half-done
//! state an ordinary input, so nothing here remembers anything: what a pass needs is in
//! [`Observed`]. No clock, no network, no randomness: all three are arguments.

mod observed;
mod step;

pub use observed::*;
pub use step::*;
