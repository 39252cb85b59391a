//! An object with one of our names belongs to something else, or is still terminating.

use crate::crd::slot_service_name;
use crate::plan::draft::Draft;
use crate::plan::observed::Owner;
use crate::plan::situation::Situation;
use crate::plan::step::Class;

/// Whether a conflict stops the plan.
pub(super) fn rule(s: &Situation<'_>, draft: &mut Draft) -> bool {
    let sets =
        s.o.sets
            .iter()
            .map(|(name, set)| ("StatefulSet", name.clone(), &set.owner));
    let objects = s.o.objects.iter();
    let objects = objects.map(|(key, facts)| (key.kind.as_str(), key.name.clone(), &facts.owner));
    // A Service that only looks like a slot beyond the wanted ones blocks nothing.
    let wanted = u32::try_from(s.o.slot_endpoints.len()).unwrap_or(u32::MAX);
    let slots = s.o.slots.range(..wanted).map(|(slot, facts)| {
        let name = slot_service_name(&s.cluster.name, *slot);
        ("Service", name, &facts.owner)
    });
    let identity_secret = s.o.identity_secret.iter();
    let identity_secret = identity_secret.map(|identity_secret| {
        (
            "Secret",
            crate::crd::identity_secret_name(&s.cluster.name),
            &identity_secret.owner,
        )
    });
    // Certificates of a deleted cluster are no longer there once a member has started with them.
    let certificates = s.o.tls.secrets.iter();
    let certificates = certificates.filter(|(_, facts)| facts.owner == Owner::EarlierLife);
    let certificates = certificates.map(|(name, facts)| ("Secret", name.clone(), &facts.owner));
    let all = identity_secret.chain(objects).chain(slots).chain(sets);
    let mut waits = false;
    for (kind, name, owner) in all.chain(certificates) {
        let whose = match owner {
            Owner::Ours => continue,
            Owner::EarlierLife => {
                draft.wait(
                    "Wait",
                    "",
                    "EarlierLife",
                    format!("the garbage collection of {kind} {name} of a deleted cluster with this name"),
                );
                waits = true;
                continue;
            }
            Owner::Unowned => {
                draft.stall(
                    "NameConflict",
                    format!(
                        "{kind} {name} exists and was not created for this cluster: use another name for this cluster, or delete that object if nothing needs it"
                    ),
                );
                continue;
            }
            Owner::Other(whose) => whose,
        };
        draft.stall(
            "NameConflict",
            format!("{kind} {name} belongs to {whose}: use another name for this cluster or for that object"),
        );
    }
    if let Some((_, why)) = &draft.stalled {
        let why = why.clone();
        draft.hold(Class::Membership, why.clone());
        draft.hold(Class::Disruption, why.clone());
        draft.hold(Class::Objects, why);
        return true;
    }
    // For a formed cluster it is created again: healing does not wait for the deletion of a Secret.
    let terminating =
        s.o.identity_secret
            .as_ref()
            .is_some_and(|identity_secret| identity_secret.terminating);
    if terminating && !s.bootstrapped() {
        draft.wait(
            "Wait",
            "",
            "Terminating",
            "the identity Secret is being deleted",
        );
        waits = true;
    }
    waits
}
