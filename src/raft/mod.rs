//! Consensus as a value: step, tick, ready. Never touches a clock, a socket, a disk or a thread.
