//! Compiles the messages of `src/wire/proto` as the main package does, without services, and hands the compiler's
//! version and the profile to the program: a count is of both.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::Command;

const PROTO: &str = "../../src/wire/proto";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed={PROTO}");
    let folder = std::env::var_os("OUT_DIR").ok_or("no OUT_DIR")?;
    let folder = Path::new(&folder);
    let mut files = Vec::new();
    collect(Path::new(PROTO), &mut files)?;
    files.sort();
    let descriptors = protox::compile(files, [PROTO])?;
    let encoded = prost::Message::encode_to_vec(&descriptors);
    std::fs::write(folder.join("descriptors.bin"), encoded)?;
    tonic_prost_build::configure()
        .bytes(".")
        .build_client(false)
        .build_server(false)
        .compile_fds(descriptors)?;
    let compiler = std::env::var_os("RUSTC").ok_or("no RUSTC")?;
    let version = Command::new(compiler).arg("--version").output()?.stdout;
    let version = String::from_utf8(version)?;
    println!("cargo::rustc-env=COMPILER={}", version.trim());
    // target/PROFILE/build/PACKAGE/out: Cargo names the profile nowhere else.
    let profile = folder.ancestors().nth(3).and_then(Path::file_name);
    let profile = profile.ok_or("OUT_DIR is not below a profile")?;
    println!("cargo::rustc-env=PROFILE_NAME={}", profile.display());
    Ok(())
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> Result<(), Box<dyn Error>> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, files)?;
        } else if path.extension().is_some_and(|ending| ending == "proto") {
            files.push(path);
        }
    }
    Ok(())
}
