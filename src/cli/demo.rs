//! `quorate demo`: the life of a cluster in a minute.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use crate::operator::local::demo::{self, Ending, Story};
use crate::operator::local::home::any_port;

/// Shows the life of a cluster on this machine, in less than a minute: it grows by learners under continuous writes,
/// loses a member with its disk and heals, and has every member replaced one at a time. The exit code is 0 only if
/// everything succeeded.
#[derive(Debug, Args)]
#[command(version, display_name = "quorate")]
pub(super) struct Arguments {
    /// Leave the cluster running at the end, until Ctrl-C.
    #[arg(long)]
    keep: bool,

    /// Where data and logs are kept; by default a new directory that is removed at the end.
    #[arg(long)]
    dir: Option<PathBuf>,

    /// Where the search for free ports on 127.0.0.1 begins; by default each process begins
    /// elsewhere.
    #[arg(long, value_parser = clap::value_parser!(u16).range(1024..=60000))]
    base_port: Option<u16>,

    /// Serves the console of `quorate local` meanwhile, and prints where it is.
    #[arg(long, value_name = "ADDRESS", num_args = 0..=1, require_equals = true, default_missing_value = "127.0.0.1:0")]
    console: Option<SocketAddr>,
}

/// Runs the subcommand.
pub(super) fn run(arguments: Arguments) -> ExitCode {
    let keep = arguments.keep || std::env::var_os("KEEP").is_some_and(|keep| keep == "1");
    let temporary = std::env::temp_dir().join(format!("quorate-demo-{}", std::process::id()));
    let given = arguments.dir.is_some();
    let directory = arguments.dir.unwrap_or(temporary);
    let story = Story {
        directory: directory.clone(),
        base_port: arguments.base_port.unwrap_or_else(any_port),
        keep,
        console: arguments.console,
    };
    let mut ending = Ending::Bad;
    let code = super::block_on_main("quorate demo", async {
        ending = demo::run(&story).await?;
        Ok::<(), crate::operator::local::run::Error>(())
    });
    if ending == Ending::Good && !given {
        // After success the files are not needed.
        let _ = std::fs::remove_dir_all(&directory);
    } else {
        println!("data and logs are in {}", directory.display());
    }
    match ending {
        Ending::Good => code,
        Ending::Bad => ExitCode::FAILURE,
        Ending::Interrupted => ExitCode::from(130),
    }
}
