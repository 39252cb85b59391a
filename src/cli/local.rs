//! `quorate local`: flags of the operator for child processes on this machine.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use crate::operator::local::home::any_port;
use crate::operator::local::run::{self, Options};

/// Runs a cluster as processes on this machine, from the same resource and with the same planner as on Kubernetes.
/// Edits of the file take effect while it runs. To see it heal, kill a member's process, or remove its directory below
/// DIR/claims as well.
#[derive(Debug, Args)]
#[command(version, display_name = "quorate", verbatim_doc_comment)]
pub(super) struct Arguments {
    /// YAML file with one EtcdCluster.
    file: PathBuf,

    /// Where data, records and logs are kept; by default ./NAME-OF-THE-FILE.quorate.
    #[arg(long)]
    dir: Option<PathBuf>,

    /// Where the search for free ports on 127.0.0.1 begins; by default each process begins
    /// elsewhere. A member keeps its ports.
    #[arg(long, value_parser = clap::value_parser!(u16).range(1024..=60000))]
    base_port: Option<u16>,

    /// The port of the first member's clients on 127.0.0.1: those of member NAME-2 use the next one, and so on. A port that
    /// is taken is an error. By default free ports are found for clients too.
    #[arg(long, value_parser = clap::value_parser!(u16).range(1024..=65000))]
    client_port: Option<u16>,

    /// Serves a page that shows the cluster as it changes, and prints where it is: at this loopback address, or by
    /// default at a free port of 127.0.0.1. It asks for no token, so no other address is taken.
    #[arg(long, value_name = "ADDRESS", num_args = 0..=1, require_equals = true, default_missing_value = "127.0.0.1:0")]
    console: Option<SocketAddr>,
}

/// Runs the subcommand.
pub(super) fn run(arguments: Arguments) -> ExitCode {
    let by_file = || {
        let name = arguments
            .file
            .file_stem()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        PathBuf::from(format!("{name}.quorate"))
    };
    let directory = arguments.dir.clone().unwrap_or_else(by_file);
    let options = Options {
        file: arguments.file,
        directory,
        base_port: arguments.base_port.unwrap_or_else(any_port),
        client_port: arguments.client_port,
        console: arguments.console,
    };
    super::block_on_main("quorate local", run::run(&options))
}
