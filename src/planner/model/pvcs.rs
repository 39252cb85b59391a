//! The API server's handling of an action on a PVC. The volume behind it is created by the first pod that starts on it,
//! and deleted with it: see `kubelets`.

use super::{Model, Refused};
use crate::crd::RetentionPolicy;
use crate::plan::{AskedStorage, PvcFacts, PvcState, StorageFacts};

impl Model {
    pub(super) fn create_pvc(
        &mut self,
        member: &str,
        pvc: &str,
        incarnation: u64,
        (bytes, asked): (u64, u64),
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
            requested_bytes: bytes,
            storage: StorageFacts {
                asked: Some(AskedStorage {
                    bytes: asked,
                    class: self.wanted_class(),
                }),
                class: self.wanted_class().or_else(|| self.default_class()),
                ..StorageFacts::default()
            },
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

    /// Its volume follows: see `kubelets`.
    pub(super) fn grow_pvc(
        &mut self,
        pvc: &str,
        uid: &str,
        bytes: u64,
        asked: Option<AskedStorage>,
    ) -> Result<(), Refused> {
        let class = self
            .api
            .pvcs
            .get(pvc)
            .and_then(|pvc| pvc.storage.class.as_ref());
        let class = class.and_then(|class| self.api.classes.get(class));
        if class.is_some_and(|class| !class.expands) {
            return Refused::changed(format!("the class of PVC {pvc} does not let volumes grow"));
        }
        self.change_pvc(pvc, uid, |facts| {
            facts.requested_bytes = bytes;
            if asked.is_some() {
                facts.storage.asked = asked;
            }
        })
    }

    fn wanted_class(&self) -> Option<String> {
        let storage = &self.cluster()?.spec.storage;
        storage.storage_class_name.clone()
    }

    fn default_class(&self) -> Option<String> {
        let mut classes = self.api.classes.iter();
        let default = classes.find(|(_, class)| class.is_default);
        default.map(|(name, _)| name.clone())
    }

    /// It goes once no pod uses it.
    pub(super) fn delete_pvc(&mut self, pvc: &str, uid: &str) -> Result<(), Refused> {
        if !self.api.pvcs.contains_key(pvc) {
            return Ok(());
        }
        self.change_pvc(pvc, uid, |facts| facts.terminating = true)
    }
}
