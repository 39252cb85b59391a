//! Tests of the planner: goldens of whole situations, and a closed loop over a toy world.

#![allow(clippy::panic)]

mod advice;
mod alarms;
mod calm;
mod golden;
mod lints;
mod random;
mod recall;
mod recoveries;
mod script;
mod world;
