//! Tests of the core as a whole. The parts have theirs beside them.

mod harness;
mod paper;
mod random;
mod script;
