//! Under `disruption.policy: Auto`: whether the PDB lets an eviction take a member. Karpenter and the cluster autoscaler
//! choose only nodes whose pods may be evicted, so it does while nothing is under way; as soon as something is, it is
//! closed, and members leave as under `Gate`. The Eviction API refuses from the write on, even before the PDB is counted
//! again. What was evicted before that is an ordinary input: one member whose pod ends.
//!
//! Decided last, since what the other rules want is under way as well. Closing comes first of all steps, and until it is
//! done no pod is ended; opening comes last.

use crate::plan::Rule;
use crate::plan::action::{Action, ObjectAction};
use crate::plan::draft::{Closed, Draft, Wait};
use crate::plan::observed::Owner;
use crate::plan::pdb::PdbLimit;
use crate::plan::situation::{Situation, in_ms};
use crate::plan::step::{Class, Step};

/// The fewest voters of which one can go without a successor.
const FEWEST: usize = 3;

/// Opens the PDB, closes it, or makes it.
pub(super) fn rule(s: &Situation<'_>, draft: &mut Draft) {
    let wanted = s.wanted_pdb();
    let Some((key, inputs)) = wanted.filter(|_| s.opens_its_pdb()) else {
        return;
    };
    let facts = s.o.objects.get(key);
    // Nothing of a cluster exists before its identity.
    let unborn = facts.is_none() && s.o.identity_secret.is_none();
    if unborn || facts.is_some_and(|facts| facts.owner != Owner::Ours) {
        return;
    }
    let closed = closed_by(s, draft);
    let (limit, why) = match &closed {
        None => (open(s), "nothing is under way: one member may be evicted"),
        Some(closed) => (PdbLimit::CLOSED, closed.why.as_str()),
    };
    let before = s.o.pdb.and_then(|pdb| pdb.limit);
    let current = facts.is_some_and(|facts| facts.inputs.as_ref() == Some(inputs));
    let why = match facts {
        None => "it is missing".to_owned(),
        Some(_) => why.to_owned(),
    };
    draft.evictions = Some(closed.map_or(Ok(()), Err));
    if limit == PdbLimit::CLOSED && s.may_lose_one() {
        draft.steps.retain(|step| !step.ends_a_pod());
    }
    if facts.is_some_and(|facts| facts.terminating) {
        let text = format!("{} {} to be deleted", key.kind.as_str(), key.name);
        draft.wait("SetPDB", "", "Terminating", text);
        return;
    }
    if current && before == Some(limit) {
        return;
    }
    let step = Step {
        rule: Rule::Objects,
        action: Action::Object(ObjectAction::SetPdb { limit, before }),
        reason: why,
    };
    if limit != PdbLimit::CLOSED {
        draft.steps.push(step);
        return;
    }
    let admits =
        |step: &Step| matches!(step.action, Action::Object(ObjectAction::AdmitSpec { .. }));
    let first = draft.steps.iter().take_while(|step| admits(step)).count();
    draft.steps.insert(first, step);
}

/// All members but one stay available: whatever a pod is counted as between its end and the next one, no second one goes.
fn open(s: &Situation<'_>) -> PdbLimit {
    let others = s.voters.len().saturating_sub(1);
    PdbLimit::MinAvailable(u32::try_from(others).unwrap_or(u32::MAX))
}

/// Why no eviction may take a member. What lasts is named first, so that the reason does not change with what passes.
fn closed_by(s: &Situation<'_>, draft: &Draft) -> Option<Closed> {
    by_spec(s)
        .or_else(|| by_cluster(s))
        .or_else(|| s.voters.keys().find_map(|name| by_volume(s, name)))
        .or_else(|| s.voters.keys().find_map(|name| by_node(s, name)))
        .or_else(|| s.voters.keys().find_map(|name| by_member(s, name)))
        .or_else(|| by_plan(draft))
        .or_else(|| s.voters.keys().find_map(|name| by_age(s, name)))
}

fn lasting(reason: &'static str, why: impl Into<String>) -> Option<Closed> {
    let (why, passes) = (why.into(), false);
    Some(Closed {
        reason,
        why,
        passes,
    })
}

fn passing(reason: &'static str, why: impl Into<String>) -> Option<Closed> {
    let (why, passes) = (why.into(), true);
    Some(Closed {
        reason,
        why,
        passes,
    })
}

/// What the user asks for.
fn by_spec(s: &Situation<'_>) -> Option<Closed> {
    let target = s.cluster.target();
    if s.cluster.spec.paused {
        return lasting("Paused", "paused by spec.paused");
    }
    if s.hibernates() {
        return lasting("Hibernated", "replicas is 0: the cluster hibernates");
    }
    if target < FEWEST {
        let why = "a cluster of one or two has no member to spare: a successor comes first";
        return lasting("FewVoters", why);
    }
    if !s.moves_members() {
        let why = "by disruption.nodeReplacement or updateStrategy.type members do not move with their volumes";
        return lasting("MembersReplaced", why);
    }
    // The next pod would not start with it. Of any other refused change nothing has been done.
    let refused = s.o.refused.as_ref();
    if let Some(change) = refused.filter(|change| change.of_certificate) {
        return lasting("CertificateRefused", change.text.clone());
    }
    if s.o.tls.is_unanswerable() {
        let why = "the API server shows no PodCertificateRequests, and the next pod would not start without";
        return lasting("CertificateRefused", why);
    }
    if let Some(why) = super::certificates::withheld(s, None) {
        return lasting("CertificateRefused", why);
    }
    if s.o.nodes.is_empty() {
        let why = "the operator cannot read Nodes, and would not see a drain";
        return lasting("NodesUnknown", why);
    }
    None
}

/// Who is a member, and what they say together.
fn by_cluster(s: &Situation<'_>) -> Option<Closed> {
    let Some((_, leader)) = s.view else {
        return passing("NoQuorumSeen", "no leader with a quorum was seen");
    };
    if !leader.alarms.is_empty() {
        let alarms = leader.alarms.join(", ");
        return passing("AlarmRaised", format!("alarms are on: {alarms}"));
    }
    if let Some(name) = s.learners.keys().chain(&s.standbys).next() {
        return passing("MembersChange", format!("{name} is joining"));
    }
    let (voters, target) = (s.voters.len(), s.cluster.target());
    if voters != target {
        let why = format!("{voters} members vote, and {target} are wanted");
        return passing("MembersChange", why);
    }
    if let Some((name, _)) = s.voters.iter().find(|(_, seat)| !seat.ours) {
        return passing("MembersChange", format!("{name} is none of the operator's"));
    }
    let mut pods = s.o.pods.keys().chain(s.o.earlier.pods.keys());
    if let Some(name) = pods.find(|name| !s.voters.contains_key(*name)) {
        return passing("MembersChange", format!("{name} is leaving"));
    }
    None
}

fn by_volume(s: &Situation<'_>, member: &str) -> Option<Closed> {
    match s.volume_leaves(member) {
        Some(true) => None,
        Some(false) => lasting(
            "VolumesStay",
            format!("the volume of {member} cannot leave its node: a successor comes first"),
        ),
        None => passing(
            "VolumesUnknown",
            format!(
                "it is not known whether the volume of {member} can leave its node: see scheduling.volumes"
            ),
        ),
    }
}

fn by_node(s: &Situation<'_>, member: &str) -> Option<Closed> {
    if let Some((node, why)) = s.leaves(member) {
        return passing(
            "NodeDrained",
            format!("{node}, the node of {member}, {why}"),
        );
    }
    let node = s.o.pods.get(member)?.node.as_ref()?;
    if s.o.nodes.get(node).is_none_or(|facts| !facts.ready) {
        return passing(
            "NodeNotReady",
            format!("{node}, the node of {member}, is not ready"),
        );
    }
    None
}

fn by_member(s: &Situation<'_>, member: &str) -> Option<Closed> {
    let seat = s.voters.get(member)?;
    if let Some(why) = seat.verdict.why() {
        return passing("MemberUnhealthy", format!("{member} is not healthy: {why}"));
    }
    if s.is_leaving(member) {
        return passing(
            "MembersChange",
            format!("{member} is leaving its node, or restarting"),
        );
    }
    let ready = s.description(member).is_some_and(|d| d.ready);
    let pod = s.o.pods.get(member);
    if !ready || pod.is_none_or(|pod| pod.ready_since_ms.is_none()) {
        return passing("MemberUnhealthy", format!("{member} is not ready"));
    }
    let set = s.o.sets.get(member);
    let rolled = set.is_some_and(|set| set.inputs.as_ref() == Some(&s.o.wanted_inputs));
    if !rolled || !s.updated(member) || s.lacks_resources(member) || s.is_replaced(member) {
        return passing(
            "MembersChange",
            format!("{member} is to be changed, or replaced"),
        );
    }
    None
}

/// What another rule wants, waits for, or holds back.
fn by_plan(draft: &Draft) -> Option<Closed> {
    let passing = |why: String| passing("MembersChange", why);
    if let Some(step) = draft
        .steps
        .iter()
        .find(|step| touches_members(&step.action))
    {
        return passing(format!("{}: {}", step.action, step.reason));
    }
    let kept = |class: Class| matches!(class, Class::Membership | Class::Disruption);
    if let Some(hold) = draft.holds.iter().find(|hold| kept(hold.class)) {
        return passing(hold.reason.clone());
    }
    let wait = draft.waits.iter().find(|wait| concerns_members(wait))?;
    passing(format!("waiting for {}", wait.waiting_for))
}

/// Whether a member does not serve as before while this is done.
fn touches_members(action: &Action) -> bool {
    match action {
        Action::Certificate(_) => false,
        Action::Member(_) => true,
        Action::Object(action) => !matches!(
            action,
            ObjectAction::AdmitSpec { .. }
                | ObjectAction::ApplyObject(_)
                | ObjectAction::SetPdb { .. }
                | ObjectAction::MapSlot { .. }
                | ObjectAction::DropSlot { .. }
                | ObjectAction::GrowPvc { .. }
                | ObjectAction::RecordStorage { .. }
                | ObjectAction::MarkPvc { .. }
                | ObjectAction::OwnPvc { .. }
                | ObjectAction::DeletePvc { .. }
                | ObjectAction::DeleteSet { .. }
        ),
    }
}

fn concerns_members(wait: &Wait) -> bool {
    let others = [
        "ApplyObject",
        "Delete",
        "GrowPVC",
        "IssueCertificate",
        "LoadCertificate",
        "MapSlot",
        "SetPDB",
    ];
    !others.contains(&wait.action)
}

fn by_age(s: &Situation<'_>, member: &str) -> Option<Closed> {
    let least = in_ms(s.cluster.spec.update_strategy.min_ready_seconds);
    let since = s.o.pods.get(member)?.ready_since_ms?;
    let seconds = least / 1000;
    (since + least > s.o.now_ms).then(|| {
        passing(
            "Settling",
            format!("{member} is to be ready for {seconds} s first"),
        )
    })?
}
