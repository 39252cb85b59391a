//! What Quorate's operator decides: the resource, the plan from what was observed, the model of what an action does,
//! and the objects that are rendered.
//!
//! Pure: no client of Kubernetes, no clock, no socket, no thread. The main package re-exports its rooms, so
//! `crate::plan` there is [`plan`] here.

pub mod access_plan;
pub mod backup_plan;
pub mod build;
pub mod crd;
pub mod model;
pub mod plan;

use quorate_mutants as mutants;
