//! `quorate server`, also when run as `etcd`: passes arguments and environment to the server.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::process::ExitCode;

use super::USAGE;

/// Runs the server until it is stopped.
pub fn run(arguments: Vec<OsString>) -> ExitCode {
    let arguments: Result<Vec<String>, OsString> = arguments
        .into_iter()
        .skip(1)
        .map(OsString::into_string)
        .collect();
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
        .filter(|(name, _)| name.starts_with("ETCD_"))
        .map(|(name, value)| (name, value.to_string_lossy().into_owned()))
        .collect()
}
