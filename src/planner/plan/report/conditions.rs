//! The conditions. Each is True only for what was observed in this reconcile, and Unknown if nothing was observed.

use std::collections::BTreeSet;

use crate::crd::ConditionStatus::{False, True, Unknown};
use crate::crd::{ConditionStatus, ConditionType, VolumeMobility};
use crate::mutants::mutant;
use crate::plan::action::{Action, ObjectAction};
use crate::plan::alarms;
use crate::plan::draft::Draft;
use crate::plan::evidence::{START_MS, Verdict};
use crate::plan::following;
use crate::plan::pdb::PdbLimit;
use crate::plan::situation::{Seat, Situation, quorum};
use crate::plan::step::ConditionInput;

use super::{count, ready_voters};

/// All conditions of a planned reconcile.
pub(super) fn all(s: &Situation<'_>, draft: &Draft) -> Vec<ConditionInput> {
    let mut all = vec![
        ready(s, draft),
        available(s),
        quorate(s),
        progressing(s, draft),
        degraded(s, draft),
    ];
    all.extend(super::certificates::ready(s));
    all.push(durable(s));
    all.extend(super::follow::condition(s));
    all.extend(disruption_allowed(s, draft));
    all.push(stalled(draft));
    all
}

/// If nothing is planned: only whether the user has to act is known.
pub(super) fn only_stalled(stalled: bool, reason: &'static str, why: &str) -> Vec<ConditionInput> {
    ConditionType::ALL
        .into_iter()
        // Only for an observed cluster it is known whether it has TLS, whether it follows another one, and what its PDB
        // allows.
        .filter(|type_| {
            let some = [
                ConditionType::TlsReady,
                ConditionType::Following,
                ConditionType::DisruptionAllowed,
            ];
            !some.contains(type_)
        })
        .map(|type_| match type_ {
            ConditionType::Stalled => input(type_, stalled.into(), reason, why),
            ConditionType::Progressing => input(type_, False, reason, why),
            _ => input(type_, Unknown, reason, "the members were not asked"),
        })
        .collect()
}

pub(super) fn input(
    type_: ConditionType,
    status: ConditionStatus,
    reason: &'static str,
    message: impl Into<String>,
) -> ConditionInput {
    ConditionInput {
        type_,
        status,
        reason,
        message: message.into(),
    }
}

fn ready(s: &Situation<'_>, draft: &Draft) -> ConditionInput {
    let type_ = ConditionType::Ready;
    let (target, voters, ready) = (s.cluster.target(), s.voters.len(), ready_voters(s));
    if s.hibernates() {
        return hibernated(s, type_);
    }
    let message = format!("{ready} of {target} wanted voters are ready");
    if s.view.is_none() {
        let seen = s.bootstrapped();
        return match seen {
            true => input(
                type_,
                Unknown,
                "NoQuorumSeen",
                "no leader with a quorum was seen",
            ),
            false => input(type_, False, "NotFormed", "the cluster is not formed yet"),
        };
    }
    if draft.stalled.is_some() {
        return input(type_, False, "Stalled", message);
    }
    if voters == target && ready == target && s.healthy() == voters {
        return input(type_, True, "AllVotersReady", message);
    }
    let reason = if voters == target {
        "VotersNotReady"
    } else {
        "WrongSize"
    };
    input(type_, False, reason, message)
}

/// Names with their verb.
pub(super) fn are(names: &BTreeSet<String>) -> String {
    let verb = if names.len() == 1 { "is" } else { "are" };
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    format!("{} {verb}", names.join(", "))
}

/// What does not hold, because no member is wanted to run.
fn hibernated(s: &Situation<'_>, type_: ConditionType) -> ConditionInput {
    let (reason, message) = if following::keeps_awake(s) {
        ("SourceClosed", following::awake_because(s))
    } else if s.sleeps() {
        let message = "replicas is 0: no member runs; volumes and identities stay";
        ("Hibernated", message.to_owned())
    } else {
        let message = "replicas is 0: the members stop";
        ("Hibernating", message.to_owned())
    };
    input(type_, False, reason, message)
}

fn available(s: &Situation<'_>) -> ConditionInput {
    let type_ = ConditionType::Available;
    let described: Vec<_> =
        s.o.descriptions
            .keys()
            .filter_map(|name| Some((name, s.description(name)?)))
            .collect();
    if let Some((name, _)) = described.iter().find(|(_, d)| d.ready) {
        return input(
            type_,
            True,
            "Serving",
            format!("{name} answers linearizable reads"),
        );
    }
    if s.sleeps() {
        return hibernated(s, type_);
    }
    if described.is_empty() && s.bootstrapped() {
        return input(
            type_,
            Unknown,
            "NoAnswer",
            "no member answered the operator",
        );
    }
    input(
        type_,
        False,
        "NotServing",
        "no member that answered serves linearizable reads",
    )
}

fn quorate(s: &Situation<'_>) -> ConditionInput {
    let type_ = ConditionType::Quorate;
    if let Some((leader, _)) = s.view {
        let (healthy, voters) = (s.healthy(), s.voters.len());
        let spare = healthy.saturating_sub(quorum(voters));
        let message = format!(
            "{leader} leads; {healthy} of {voters} voters are healthy; tolerates {}",
            count(spare, "more failure")
        );
        return input(type_, True, "LeaderSeen", message);
    }
    if s.hibernates() {
        return hibernated(s, type_);
    }
    if mutant!(StatusFromMemory) && s.bootstrapped() {
        return input(type_, True, "LeaderSeen", "it was formed before");
    }
    if !s.bootstrapped() {
        return input(type_, False, "NotFormed", "the cluster is not formed yet");
    }
    let known = s.o.status_memory.voters.len();
    let answered =
        s.o.status_memory
            .voters
            .iter()
            .filter(|name| s.description(name).is_some())
            .count();
    if known > 0 && answered >= quorum(known) {
        let message = format!("{answered} of {known} voters answer, and none of them leads");
        return input(type_, False, "NoLeader", message);
    }
    let message = format!(
        "{answered} of {known} voters answered the operator: too few to determine whether there is a quorum"
    );
    input(type_, Unknown, "NoQuorumSeen", message)
}

fn progressing(s: &Situation<'_>, draft: &Draft) -> ConditionInput {
    let type_ = ConditionType::Progressing;
    if let Some(step) = draft.steps.first() {
        return input(
            type_,
            True,
            step.action.word(),
            format!("{}: {}", step.action, step.reason),
        );
    }
    if let Some(wait) = draft.waits.first() {
        return input(
            type_,
            True,
            wait.reason,
            format!("waiting for {}", wait.waiting_for),
        );
    }
    if s.cluster.spec.paused {
        return input(type_, False, "Paused", "paused by spec.paused");
    }
    if s.hibernates() {
        return hibernated(s, type_);
    }
    if !s.fenced.is_empty() {
        return input(type_, False, "Fenced", format!("{} fenced", are(&s.fenced)));
    }
    input(type_, False, "AtRest", "nothing to do")
}

fn degraded(s: &Situation<'_>, draft: &Draft) -> ConditionInput {
    let type_ = ConditionType::Degraded;
    let target = s.cluster.target();
    if s.hibernates() {
        return hibernated(s, type_);
    }
    if s.view.is_none() {
        return match s.bootstrapped() {
            true => input(
                type_,
                Unknown,
                "NoQuorumSeen",
                "no leader with a quorum was seen",
            ),
            false => input(type_, False, "NotFormed", "the cluster is not formed yet"),
        };
    }
    let alarms = alarms(s, draft);
    if !alarms.is_empty() {
        return input(type_, True, "AlarmRaised", alarms.join("; "));
    }
    let unhealthy: Vec<String> = s
        .voters
        .iter()
        .filter_map(|(name, seat)| Some(format!("{name}: {}", seat.verdict.why()?)))
        .collect();
    if !unhealthy.is_empty() {
        let healthy_or_fenced =
            |seat: &Seat<'_>| matches!(seat.verdict, Verdict::Healthy | Verdict::Fenced);
        let reason = match s.voters.values().all(healthy_or_fenced) {
            true => "Fenced",
            false => "MemberUnhealthy",
        };
        return input(type_, True, reason, unhealthy.join("; "));
    }
    let beside = unready_for_another(s);
    if !beside.is_empty() {
        return input(type_, True, "SidecarFailing", beside.join("; "));
    }
    if s.voters.len() < target {
        let message = format!("{} of {target}", count(s.voters.len(), "voter"));
        return input(type_, True, "TooFewMembers", message);
    }
    if let Some(message) = blind(s) {
        return input(type_, False, "RightsMissing", message);
    }
    if s.voters.len().is_multiple_of(2) {
        let voters = s.voters.len();
        let message = format!(
            "{voters} voters need {} for a quorum and tolerate {} failures, as many as {} voters do: an odd size is better",
            quorum(voters),
            voters - quorum(voters),
            voters - 1
        );
        return input(type_, False, "EvenSize", message);
    }
    let spare = s.voters.len() - quorum(s.voters.len());
    let message = match s.voters.len() {
        1 => "1 voter tolerates no failure".to_owned(),
        voters => format!("{voters} voters tolerate {}", count(spare, "failure")),
    };
    input(type_, False, "AsWanted", message)
}

/// Members that serve, and whose pods are not ready because of another container: no Service leads to them.
fn unready_for_another(s: &Situation<'_>) -> Vec<String> {
    let voters = s.voters.keys();
    let kept = voters.filter_map(|name| {
        let beside = s.kept_unready(name)?;
        let pod = s.o.pods.get(name)?;
        let began = pod.started_ms.unwrap_or(pod.created_ms);
        (began + START_MS <= s.o.now_ms).then(|| {
            format!(
                "{name} serves, but its pod is not ready, and no Service leads clients to it: {}",
                beside.why
            )
        })
    });
    kept.collect()
}

/// What the operator cannot know because it may not read it, and what follows.
fn blind(s: &Situation<'_>) -> Option<String> {
    let denied = |kind: &str| s.o.denied.contains(kind);
    let mut follows = Vec::new();
    if denied("nodes") {
        follows.push("a node that is away counts as any loss of contact");
        follows.push("a drain is not seen, and waits: name its member in replaceMembers");
    }
    if denied("persistentvolumes") {
        follows.push("a volume that no node can reach is not seen as lost");
    }
    let unknown = s.cluster.spec.scheduling.volumes == VolumeMobility::Auto;
    if unknown && (denied("persistentvolumes") || denied("storageclasses")) {
        follows.push(
            "volumes count as movable unless they are seen to be bound to a node: set scheduling.volumes",
        );
    }
    if denied("endpointslices") {
        follows.push("a member that leaves is waited for 30 s, because it is not seen when clients stop being sent to it: update the operator's role");
    }
    let kinds: Vec<&str> = s.o.denied.iter().map(String::as_str).collect();
    (!kinds.is_empty()).then(|| {
        format!(
            "the operator has no right to read {}: {}",
            kinds.join(", "),
            follows.join("; ")
        )
    })
}

/// The alarms that are on, and what is done about each or has to be.
fn alarms(s: &Situation<'_>, draft: &Draft) -> Vec<String> {
    let on = s.view.into_iter().flat_map(|(_, leader)| &leader.alarms);
    on.map(|words| alarms::in_words(s, draft, words)).collect()
}

/// Of the members that run, and of those that will be made.
fn durable(s: &Situation<'_>) -> ConditionInput {
    let type_ = ConditionType::Durable;
    let asked = s.cluster.spec.server.leaves_out_syncs();
    let pods = s.o.pods.iter().filter(|(_, pod)| pod.server.unsynced);
    let names: Vec<&str> = pods.map(|(name, _)| name.as_str()).collect();
    if !asked && names.is_empty() {
        let message = "acknowledged writes are synced to the disks of a quorum";
        return input(type_, True, "Synced", message);
    }
    let message = if asked {
        "server.extraArgs has unsafe-no-fsync: acknowledged writes can be lost when machines lose power"
            .to_owned()
    } else {
        let run = with_verb(&names);
        format!("{run} with unsafe-no-fsync until restarted: acknowledged writes can be lost")
    };
    input(type_, False, "UnsafeNoFsync", message)
}

/// Names, and that they run.
fn with_verb(names: &[&str]) -> String {
    let verb = if names.len() == 1 { "runs" } else { "run" };
    format!("{} {verb}", names.join(", "))
}

/// Whether the PDB, as it is after what was done, lets an eviction take a member, and why.
fn disruption_allowed(s: &Situation<'_>, draft: &Draft) -> Option<ConditionInput> {
    let type_ = ConditionType::DisruptionAllowed;
    let wanted = draft.evictions.as_ref()?;
    let seen = s.o.pdb.is_some_and(|pdb| pdb.is_open());
    let open = match &draft.done {
        Some(Action::Object(ObjectAction::SetPdb { limit, .. })) => *limit != PdbLimit::CLOSED,
        _ => seen,
    };
    Some(match (wanted, open) {
        (Ok(()), true) => {
            let message = "nothing is under way: the PDB lets an eviction take one member";
            input(type_, True, "OneAtATime", message)
        }
        (Ok(()), false) => {
            let message =
                "nothing is under way: the PDB is about to let an eviction take one member";
            input(type_, False, "Opening", message)
        }
        (Err(closed), false) => input(type_, False, closed.reason, closed.why.clone()),
        (Err(closed), true) => {
            let message = format!(
                "until the PDB is written, an eviction may take one member: {}",
                closed.why
            );
            input(type_, True, "Closing", message)
        }
    })
}

fn stalled(draft: &Draft) -> ConditionInput {
    let type_ = ConditionType::Stalled;
    match &draft.stalled {
        Some((reason, why)) => input(type_, True, reason, why.clone()),
        None => input(type_, False, "NotStalled", "the operator needs no help"),
    }
}
