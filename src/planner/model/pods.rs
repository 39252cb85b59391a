//! What the API server makes of an action on a pod: labels, deletions, and evictions, which the
//! PodDisruptionBudget may refuse. Sets make new pods: see `kubelets`.

use super::{Model, Refused};
use crate::plan::{PodFacts, PodPhase, Resize};

/// The grace period of a pod.
const GRACE_MS: u64 = 30_000;

impl Model {
    pub(super) fn label_pod(
        &mut self,
        member: &str,
        uid: &str,
        released_ms: Option<u64>,
    ) -> Result<(), Refused> {
        let found = self.api.pods.get_mut(member).filter(|pod| pod.uid == uid);
        let Some(pod) = found else {
            return Refused::changed(format!("the pod of {member} is another one, or gone"));
        };
        pod.released_ms = released_ms;
        Ok(())
    }

    pub(super) fn resize_pod(&mut self, member: &str, uid: &str) -> Result<(), Refused> {
        let now_ms = self.api.now_ms;
        let infeasible = self.faults.confined.contains(member);
        let pod = self.pod_to_resize(member, uid)?;
        pod.inputs = Some("resizing".to_owned());
        pod.resize = Some(Resize::Asked {
            since_ms: now_ms,
            why: infeasible.then(|| "Node didn't have enough capacity: memory".to_owned()),
            infeasible,
        });
        Ok(())
    }

    pub(super) fn record_inputs(&mut self, member: &str, uid: &str) -> Result<(), Refused> {
        let wanted = self.api.wanted_inputs.clone();
        let pod = self.pod_to_resize(member, uid)?;
        (pod.inputs, pod.resize) = (Some(wanted), None);
        Ok(())
    }

    fn pod_to_resize(&mut self, member: &str, uid: &str) -> Result<&mut PodFacts, Refused> {
        let found = self.api.pods.get_mut(member);
        let found = found.filter(|pod| pod.uid == uid && pod.resize.is_some());
        found.ok_or_else(|| {
            Refused::Changed(format!("the pod of {member} is another one, or has all"))
        })
    }

    /// What the kubelets do about pods that are to have other resources.
    pub(super) fn resize_pods(&mut self) {
        let (wanted, confined) = (&self.api.wanted_inputs, &self.faults.confined);
        for (member, pod) in &mut self.api.pods {
            match &pod.resize {
                None if self.faults.resizes
                    && pod.started_ms.is_some()
                    && pod.inputs.as_ref() != Some(wanted) =>
                {
                    pod.resize = Some(Resize::Wanted);
                }
                Some(Resize::Asked { .. }) if !confined.contains(member) => {
                    pod.resize = Some(Resize::Provided);
                }
                _ => {}
            }
        }
    }

    /// Another pod than this one is not touched, and it is not an error if this one is already gone.
    pub(super) fn delete_pod(&mut self, member: &str, uid: &str) -> Result<(), Refused> {
        let Some(pod) = self.api.pods.get_mut(member).filter(|pod| pod.uid == uid) else {
            return Ok(());
        };
        if self.faults.lingering.contains(member) {
            (pod.terminating, pod.ends_ms) = (true, Some(self.api.now_ms + GRACE_MS));
        } else {
            self.api.pods.remove(member);
        }
        Ok(())
    }

    pub(super) fn evict_pod(&mut self, member: &str, uid: &str) -> Result<(), Refused> {
        let found = self.api.pods.get(member);
        match found.is_some_and(|pod| pod.uid == uid) {
            true => self.evict(member),
            false => Ok(()),
        }
    }

    /// An eviction by the pod's name, as requested by `kubectl drain`.
    pub fn evict(&mut self, member: &str) -> Result<(), Refused> {
        let allowed = self.api.pods.get(member).is_some_and(|pod| {
            let counted = pod.released_ms.is_none() && pod.phase != PodPhase::Pending;
            !counted || self.budget_allows(pod)
        });
        if !allowed {
            return Err(Refused::Disruption(member.to_owned()));
        }
        self.api.pods.remove(member);
        Ok(())
    }

    fn budget_allows(&self, pod: &PodFacts) -> bool {
        let Some(pdb) = self.api.pdb else {
            return true;
        };
        let counts = pod.ready_since_ms.is_some() && !pod.terminating;
        let others = self.available().saturating_sub(counts.into());
        let min_available = pdb.min_available().and_then(|least| least.try_into().ok());
        min_available.is_some_and(|least: usize| others >= least)
    }

    /// Pods that count as available where evictions are counted.
    pub(super) fn available(&self) -> usize {
        let counts = |pod: &&PodFacts| {
            pod.ready_since_ms.is_some() && !pod.terminating && pod.released_ms.is_none()
        };
        self.api.pods.values().filter(counts).count()
    }
}
