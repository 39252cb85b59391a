//! The MVCC state machine: deterministic, in memory. Never reads a clock or random numbers.
