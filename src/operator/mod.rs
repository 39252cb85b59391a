//! The operator's shell: observe, plan, execute one step, report. It executes the plan and decides nothing beyond it;
//! the Kubernetes and local platforms differ only in how a request is carried out.

pub mod admission;
pub mod clock;
pub(crate) mod console;
pub mod describe;
pub(crate) mod endpoint;
pub mod held;
pub mod kubernetes;
pub mod local;
pub mod members;
pub mod metrics;
pub mod platform;
pub mod queue;
pub mod reconcile;
pub mod report;
mod turns;

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod world;
