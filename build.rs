//! Compiles the protobuf files of `src/wire/proto` with protox, so that no `protoc` is needed.

use std::error::Error;
use std::path::{Path, PathBuf};

const PROTO: &str = "src/wire/proto";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed={PROTO}");
    let mut files = Vec::new();
    collect(Path::new(PROTO), &mut files)?;
    files.sort();
    let descriptors = protox::compile(files, [PROTO])?;
    // The JSON gateway transcodes by them.
    let folder = std::env::var_os("OUT_DIR").ok_or("no OUT_DIR")?;
    let file = Path::new(&folder).join("descriptors.bin");
    std::fs::write(file, prost::Message::encode_to_vec(&descriptors))?;
    // `.bytes(".")`: keys and values are slices of the received frame, not copies.
    tonic_prost_build::configure()
        .bytes(".")
        .build_client(true)
        .build_server(true)
        .compile_fds(descriptors)?;
    Ok(())
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> Result<(), Box<dyn Error>> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, files)?;
        } else if path
            .extension()
            .is_some_and(|extension| extension == "proto")
        {
            files.push(path);
        }
    }
    Ok(())
}
