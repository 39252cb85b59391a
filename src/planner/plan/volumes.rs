//! Whether the volume of a member is the one that the specification asks for, and which one a new member gets. A volume
//! cannot become smaller, change its class or move to another zone: its member is replaced. The rules do that.
//!
//! Only a change of the specification is a reason: each PVC records what was asked for when it was made, and what
//! differs from the specification without having been asked for (a PVC that was grown by hand, a class that an admission
//! webhook replaced, another default class) is left as it is.

use std::collections::BTreeMap;

use crate::mutants::mutant;

use super::observed::{AskedStorage, PvcFacts, PvcState, Space};
use super::situation::Situation;

/// Checkpoints of the data and the log beside them, as the rule about `server.quota` counts them.
const COPIES: u64 = 4;

/// The size of a volume, as far as it was given.
fn given(pvc: &PvcFacts) -> u64 {
    match pvc.storage.capacity_bytes {
        0 => pvc.requested_bytes,
        given => pvc.requested_bytes.min(given),
    }
}

/// The volume of a new member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NewVolume {
    /// Bytes to request.
    pub(super) bytes: u64,
    /// What to record as asked for.
    pub(super) asked: u64,
}

impl<'a> Situation<'a> {
    /// What the specification asks of a volume.
    pub(super) fn asked(&self) -> AskedStorage {
        AskedStorage {
            bytes: self.size_in_effect(),
            class: self.cluster.spec.storage.storage_class_name.clone(),
        }
    }

    /// The volume of a new member: not smaller than those of the others, unless they are to become smaller.
    pub(super) fn new_volume(&self) -> NewVolume {
        let asked = self.size_in_effect();
        NewVolume {
            bytes: self.largest().unwrap_or(0).max(asked),
            asked,
        }
    }

    /// The largest volume of a member that is not to become smaller. What was requested and never given counts for nobody
    /// else: a new member would wait for it in vain.
    pub(super) fn largest(&self) -> Option<u64> {
        let kept = self.seated_pvcs().map(|(_, pvc)| pvc);
        let kept = kept.filter(|pvc| !self.becomes_smaller(pvc));
        kept.map(given).max()
    }

    /// The volume of the seed: after a recovery not smaller than those that the former members had, which may have grown,
    /// since it takes their data. Where `storage.size` was lowered, that goes on afterwards as for any other member.
    pub(super) fn seed_volume(&self) -> NewVolume {
        let size = self.cluster.storage_bytes;
        let former = self.o.earlier.pvcs.values();
        // What was requested and never given says nothing of the data.
        let former = former.filter(|pvc| pvc.bound && pvc.storage.capacity_bytes > 0);
        let asked = |pvc: &PvcFacts| pvc.storage.asked.as_ref().map_or(0, |asked| asked.bytes);
        NewVolume {
            bytes: former.clone().map(given).fold(size, u64::max),
            asked: former.map(asked).fold(size, u64::max),
        }
    }

    /// The PVCs of voters and learners.
    pub(super) fn seated_pvcs(&self) -> impl Iterator<Item = (&str, &'a PvcFacts)> {
        let seated = self.voters.iter().chain(&self.learners);
        let ours = seated.filter(|(_, seat)| seat.ours);
        ours.filter_map(|(name, _)| Some((name.as_str(), self.pvc(name)?)))
    }

    /// Why the volume of a member is not the one that the specification asks for, and cannot become that one.
    pub(super) fn unfit(&self, member: &str) -> Option<String> {
        let pvc = self.pvc(member)?;
        if let Some(class) = self.other_class(pvc) {
            let own = pvc.storage.class.as_deref().unwrap_or("none");
            return Some(format!(
                "the storage class of its volume is {own}, not {class}"
            ));
        }
        if self.becomes_smaller(pvc) {
            let size = &self.cluster.spec.storage.size;
            return Some(format!("its volume is larger than storage.size, {size}"));
        }
        self.is_stranded(member, pvc)
            .then(|| "its volume is on no node that podTemplate selects".to_owned())
    }

    /// Whether a restart of this voter would leave it without a node: the current template selects none that its volume
    /// can be used on.
    pub(super) fn would_be_stranded(&self, member: &str) -> bool {
        let pvc = self.pvc(member);
        pvc.is_some_and(|pvc| self.selects_no_node_of(pvc))
    }

    /// The same for a member that is restarted with the current template, or waits for a node.
    fn is_stranded(&self, member: &str, pvc: &PvcFacts) -> bool {
        let pod = self.o.pods.get(member);
        let waits = pod.is_some_and(|pod| pod.node.is_none()) && !self.voters.contains_key(member);
        let restarts = !self.is_started_as_wanted(member) || self.retires(member) || waits;
        restarts && self.selects_no_node_of(pvc)
    }

    fn selects_no_node_of(&self, pvc: &PvcFacts) -> bool {
        mutant!(ZoneForgotten => return false);
        let Some(nodes) = pvc.nodes.as_ref().filter(|nodes| !nodes.is_empty()) else {
            return false;
        };
        let unselected = |node: &String| self.o.nodes.get(node).is_some_and(|it| it.unselected);
        nodes.iter().all(unselected)
    }

    /// The class that is asked for instead of the one that this PVC was made with.
    fn other_class(&self, pvc: &PvcFacts) -> Option<String> {
        let asked = pvc.storage.asked.as_ref()?;
        let wanted = &self.cluster.spec.storage.storage_class_name;
        if asked.class == *wanted {
            return None;
        }
        // Without a class in the specification it is the default one, if that is known.
        let wanted = wanted.clone().or_else(|| {
            let mut classes = self.o.classes.iter();
            let default = classes.find(|(_, class)| class.is_default);
            default.map(|(name, _)| name.clone())
        })?;
        (pvc.storage.class.as_ref() != Some(&wanted)).then_some(wanted)
    }

    /// Why the seed of a cluster that is not formed gets no volume: its PVC never had one, and another class is asked for
    /// since.
    pub(super) fn waits_in_vain(&self, pvc: &PvcFacts) -> Option<String> {
        let class = self.other_class(pvc)?;
        let unused = !pvc.bound && pvc.state == PvcState::New && self.view.is_none();
        unused.then(|| format!("it has no volume yet, and its storage class is to be {class}"))
    }

    /// Why new members wait for a storage class that does not exist. A volume that was made by hand may have one all the
    /// same.
    pub(super) fn lacks_its_class(&self) -> Option<String> {
        let class = self.cluster.spec.storage.storage_class_name.as_ref()?;
        let there = self.o.classes.is_empty() || self.o.classes.contains_key(class);
        let has_it = |pvc: &PvcFacts| pvc.bound && pvc.storage.class.as_ref() == Some(class);
        let works = there || self.our_pvcs().any(|(_, pvc)| has_it(pvc));
        (!works && self.voters.len() < self.goal()).then(|| {
            format!(
                "no StorageClass {class} exists, so new members get no volumes; nobody leaves before they vote: create it, or set storage.storageClassName back"
            )
        })
    }

    /// Whether `storage.size` was lowered since it was asked of this PVC, and the data have room in the smaller size.
    pub(super) fn becomes_smaller(&self, pvc: &PvcFacts) -> bool {
        self.was_lowered_for(pvc) && self.has_room().is_ok()
    }

    fn was_lowered_for(&self, pvc: &PvcFacts) -> bool {
        let asked = pvc.storage.asked.as_ref();
        let size = self.cluster.storage_bytes;
        asked.is_some_and(|asked| asked.bytes > size) && pvc.requested_bytes > size
    }

    /// `storage.size`; while a smaller one is refused, the one before.
    fn size_in_effect(&self) -> u64 {
        let size = self.cluster.storage_bytes;
        let lowered = self.seated_pvcs().map(|(_, pvc)| pvc);
        let lowered = lowered.filter(|pvc| self.was_lowered_for(pvc));
        let before = lowered.filter_map(|pvc| Some(pvc.storage.asked.as_ref()?.bytes));
        match before.max() {
            Some(before) if self.has_room().is_err() => before,
            _ => size,
        }
    }

    /// Why a lowered `storage.size` is not carried out, if it is not: what the user has to do.
    pub(super) fn refused_size(&self) -> Option<String> {
        let lowered = |(_, pvc): (&str, &PvcFacts)| self.was_lowered_for(pvc);
        if !self.seated_pvcs().any(lowered) {
            return None;
        }
        self.has_room().err()
    }

    /// Whether the data of every member have room on volumes of `storage.size`.
    fn has_room(&self) -> Result<(), String> {
        mutant!(ShrunkUnmeasured => return Ok(()));
        let size = self.cluster.storage_bytes;
        let text = &self.cluster.spec.storage.size;
        let known = self.used();
        // What was begun goes on while it still fits: a margin keeps it from being given up at once.
        let begun = self.has_begun_to_shrink();
        if known.is_empty() && !begun {
            return Err(format!(
                "storage.size {text} is smaller than the volumes are, and no member reports how much data there is: wait, or set it back"
            ));
        }
        let over = |used: u64| {
            let needed = used.saturating_mul(COPIES);
            needed + if begun { 0 } else { needed / 10 } > size
        };
        let over: Vec<&str> = known
            .into_iter()
            .filter(|(_, used)| over(*used))
            .map(|(name, _)| name)
            .collect();
        if over.is_empty() {
            return Ok(());
        }
        Err(format!(
            "storage.size {text} is too small: up to three checkpoints of the data and as much log are on a volume, and the data of {} are more than a quarter of it (a tenth is kept free). Delete keys, compact and defragment, or set storage.size to four and a half times the data at least; the volumes stay as they are until then",
            over.join(", ")
        ))
    }

    /// Bytes that voters hold, as far as they report it.
    fn used(&self) -> BTreeMap<&str, u64> {
        let heard = |name: &'_ String| -> Option<Space> {
            let description = self.description(name).filter(|d| !d.unsigned)?;
            description.space
        };
        let voters = self.voters.keys();
        voters
            .filter_map(|name| Some((name.as_str(), heard(name)?.used)))
            .collect()
    }

    /// Whether a member has, or waits with, a volume of the smaller size.
    fn has_begun_to_shrink(&self) -> bool {
        let size = self.cluster.storage_bytes;
        let mut ours = self.our_pvcs().map(|(_, pvc)| pvc);
        ours.any(|pvc| {
            let live = pvc.state != PvcState::Retired && !pvc.terminating;
            let asked = pvc.storage.asked.as_ref();
            live && asked.is_some_and(|asked| asked.bytes == size)
        })
    }

    /// What to record on a PVC that grows to the size that is asked for. Its class is still the one that it was made
    /// with: a change of it is not forgotten.
    pub(super) fn asked_by_growth(&self, pvc: &PvcFacts) -> AskedStorage {
        let asked = self.asked();
        let before = pvc.storage.asked.clone();
        AskedStorage {
            bytes: asked.bytes,
            class: before.map_or(asked.class, |before| before.class),
        }
    }

    /// What is not recorded on a PVC yet of what the specification asks for and is so.
    pub(super) fn unrecorded(&self, pvc: &PvcFacts) -> Option<AskedStorage> {
        let asked = self.asked();
        let differs = pvc.storage.asked.as_ref() != Some(&asked);
        let to_come = self.other_class(pvc).is_some()
            || self.was_lowered_for(pvc)
            || pvc.requested_bytes < asked.bytes;
        (differs && !to_come).then_some(asked)
    }
}
