//! The user's `kubectl` as a child process. Knows nothing of what is asked.

use std::ffi::OsStr;
use std::io::Write as _;
use std::process::{Command, Stdio};

use serde::de::DeserializeOwned;
use serde_json::Value;

use super::Which;
use super::error::Error;

/// An object or a list, as the API server has it.
pub(crate) fn get<T: DeserializeOwned>(
    which: &Which,
    request: impl IntoIterator<Item = impl AsRef<OsStr>>,
) -> Result<T, Error> {
    let mut command = kubectl(which, "get");
    command.arg("--output=json").args(request);
    serde_json::from_slice(&run(command, None)?).map_err(Error::Unreadable)
}

/// An object; `None`: there is none of this name.
pub(crate) fn find(
    which: &Which,
    request: impl IntoIterator<Item = impl AsRef<OsStr>>,
) -> Result<Option<Value>, Error> {
    let mut command = kubectl(which, "get");
    command
        .args(["--output=json", "--ignore-not-found"])
        .args(request);
    let printed = run(command, None)?;
    if printed.trim_ascii().is_empty() {
        return Ok(None);
    }
    serde_json::from_slice(&printed).map_err(Error::Unreadable)
}

/// A command of kubectl with the flags that say which API server and namespace.
pub(crate) fn kubectl(which: &Which, verb: &str) -> Command {
    let mut command = limited(which, verb, &which.request_timeout);
    let namespace = which.namespace.as_ref();
    command.args(namespace.map(|name| format!("--namespace={name}")));
    command
}

/// A command whose requests may take so long, such as 10s.
pub(crate) fn limited(which: &Which, verb: &str, timeout: &str) -> Command {
    let mut command = bare(which, verb);
    command.arg(format!("--request-timeout={timeout}"));
    command
}

/// A command that goes on until it is ended, so that no request of it has a time limit.
pub(crate) fn endless(which: &Which, verb: &str, namespace: &str) -> Command {
    let mut command = bare(which, verb);
    command.args([
        "--request-timeout=0".to_owned(),
        format!("--namespace={namespace}"),
    ]);
    command
}

fn bare(which: &Which, verb: &str) -> Command {
    let mut command = Command::new("kubectl");
    command.arg(verb);
    let given = [
        ("context", &which.context),
        ("kubeconfig", &which.kubeconfig),
    ];
    for (flag, value) in given {
        command.args(value.as_ref().map(|value| format!("--{flag}={value}")));
    }
    command
}

/// Runs it with this input, or with that of this process. Returns its output.
pub(crate) fn run(mut command: Command, input: Option<&[u8]>) -> Result<Vec<u8>, Error> {
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    if input.is_some() {
        command.stdin(Stdio::piped());
    }
    let mut child = command.spawn().map_err(Error::NoKubectl)?;
    if let (Some(input), Some(mut stdin)) = (input, child.stdin.take()) {
        // It may exit without reading: then its error states why.
        let _ = stdin.write_all(input);
    }
    let output = child.wait_with_output().map_err(Error::NoKubectl)?;
    if !output.status.success() {
        let words = String::from_utf8_lossy(&output.stderr);
        return Err(Error::Refused(words.trim().to_owned()));
    }
    Ok(output.stdout)
}
