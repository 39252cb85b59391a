//! Generated etcd v3 protobufs, our peer and member messages, error texts and codes.
