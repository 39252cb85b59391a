//! The role of the StatefulSet controller and the kubelet on Kubernetes: for each wanted process (a set) one pod with
//! its own UID, running only while its PVC exists. Does not decide about membership.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;

use super::home::{self, Home};
use super::supervisor::{ProcessState, Program, Supervisor};

/// A server that has not stopped by then after SIGTERM is killed.
const GRACE: Duration = Duration::from_secs(15);

/// One pod.
#[derive(Debug)]
struct Pod {
    uid: String,
    created_ms: u64,
    pvc: String,
    input_hash: String,
    arguments: Vec<String>,
    deleting: bool,
    /// None while its PVC is missing.
    supervisor: Option<Supervisor>,
}

/// A pod as it can be seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodView {
    /// The member, which is also the set.
    pub member: String,
    /// This pod's own identity: a fresh one for each pod.
    pub uid: String,
    /// When it was made, in milliseconds of the platform's clock.
    pub created_ms: u64,
    /// Hash of the inputs that its set was rendered from when it was made.
    pub input_hash: String,
    /// Settings that its server was started with.
    pub arguments: Vec<String>,
    /// Deleted, and still stopping.
    pub deleting: bool,
    /// Its process; none while its PVC is missing.
    pub process: Option<ProcessState>,
}

/// All pods of one cluster.
#[derive(Debug)]
pub struct Pods {
    program: PathBuf,
    /// The flag with the pod's UID, up to the `=`.
    identify: Option<String>,
    pods: BTreeMap<String, Pod>,
    changed: Arc<Notify>,
}

impl Pods {
    /// Runs this executable for each member, with `identify` and its pod's UID as the last
    /// argument; `changed` is notified when a process starts or ends.
    pub fn new(program: PathBuf, identify: Option<String>, changed: Arc<Notify>) -> Self {
        Self {
            program,
            identify,
            pods: BTreeMap::new(),
            changed,
        }
    }

    /// Brings the pods in line with the sets. Cheap; to be called often. Returns what it did.
    pub fn reconcile(&mut self, home: &Home, now_ms: u64) -> Result<Vec<String>, home::Error> {
        let mut did = Vec::new();
        let pvcs = home.pvcs()?;
        self.pods.retain(|_, pod| {
            !(pod.deleting
                && pod
                    .supervisor
                    .as_ref()
                    .is_none_or(|child| child.state().stopped))
        });
        for (member, pod) in self.pods.iter_mut().filter(|(_, pod)| !pod.deleting) {
            let set = home.state().sets.get(member).filter(|set| !set.hibernated);
            let pvc_lost = set.is_some_and(|set| !pvcs.contains_key(&set.pvc));
            let Some(child) = &pod.supervisor else {
                pod.deleting = set.is_none();
                continue;
            };
            if set.is_none() || pvc_lost {
                // A pod whose PVC is gone ends; the next one waits for a PVC.
                child.request_stop();
                pod.deleting = true;
            }
            if pvc_lost {
                did.push(format!(
                    "{member}: its disk is gone, its process is stopped"
                ));
            }
        }
        let sets = home.state().sets.iter();
        for (member, set) in sets.filter(|(_, set)| !set.hibernated) {
            let pod = self.pods.entry(member.clone()).or_insert_with(|| Pod {
                uid: uuid::Uuid::new_v4().to_string(),
                created_ms: now_ms,
                pvc: set.pvc.clone(),
                input_hash: set.input_hash.clone(),
                arguments: set.arguments.clone(),
                deleting: false,
                supervisor: None,
            });
            if !pod.deleting && pod.supervisor.is_none() && pvcs.contains_key(&set.pvc) {
                let mut arguments = pod.arguments.clone();
                arguments.extend(
                    self.identify
                        .iter()
                        .map(|flag| format!("{flag}{}", pod.uid)),
                );
                let program = Program {
                    path: self.program.clone(),
                    arguments,
                    environment: vec![],
                    log: home.log(member),
                    grace: GRACE,
                };
                pod.supervisor = Some(Supervisor::start(program, self.changed.clone()));
            }
        }
        Ok(did)
    }

    /// All pods, by member.
    pub fn view(&self) -> Vec<PodView> {
        let view = |(member, pod): (&String, &Pod)| PodView {
            member: member.clone(),
            uid: pod.uid.clone(),
            created_ms: pod.created_ms,
            input_hash: pod.input_hash.clone(),
            arguments: pod.arguments.clone(),
            deleting: pod.deleting,
            process: pod.supervisor.as_ref().map(Supervisor::state),
        };
        self.pods.iter().map(view).collect()
    }

    /// Deletes the pod with this UID: its process is stopped gracefully, and the next
    /// [`Pods::reconcile`] after its end makes a new one if its set is still there.
    pub fn delete(&mut self, member: &str, uid: &str) -> bool {
        match self.pods.get_mut(member) {
            Some(pod) if pod.uid == uid && !pod.deleting => {
                pod.deleting = true;
                if let Some(child) = &pod.supervisor {
                    child.request_stop();
                }
                self.changed.notify_one();
                true
            }
            _ => false,
        }
    }

    /// Kills a member's process at once, like a power loss. It is restarted automatically.
    pub fn kill(&self, member: &str) -> bool {
        let pod = self.pods.get(member);
        pod.and_then(|pod| pod.supervisor.as_ref())
            .is_some_and(Supervisor::kill)
    }

    /// Whether a process runs on this PVC, or is about to.
    pub fn uses(&self, pvc: &str) -> bool {
        self.pods
            .values()
            .any(|pod| pod.pvc == pvc && pod.supervisor.is_some())
    }

    /// Stops every process gracefully, this one (the leader) after all the others.
    pub async fn stop_all(&mut self, last: Option<&str>) {
        let leader = last.and_then(|last| self.pods.remove(last));
        for pods in [
            std::mem::take(&mut self.pods).into_values().collect(),
            Vec::from_iter(leader),
        ] {
            let children: Vec<Supervisor> =
                pods.into_iter().filter_map(|pod| pod.supervisor).collect();
            for child in &children {
                child.request_stop();
            }
            for child in children {
                child.stopped().await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::home::SetRecord;
    use super::*;

    async fn until(pods: &mut Pods, home: &Home, done: impl Fn(&[PodView]) -> bool) -> Vec<String> {
        let mut did = vec![];
        for _ in 0..400 {
            did.extend(pods.reconcile(home, 5).expect("reconciled"));
            if done(&pods.view()) {
                return did;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("not reached in time: {:?}", pods.view());
    }

    fn running(view: &[PodView]) -> bool {
        let pid = |pod: &PodView| pod.process.as_ref().and_then(|process| process.pid);
        view.len() == 1 && !view[0].deleting && pid(&view[0]).is_some()
    }

    #[tokio::test]
    async fn pods_follow_sets_and_pvcs() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let mut home = Home::open(directory.path(), "demo", 43_000).expect("a home");
        let set = SetRecord {
            uid: "s1".into(),
            pvc: "data-demo-1".into(),
            input_hash: "h".into(),
            created_ms: 1,
            hibernated: false,
            arguments: vec!["60".into()],
        };
        home.update(|state| state.sets.insert("demo-1".into(), set))
            .expect("written");
        let mut pods = Pods::new("/bin/sleep".into(), None, Arc::new(Notify::new()));

        // Without its PVC the pod waits.
        pods.reconcile(&home, 5).expect("reconciled");
        assert_eq!(pods.view()[0].process, None);
        home.create_pvc("data-demo-1", "demo-1", 1).expect("a PVC");
        until(&mut pods, &home, running).await;
        let first = pods.view()[0].uid.clone();

        // A deletion with another pod's UID does nothing; with its own, a fresh pod comes.
        assert!(!pods.delete("demo-1", "another"));
        assert!(pods.delete("demo-1", &first));
        until(&mut pods, &home, |view| {
            running(view) && view[0].uid != first
        })
        .await;

        // Asleep it stops, and its directory stays for the one that wakes.
        let sleep = |home: &mut Home, hibernated| {
            let change = |state: &mut home::State| {
                state
                    .sets
                    .values_mut()
                    .for_each(|set| set.hibernated = hibernated);
            };
            home.update(change).expect("written");
        };
        sleep(&mut home, true);
        until(&mut pods, &home, <[PodView]>::is_empty).await;
        sleep(&mut home, false);
        until(&mut pods, &home, running).await;

        // A lost disk stops the process, and the new pod waits for a PVC.
        std::fs::remove_dir_all(home.root().join("claims/data-demo-1")).expect("removed");
        let did = until(&mut pods, &home, |view| {
            !view[0].deleting && view[0].process.is_none()
        });
        assert_eq!(
            did.await,
            ["demo-1: its disk is gone, its process is stopped"]
        );

        // Without its set it goes.
        home.update(|state| state.sets.clear()).expect("written");
        until(&mut pods, &home, <[PodView]>::is_empty).await;
        pods.stop_all(None).await;
    }
}
