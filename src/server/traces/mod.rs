//! What is told of single requests: where their time went, and spans for a collector of OpenTelemetry.
//!
//! | file | what it is for |
//! |---|---|
//! | `marks` | what a call notes of itself while it runs |
//! | `moments` | when the core threads took, logged, committed and applied what |
//! | `stages` | the stages of a call, from both |
//! | `about` | what is told of a message: the beginning of its key, and its size |
//! | `context` | the trace that a request belongs to, and whether it is sampled |
//! | `tracer` | the queue of sampled calls |
//! | `export` | the thread that sends them |
//! | `otlp` | a call as OTLP's messages |
//!
//! Never delays a request: what does not fit into the queue is counted and dropped. Never tells a value, a password, or
//! the size of what may be one.

pub(in crate::server) mod about;
pub(in crate::server) mod context;
mod export;
pub(in crate::server) mod marks;
pub(in crate::server) mod moments;
mod otlp;
pub(in crate::server) mod stages;
pub(in crate::server) mod tracer;

pub(in crate::server) use export::Exporter;
