//! `kubectl quorate logs`: the logs of a cluster's members by `kubectl logs`, which prints them itself. Reads none of them.

use std::process::{Command, ExitCode};

use clap::Args;
use kube_core::ResourceExt as _;

use super::Which;
use super::ask;
use super::child::endless;
use super::error::Error;
use super::system;
use crate::build::CONTAINER;
use crate::crd::{EtcdCluster, LABEL_MEMBER};

/// Members whose logs are followed at the same time: a cluster has at most nine voters, and others that join or leave.
const AT_ONCE: usize = 32;
/// Lines of each member that are printed unless something else says how many.
const TAIL: i64 = 100;

/// Prints the logs of a cluster's members, each line with its pod.
#[derive(Debug, Args)]
pub(super) struct Logs {
    /// Name of the EtcdCluster; optional if there is only one.
    name: Option<String>,
    /// This member alone; may be given several times.
    #[arg(long)]
    member: Vec<String>,
    /// Go on with what the members log from now on. Pods that are created later are not among them.
    #[arg(long, short)]
    follow: bool,
    /// What was logged in this span before now, such as 5m or 2h.
    #[arg(long)]
    since: Option<String>,
    /// The last lines of each member; -1: all. By default 100, and all with --since.
    #[arg(long, allow_negative_numbers = true)]
    tail: Option<i64>,
    /// What the process before the present one logged, where a container was restarted.
    #[arg(long, short, conflicts_with = "follow")]
    previous: bool,
    /// Put the time at which Kubernetes received it in front of each line.
    #[arg(long)]
    timestamps: bool,
    #[command(flatten)]
    which: Which,
}

/// Runs kubectl, and returns its exit code.
pub(super) fn run(asked: &Logs) -> Result<ExitCode, Error> {
    let cluster = ask::cluster(&asked.which, asked.name.as_deref())?;
    if !asked.member.is_empty() {
        let pods = ask::member_pods(&asked.which, &cluster)?;
        let has = |name: &String| {
            pods.iter()
                .any(|pod| pod.labels().get(LABEL_MEMBER) == Some(name))
        };
        if let Some(absent) = asked.member.iter().find(|name| !has(name)) {
            return Err(Error::NoPod(absent.clone()));
        }
    }
    let namespace = cluster.namespace().unwrap_or_default();
    // Long logs take their time, and followed ones go on.
    let mut kubectl: Command = endless(&asked.which, "logs", &namespace);
    kubectl.args(flags(asked, &cluster));
    let status = kubectl.status().map_err(Error::NoKubectl)?;
    Ok(ExitCode::from(system::code(status)))
}

/// What is asked of kubectl.
fn flags(asked: &Logs, cluster: &EtcdCluster) -> Vec<String> {
    let mut selector = ask::selector(cluster);
    if !asked.member.is_empty() {
        // It ends with the label of members.
        selector += &format!(" in ({})", asked.member.join(","));
    }
    let tail = asked.tail.unwrap_or(match asked.since {
        Some(_) => -1,
        None => TAIL,
    });
    let mut flags = vec![
        format!("--selector={selector}"),
        format!("--container={CONTAINER}"),
        "--prefix".to_owned(),
        format!("--max-log-requests={AT_ONCE}"),
        // A member without logs, as one whose image is not pulled yet, does not hide the others'.
        "--ignore-errors".to_owned(),
        format!("--tail={tail}"),
    ];
    flags.extend(asked.since.iter().map(|span| format!("--since={span}")));
    let switches = [
        ("--follow", asked.follow),
        ("--previous", asked.previous),
        ("--timestamps", asked.timestamps),
    ];
    let given = switches.into_iter().filter(|(_, given)| *given);
    flags.extend(given.map(|(flag, _)| flag.to_owned()));
    flags
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use serde_json::json;

    use super::*;
    use crate::screen_test;

    #[derive(Parser)]
    struct Parsed {
        #[command(flatten)]
        logs: Logs,
    }

    fn asked_of_kubectl(words: &str) -> String {
        let parsed = Parsed::try_parse_from(["logs"].into_iter().chain(words.split_whitespace()));
        let spec = json!({"replicas": 3, "version": "0.1.0"});
        let cluster = serde_json::from_value(screen_test::cluster(spec, json!({})));
        let asked = parsed.expect("flags").logs;
        flags(&asked, &cluster.expect("a cluster")).join(" ")
    }

    #[test]
    fn every_flag_is_passed_on() {
        let all = "--selector=quorate.dev/cluster-uid=u,quorate.dev/member";
        let rest = "--container=member --prefix --max-log-requests=32 --ignore-errors";
        assert_eq!(asked_of_kubectl("demo"), format!("{all} {rest} --tail=100"));
        assert_eq!(
            asked_of_kubectl("demo --member demo-1 --member=demo-2 -f --tail -1"),
            format!("{all} in (demo-1,demo-2) {rest} --tail=-1 --follow")
        );
        assert_eq!(
            asked_of_kubectl("--since=5m --previous --timestamps"),
            format!("{all} {rest} --tail=-1 --since=5m --previous --timestamps")
        );
        assert_eq!(
            asked_of_kubectl("--since=5m --tail=7"),
            format!("{all} {rest} --tail=7 --since=5m")
        );
        let both = Parsed::try_parse_from(["logs", "--follow", "--previous"]);
        assert!(both.is_err());
    }
}
