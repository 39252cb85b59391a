//! Runs every decoder with all stored inputs: seeds written by our own encoders, and inputs that once made a decoder
//! fail. It also truncates the seeds and flips bits in them; a wider search is the fuzzer's task.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test")]

mod seeds;
#[path = "../fuzz/src/targets/mod.rs"]
mod targets;

use std::fs;
use std::path::{Path, PathBuf};

use targets::{Counting, TARGETS};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn kept(target: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fuzz/corpus")
        .join(target);
    let files = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{folder:?}: {error}"));
    let mut files: Vec<_> = files.map(|file| file.unwrap().path()).collect();
    files.sort_unstable();
    files
}

#[test]
fn every_kept_input_is_read_or_refused() {
    for target in TARGETS {
        let files = kept(target.name);
        assert!(!files.is_empty(), "{} has no seed", target.name);
        for file in files {
            let bytes = fs::read(&file).unwrap();
            assert!(bytes.len() <= target.longest, "{file:?} is too long");
            println!("{} {}", target.name, file.display());
            target.run(&bytes);
        }
    }
}

/// Truncates every seed and flips single bits, the damage that a fuzzer tries first.
#[test]
fn every_kept_input_damaged_is_read_or_refused() {
    for target in TARGETS {
        for file in kept(target.name) {
            let bytes = fs::read(&file).unwrap();
            let step = (bytes.len() / 16).max(1);
            for at in (0..bytes.len()).step_by(step) {
                target.run(&bytes[..at]);
                let mut flipped = bytes.clone();
                flipped[at] ^= 1 << (at % 8);
                target.run(&flipped);
            }
        }
    }
}

/// Run with `WRITE_SEEDS=1` to rewrite the seeds; other inputs are left as they are.
#[test]
fn write_seeds() {
    if std::env::var_os("WRITE_SEEDS").is_none() {
        return;
    }
    for (target, name, bytes) in seeds::all() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("tests/fuzz/corpus")
            .join(target);
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join(format!("seed-{name}")), bytes).unwrap();
    }
}
