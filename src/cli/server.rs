//! `quorate server`, also when run as `etcd`: passes arguments and environment to the server.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::process::ExitCode;

use clap::Args;

use super::USAGE;
use crate::server::flags::collector_headers::VARIABLES;

/// Flags of etcd's, which are read as etcd reads them: `server::flags`.
#[derive(Debug, Args)]
pub(super) struct Arguments {
    flags: Vec<OsString>,
}

/// Runs the server until it is stopped.
pub(super) fn run(arguments: Arguments) -> ExitCode {
    let flags = arguments.flags.into_iter();
    let arguments: Result<Vec<String>, OsString> = flags.map(OsString::into_string).collect();
    match arguments {
        Ok(arguments) => crate::server::run(&arguments, &environment()),
        Err(argument) => {
            eprintln!("quorate server: the argument {argument:?} is not valid UTF-8");
            ExitCode::from(USAGE)
        }
    }
}

/// The environment variables that are settings.
fn environment() -> BTreeMap<String, String> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value)))
        .filter(|(name, _)| name.starts_with("ETCD_") || VARIABLES.contains(&name.as_str()))
        .map(|(name, value)| (name, value.to_string_lossy().into_owned()))
        .collect()
}
