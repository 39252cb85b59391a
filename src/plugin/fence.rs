//! `kubectl quorate fence` and `unfence`: name a voter in the annotation by which the operator stops its server and leaves its
//! volume as it is, or take the name out. Stops and starts nothing itself.

use clap::Args;
use kube_core::ResourceExt as _;
use serde_json::{Value, json};

use super::Which;
use super::ask;
use super::child::{kubectl, run as carried_out};
use super::document::{self, Format};
use super::error::Error;
use crate::crd::{ANNOTATION_FENCED, EtcdCluster, MemberHealth, MemberRole, fenced_members};

/// The status is written while something goes on: a change that was overtaken is made again so often.
const ATTEMPTS: usize = 5;

/// Has the operator stop a voter's server and keep it stopped, with its volume as it is, so that you can look at it. Never so
/// many voters that the others are no quorum.
#[derive(Debug, Args)]
pub(super) struct Fence {
    /// Name of the EtcdCluster.
    name: String,
    /// The voter.
    member: String,
    /// Print the EtcdCluster for programs instead, as it was changed.
    #[arg(long, short)]
    output: Option<Format>,
    #[command(flatten)]
    which: Which,
}

/// Has the operator start a member again that is fenced.
#[derive(Debug, Args)]
pub(super) struct Unfence {
    /// Name of the EtcdCluster.
    name: String,
    /// The member.
    member: String,
    /// Print the EtcdCluster for programs instead, as it was changed.
    #[arg(long, short)]
    output: Option<Format>,
    #[command(flatten)]
    which: Which,
}

/// Names the member. Returns what is to be printed.
pub(super) fn fence(asked: &Fence) -> Result<String, Error> {
    let (name, member) = (&asked.name, &asked.member);
    let changed = change(&asked.which, name, |cluster, mut named| {
        spares_quorum(cluster, member, &named)?;
        named.push(member.clone());
        named.sort();
        named.dedup();
        Ok(named)
    })?;
    if let Some(format) = asked.output {
        return document::written(&changed, format);
    }
    Ok(format!(
        "{member} is to be stopped, with its volume as it is: kubectl quorate status {name} says when it is. kubectl quorate unfence {name} {member} starts it again\n"
    ))
}

/// Takes the name out. Returns what is to be printed.
pub(super) fn unfence(asked: &Unfence) -> Result<String, Error> {
    let (name, member) = (&asked.name, &asked.member);
    let changed = change(&asked.which, name, |_, mut named| {
        let before = named.len();
        named.retain(|it| it != member);
        match named.len() == before {
            true => Err(Error::NotFenced(member.clone())),
            false => Ok(named),
        }
    })?;
    if let Some(format) = asked.output {
        return document::written(&changed, format);
    }
    Ok(format!(
        "{member} is to start again: kubectl quorate status {name} says when it has caught up\n"
    ))
}

/// Changes the names in the annotation, of the resource as it was read. Returns it as it is then.
fn change(
    which: &Which,
    name: &str,
    names: impl Fn(&EtcdCluster, Vec<String>) -> Result<Vec<String>, Error>,
) -> Result<Value, Error> {
    let mut attempts = 0;
    loop {
        attempts += 1;
        let resource = ask::object(which, Some(name))?;
        let cluster = ask::known(resource.clone())?;
        let wanted = names(&cluster, named(&cluster))?;
        match written(which, &cluster, &resource, &wanted) {
            Err(Error::Refused(why))
                if attempts < ATTEMPTS && why.contains("has been modified") => {}
            other => return other,
        }
    }
}

fn written(
    which: &Which,
    cluster: &EtcdCluster,
    resource: &Value,
    names: &[String],
) -> Result<Value, Error> {
    let text = (!names.is_empty()).then(|| names.join(","));
    let version = &resource["metadata"]["resourceVersion"];
    let patch =
        json!({"metadata": {"resourceVersion": version, "annotations": {ANNOTATION_FENCED: text}}});
    let mut command = kubectl(which, "patch");
    command.args(["etcdclusters.quorate.dev", &cluster.name_any()]);
    command.args(["--type=merge", "--output=json"]);
    command.arg(format!("--patch={patch}"));
    if which.namespace.is_none() {
        command.args(cluster.namespace().map(|it| format!("--namespace={it}")));
    }
    serde_json::from_slice(&carried_out(command, None)?).map_err(Error::Unreadable)
}

fn named(cluster: &EtcdCluster) -> Vec<String> {
    let names = fenced_members(cluster.metadata.annotations.as_ref());
    names.into_iter().collect()
}

/// What the operator checks as well, and waits for: said at once.
fn spares_quorum(cluster: &EtcdCluster, member: &str, named: &[String]) -> Result<(), Error> {
    let members = cluster.status.iter().flat_map(|status| &status.members);
    let voters = members.filter(|one| one.role == MemberRole::Voter);
    if !voters.clone().any(|one| one.name == member) {
        return Err(Error::NoVoter(member.to_owned()));
    }
    let stays = |name: &String| name != member && !named.contains(name);
    let healthy = |health: MemberHealth| health == MemberHealth::Healthy;
    let all = voters.clone().count();
    let rest = voters.filter(|one| stays(&one.name) && healthy(one.health));
    let (rest, needed) = (rest.count(), all / 2 + 1);
    if rest >= needed {
        return Ok(());
    }
    Err(Error::CostsQuorum {
        member: member.to_owned(),
        rest,
        all,
        needed,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::screen_test;

    fn cluster(health: &[&str], annotation: &str) -> EtcdCluster {
        let row = |(at, health): (usize, &&str)| json!({"name": format!("demo-{}", at + 1), "role": "Voter", "health": health});
        let rows: Vec<Value> = health.iter().enumerate().map(row).collect();
        let mut cluster = screen_test::cluster(json!({"replicas": 3}), json!({"members": rows}));
        cluster["metadata"]["annotations"] = json!({ANNOTATION_FENCED: annotation});
        serde_json::from_value(cluster).expect("a cluster")
    }

    fn asked(health: &[&str], annotation: &str, member: &str) -> Result<(), String> {
        let cluster = cluster(health, annotation);
        spares_quorum(&cluster, member, &named(&cluster)).map_err(|error| error.to_string())
    }

    #[test]
    fn quorum_is_spared() {
        let (up, down) = ("Healthy", "Unhealthy");
        assert_eq!(asked(&[up, up, up], "", "demo-2"), Ok(()));
        assert_eq!(asked(&[up, up, down], "", "demo-3"), Ok(()));
        assert_eq!(asked(&[up, up, down], "demo-3", "demo-3"), Ok(()), "again");
        assert_eq!(asked(&[up, up, up, up, up], "demo-1", "demo-2"), Ok(()));
        for (health, annotation, member) in [
            (&[up, up, down][..], "", "demo-2"),
            (&[up, up, up], "demo-1", "demo-2"),
            (&[up], "", "demo-1"),
            (&[up, up], "", "demo-1"),
        ] {
            let said = asked(health, annotation, member).expect_err("it costs the quorum");
            assert!(said.contains("quorum"), "{said}");
        }
        let said = asked(&[up, up, up], "", "demo-9").expect_err("it is no voter");
        assert!(said.contains("kubectl quorate members"), "{said}");
    }
}
