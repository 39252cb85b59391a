//! The part of protoc that build scripts use: writes the descriptors of some files and of all their imports, so that
//! protoc need not be installed.
//!
//! protoc --include_imports --include_source_info -o OUT -I DIRECTORY... FILE...

use std::path::PathBuf;
use std::{env, fs};

use prost::Message as _;

fn main() {
    let (mut out, mut directories, mut files) = (PathBuf::new(), Vec::new(), Vec::new());
    let mut arguments = env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().expect("a value");
        match argument.as_str() {
            "--include_imports" | "--include_source_info" => {}
            "-o" => out = PathBuf::from(value()),
            "-I" => directories.push(value()),
            other if other.starts_with('-') => panic!("unknown flag {other}"),
            _ => files.push(argument),
        }
    }
    let descriptors = protox::compile(files, directories).expect("files without errors");
    fs::write(out, descriptors.encode_to_vec()).expect("a written file");
}
