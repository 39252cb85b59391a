//! `kubectl quorate`: what a person asks of clusters on Kubernetes. Asks by the `kubectl` that is
//! there, so contexts, logins and rights are those of every other command. Reads only.

mod ask;
mod screen;
#[cfg(test)]
mod screen_test;
mod table;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use k8s_openapi::jiff::Timestamp;

/// What a person asks of clusters on Kubernetes.
#[derive(Debug, Parser)]
#[command(name = "kubectl quorate", disable_help_subcommand = true)]
struct Arguments {
    #[command(subcommand)]
    question: Question,
}

#[derive(Debug, Subcommand)]
enum Question {
    /// A cluster's members, what the operator did last, does and waits for, and what comes next.
    Status(Status),
}

#[derive(Debug, Args)]
struct Status {
    /// Name of the EtcdCluster; may be left out where there is only one.
    name: Option<String>,
    #[command(flatten)]
    which: Which,
}

/// The flags of kubectl that say which API server and namespace is meant; handed on as they are.
#[derive(Debug, Default, Args)]
pub(super) struct Which {
    /// Namespace of the cluster; by default that of the context.
    #[arg(long, short)]
    namespace: Option<String>,
    /// Context of the kubeconfig.
    #[arg(long)]
    context: Option<String>,
    /// The kubeconfig file.
    #[arg(long)]
    kubeconfig: Option<String>,
    /// The API server's request timeout, such as 10s.
    #[arg(long, default_value = "10s")]
    request_timeout: String,
}

/// Runs the subcommand.
pub(super) fn run(arguments: Vec<OsString>) -> ExitCode {
    let arguments = match Arguments::try_parse_from(arguments) {
        Ok(arguments) => arguments,
        Err(error) => return super::refuse(&error),
    };
    let Question::Status(status) = arguments.question;
    match answer(&status) {
        Ok(text) => {
            print!("{text}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("kubectl quorate: {}", super::chain(&error));
            ExitCode::FAILURE
        }
    }
}

fn answer(status: &Status) -> Result<String, ask::Error> {
    let cluster = ask::cluster(&status.which, status.name.as_deref())?;
    let seen = screen::Seen {
        events: ask::events(&status.which, &cluster)?,
        operator: ask::operator(&status.which),
        cluster,
    };
    Ok(screen::status(&seen, Timestamp::now()))
}
