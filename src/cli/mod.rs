//! Subcommands of the one binary. Parses arguments and hands over; decides nothing itself.

mod bench;
mod certs;
mod demo;
pub mod describe;
pub mod generate;
mod kubectl;
mod local;
mod logging;
mod operator;
mod restore;
pub mod server;
pub mod witness;

#[cfg(feature = "versus")]
pub use bench::versus::run as versus;

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::ExitCode;

/// Exit code of wrong usage.
const USAGE: u8 = 2;

/// One line per subcommand: its name, description and function. Hidden ones have no description.
type Subcommand = (&'static str, &'static str, fn(Vec<OsString>) -> ExitCode);

/// Every subcommand, in the order of the help text.
const SUBCOMMANDS: &[Subcommand] = &[
    (
        "server",
        "one member of a cluster, with etcd's API and etcd's flags",
        server::run,
    ),
    (
        "restore",
        "a member's data directory from a snapshot of etcd's or of ours",
        restore::run,
    ),
    ("operator", "runs EtcdClusters on Kubernetes", operator::run),
    (
        "local",
        "a cluster as processes of this machine, by the operator's own plan",
        local::run,
    ),
    (
        "demo",
        "the life of a cluster in a minute, on this machine",
        demo::run,
    ),
    (
        "certs",
        "certificates for members and clients outside Kubernetes",
        certs::run,
    ),
    (
        "describe",
        "what a server says of itself and of its cluster",
        describe::run,
    ),
    (
        "kubectl",
        "kubectl's plugin, when called kubectl-quorate: the state of a cluster",
        kubectl::run,
    ),
    (
        "bench",
        "load for any etcd v3 endpoint, and what it measured",
        bench::run,
    ),
    (
        "generate",
        "files that are made from the code: the resource definition, rights, flags",
        generate::run,
    ),
    (
        "witness",
        "writes without pause, then proves that every acknowledged write is there",
        witness::run,
    ),
];

/// Runs the binary with these arguments (the first is the program's name).
///
/// Each subcommand gets its own arguments, preceded by a name for its messages.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let mut arguments = arguments.into_iter();
    let program = arguments.next().unwrap_or_default();
    // Run as `etcd` it is a drop-in server, and as `kubectl-quorate` kubectl's plugin: all arguments are passed to
    // them.
    for (called, name) in [("etcd", "server"), ("kubectl-quorate", "kubectl")] {
        if Path::new(&program).file_name() == Some(OsStr::new(called)) {
            return dispatch(name, std::iter::once(program).chain(arguments).collect());
        }
    }
    let Some(name) = arguments.next() else {
        eprint!("{}", help());
        return ExitCode::from(USAGE);
    };
    match name.to_str() {
        Some("help" | "--help" | "-h") => {
            print!("{}", help());
            ExitCode::SUCCESS
        }
        Some("version" | "--version" | "-V") => {
            println!("quorate {}", env!("CARGO_PKG_VERSION"));
            ExitCode::SUCCESS
        }
        name => {
            let name = name.unwrap_or("?").to_owned();
            let own = OsString::from(format!("quorate {name}"));
            dispatch(&name, std::iter::once(own).chain(arguments).collect())
        }
    }
}

fn dispatch(name: &str, arguments: Vec<OsString>) -> ExitCode {
    match SUBCOMMANDS.iter().find(|(known, _, _)| *known == name) {
        Some((_, _, run)) => run(arguments),
        None => {
            eprintln!(
                "quorate: there is no subcommand {name:?} in this build\n\n{}",
                help()
            );
            ExitCode::from(USAGE)
        }
    }
}

fn help() -> String {
    let mut text = String::from(
        "Replicated etcd-style clusters: the server, the operator, and the same operator without Kubernetes.\n\nUsage: quorate <subcommand> [arguments]\n\n",
    );
    for (name, what, _) in SUBCOMMANDS.iter().filter(|(_, what, _)| !what.is_empty()) {
        text += &format!("  {name:<10} {what}\n");
    }
    text += "  help       this text\n  version    the version\n\n`quorate <subcommand> --help` tells more.\n";
    text
}

/// Prints clap's output: help on standard output, an error on standard error.
fn refuse(error: &clap::Error) -> ExitCode {
    // The reader may have closed the pipe.
    let _ = error.print();
    if error.use_stderr() {
        ExitCode::from(USAGE)
    } else {
        ExitCode::SUCCESS
    }
}

/// Runs a future on the main thread alone: children that are to die with this process are started
/// from here.
fn block_on_main<E: std::error::Error>(
    program: &str,
    future: impl Future<Output = Result<(), E>>,
) -> ExitCode {
    let runtime = match tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("{program}: cannot start: {error}");
            return ExitCode::FAILURE;
        }
    };
    match runtime.block_on(future) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{program}: {}", chain(&error));
            ExitCode::FAILURE
        }
    }
}

/// An error with its causes, on one line.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text += &format!(": {cause}");
        source = cause.source();
    }
    text
}
