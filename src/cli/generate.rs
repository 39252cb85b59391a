//! `quorate generate`: files that are generated from the code, printed, written or compared. The check fails if the
//! files in the repository differ.

mod api_reference;
mod dashboards;
mod version;

use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;

use crate::operator::metrics::names;
use crate::server::flags::feature_gates::GATES;
use crate::server::flags::table::{Class, FLAGS, Kind};
use crate::{build, crd};

/// The alerts, which the chart brings as a PrometheusRule: a chart can read its own files alone.
const ALERTS: &str = include_str!("../../deploy/monitoring/rules.yaml");

/// Prints or writes files that are generated from the code.
#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// What to print.
    #[arg(required_unless_present_any = ["write", "check"])]
    what: Option<What>,
    /// Write every generated file below the current directory instead.
    #[arg(long, conflicts_with = "check")]
    write: bool,
    /// Fail if a generated file below the current directory differs from what would be written.
    #[arg(long)]
    check: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum What {
    /// The custom resource definitions.
    Crds,
    /// The operator's permissions as a ClusterRole.
    Rbac,
    /// The server's flags as a Markdown table.
    Flags,
    /// The fields of EtcdCluster as a Markdown page.
    Reference,
    /// The fields of the resources about backups as a Markdown page.
    BackupReference,
    /// The fields of EtcdRecovery as a Markdown page.
    RecoveryReference,
    /// The operator's metrics as a Markdown page.
    Metrics,
}

/// Runs the subcommand.
pub(super) fn run(arguments: &Arguments) -> ExitCode {
    match write_files(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("quorate generate: {error}");
            ExitCode::FAILURE
        }
    }
}

fn write_files(arguments: &Arguments) -> Result<(), String> {
    match arguments.what {
        Some(What::Crds) => print!("{}", crds()?),
        Some(What::Rbac) => print!("{}", build::cluster_role_yaml()?),
        Some(What::Flags) => print!("{}", flags()),
        Some(What::Reference) => print!("{}", api_reference::page()?),
        Some(What::BackupReference) => print!("{}", api_reference::backups()?),
        Some(What::RecoveryReference) => print!("{}", api_reference::recovery()?),
        Some(What::Metrics) => print!("{}", names::page()),
        None => {}
    }
    if !arguments.write && !arguments.check {
        return Ok(());
    }
    let mut differing = Vec::new();
    for (path, text) in files()? {
        let path = Path::new(&path);
        if std::fs::read_to_string(path).is_ok_and(|found| found == text) {
            continue;
        }
        if arguments.check {
            differing.push(path.display().to_string());
            continue;
        }
        let failed = |error| format!("cannot write {}: {error}", path.display());
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).map_err(failed)?;
        }
        std::fs::write(path, text).map_err(failed)?;
        println!("wrote {}", path.display());
    }
    if differing.is_empty() {
        return Ok(());
    }
    Err(format!(
        "{} differ from the code: run `make generate`",
        differing.join(", ")
    ))
}

/// Every generated file: its path in the repository and its text.
fn files() -> Result<Vec<(String, String)>, String> {
    let [namespaced, cluster, lease, bundles, requests, signer] =
        build::rules_yaml(crd::OPERATOR_LEASE)?;
    let mut files = Vec::new();
    for definition in crd::definitions() {
        let path = format!("crds/quorate.dev_{}.yaml", definition.spec.names.plural);
        files.push((path, crd_text(&definition)?));
    }
    let others = [
        ("charts/quorate/files/crds.yaml", crds()?),
        ("charts/quorate/files/rules-namespaced.yaml", namespaced),
        ("charts/quorate/files/rules-cluster.yaml", cluster),
        ("charts/quorate/files/rules-lease.yaml", lease),
        ("charts/quorate/files/rules-trust-bundles.yaml", bundles),
        ("charts/quorate/files/rules-pod-certificates.yaml", requests),
        ("charts/quorate/files/rules-signer.yaml", signer),
        ("docs/server-flags.md", flags()),
        ("docs/api-reference.md", api_reference::page()?),
        ("docs/api-reference-backups.md", api_reference::backups()?),
        ("docs/api-reference-recovery.md", api_reference::recovery()?),
        ("docs/api-reference-access.md", api_reference::access()?),
        ("docs/operator-metrics.md", names::page()),
        ("charts/quorate/files/alerts.yaml", ALERTS.to_owned()),
    ];
    files.extend(others.map(|(path, text)| (path.to_owned(), text)));
    files.extend(dashboards::files());
    files.extend(version::files()?);
    Ok(files)
}

/// All of them as one text.
fn crds() -> Result<String, String> {
    let definitions = crd::definitions();
    let texts: Result<Vec<String>, String> = definitions.iter().map(crd_text).collect();
    Ok(texts?.join("---\n"))
}

fn crd_text(definition: &CustomResourceDefinition) -> Result<String, String> {
    let yaml = crd::definition_yaml(definition).map_err(|error| error.to_string())?;
    Ok(format!("# Generated by `quorate generate crds`.\n{yaml}"))
}

fn flags() -> String {
    let mut text = String::from(
        "# Flags of `quorate server`\n\nGenerated by `quorate generate flags`. Each flag can be given as a variable as well: `--data-dir` as `ETCD_DATA_DIR`. \"Accepted\" flags of etcd have no effect and log a warning; \"refused\" ones prevent the start.\n",
    );
    let mut group = None;
    for flag in FLAGS.iter().filter(|flag| !flag.help.is_empty()) {
        if group != Some(flag.group) {
            group = Some(flag.group);
            // Writing to a String cannot fail.
            let _ = write!(
                text,
                "\n## {:?}\n\n| Flag | Default | What it does | Class |\n|---|---|---|---|\n",
                flag.group
            );
        }
        let class = class(flag.class);
        let choices = match flag.kind {
            Kind::Choice(choices) => {
                let named: Vec<_> = choices.iter().filter(|choice| !choice.is_empty()).collect();
                format!(" One of {named:?}.")
            }
            _ => String::new(),
        };
        let default = if flag.default.is_empty() {
            String::new()
        } else {
            format!("`{}`", flag.default)
        };
        let help = flag.help.replace('|', "\\|");
        let _ = writeln!(
            text,
            "| `--{}` | {default} | {help}{choices} | {class} |",
            flag.name
        );
    }
    text.push_str(
        "\n## Feature gates\n\nGates of `--feature-gates`; `AllAlpha` and `AllBeta` set those that are not named.\n\n| Gate | Default | What it does | Class |\n|---|---|---|---|\n",
    );
    for gate in GATES {
        let _ = writeln!(
            text,
            "| `{}` | `{}` | {} | {} |",
            gate.name,
            gate.default,
            gate.help,
            class(gate.class)
        );
    }
    text
}

fn class(class: Class) -> String {
    match class {
        Class::Effect => "effect".to_owned(),
        Class::Accepted(why) => format!("accepted: {why}"),
        Class::Refused(remedy) => format!("refused: {remedy}"),
    }
}
