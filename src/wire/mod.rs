//! The wire: generated etcd v3 protobufs, our member service, error texts and codes.
//!
//! Never decides anything: no state, no socket, no clock. The `.proto` files are our own text;
//! names and field numbers are etcd's.

pub mod error;

/// `etcdserverpb`: requests, responses and services of the client API.
pub mod etcd {
    #![allow(
        missing_docs,
        unreachable_pub,
        clippy::all,
        clippy::pedantic,
        clippy::large_futures
    )]
    tonic::include_proto!("etcdserverpb");
}

/// `authpb`: users, roles and permissions.
pub mod authpb {
    #![allow(missing_docs, unreachable_pub, clippy::all, clippy::pedantic)]
    tonic::include_proto!("authpb");
}

// The name by which generated code knows it.
use etcd as etcdserverpb;

/// `v3electionpb`: elections that the server carries out.
pub mod election {
    #![allow(
        missing_docs,
        unreachable_pub,
        clippy::all,
        clippy::pedantic,
        clippy::large_futures
    )]
    tonic::include_proto!("v3electionpb");
}

/// `v3lockpb`: locks that the server carries out.
pub mod lock {
    #![allow(
        missing_docs,
        unreachable_pub,
        clippy::all,
        clippy::pedantic,
        clippy::large_futures
    )]
    tonic::include_proto!("v3lockpb");
}

/// Descriptors of everything here, as an encoded `FileDescriptorSet`.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));

/// `mvccpb`: keys, values and events.
pub mod mvccpb {
    #![allow(missing_docs, unreachable_pub, clippy::all, clippy::pedantic)]
    tonic::include_proto!("mvccpb");
}

/// `grpc.health.v1`: the gRPC health protocol.
pub mod health {
    #![allow(missing_docs, unreachable_pub, clippy::all, clippy::pedantic)]
    tonic::include_proto!("grpc.health.v1");
}

/// `quorate.v1`: what an operator may ask of one member, on the peer port.
pub mod member {
    #![allow(
        missing_docs,
        unreachable_pub,
        clippy::all,
        clippy::pedantic,
        clippy::large_futures
    )]
    tonic::include_proto!("quorate.v1");
}
