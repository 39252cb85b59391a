//! The fuzzer: runs libFuzzer on one target per process, which the variable `TARGET` selects. Run it with `make fuzz`;
//! see `tests/fuzz.sh`.

#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;

mod targets;

use targets::{Counting, TARGETS, Target};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

static CHOSEN: LazyLock<&Target> = LazyLock::new(|| {
    let name = std::env::var("TARGET").unwrap_or_default();
    let names: Vec<_> = TARGETS.iter().map(|target| target.name).collect();
    let found = TARGETS.iter().find(|target| target.name == name);
    found.unwrap_or_else(|| panic!("TARGET is {name:?}, not one of {}", names.join(" ")))
});

fuzz_target!(|bytes: &[u8]| {
    // Inputs beyond the target's length limit are skipped, because the memory bound is a multiple of the input's
    // length.
    if bytes.len() <= CHOSEN.longest {
        CHOSEN.run(bytes);
    }
});
