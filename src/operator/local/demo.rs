//! The story of a cluster in under a minute, on this machine and without Kubernetes: it grows by
//! learners, is written to without pause, loses a member with its disk, heals, and has every
//! member replaced, one at a time. Everything that it reports at the end was checked.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use tokio::sync::watch;

use super::run::{Error, Options, Runner, Signals};
use super::writer::Writer;
use crate::crd::MemberRole;

/// Time limit for the whole demo.
const BOUND: Duration = Duration::from_secs(58);
/// Keys of the writer.
const PREFIX: &str = "demo/";
/// Wanted members.
const REPLICAS: usize = 3;

/// What to run.
#[derive(Clone, Debug)]
pub struct Story {
    /// Where data, records, logs and the resource's file are kept.
    pub directory: PathBuf,
    /// Where the search for free ports begins.
    pub base_port: u16,
    /// Leave the cluster running at the end.
    pub keep: bool,
    /// Where the console is served, if it is: a loopback address.
    pub console: Option<std::net::SocketAddr>,
}

/// How the story ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Everything held.
    Good,
    /// A check failed; it was printed which.
    Bad,
    /// It was interrupted.
    Interrupted,
}

/// One check and whether it held.
#[derive(Debug)]
struct Check {
    what: String,
    held: bool,
}

/// Why the demo did not finish.
#[derive(Debug)]
enum Break {
    /// Something did not happen in time.
    Late(String),
    /// Ctrl-C.
    Interrupted,
    /// The machine failed.
    Failed(Error),
}

struct Stage {
    runner: Runner,
    signals: Signals,
    endpoints: watch::Sender<Vec<String>>,
    end: Instant,
    file: PathBuf,
    checks: Vec<Check>,
}

/// Runs the demo. Whatever happens, the processes are stopped at the end.
pub async fn run(story: &Story) -> Result<Ending, Error> {
    let signals = Signals::new()?;
    let failed = |source| Error::Write {
        path: story.directory.clone(),
        source,
    };
    std::fs::create_dir_all(&story.directory).map_err(failed)?;
    let file = story.directory.join("demo.yaml");
    std::fs::write(&file, resource(&[])).map_err(|source| Error::Write {
        path: file.clone(),
        source,
    })?;
    let (directory, base_port) = (story.directory.join("cluster"), story.base_port);
    let runner = Runner::open(&Options {
        file: file.clone(),
        directory,
        base_port,
        client_port: None,
        console: story.console,
    })?;
    let (endpoints, receiver) = watch::channel(vec![]);
    let end = Instant::now() + BOUND;
    let mut stage = Stage {
        runner,
        signals,
        endpoints,
        end,
        file,
        checks: vec![],
    };
    let outcome = Box::pin(stage.acts(receiver)).await;
    let ending = stage.judge(&outcome);
    if story.keep && ending == Ending::Good {
        stage.keep().await;
    }
    stage.runner.local.stop().await;
    match outcome {
        Err(Break::Failed(error)) => Err(error),
        _ => Ok(ending),
    }
}

impl Stage {
    async fn acts(&mut self, endpoints: watch::Receiver<Vec<String>>) -> Result<(), Break> {
        self.heading(&format!(
            "apply a cluster of {REPLICAS} ({})",
            self.file.display()
        ));
        self.until("the first member to lead", |stage| {
            stage.runner.local.status().leader.is_some()
        })
        .await?;
        let writer = Writer::start(endpoints, PREFIX);
        self.print("from now on a client writes without pause");
        self.settle("the cluster to have three voters").await?;
        self.grown();

        let victim = self
            .runner
            .local
            .status()
            .leader
            .clone()
            .unwrap_or_default();
        self.heading(&format!("{victim} leads: kill it, and lose its disk"));
        self.lose(&victim);
        let gone = victim.clone();
        self.until("the member to be removed", move |stage| {
            stage.is_gone(&gone)
        })
        .await?;
        self.settle("its replacement to vote").await?;
        let healed = self.voters();
        let replaced = healed.len() == REPLICAS && !healed.contains(&victim);
        self.check(
            replaced,
            format!("{victim} was removed and replaced: {}", healed.join(", ")),
        );

        let before = self.voters();
        self.heading("replace every member, one at a time (spec.replaceMembers)");
        let tally = writer.tally();
        self.edit(&resource(&before))?;
        let all = before.clone();
        self.until("every member to be replaced", move |stage| {
            stage.runner.local.at_rest && all.iter().all(|name| stage.is_gone(name))
        })
        .await?;
        let during = writer.tally();
        let after = self.voters();
        let fresh = after.len() == REPLICAS && !after.iter().any(|name| before.contains(name));
        self.check(
            fresh,
            format!("every member was replaced: {}", after.join(", ")),
        );
        let failed = during.failed - tally.failed;
        let written = during.acknowledged - tally.acknowledged;
        let repeated = during.repeated - tally.repeated;
        self.check(
            failed == 0 && written > 0,
            format!(
                "{failed} of {written} writes failed meanwhile ({repeated} were sent a second time)"
            ),
        );
        self.learners().await;
        self.read_back(writer).await
    }

    /// Every voter but the seed came as a learner: from the cluster's own record.
    fn grown(&mut self) {
        let voters = self.voters();
        self.check(
            voters.len() == REPLICAS,
            format!("three voters: {}", voters.join(", ")),
        );
    }

    async fn learners(&mut self) {
        let changes = self.runner.local.history().await;
        let mut kinds: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for (kind, name) in &changes {
            kinds.entry(name.as_str()).or_default().push(kind.as_str());
        }
        let voters = self.voters();
        let came_so = |name: &String| {
            let kinds = kinds.get(name.as_str());
            let at = |wanted: &str| kinds?.iter().position(|kind| *kind == wanted);
            matches!((at("AddLearner"), at("Promote")), (Some(added), Some(promoted)) if added < promoted)
        };
        let held = !voters.is_empty() && voters.iter().all(came_so);
        self.check(
            held,
            "the cluster's own history: each of them came as a learner".into(),
        );
    }

    async fn read_back(&mut self, writer: Writer) -> Result<(), Break> {
        self.heading("read everything back");
        match writer.stop_and_verify().await {
            Ok((tally, verdict)) => {
                self.check(
                    tally.failed == 0,
                    format!(
                        "{} writes acknowledged, {} failed; {} attempts repeated, the longest write took {} ms",
                        tally.acknowledged, tally.failed, tally.repeated, tally.longest.as_millis()
                    ),
                );
                self.check(
                    verdict.missing.is_empty() && tally.acknowledged > 0,
                    format!("{} found, {} missing", verdict.found, verdict.missing.len()),
                );
                Ok(())
            }
            Err(error) => Err(Break::Late(format!("reading back failed: {error}"))),
        }
    }

    /// Kills a member's process and removes its disk, like the loss of a machine.
    fn lose(&mut self, member: &str) {
        let local = &mut self.runner.local;
        let pvc = local
            .home
            .state()
            .sets
            .get(member)
            .map(|set| set.pvc.clone());
        local.pods.kill(member);
        if let Some(pvc) = pvc {
            let directory = local.home.root().join("claims").join(pvc);
            let removed = std::fs::remove_dir_all(&directory);
            let how = if removed.is_ok() {
                "kill -9, rm -r"
            } else {
                "kill -9; cannot remove"
            };
            local
                .console
                .print(&format!("{how} {}", directory.display()));
        }
    }

    fn edit(&mut self, text: &str) -> Result<(), Break> {
        let path = self.file.clone();
        std::fs::write(&path, text).map_err(|source| Break::Failed(Error::Write { path, source }))
    }

    async fn settle(&mut self, what: &str) -> Result<(), Break> {
        self.until(what, |stage| {
            stage.runner.local.at_rest && stage.voters().len() == REPLICAS
        })
        .await
    }

    /// Turns until this is so; the story's bound is the only one.
    async fn until(&mut self, what: &str, so: impl Fn(&Self) -> bool) -> Result<(), Break> {
        loop {
            let left = self.end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(Break::Late(format!("waited in vain for {what}")));
            }
            tokio::select! {
                biased;
                () = self.signals.stop() => return Err(Break::Interrupted),
                turned = tokio::time::timeout(left, self.runner.turn()) => match turned {
                    Ok(Ok(())) => {}
                    Ok(Err(error)) => return Err(Break::Failed(error.into())),
                    Err(_) => continue,
                },
            }
            let now = self.runner.local.serving();
            self.endpoints.send_if_modified(|known| {
                let news = *known != now;
                if news {
                    *known = now;
                }
                news
            });
            if so(self) {
                return Ok(());
            }
        }
    }

    fn voters(&self) -> Vec<String> {
        let members = self.runner.local.status().members.iter();
        let voters = members.filter(|member| member.role == MemberRole::Voter);
        voters.map(|member| member.name.clone()).collect()
    }

    /// Neither a member nor a process nor a disk is left of it.
    fn is_gone(&self, name: &str) -> bool {
        let local = &self.runner.local;
        let members = &local.status().members;
        !members.iter().any(|member| member.name == name)
            && !local.home.state().sets.contains_key(name)
    }

    fn print(&mut self, text: &str) {
        self.runner.local.console.print(text);
    }

    fn heading(&mut self, text: &str) {
        self.runner.local.console.heading(text);
    }

    fn check(&mut self, held: bool, what: String) {
        let word = if held { "ok" } else { "NOT SO" };
        self.print(&format!("{word}: {what}"));
        self.checks.push(Check { what, held });
    }

    fn judge(&mut self, outcome: &Result<(), Break>) -> Ending {
        match outcome {
            Err(Break::Interrupted) => {
                self.print("interrupted");
                return Ending::Interrupted;
            }
            Err(Break::Late(what)) => self.check(false, what.clone()),
            Err(Break::Failed(_)) => return Ending::Bad,
            Ok(()) => {}
        }
        self.heading("the end");
        print!("{}", self.runner.local.table());
        println!();
        for check in &self.checks {
            println!(
                "  {} {}",
                if check.held { "ok    " } else { "NOT SO" },
                check.what
            );
        }
        let seconds = BOUND.saturating_sub(self.end.saturating_duration_since(Instant::now()));
        let good = self.checks.iter().all(|check| check.held);
        let verdict = if good {
            "all of it held"
        } else {
            "not all of it held"
        };
        println!("\n{verdict}, in {:.1} s", seconds.as_secs_f64());
        if good { Ending::Good } else { Ending::Bad }
    }

    /// Keeps the cluster running, and healing, until Ctrl-C.
    async fn keep(&mut self) {
        print!("\n{}", self.runner.local.hint());
        let path = self.file.display();
        println!("edit {path} to change it; Ctrl-C stops it");
        loop {
            tokio::select! {
                biased;
                () = self.signals.stop() => return,
                turned = self.runner.turn() => if turned.is_err() { return },
            }
        }
    }
}

/// The demo's resource.
fn resource(replace: &[String]) -> String {
    let mut text = format!(
        "apiVersion: quorate.dev/v1alpha1
kind: EtcdCluster
metadata:
  name: demo
spec:
  replicas: {REPLICAS}
  storage:
    size: 1Gi
  healing:
    unhealthySeconds: 20
    learnerDeadlineSeconds: 60
"
    );
    if !replace.is_empty() {
        text += &format!("  replaceMembers: [{}]\n", replace.join(", "));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_demos_resource_is_valid() {
        for replace in [vec![], vec!["demo-1".to_owned(), "demo-2".to_owned()]] {
            let cluster = crate::crd::parse(&resource(&replace)).expect("valid");
            assert_eq!(cluster.spec.replace_members, replace);
        }
    }
}
