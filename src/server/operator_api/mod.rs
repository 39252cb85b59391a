//! `quorate.v1` between the operator and members: the client that the operator calls members with,
//! the member's side that lets only proven calls through, and the proof that both share.
//!
//! Never decides what is asked, and believes no answer that is not signed.

pub mod auth;
pub mod client;
pub(in crate::server) mod proof;
pub mod secure;
pub(crate) mod signed;
