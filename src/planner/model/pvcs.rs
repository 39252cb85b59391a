//! The API server's handling of an action on a PVC. The volume behind it is created by the first pod that starts on it,
//! and deleted with it: see `kubelets`.

use super::{Model, Refused};
use crate::crd::RetentionPolicy;
use crate::plan::{PvcFacts, PvcState};

impl Model {
    pub(super) fn create_pvc(
        &mut self,
        member: &str,
        pvc: &str,
        incarnation: u64,
    ) -> Result<(), Refused> {
        if let Some(found) = self.api.pvcs.get(pvc) {
            if found.terminating {
                return Err(Refused::Terminating(pvc.to_owned()));
            }
            if found.cluster_uid.as_deref() != Some(self.uid()) {
                return Err(Refused::Taken(pvc.to_owned()));
            }
            return Ok(());
        }
        let uid = self.fresh("claim");
        let cluster = self.cluster();
        let facts = PvcFacts {
            uid,
            cluster_uid: cluster.map(|cluster| cluster.life.clone()),
            incarnation,
            member: Some(member.to_owned()),
            state: PvcState::New,
            terminating: false,
            bound: false,
            volume_gone: None,
            no_node: None,
            node_bound: None,
            nodes: None,
            requested_bytes: cluster.map_or(0, |cluster| cluster.storage_bytes),
            owned: cluster.is_some_and(|cluster| {
                cluster.spec.storage.retention.when_deleted == RetentionPolicy::Delete
            }),
        };
        self.api.pvcs.insert(pvc.to_owned(), facts);
        Ok(())
    }

    pub(super) fn change_pvc(
        &mut self,
        pvc: &str,
        uid: &str,
        change: impl FnOnce(&mut PvcFacts),
    ) -> Result<(), Refused> {
        let found = self.api.pvcs.get_mut(pvc).filter(|facts| facts.uid == uid);
        let Some(found) = found else {
            return Refused::changed(format!("PVC {pvc} is another one, or gone"));
        };
        change(found);
        Ok(())
    }

    /// It goes once no pod uses it.
    pub(super) fn delete_pvc(&mut self, pvc: &str, uid: &str) -> Result<(), Refused> {
        if !self.api.pvcs.contains_key(pvc) {
            return Ok(());
        }
        self.change_pvc(pvc, uid, |facts| facts.terminating = true)
    }
}
