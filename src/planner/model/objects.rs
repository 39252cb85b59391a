//! The API server's handling of an action on an object: each kind of object has its own file, and those that are not a
//! member's are here. Objects of other owners and terminating objects are not touched. Never checks the state of a
//! member.

use super::{Model, Refused};
use crate::plan::{
    IdentitySecret, ObjectAction, ObjectFacts, ObjectKey, ObjectKind, Owner, PdbFacts, PdbLimit,
    SlotFacts,
};

impl Model {
    pub(super) fn change_object(&mut self, action: &ObjectAction) -> Result<(), Refused> {
        match action {
            ObjectAction::AdmitSpec { hash } => self.admit(hash),
            ObjectAction::ApplyObject(key) => self.apply_object(key),
            ObjectAction::SetPdb { limit, before } => self.set_pdb(*limit, *before),
            ObjectAction::CreateIdentitySecret {
                seed,
                nonce,
                incarnation,
            } => self.create_identity_secret(seed, nonce, *incarnation),
            ObjectAction::MapSlot { slot, member, .. } => self.map_slot(*slot, member),
            ObjectAction::DropSlot { slot, uid, .. } => self.drop_slot(*slot, uid),
            ObjectAction::DeleteIdentitySecret { incarnation } => {
                self.delete_identity_secret(*incarnation);
                Ok(())
            }
            ObjectAction::CreatePvc {
                member,
                pvc,
                incarnation,
                bytes,
                asked,
            } => self.create_pvc(member, pvc, *incarnation, (*bytes, *asked)),
            ObjectAction::GrowPvc {
                pvc,
                uid,
                bytes,
                asked,
            } => self.grow_pvc(pvc, uid, *bytes, asked.clone()),
            ObjectAction::RecordStorage { pvc, uid, asked } => {
                self.change_pvc(pvc, uid, |facts| facts.storage.asked = Some(asked.clone()))
            }
            ObjectAction::MarkPvc { pvc, uid, state } => {
                self.change_pvc(pvc, uid, |facts| facts.state = *state)
            }
            ObjectAction::OwnPvc { pvc, uid, owned } => {
                self.change_pvc(pvc, uid, |facts| facts.owned = *owned)
            }
            ObjectAction::DeletePvc { pvc, uid } => self.delete_pvc(pvc, uid),
            ObjectAction::ApplySet {
                member,
                one_per_node,
                hibernated,
                plaintext_peers,
                ..
            } => self.apply_set(member, *one_per_node, *hibernated, *plaintext_peers),
            ObjectAction::DeleteSet { member, uid } => self.delete_set(member, uid),
            ObjectAction::ReleasePod { member, uid } => {
                let now_ms = self.api.now_ms;
                self.label_pod(member, uid, Some(now_ms))
            }
            ObjectAction::HoldPod { member, uid } => self.label_pod(member, uid, None),
            ObjectAction::EvictPod { member, uid } => self.evict_pod(member, uid),
            ObjectAction::ResizePod { member, uid } => self.resize_pod(member, uid),
            ObjectAction::RecordInputs { member, uid } => self.record_inputs(member, uid),
            ObjectAction::DeletePod { member, uid } => self.delete_pod(member, uid),
        }
    }

    fn admit(&mut self, hash: &str) -> Result<(), Refused> {
        let Some(spec) = &mut self.api.spec else {
            return Refused::changed("the platform keeps no specification");
        };
        spec.kept = Some(hash.to_owned());
        Ok(())
    }

    fn apply_object(&mut self, key: &ObjectKey) -> Result<(), Refused> {
        if let Some(found) = self.api.objects.get(key) {
            free(&key.name, &found.owner, found.terminating)?;
        }
        let facts = ObjectFacts {
            owner: Owner::Ours,
            terminating: false,
            inputs: self.api.wanted_objects.get(key).cloned(),
        };
        self.api.objects.insert(key.clone(), facts);
        if key.kind == ObjectKind::PodDisruptionBudget {
            self.api.pdb = Some(PdbFacts::of(PdbLimit::CLOSED));
        }
        Ok(())
    }

    fn set_pdb(&mut self, limit: PdbLimit, before: Option<PdbLimit>) -> Result<(), Refused> {
        let found = self.api.pdb.and_then(|pdb| pdb.limit);
        if found != before {
            return Refused::changed(format!("the PDB has {found:?}"));
        }
        let is_pdb = |key: &&ObjectKey| key.kind == ObjectKind::PodDisruptionBudget;
        if let Some(key) = self.api.wanted_objects.keys().find(is_pdb).cloned() {
            self.apply_object(&key)?;
        }
        self.api.pdb = Some(PdbFacts::of(limit));
        Ok(())
    }

    /// What the PDB keeps available; `None`: it is a gate, or there is none.
    pub fn min_available(&self) -> Option<u32> {
        self.api.pdb.and_then(|pdb| pdb.min_available())
    }

    fn create_identity_secret(
        &mut self,
        seed: &str,
        nonce: &str,
        incarnation: u64,
    ) -> Result<(), Refused> {
        if let Some(found) = &self.api.identity_secret {
            // It is created once; what there is stays.
            return free("the identity Secret", &found.owner, found.terminating);
        }
        self.api.identity_secret = Some(IdentitySecret {
            owner: Owner::Ours,
            terminating: false,
            cluster_uid: self.uid().to_owned(),
            incarnation,
            seed: seed.to_owned(),
            nonce: nonce.to_owned(),
        });
        Ok(())
    }

    /// One of another incarnation stays.
    fn delete_identity_secret(&mut self, incarnation: u64) {
        let found = &mut self.api.identity_secret;
        found.take_if(|found| found.incarnation == incarnation);
    }

    fn map_slot(&mut self, slot: u32, member: &str) -> Result<(), Refused> {
        if let Some(found) = self.api.slots.get(&slot) {
            free(&format!("slot {slot}"), &found.owner, found.terminating)?;
        }
        let new = self.fresh("slot");
        let found = self.api.slots.get(&slot);
        let facts = SlotFacts {
            uid: found.map_or(new, |found| found.uid.clone()),
            owner: Owner::Ours,
            terminating: false,
            inputs: Some(self.api.wanted_slot_inputs.clone()),
            member: Some(member.to_owned()),
        };
        self.api.slots.insert(slot, facts);
        Ok(())
    }

    fn drop_slot(&mut self, slot: u32, uid: &str) -> Result<(), Refused> {
        let found = self.api.slots.get(&slot);
        if found.is_some_and(|found| found.uid != uid) {
            return Refused::changed(format!("slot {slot} is another one"));
        }
        self.api.slots.remove(&slot);
        Ok(())
    }
}

/// Whether the existing object may be overwritten.
pub(super) fn free(name: &str, owner: &Owner, terminating: bool) -> Result<(), Refused> {
    match (owner, terminating) {
        (_, true) => Err(Refused::Terminating(name.to_owned())),
        (Owner::Ours, false) => Ok(()),
        (_, false) => Err(Refused::Taken(name.to_owned())),
    }
}
