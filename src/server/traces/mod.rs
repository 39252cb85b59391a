//! What is told of single requests: where their time went.
//!
//! | file | what it is for |
//! |---|---|
//! | `marks` | what a call notes of itself while it runs |
//! | `moments` | when the core threads took, logged, committed and applied what |
//! | `stages` | the stages of a call, from both |
//! | `about` | what is told of a message: the beginning of its key, and its size |
//!
//! Never delays a request. Never tells a value, a password, or the size of what may be one.

pub(in crate::server) mod about;
pub(in crate::server) mod marks;
pub(in crate::server) mod moments;
pub(in crate::server) mod stages;
