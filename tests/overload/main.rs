//! Runs the server with misbehaving clients and large data: its memory stays bounded, and other clients are served.
//!
//! The default sizes are small enough for every run of the tests; `OPERATION_MIB` and `OPERATION_WATCHERS` set larger
//! ones. Each test prints its figure.

mod bystander;
mod fixture;
mod readers;
mod restarts;
mod watchers;
