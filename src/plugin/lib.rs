//! `kubectl quorate`: status, forecasts and logs of clusters on Kubernetes, etcdctl against them, and recoveries for
//! review. Runs the installed `kubectl`, so contexts, credentials and permissions are those of every other command.
//! Reads only, apart from what etcdctl is told, the EtcdBackups that it is asked to create and the members that it is asked to
//! have stopped.
//!
//! A package of its own, without a client of Kubernetes, a runtime or TLS: the binary `kubectl-quorate` is for machines
//! that run no server, also of other systems than Linux. `quorate kubectl` is the same.

mod ask;
mod backup;
mod child;
mod complete;
mod document;
#[cfg(test)]
mod document_test;
mod dry_run;
mod error;
mod etcdctl;
mod fence;
mod logs;
mod members;
mod recover;
#[cfg(test)]
mod recover_test;
mod remains;
mod report;
mod restore;
mod screen;
#[cfg(test)]
mod screen_test;
mod system;
mod table;
mod top;

use std::ffi::OsString;
use std::io::{ErrorKind, Write as _};
use std::process::ExitCode;
use std::sync::mpsc;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use k8s_openapi::jiff::Timestamp;
use quorate_planner::{build, crd, model};
use serde_json::Value;

use document::Format;
use error::Error;
use members::Columns;

/// Status, forecasts and logs of clusters on Kubernetes, etcdctl against them, and recoveries for review.
#[derive(Debug, Parser)]
#[command(
    name = "kubectl quorate",
    bin_name = "kubectl quorate",
    display_name = "kubectl-quorate",
    version
)]
#[command(disable_help_subcommand = true)]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Shows a cluster's members, what the operator did last, does and waits for, and what comes next.
    Status(Status),
    Top(top::Top),
    /// Shows what the operator would do, step by step, if a file were applied, or for the cluster as it is.
    Plan(Plan),
    /// Shows a cluster's members: role, health, entries behind, version and node.
    Members(Members),
    Etcdctl(etcdctl::Etcdctl),
    Logs(logs::Logs),
    Backup(backup::Backup),
    Restore(restore::Restore),
    Fence(fence::Fence),
    Unfence(fence::Unfence),
    Report(report::Report),
    /// Shows what is left of a cluster that has lost its quorum for good, and writes an EtcdRecovery for review; without
    /// --plan, how the EtcdRecoveries of a cluster are doing.
    Recover(Recover),
    Completion(complete::Completion),
}

#[derive(Debug, Args)]
struct Status {
    /// Name of the EtcdCluster; optional if there is only one.
    name: Option<String>,
    /// Print a document for programs instead: the resource, its events and what is known of the operator.
    #[arg(long, short)]
    output: Option<Format>,
    #[command(flatten)]
    which: Which,
    #[command(flatten)]
    operators: Operators,
}

#[derive(Debug, Args)]
struct Plan {
    /// Name of the EtcdCluster; optional if there is only one.
    #[arg(conflicts_with = "filename")]
    name: Option<String>,
    /// The manifest of one EtcdCluster to plan for as if it were applied; `-` for standard input.
    /// Nothing is applied.
    #[arg(long, short)]
    filename: Option<String>,
    /// Port of the operator's probes (its --probe-address).
    #[arg(long, default_value_t = 8080)]
    operator_port: u16,
    /// The service account, as NAMESPACE/NAME, that authenticates the request to the operator: you must be allowed to
    /// create tokens for it, and it must be allowed to get the EtcdCluster. By default the operator's own.
    #[arg(long)]
    service_account: Option<String>,
    /// Print the forecast as a document for programs instead.
    #[arg(long, short)]
    output: Option<Format>,
    #[command(flatten)]
    which: Which,
    #[command(flatten)]
    operators: Operators,
}

#[derive(Debug, Args)]
struct Members {
    /// Name of the EtcdCluster; optional if there is only one.
    name: Option<String>,
    /// Print more columns, or a document for programs.
    #[arg(long, short)]
    output: Option<Shown>,
    #[command(flatten)]
    which: Which,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Shown {
    /// With ID, pod and PVC.
    Wide,
    /// As JSON.
    Json,
    /// As YAML.
    Yaml,
}

#[derive(Debug, Args)]
struct Recover {
    /// Name of the EtcdCluster.
    name: String,
    /// Write an EtcdRecovery for review. Nothing is applied.
    #[arg(long)]
    plan: bool,
    /// With --plan, print the EtcdRecovery alone; without it, print those of the cluster for programs.
    #[arg(long, short)]
    output: Option<Format>,
    #[command(flatten)]
    which: Which,
}

/// Which API server and namespace to use; kubectl's own flags are passed on unchanged.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct Which {
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

/// Where the operator is looked for.
#[derive(Debug, Default, Args)]
pub(crate) struct Operators {
    /// Namespace of the operator, where its Lease is. By default all are searched, which needs permission to list
    /// Leases in all namespaces.
    #[arg(long)]
    operator_namespace: Option<String>,
}

/// Runs the program with these arguments, the first of which is its name: under that by which kubectl asks for
/// completions, it prints these. Wrong usage ends the process with code 2.
pub fn called(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    if complete::is_asked(arguments.first()) {
        let text = complete::response(arguments.get(1..).unwrap_or_default());
        return ended(shown(&text));
    }
    run(&Arguments::parse_from(arguments))
}

/// Whether a program of this name is the plugin, or answers kubectl for it.
#[must_use]
pub fn is_name(program: &str) -> bool {
    ["kubectl-quorate", complete::COMPLETER].contains(&program)
}

/// Runs the subcommand.
pub fn run(arguments: &Arguments) -> ExitCode {
    let printed = match &arguments.command {
        Command::Status(status) => status_of(status),
        Command::Plan(plan) => plan_of(plan),
        Command::Members(members) => members_of(members),
        Command::Top(asked) => return ended(top::run(asked)),
        Command::Etcdctl(asked) => return ended(etcdctl::run(asked)),
        Command::Logs(asked) => return ended(logs::run(asked)),
        Command::Backup(asked) => backup::run(asked),
        Command::Restore(asked) => restore::run(asked),
        Command::Fence(asked) => fence::fence(asked),
        Command::Unfence(asked) => fence::unfence(asked),
        Command::Report(asked) => report::run(asked),
        Command::Recover(recover) => recovery_of(recover),
        Command::Completion(asked) => Ok(complete::script(asked)),
    };
    ended(printed.and_then(|text| shown(&text)))
}

/// Prints it. A reader that has seen enough, as `head`, is no error.
fn shown(text: &str) -> Result<ExitCode, Error> {
    let mut output = std::io::stdout().lock();
    let written = output.write_all(text.as_bytes());
    match written.and_then(|()| output.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(Error::Unprinted(error)),
        _ => Ok(ExitCode::SUCCESS),
    }
}

fn ended(result: Result<ExitCode, Error>) -> ExitCode {
    result.unwrap_or_else(|error| {
        warn(&format!("kubectl quorate: {}\n", chain(&error)));
        ExitCode::FAILURE
    })
}

fn status_of(status: &Status) -> Result<String, Error> {
    let resource = ask::object(&status.which, status.name.as_deref())?;
    let cluster = ask::known(resource.clone())?;
    let observation = screen::Observation {
        events: ask::events(&status.which, &cluster)?,
        operator: ask::operator(&status.which, &status.operators),
        cluster,
    };
    let now = Timestamp::now();
    match status.output {
        None => Ok(screen::status(&observation, now)),
        Some(format) => document::written(&document::status(&resource, &observation, now), format),
    }
}

fn plan_of(plan: &Plan) -> Result<String, Error> {
    let wanted = match &plan.filename {
        Some(filename) => ask::as_if_applied(&plan.which, filename)?,
        None => ask::cluster(&plan.which, plan.name.as_deref())?,
    };
    let how = (plan.operator_port, plan.service_account.as_deref());
    let forecast = ask::forecast((&plan.which, &plan.operators), &wanted, how)?;
    let applied = plan.filename.is_some();
    match plan.output {
        None => Ok(dry_run::plan(&wanted, &forecast, applied)),
        Some(format) => document::written(&document::plan(&wanted, &forecast, applied), format),
    }
}

fn members_of(members: &Members) -> Result<String, Error> {
    let resource = ask::object(&members.which, members.name.as_deref())?;
    let columns = match members.output {
        None => Columns::Few,
        Some(Shown::Wide) => Columns::All,
        Some(Shown::Json) => return document::written(&document::members(&resource), Format::Json),
        Some(Shown::Yaml) => return document::written(&document::members(&resource), Format::Yaml),
    };
    let cluster = ask::known(resource)?;
    let rows = cluster.status.as_ref().map(|status| &status.members[..]);
    Ok(members::table(rows.unwrap_or_default(), columns).join("\n") + "\n")
}

fn recovery_of(recover: &Recover) -> Result<String, Error> {
    if let (false, Some(format)) = (recover.plan, recover.output) {
        let all = ask::recoveries(&recover.which, &recover.name)?;
        return document::written(&document::recoveries(&all, &recover.name), format);
    }
    let lost = ask::lost(&recover.which, &recover.name)?;
    let now = Timestamp::now();
    if !recover.plan {
        return Ok(recover::list(&lost, now));
    }
    if let Some(why) = recover::refusal(&lost) {
        return Err(Error::NoRecovery(why));
    }
    let planned = recover::plan(&lost, now);
    match (planned.yaml, recover.output) {
        // With its comments.
        (Some(yaml), Some(Format::Yaml)) => Ok(yaml),
        (Some(yaml), Some(Format::Json)) => {
            let manifest: Value = serde_saphyr::from_str(&yaml)
                .map_err(|error| Error::Unwritable(error.to_string()))?;
            document::written(&manifest, Format::Json)
        }
        (Some(yaml), None) => Ok(format!("{}\n{yaml}", planned.screen)),
        (None, _) => {
            warn(&planned.screen);
            let why = "there is nothing to recover from".to_owned();
            Err(Error::NoRecovery(why))
        }
    }
}

/// Between two questions about something that kubectl cannot wait for.
pub(crate) fn pause(time: Duration) {
    let (_sender, nothing) = mpsc::channel::<()>();
    let _ = nothing.recv_timeout(time);
}

/// Says it on standard error, which nobody may read any more: that is no reason to end before what was started is ended.
pub(crate) fn warn(text: &str) {
    let _ = std::io::stderr().write_all(text.as_bytes());
}

/// An error with its causes, on one line.
#[must_use]
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text += &format!(": {cause}");
        source = cause.source();
    }
    text
}
