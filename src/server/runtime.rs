//! Where start-up finds the member: [`start`] gives its handle and the guard of its threads.

pub use super::site::Guard;
pub(crate) use super::site::start;
