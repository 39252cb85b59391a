//! Operation under bad clients and much data: memory stays bounded and others are served.
//!
//! Sizes are small enough for every run of the tests; `OPERATION_MIB` and `OPERATION_WATCHERS`
//! make them large. Each test prints its figure.

mod bystander;
mod fixture;
mod readers;
mod restarts;
mod watchers;
