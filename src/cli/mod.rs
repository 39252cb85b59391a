//! Subcommands of the one binary. Parses arguments and hands over; decides nothing itself.

use std::ffi::OsString;
use std::process::ExitCode;

/// Runs the binary with these arguments (the first is the program's name).
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let _ = arguments.into_iter().count();
    eprintln!("quorate: no subcommand is built yet");
    ExitCode::from(2)
}
