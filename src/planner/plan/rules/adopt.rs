//! The volumes of a deleted resource, with which this one goes on: `spec.bootstrap.adopt`. Its identity is written down
//! first, and names the adopted UID; from then on the cluster is one that wakes from hibernation: the rule for missing
//! StatefulSets starts every member on its own volume, and they find their quorum by themselves. Nothing is formed here,
//! and no label of a volume is changed.

use std::collections::BTreeSet;

use crate::crd::member_number;
use crate::plan::Rule;
use crate::plan::action::{Action, ObjectAction};
use crate::plan::draft::Draft;
use crate::plan::observed::{Exit, PvcFacts, PvcState};
use crate::plan::situation::Situation;
use crate::plan::step::Class;

/// The identity of a cluster that adopts volumes and has none yet. Returns whether the plan ends here.
pub(super) fn identity(s: &Situation<'_>, draft: &mut Draft) -> bool {
    let usable = |pvc: &PvcFacts| {
        pvc.state == PvcState::Joined && !pvc.terminating && pvc.volume_gone.is_none()
    };
    let usable = s.our_pvcs().filter(|(_, pvc)| usable(pvc));
    let members = usable.filter_map(|(_, pvc)| pvc.member.as_deref());
    let eldest = members.min_by_key(|name| member_number(&s.cluster.name, name));
    let Some(eldest) = eldest else {
        nothing_to_adopt(s, draft);
        return true;
    };
    let adopted = &s.cluster.life;
    if s.hibernates() {
        let text = format!("the volumes of cluster UID {adopted} are adopted once members run");
        draft.note("IdentityGone", text);
        return false;
    }
    let action = Action::Object(ObjectAction::CreateIdentitySecret {
        seed: eldest.to_owned(),
        nonce: s.o.entropy.clone(),
        incarnation: s.incarnation,
    });
    let reason = format!("the members start on the volumes of cluster UID {adopted}");
    draft.step(Rule::Adoption, action, reason);
    true
}

/// Reports why no volume can be adopted, with every one that was looked at.
fn nothing_to_adopt(s: &Situation<'_>, draft: &mut Draft) {
    let (name, life) = (&s.cluster.name, &s.cluster.life);
    let seen: Vec<String> = s.our_pvcs().map(|(pvc, it)| unusable(pvc, it)).collect();
    let others = s.o.pvcs.values().filter_map(|it| it.cluster_uid.as_deref());
    let others: BTreeSet<&str> = others.filter(|uid| uid != life).collect();
    let found = match (seen.is_empty(), others.is_empty()) {
        (false, _) => format!(": {}", seen.join("; ")),
        (true, false) => {
            let others: Vec<&str> = others.into_iter().collect();
            format!(
                "; volumes of the name {name} have the UID {}",
                others.join(", ")
            )
        }
        (true, true) => String::new(),
    };
    let text = format!(
        "there is no volume that a member has used with the labels quorate.dev/cluster={name}, quorate.dev/cluster-uid={life} and quorate.dev/claim-state=joined in this namespace{found}. No cluster is formed. A resource that adopts has the name and the namespace of the deleted one, and clusterUID is the label of the volumes (kubectl get pvc -L quorate.dev/cluster,quorate.dev/cluster-uid,quorate.dev/claim-state)"
    );
    draft.stall("NothingToAdopt", text);
    for class in [Class::Membership, Class::Disruption, Class::Objects] {
        draft.hold(class, "there is nothing to adopt");
    }
}

fn unusable(name: &str, pvc: &PvcFacts) -> String {
    let why = match (pvc.terminating, &pvc.volume_gone, pvc.state) {
        (true, ..) => "is being deleted",
        (_, Some(_), _) => "has lost its volume",
        (.., PvcState::New) => "is not marked as used",
        (.., PvcState::Retired) => "was kept of a removed or replaced member",
        (.., PvcState::Joined) => "is used by a member",
    };
    format!("PVC {name} {why}")
}

/// Whether an adopted volume turned out to hold the data of something else, as its server says: it was labelled by
/// somebody else, or something was restored into it. It is not deleted, whatever its labels say.
pub(super) fn holds_another_life(s: &Situation<'_>, member: &str) -> bool {
    let pod = s.o.pods.get(member).filter(|pod| pod.started_ms.is_none());
    let foreign = pod.is_some_and(|pod| pod.last_exit == Some(Exit::ForeignDisk));
    foreign && s.cluster.spec.adopts().is_some()
}

/// Why adopted members find no quorum, as far as they say.
pub(super) fn report(s: &Situation<'_>, draft: &mut Draft) {
    if s.cluster.spec.adopts().is_none() {
        return;
    }
    report_strangers(s, draft);
    let described = s.o.descriptions.values();
    let mut members = described.flat_map(|description| &description.members);
    let secure = |url: &String| url.starts_with("https://");
    let dialled = members.any(|member| member.peer_urls.iter().any(secure));
    if dialled && s.cluster.spec.tls.is_none() {
        let text = "the members dial each other with TLS, as the deleted cluster had it, and spec.tls is missing: adopt the volumes by a resource with spec.tls";
        draft.stall("TLSNeeded", text);
    }
}

fn report_strangers(s: &Situation<'_>, draft: &mut Draft) {
    let pvcs = s.our_pvcs().filter_map(|(_, pvc)| pvc.member.as_deref());
    let strangers = pvcs.filter(|member| holds_another_life(s, member));
    let strangers: Vec<String> = strangers
        .map(|member| format!("{member} (PVC {})", s.pvc_name(member)))
        .collect();
    if strangers.is_empty() {
        return;
    }
    let text = format!(
        "the disks of {} are not of the cluster with UID {}, whatever their labels say: their servers refuse them, and nothing on them is changed. The others need a quorum without them; otherwise let the cluster go on from a member that is left or from a backup (kubectl quorate recover)",
        strangers.join(", "),
        s.cluster.life
    );
    draft.stall("ForeignDisk", text);
}
