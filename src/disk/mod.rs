//! Bytes on disk: log segments, checkpoints and the identity file, behind the `Disk` trait.
