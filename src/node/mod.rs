//! One member as a value: raft, store, leases and the order between them. Inputs in, effects out.
