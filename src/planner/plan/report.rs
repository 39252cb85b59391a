//! From the rules' results to the user-visible status: the current step, the summary and the conditions. From the same
//! view as the plan; never reports health that was not observed.

mod backup;
mod certificates;
mod conditions;
mod follow;
mod members;
mod restore;

pub use follow::SOURCE_OPEN;

use jiff::Timestamp;

use crate::crd::{
    Disarms, Endpoints, EtcdClusterStatus, JoinFailures, LABEL_CLUSTER_UID, Leftover, NoteStatus,
    RetentionPolicy, StepState, StepStatus,
};
use crate::mutants::mutant;

use super::action::{Action, AlarmKind, MemberAction, ObjectAction};
use super::calm;
use super::draft::{Draft, Wait};
use super::observed::{InvalidCluster, JoinFailure, Observed, PvcState};
use super::situation::Situation;
use super::space;
use super::step::{Plan, Progress, Rule, Step};

/// Look again this soon while something is under way.
const REQUEUE_WAITING_MS: u64 = 1_000;
/// So many notes fit into the status.
const NOTES: usize = 16;
/// Maximum number of leftovers that are listed; the others are only counted.
const LEFTOVERS: usize = 32;
/// Look again this soon at rest.
const REQUEUE_RESTING_MS: u64 = 10_000;

/// The plan for a valid resource that is not being deleted.
pub(super) fn plan(s: &Situation<'_>, draft: Draft) -> Plan {
    let progress = progress(s.o, &draft);
    let next = next(s, &draft);
    let summary = summary(s, &draft, next.as_deref());
    let conditions = conditions::all(s, &draft);
    let mut status = status(s, &draft);
    status.summary = Some(summary.clone());
    mutant!(StatusTicks => status.summary = Some(format!("{summary} (at {})", timestamp(s.o.now_ms))));
    status.step = progress
        .as_ref()
        .map(|progress| step_status(progress, next.as_deref()));
    let resting = draft.steps.is_empty() && draft.waits.is_empty();
    let calm = calm::is_calm(s, &draft);
    Plan {
        steps: draft.steps,
        holds: draft.holds,
        notes: draft.notes,
        progress,
        next,
        summary,
        conditions,
        status,
        recoveries: draft.recoveries,
        requeue_ms: if resting {
            REQUEUE_RESTING_MS
        } else {
            REQUEUE_WAITING_MS
        },
        calm,
    }
}

/// The resource is being deleted.
pub(super) fn deleting(o: &Observed) -> Plan {
    let why = "the resource is being deleted; its objects go with it".to_owned();
    let mut plan = nothing(o, why.clone());
    plan.conditions = conditions::only_stalled(false, "Deleting", &why);
    plan
}

/// The resource breaks its own rules.
pub(super) fn invalid(o: &Observed, invalid: &InvalidCluster) -> Plan {
    let why = format!(
        "the resource is invalid, nothing is changed: {}",
        invalid.problems
    );
    let mut plan = nothing(o, why.clone());
    plan.conditions = conditions::only_stalled(true, "InvalidSpec", &why);
    plan
}

fn nothing(o: &Observed, summary: String) -> Plan {
    let status = EtcdClusterStatus {
        summary: Some(summary.clone()),
        cluster_id: o.status_cluster_id.clone(),
        ..EtcdClusterStatus::default()
    };
    Plan {
        steps: Vec::new(),
        holds: Vec::new(),
        notes: Vec::new(),
        progress: None,
        next: None,
        summary,
        conditions: Vec::new(),
        status,
        recoveries: Vec::new(),
        requeue_ms: REQUEUE_RESTING_MS,
        calm: false,
    }
}

/// The current step: the first action, otherwise the first wait.
fn progress(o: &Observed, draft: &Draft) -> Option<Progress> {
    let remembered = |action: &str, member: Option<&str>| match &o.status_memory.step {
        Some((a, m, since)) if a == action && m.as_deref() == member => Some(*since),
        _ => None,
    };
    if let Some(Step { action, .. }) = draft.steps.first() {
        let since = remembered(action.word(), action.member()).unwrap_or(o.now_ms);
        return Some(Progress {
            action: action.word(),
            member: action.member().map(str::to_owned),
            state: StepState::Acting,
            reason: action.word(),
            waiting_for: None,
            since_ms: since,
            deadline_ms: None,
        });
    }
    let Wait {
        action,
        member,
        reason,
        waiting_for,
        since_ms,
        deadline_ms,
    } = draft.waits.first()?;
    let since = since_ms
        .or_else(|| remembered(action, member.as_deref()))
        .unwrap_or(o.now_ms);
    Some(Progress {
        action,
        member: member.clone(),
        state: StepState::Waiting,
        reason,
        waiting_for: Some(waiting_for.clone()),
        since_ms: since,
        deadline_ms: *deadline_ms,
    })
}

fn step_status(progress: &Progress, next: Option<&str>) -> StepStatus {
    StepStatus {
        action: progress.action.to_owned(),
        member: progress.member.clone(),
        state: progress.state,
        reason: progress.reason.to_owned(),
        waiting_for: progress.waiting_for.clone(),
        next: next.map(str::to_owned),
        start_time: Some(timestamp(progress.since_ms)),
        deadline: progress.deadline_ms.map(timestamp),
    }
}

/// What follows the current step, in words.
fn next(s: &Situation<'_>, draft: &Draft) -> Option<String> {
    let target = s.cluster.target();
    let (word, member, rule) = match (draft.steps.first(), draft.waits.first()) {
        (Some(step), _) => (step.action.word(), step.action.member(), Some(step.rule)),
        (None, Some(wait)) => (wait.action, wait.member.as_deref(), None),
        (None, None) => return None,
    };
    let member = member.unwrap_or("the next member");
    let joins = format!("{member} is added as a learner");
    Some(match word {
        "ApplySet" if rule == Some(Rule::Hibernation) && target == 0 => {
            "every member stops; volumes and identities stay".to_owned()
        }
        "ApplySet" if rule == Some(Rule::Hibernation) => {
            "a quorum of the members leads on".to_owned()
        }
        "Hibernate" => "the cluster hibernates until replicas is raised".to_owned(),
        "DeleteIdentitySecret" => "the next incarnation gets its identity".to_owned(),
        "CreateIdentitySecret" if rule == Some(Rule::Recovery) => {
            format!("{member} gets a volume, a pod and the data, and forms the cluster")
        }
        "ApplySet" if rule == Some(Rule::Recovery) => {
            "the cluster goes on as its next incarnation".to_owned()
        }
        "CreateIdentitySecret" if rule == Some(Rule::Adoption) => {
            "all members start on their volumes, and have to find a quorum".to_owned()
        }
        "CreateIdentitySecret" if s.bootstrapped() => return None,
        "CreateIdentitySecret" => format!("{member} gets a volume and a pod and forms the cluster"),
        "Bootstrap" if draft.waits.iter().any(|wait| wait.reason == "Restoring") => {
            format!("{member} forms the cluster with these data")
        }
        "Bootstrap" if draft.waits.iter().any(|wait| wait.reason == "Seeding") => {
            format!("{member} forms the cluster with these data, and it follows")
        }
        "Bootstrap" if target > 1 => format!("grow to {target} members"),
        "CreatePVC" if s.view.is_none() => format!("{member} forms the cluster"),
        "ApplySet" if rule == Some(Rule::Bootstrap) => format!("{member} forms the cluster"),
        "CreatePVC" => joins,
        "ApplySet" if rule == Some(Rule::Grow) => joins,
        "AddLearner" => format!("{member} catches up and is promoted"),
        "Promote" if s.voters.len() + 1 < target => {
            format!("on to {target} members, {} are there", s.voters.len() + 1)
        }
        "Transfer" if rule == Some(Rule::Alarms) => "the members' data is compared".to_owned(),
        "Transfer" | "Retire" if rule == Some(Rule::Fence) => format!("{member} is stopped"),
        "ApplySet" if rule == Some(Rule::Fence) => {
            "it stays stopped, with its volume as it is, until it is fenced no more".to_owned()
        }
        "Transfer" | "Retire" if rule == Some(Rule::Roll) => format!("{member} is restarted"),
        "Transfer" | "Retire" if rule == Some(Rule::Drain) => format!("{member} leaves its node"),
        "Transfer" | "Retire" => format!("{member} is removed"),
        "ReleasePod" => format!("{member} moves to another node with its volume"),
        "DeletePod" | "EvictPod" if rule == Some(Rule::Drain) => {
            format!("{member} comes back on another node")
        }
        "Move" if moves(draft) => format!("{member} moves to another node with its volume"),
        "DeletePod" | "EvictPod" if rule == Some(Rule::Roll) => {
            format!("{member} comes back with the current spec")
        }
        "Remove" if rule.is_none() => format!("{member} is removed"),
        "Restart" => format!("{member} is restarted"),
        "Remove" if matches!(rule, Some(Rule::Alarms | Rule::Unhealthy)) => {
            "a new member takes its place".to_owned()
        }
        // A wait that time does not end needs the user.
        "Heal" if draft.waits.first().is_some_and(|w| w.deadline_ms.is_none()) => return None,
        "Heal" => format!("{member} is replaced if it does not come back"),
        _ => return None,
    })
}

/// Whether the first wait is one of a member that moves, and not one for a node to move to.
fn moves(draft: &Draft) -> bool {
    let reason = draft.waits.first().map(|wait| wait.reason);
    !matches!(reason, Some("NoSpareNode" | "NotCordoned"))
}

/// One plain sentence.
fn summary(s: &Situation<'_>, draft: &Draft, next: Option<&str>) -> String {
    if let Some((reason, text)) = &draft.stalled {
        return format!("{reason}: {text}");
    }
    let then = next
        .map(|next| format!("; then {next}"))
        .unwrap_or_default();
    if let Some(step) = draft.steps.first() {
        return format!("{}{then}", step.action);
    }
    if let Some(wait) = draft.waits.first() {
        return format!("waiting for {}{then}", wait.waiting_for);
    }
    let paused = if s.cluster.spec.paused {
        "paused; "
    } else {
        ""
    };
    match s.view {
        Some((leader, _)) => {
            let follows = follow::summary(s).unwrap_or_default();
            let voters = count(s.voters.len(), "voter");
            let fenced = match s.fenced.is_empty() {
                true => String::new(),
                false => format!("; {} fenced", conditions::are(&s.fenced)),
            };
            format!("{paused}{voters}, {leader} leads{follows}{fenced}")
        }
        None if s.hibernates() && !s.bootstrapped() => {
            format!("{paused}replicas is 0: the cluster was never bootstrapped")
        }
        None if s.sleeps() => format!(
            "{paused}hibernated: {} stopped, their volumes stay",
            count(s.o.sets.len(), "member")
        ),
        None => format!("{paused}no leader with a quorum was seen"),
    }
}

pub(super) fn count(n: usize, what: &str) -> String {
    if n == 1 {
        format!("1 {what}")
    } else {
        format!("{n} {what}s")
    }
}

fn status(s: &Situation<'_>, draft: &Draft) -> EtcdClusterStatus {
    let members = members::rows(s, draft);
    let small = |n: usize| i32::try_from(n).unwrap_or(i32::MAX);
    let voters = if s.view.is_some() {
        s.voters.len()
    } else if s.sleeps() {
        0
    } else {
        s.o.status_memory.voters.len()
    };
    let ready = ready_voters(s);
    let current = |name: &&String| s.updated(name) && s.unfit(name).is_none();
    let updated = s.voters.keys().filter(current).count();
    let (ca_secret_ref, client_secret_ref) = certificates::references(s);
    let (leftovers, leftovers_omitted) = leftovers(s);
    EtcdClusterStatus {
        observed_generation: Some(s.cluster.generation),
        replicas: Some(small(voters)),
        ready_replicas: Some(small(ready)),
        updated_replicas: Some(small(updated)),
        ready: Some(format!("{ready}/{}", s.cluster.target())),
        updated: Some(format!("{updated}/{voters}")),
        selector: Some(format!("{LABEL_CLUSTER_UID}={}", s.cluster.life)),
        cluster_uid: s
            .o
            .identity_secret
            .as_ref()
            .map(|identity_secret| identity_secret.cluster_uid.clone()),
        // Also without its Secret, once it was formed: who reads it tells the incarnations apart by it.
        incarnation: (s.o.identity_secret.is_some() || s.bootstrapped())
            .then(|| i64::try_from(s.incarnation).ok())
            .flatten(),
        cluster_id: cluster_id(s),
        // No member runs during hibernation: the version that ran last decides which may follow.
        version: lowest_version(s).or_else(|| s.o.status_memory.version.clone()),
        leader: s.view.map(|(leader, _)| leader.to_owned()),
        endpoints: Some(Endpoints {
            client: s.o.client_endpoint.clone(),
            slots: s.o.slot_endpoints.clone(),
            ip_families: s.o.service_families.clone(),
            ca_secret_ref,
            client_secret_ref,
            cluster_trust_bundle: certificates::bundle(s),
        }),
        certificates: certificates::rows(s),
        summary: None,
        step: None,
        members,
        leftovers,
        leftovers_omitted,
        join_failures: join_failures(s, draft),
        disarms: disarms(s.o, draft.done.as_ref()),
        restore: restore::status(s),
        follow: follow::status(s),
        backup: backup::status(s),
        failing: None,
        notes: notes(draft),
        conditions: Vec::new(),
    }
}

/// Voters that reported recently that they answer linearizable reads.
pub(super) fn ready_voters(s: &Situation<'_>) -> usize {
    s.voters
        .keys()
        .filter(|name| s.description(name).is_some_and(|d| d.ready))
        .count()
}

fn cluster_id(s: &Situation<'_>) -> Option<String> {
    let mut described =
        s.o.descriptions
            .keys()
            .filter_map(|name| s.description(name));
    let seen = described
        .find(|d| d.cluster_id != 0 && d.cluster_uid.as_deref() == Some(s.cluster.life.as_str()));
    seen.map(|d| format!("{:x}", d.cluster_id))
        .or_else(|| s.o.status_cluster_id.clone())
}

fn lowest_version(s: &Situation<'_>) -> Option<String> {
    let parts = |version: &str| -> Vec<u64> {
        version
            .split(['.', '-'])
            .map(|part| part.parse().unwrap_or(0))
            .collect()
    };
    let versions = s
        .voters
        .keys()
        .filter_map(|name| Some(s.description(name)?.version.clone()));
    versions
        .filter(|version| !version.is_empty())
        .min_by_key(|version| parts(version))
}

/// The listed leftovers, and the number of others.
fn leftovers(s: &Situation<'_>) -> (Vec<Leftover>, Option<i32>) {
    let keeps = s.cluster.spec.storage.retention.when_removed == RetentionPolicy::Retain;
    let pvcs = s.o.pvcs.iter().filter_map(|(name, pvc)| {
        let ours = pvc.cluster_uid.as_deref() == Some(s.cluster.life.as_str());
        let reason = if !ours {
            "it belongs to a deleted cluster with this name: delete it when nobody needs its data, or create another resource that adopts it (spec.bootstrap.adopt)"
        } else if pvc.state == PvcState::Retired && !keeps {
            "its member left while the alarm CORRUPT was on (or storage.retention.whenRemoved kept it then, or its disk is of another cluster): its data may be the right ones, and only you know whether they are needed"
        } else if pvc.state == PvcState::Retired {
            "its member was removed and storage.retention.whenRemoved keeps it; only you know whether its data are needed"
        } else {
            return None;
        };
        let kind = "PersistentVolumeClaim".to_owned();
        Some(Leftover { kind, name: name.clone(), reason: reason.to_owned() })
    });
    let earlier = s.o.earlier.pvcs.keys().map(|name| Leftover {
        kind: "PersistentVolumeClaim".to_owned(),
        name: name.clone(),
        reason: "it is of an incarnation of this cluster before its recovery: delete it when nobody needs its data any more".to_owned(),
    });
    let mut leftovers: Vec<Leftover> = pvcs.chain(earlier).collect();
    let omitted = leftovers.len().saturating_sub(LEFTOVERS);
    leftovers.truncate(LEFTOVERS);
    let omitted = (omitted > 0).then(|| i32::try_from(omitted).unwrap_or(i32::MAX));
    (leftovers, omitted)
}

/// What was noted, each once.
fn notes(draft: &Draft) -> Vec<NoteStatus> {
    let mut notes: Vec<NoteStatus> = Vec::new();
    for note in &draft.notes {
        let note = NoteStatus {
            reason: note.reason.to_owned(),
            message: note.text.clone(),
        };
        if !notes.contains(&note) && notes.len() < NOTES {
            notes.push(note);
        }
    }
    notes
}

/// How often NOSPACE was disarmed in a row, once this action is done.
fn disarms(o: &Observed, done: Option<&Action>) -> Option<Disarms> {
    let known = match done {
        Some(Action::Member(MemberAction::Disarm {
            kind: AlarmKind::NoSpace,
            id,
            ..
        })) => Some(space::after(o, *id)),
        _ => space::in_a_row(o),
    }?;
    Some(Disarms {
        count: i32::try_from(known.count).unwrap_or(i32::MAX),
        last_time: timestamp(known.last_ms),
        member_id: format!("{:x}", known.member),
    })
}

fn join_failures(s: &Situation<'_>, draft: &Draft) -> Option<JoinFailures> {
    let before = draft.remembered.as_ref();
    let done = draft.done.as_ref();
    let mut given_up = draft.failed_joins.iter();
    let failed = given_up.find(|(action, _)| Some(action) == done);
    let known = |failure: &JoinFailure| JoinFailures {
        count: i32::try_from(failure.count).unwrap_or(i32::MAX),
        last_time: timestamp(failure.last_ms),
        inputs: failure.inputs.clone(),
        reason: failure.reason.clone(),
    };
    let Some((_, reason)) = failed else {
        return before.map(known);
    };
    Some(known(&JoinFailure {
        count: before.map_or(0, |failure| failure.count) + 1,
        last_ms: s.o.now_ms,
        inputs: s.attempt(),
        reason: reason.clone(),
    }))
}

/// A time as the API writes it.
pub(super) fn timestamp(ms: u64) -> String {
    let whole = i64::try_from(ms / 1000).unwrap_or(i64::MAX);
    Timestamp::from_second(whole)
        .unwrap_or(Timestamp::MAX)
        .to_string()
}

/// Times that the operator replaced a member's pod, after what was done.
fn restarts(s: &Situation<'_>, draft: &Draft, name: &str, healthy: bool) -> Option<i32> {
    let before = s.o.status_memory.restarts.get(name).copied().unwrap_or(0);
    let done = |step: &&Step| Some(&step.action) == draft.done.as_ref();
    let done = draft.steps.iter().find(done);
    let now = match done.map(|step| (&step.action, step.rule)) {
        Some((Action::Object(ObjectAction::DeletePod { member, .. }), Rule::Unhealthy))
            if member == name =>
        {
            before + 1
        }
        _ if healthy => 0,
        _ => before,
    };
    (now > 0).then(|| i32::try_from(now).unwrap_or(i32::MAX))
}
