//! `quorate.v1` between the operator and members: the operator's client, the member's side that
//! accepts only calls with a valid proof, and the proof that both share.
//!
//! Never decides which calls to make, and rejects every answer that is not signed.

pub mod access_client;
pub mod auth;
pub mod backup_client;
pub mod client;
pub mod digest;
pub mod follow_client;
pub mod held_call;
pub(in crate::server) mod proof;
pub mod restore_client;
pub mod secure;
pub(crate) mod signed;
