//! Subcommands of the one binary. Parses arguments and hands over; decides nothing itself.

mod backup;
mod bench;
mod certs;
mod demo;
mod describe;
mod follow;
mod generate;
mod local;
mod logging;
mod operator;
mod recover;
mod restore;
mod server;
mod witness;

#[cfg(feature = "versus")]
pub use bench::versus::run as versus;

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::ExitCode;

use clap::{CommandFactory as _, Parser, Subcommand};

use crate::plugin::{self, chain};

/// Exit code of wrong usage.
const USAGE: u8 = 2;

/// One line per subcommand, shorter than the description of each.
const HELP: &str = "\
Replicated etcd-style clusters: the server, the operator, and the same operator without Kubernetes.

Usage: quorate <subcommand> [arguments]

  server     one member of a cluster, with etcd's API and etcd's flags
  restore    a member's data directory from a snapshot of etcd's or of ours
  recover    what is left of a cluster without a quorum, from the directories of stopped servers
  backup     snapshots in an object store or a directory: save, list, fetch, verify, prune, restore
  follow     the writes of another living cluster, until this one takes its place
  operator   runs EtcdClusters on Kubernetes
  local      a cluster as processes of this machine, by the operator's own plan
  demo       shows the life of a cluster in a minute, on this machine
  certs      certificates for members and clients outside Kubernetes
  describe   a server's description of itself and of its cluster
  kubectl    kubectl's plugin, when called kubectl-quorate: the state of a cluster
  bench      load for any etcd v3 endpoint, and what it measured
  generate   files that are generated from the code: the resource definition, rights, flags
  witness    writes continuously, then verifies that every acknowledged write exists
  help       this text
  version    the version

`quorate <subcommand> --help` describes one of them.
";

#[derive(Debug, Parser)]
#[command(name = "quorate", bin_name = "quorate", version)]
#[command(override_help = HELP)]
struct Quorate {
    #[command(subcommand)]
    command: Command,
}

/// Every subcommand, in the order of the help text.
#[derive(Debug, Subcommand)]
enum Command {
    Server(server::Arguments),
    Restore(restore::Arguments),
    Recover(recover::Arguments),
    Backup(Box<backup::Arguments>),
    Follow(follow::Arguments),
    Operator(operator::Arguments),
    Local(local::Arguments),
    Demo(demo::Arguments),
    Certs(certs::Arguments),
    Describe(describe::Arguments),
    Kubectl(plugin::Arguments),
    Bench(bench::Arguments),
    Generate(generate::Arguments),
    Witness(witness::Arguments),
}

/// Runs the binary with these arguments (the first is the program's name).
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    // Called as kubectl's plugin, all arguments are the plugin's, and it calls itself so.
    let program = arguments.first().map(Path::new).and_then(Path::file_name);
    if program.and_then(OsStr::to_str).is_some_and(plugin::is_name) {
        return plugin::called(arguments);
    }
    let arguments = as_parsed(arguments);
    if let Some(word) = arguments.get(1)
        && !is_known(word)
    {
        backup::not_understood(&arguments, &no_subcommand(word));
        return unknown(word);
    }
    match Quorate::try_parse_from(&arguments) {
        Ok(quorate) => dispatch(quorate.command),
        Err(error) => {
            if error.use_stderr() {
                backup::not_understood(&arguments, &error.to_string());
            }
            refuse(&error)
        }
    }
}

fn is_called(arguments: &[OsString], name: &str) -> bool {
    let program = arguments.first().map(Path::new);
    program.and_then(Path::file_name) == Some(OsStr::new(name))
}

/// Whether a first word is a subcommand, or a flag for all of them.
fn is_known(word: &OsStr) -> bool {
    let is_flag = |word| ["-h", "--help", "-V", "--version"].contains(&word);
    let is_subcommand = |word| Quorate::command().find_subcommand(word).is_some();
    word.to_str()
        .is_some_and(|word| is_flag(word) || is_subcommand(word))
}

/// The arguments as the parser takes them. What follows `server`, or all where it is called as `etcd`,
/// is etcd's and comes behind `--`; what follows `help` and `version` has no meaning.
fn as_parsed(mut arguments: Vec<OsString>) -> Vec<OsString> {
    let server = ["quorate", "server", "--"].map(OsString::from);
    if is_called(&arguments, "etcd") {
        arguments.splice(..1, server);
        return arguments;
    }
    match arguments.get(1).and_then(|word| word.to_str()) {
        Some("server") => drop(arguments.splice(..2, server)),
        Some("help") => drop(arguments.splice(1.., ["--help".into()])),
        Some("version") => drop(arguments.splice(1.., ["--version".into()])),
        _ => {}
    }
    arguments
}

fn dispatch(command: Command) -> ExitCode {
    match command {
        Command::Server(arguments) => server::run(arguments),
        Command::Restore(arguments) => restore::run(&arguments),
        Command::Recover(arguments) => recover::run(&arguments),
        Command::Backup(arguments) => backup::run(*arguments),
        Command::Follow(arguments) => follow::run(arguments),
        Command::Operator(arguments) => operator::run(arguments),
        Command::Local(arguments) => local::run(arguments),
        Command::Demo(arguments) => demo::run(arguments),
        Command::Certs(arguments) => certs::run(&arguments),
        Command::Describe(arguments) => describe::run(&arguments),
        Command::Kubectl(arguments) => plugin::run(&arguments),
        Command::Bench(arguments) => bench::run(arguments),
        Command::Generate(arguments) => generate::run(&arguments),
        Command::Witness(arguments) => witness::run(arguments),
    }
}

fn unknown(name: &OsStr) -> ExitCode {
    eprintln!("quorate: {}\n\n{HELP}", no_subcommand(name));
    ExitCode::from(USAGE)
}

fn no_subcommand(name: &OsStr) -> String {
    let name = name.to_str().unwrap_or("?");
    format!("there is no subcommand {name:?} in this build")
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

#[cfg(test)]
mod tests {
    use clap::error::ErrorKind;

    use super::*;

    #[test]
    fn help_lists_every_subcommand() {
        let quorate = Quorate::command();
        let known = quorate.get_subcommands().map(clap::Command::get_name);
        let known: Vec<&str> = known.chain(["help", "version"]).collect();
        let lines = HELP.lines().filter_map(|line| line.strip_prefix("  "));
        let listed: Vec<&str> = lines.filter_map(|line| line.split(' ').next()).collect();
        assert_eq!(listed, known);
        quorate.debug_assert();
        plugin::Arguments::command().debug_assert();
    }

    /// Found in the help texts: clap's `about` without a text is the package's, and five subcommands called
    /// themselves an operator.
    #[test]
    fn each_subcommand_describes_itself() {
        for command in Quorate::command().get_subcommands() {
            let about = command.get_about().map(ToString::to_string);
            let about = about.unwrap_or_default();
            let name = command.get_name();
            assert_ne!(about, env!("CARGO_PKG_DESCRIPTION"), "{name}");
            assert!(!about.is_empty(), "{name}");
        }
    }

    fn parsed(words: &[&str]) -> Result<Command, ErrorKind> {
        let words = words.iter().map(OsString::from).collect();
        let parsed = Quorate::try_parse_from(as_parsed(words));
        parsed.map(|it| it.command).map_err(|error| error.kind())
    }

    #[test]
    fn etcd_flags_reach_the_server_unchanged() {
        let flags = ["--name", "a", "-h", "--", "--version", "help"];
        for called in [&["/usr/bin/etcd"][..], &["quorate", "server"]] {
            let given = match parsed(&[called, &flags].concat()) {
                Ok(Command::Server(arguments)) => format!("{arguments:?}"),
                other => format!("{other:?}"),
            };
            assert!(given.contains(&format!("{flags:?}")), "{given}");
        }
        let other = parsed(&["quorate", "witness", "--endpoints", "etcd", "--", "server"]);
        assert_eq!(other.err(), Some(ErrorKind::UnknownArgument));
    }

    #[test]
    fn help_and_version_heed_nothing_that_follows() {
        let kind = |words: &[&str]| parsed(words).err();
        for word in ["help", "--help", "-h"] {
            let words = ["quorate", word, "certs", "--nonsense"];
            assert_eq!(kind(&words), Some(ErrorKind::DisplayHelp), "{word}");
        }
        for word in ["version", "--version", "-V"] {
            let words = ["quorate", word, "certs"];
            assert_eq!(kind(&words), Some(ErrorKind::DisplayVersion), "{word}");
        }
        assert_eq!(
            kind(&["quorate"]),
            Some(ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand)
        );
        let unknown = ["", "-", "--", "-x", "--nonsense", "Server", "serv", "etcd"];
        for word in unknown {
            assert!(!is_known(OsStr::new(word)), "{word}");
        }
    }
}
