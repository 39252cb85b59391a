//! Every decoder of untrusted bytes, as a function of bytes: none may panic or use more memory than a multiple of its
//! input, and a decoded value that is encoded again must decode to the same value. `tests/decoders` runs these with
//! the stored inputs.

#![expect(clippy::unwrap_used, reason = "a test")]

mod database;
mod disk;
mod machine;
mod memory;
mod text;
mod wire;

pub(crate) use memory::Counting;

/// A decoder under test.
pub(crate) struct Target {
    /// The name of the folder with its inputs.
    pub(crate) name: &'static str,
    /// The maximum length of an input, in bytes.
    pub(crate) longest: usize,
    /// Bytes of memory that it may hold at once for each byte of its input, in addition to [`ANYWAY`].
    pub(crate) bytes_per_byte: usize,
    run: fn(&[u8]),
}

/// Bytes of memory that any decoder may hold at once: tables made at first use, one read buffer.
const ANYWAY: usize = 24 << 20;

/// All targets.
pub(crate) const TARGETS: &[Target] = &[
    target("log", 16 << 10, 64, disk::log),
    target("checkpoint", 16 << 10, 64, disk::checkpoint),
    target("identity", 4 << 10, 64, disk::identity),
    target("starts", 4 << 10, 64, disk::starts),
    target("database", 64 << 10, 256, database::import),
    target("state", 8 << 10, 2048, machine::state),
    target("entries", 8 << 10, 2048, machine::entries),
    target("frames", 8 << 10, 512, wire::frames),
    target("requests", 8 << 10, 2048, wire::requests),
    target("http2", 8 << 10, 512, wire::http2),
    target("json", 8 << 10, 2048, wire::json),
    target("stream", 8 << 10, 2048, wire::stream),
    target("tokens", 8 << 10, 512, text::tokens),
    target("certificates", 8 << 10, 512, text::certificates),
    target("flags", 4 << 10, 2048, text::flags),
    target("config", 8 << 10, 2048, text::config_file),
    target("cluster", 8 << 10, 2048, text::cluster),
    target("records", 8 << 10, 2048, text::records),
];

const fn target(
    name: &'static str,
    longest: usize,
    bytes_per_byte: usize,
    run: fn(&[u8]),
) -> Target {
    Target {
        name,
        longest,
        bytes_per_byte,
        run,
    }
}

impl Target {
    /// Runs the target, and panics if it used more memory than its bound. Memory is counted only where [`Counting`] is
    /// the global allocator.
    pub(crate) fn run(&self, bytes: &[u8]) {
        let peak = memory::peak_of(|| (self.run)(bytes));
        let allowed = ANYWAY + self.bytes_per_byte * bytes.len();
        assert!(
            peak <= allowed,
            "{}: {peak} bytes of memory for {} of input, {allowed} are allowed",
            self.name,
            bytes.len()
        );
    }
}

/// The first byte, which selects a variant, and the rest.
fn choice(bytes: &[u8]) -> Option<(u8, &[u8])> {
    bytes.split_first().map(|(first, rest)| (*first, rest))
}
