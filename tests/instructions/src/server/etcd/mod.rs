//! The way of KV's calls, of the server's own files as shipped, at the paths by which they name each other. Never what
//! needs a connection.

#[path = "../../../../../src/server/etcd/convert.rs"]
#[allow(dead_code, reason = "the server uses the rest of it")]
mod convert;
#[path = "../../../../../src/server/etcd/framing.rs"]
#[allow(dead_code, reason = "the server uses the rest of it")]
mod framing;
pub(crate) mod kv;
