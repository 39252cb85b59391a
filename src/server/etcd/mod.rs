//! etcd's client API over a `MemberHandle`: one file a service.
//!
//! Translates, waits and answers. Never decides what is stored and never touches a disk or a
//! peer.

mod convert;
