//! Tests of the store: a naive model that it is compared with, and one test for each rule that
//! a random test would not name.

mod alarms;
mod auth;
mod follow;
mod forms;
mod generator;
pub(super) mod helpers;
mod load_cost;
mod maintenance;
mod memory_cost;
mod merged;
mod model;
mod packed;
mod random;
mod rows;
mod rules;
mod tree;
mod tree_cost;
mod values;
mod watch_model;
mod watched;
mod watching;
