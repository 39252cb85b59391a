//! Seeded simulation of the pure rooms: clock, network, disk, faults and oracles.
