//! The world around the operator: who asks whom, who dies when, what time it is, what is really so.

mod budgets;
mod end;
mod eyes;
mod feed;
pub(crate) mod gate;
pub(crate) mod ground;
mod insist;
pub(crate) mod intruder;
pub(crate) mod operator;
mod rights;
mod rival;
pub(crate) mod truth;
pub(crate) mod world;

pub use gate::Crash;
pub use operator::CACHED;
pub use world::{Failure, Options};
