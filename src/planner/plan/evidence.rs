//! Evidence that a member is lost, as in the table of the contract. It comes from a leader that holds a quorum, never
//! from the operator's own connection: a member that only the operator cannot reach is Unknown.

use crate::crd::{TlsPort, member_certificate_name, operator_secret_name};
use crate::mutants::mutant;

use super::certificates::POD_CERTIFICATE_SKEW_MS;
use super::observed::Phase;
use super::observed::{Beside, Exit, MemberView, PodFacts, PodPhase, PvcFacts};
use super::situation::{CONTACT_MS, Situation, in_ms};

/// However impatient the spec is, a pod that was just made has this long to start and to be linked:
/// to replace it before that only puts the end off, on a machine that is busy as it is.
pub(super) const START_MS: u64 = 20_000;
/// A voter that has synced nothing for this long of what it was sent may hang on its disk.
pub const SYNC_MS: u64 = 5_000;

/// The evidence about one member, and what may follow from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The leader and the operator reach it.
    Healthy,
    /// Not enough is seen: nothing follows.
    Unknown(String),
    /// It does not serve; something follows at `until_ms` at the earliest, or never (`None`).
    Wait {
        why: String,
        for_what: String,
        until_ms: Option<u64>,
    },
    /// Its pod is replaced.
    Restart(String),
    /// It does not serve and no automatic step is safe: the user has to act. The reason of the condition Stalled, and
    /// why.
    Stuck(&'static str, String),
    /// It is removed, then replaced.
    Dead(String),
    /// The user has stopped it: nothing follows.
    Fenced,
}

impl Verdict {
    /// Why it is not healthy, in words.
    pub(super) fn why(&self) -> Option<&str> {
        match self {
            Verdict::Healthy => None,
            Verdict::Fenced => Some("it is fenced"),
            Verdict::Unknown(why)
            | Verdict::Wait { why, .. }
            | Verdict::Restart(why)
            | Verdict::Stuck(_, why)
            | Verdict::Dead(why) => Some(why),
        }
    }
}

/// Judges one member of the leader's list.
pub(super) fn verdict(s: &Situation<'_>, name: &str, ours: bool, member: &MemberView) -> Verdict {
    if s.fenced.contains(name) {
        return Verdict::Fenced;
    }
    let leads = s.view.is_some_and(|(leader, _)| leader == name);
    let contact = leads || member.last_contact_ms.is_some_and(|age| age <= CONTACT_MS);
    // Its answers need no disk, its acknowledgements do: a quorum that depends on it is blocked.
    let hung = contact && !member.learner && member.unsynced_ms >= SYNC_MS;
    if hung && !mutant!(HungDiskCounts) {
        let why = "it answers, but its disk has synced nothing of what it was sent";
        return Verdict::Unknown(why.to_owned());
    }
    if !ours {
        return if contact {
            Verdict::Healthy
        } else {
            Verdict::Unknown("the leader has no contact; its name is not one of ours".to_owned())
        };
    }
    if let Some(why) = disk_is_gone(s, name, member, contact) {
        return Verdict::Dead(why);
    }
    if contact {
        return match s.description(name) {
            Some(d) if d.phase == Phase::Member => Verdict::Healthy,
            Some(d) if d.phase == Phase::Joining && member.learner => Verdict::Healthy,
            Some(d) => Verdict::Unknown(format!("its server reports phase {:?}", d.phase)),
            None if mutant!(SilenceIsDeath) => Verdict::Dead("it does not answer".to_owned()),
            None => Verdict::Unknown(format!(
                "the leader reaches it, the operator does not (check NetworkPolicies to port 2380, and Secret {})",
                operator_secret_name(&s.cluster.name)
            )),
        };
    }
    if let Some(held) = disk_is_sound(s, name) {
        return held;
    }
    without_contact(s, name, member)
}

/// A server that exits because of its disk and reports that the disk is intact. However long it is down, it is never
/// removed for that: with the right version, or without the file, it comes back with all its data.
fn disk_is_sound(s: &Situation<'_>, name: &str) -> Option<Verdict> {
    let pod = s.o.pods.get(name)?;
    let now = s.o.now_ms;
    // One that has run since then ended for this long ago.
    if pod.started_ms.is_some_and(|since| since + START_MS <= now) {
        return None;
    }
    let held = |reason, what: &str| {
        let kept = "The member is not removed, and its volume is kept";
        Some(Verdict::Stuck(reason, format!("{what}. {kept}")))
    };
    match pod.last_exit? {
        _ if mutant!(TooNewIsDeath) => None,
        Exit::TooNew => held(
            "DiskTooNew",
            "a newer version than the running one wrote its disk (the disk is not damaged): set \
             spec.version or spec.image to that version or a newer one",
        ),
        Exit::Stray => held(
            "StrayFile",
            "a foreign file is in its data directory (named in the pod's termination message; the disk \
             is not damaged): move the file away, or run the version that created it",
        ),
        _ => None,
    }
}

/// Whether the disk that the member is bound to cannot come back. Believed at once. A volume that no
/// node can use is not among this: a node that is replaced, the only one of its zone perhaps, comes
/// back, and a good volume with it.
fn disk_is_gone(
    s: &Situation<'_>,
    name: &str,
    member: &MemberView,
    contact: bool,
) -> Option<String> {
    if let Some(d) = s.description(name)
        && d.proves_an_empty_disk()
        && !member.disk_uuid.is_empty()
        && d.disk_uuid != member.disk_uuid
    {
        return Some("its server reports an empty disk".to_owned());
    }
    if contact {
        return None;
    }
    let Some(pvc) = s.pvc(name) else {
        return Some(format!("its PVC {} is gone", s.pvc_name(name)));
    };
    if let Some(why) = &pvc.volume_gone {
        return Some(format!("its volume is gone: {why}"));
    }
    let pod = s.o.pods.get(name).filter(|pod| pod.started_ms.is_none())?;
    // A release that no voter serves from may call a disk damaged that it cannot read.
    if on_trial(s, name) {
        return None;
    }
    match pod.last_exit? {
        Exit::TooNew | Exit::Stray if mutant!(TooNewIsDeath) => {
            Some("its server does not take its disk".to_owned())
        }
        Exit::Corrupt => Some("its server reports a damaged disk".to_owned()),
        Exit::ForeignDisk => {
            Some("its server reports a disk of another member or cluster".to_owned())
        }
        Exit::LostLog => {
            Some("its server reports that its disk lost acknowledged entries".to_owned())
        }
        // A server reports this when a majority of the other voters has refused its disk.
        Exit::Copied => Some("the other voters have seen a newer state of its disk".to_owned()),
        Exit::TooNew | Exit::Stray | Exit::DiskFull | Exit::Fsync | Exit::Other(_) => None,
    }
}

/// The rows of the table for a member that the leader does not reach.
fn without_contact(s: &Situation<'_>, name: &str, member: &MemberView) -> Verdict {
    let healing = &s.cluster.spec.healing;
    let now = s.o.now_ms;
    let lost_ms = member
        .last_contact_ms
        .unwrap_or_else(|| remembered_age(s, name));
    let patience = in_ms(healing.unhealthy_seconds);
    let ends = (patience > 0).then(|| (now + patience).saturating_sub(lost_ms));
    let pod = s.o.pods.get(name);
    let stuck = |why: String| Verdict::Stuck("UpdateFailed", why);
    let wait = |why: String, for_what: &str, until_ms| Verdict::Wait {
        why,
        for_what: for_what.to_owned(),
        until_ms,
    };
    if let Some(node) = pod.and_then(|pod| pod.node.as_deref())
        && !s.o.node_reports(node)
    {
        let state = if s.o.nodes.contains_key(node) {
            "does not report"
        } else {
            "is gone"
        };
        let why = format!("no contact, and its node {node} {state}");
        return match ends {
            _ if mutant!(NotReadyIsDeath) => Verdict::Dead(why),
            Some(end) if end <= now => Verdict::Dead(format!("{why} (for {} s)", lost_ms / 1000)),
            _ => wait(why, "its node to come back", ends),
        };
    }
    let mut why = match pod {
        None => "no contact, and it has no pod".to_owned(),
        Some(pod) => format!("no contact; {}", pod_in_words(pod)),
    };
    // Its kubelet waits for the operator: neither the pod nor what it runs is to blame.
    if pod.is_some_and(|pod| awaits_certificate(s, name, pod)) {
        let what = "its kubelet's request for a certificate to be answered";
        return wait(why, what, None);
    }
    // Neither of these can be caused by the inputs: the one could not start on any node, the other was deleted and does
    // not terminate. Only the time limit decides, and it ends.
    let no_node = s.pvc(name).and_then(|pvc| pvc.no_node.as_deref());
    if let Some(no_node) = no_node {
        why = format!("{why}; {no_node}");
    }
    let hangs = pod.is_some_and(|pod| pod.terminating) && !mutant!(HangsForGood);
    let blameless = hangs || no_node.is_some();
    // What another container does is no evidence about the member.
    let beside = pod.and_then(to_blame);
    // Its inputs may be the cause: no voter serves with the same ones.
    let deadline = s.cluster.spec.update_strategy.progress_deadline_seconds;
    if lost_ms >= in_ms(deadline) && !blameless && beside.is_none() && on_trial(s, name) {
        return stuck(format!(
            "it did not become ready with the current spec within {deadline} s ({why}); the other members are not restarted: correct or revert the spec"
        ));
    }
    let restarts = s.o.status_memory.restarts.get(name).copied().unwrap_or(0);
    let most = u32::try_from(healing.max_restarts).unwrap_or(0);
    let ran = pod.filter(|pod| pod.node.is_some() || s.o.nodes.is_empty());
    let grace = if patience == 0 {
        60_000
    } else {
        (patience / u64::from(most + 1)).min(60_000)
    };
    // One whose server has exited was started already.
    let start = |pod: &PodFacts| match pod.last_exit {
        Some(_) => grace,
        None => grace.max(START_MS),
    };
    if let Some(pod) = ran
        && restarts < most
        && !blameless
    {
        let due =
            (could_start_ms(s, name, pod) + start(pod)).max((now + grace).saturating_sub(lost_ms));
        return if pod.terminating || due > now {
            wait(why, "its pod to recover", Some(due.max(now)))
        } else {
            Verdict::Restart(format!("{why} (for {} s)", lost_ms / 1000))
        };
    }
    // A server that has just been started, or whose network has just come back, has had no time to answer.
    let tried = ran.map(|pod| {
        let began = pod.started_ms.max(pod.beside_ms).unwrap_or(0);
        could_start_ms(s, name, pod).max(began) + start(pod)
    });
    // However long its member was down, the pod was deleted only then, perhaps by the operator.
    let leaves = pod
        .and_then(|pod| pod.ends_ms)
        .map_or(0, |end| end + START_MS);
    let leaves = mutant!(PodlessIsDeath => 0, else leaves);
    // Its StatefulSet creates the next pod shortly, also if the operator deleted the last one.
    let made = (pod.is_none() && no_node.is_none() && !mutant!(PodlessIsDeath))
        .then(|| (now + START_MS).saturating_sub(remembered_age(s, name)));
    match ends {
        Some(end) if hangs && end.max(leaves) > now => {
            wait(why, "its pod to terminate", Some(end.max(leaves)))
        }
        Some(end) if end > now && no_node.is_some() => {
            wait(why, "a node that can use its volume", ends)
        }
        Some(end) if end > now => wait(why, "it to recover", ends),
        // Its successor would find no room either, and it has its data.
        Some(_) if no_room(s, name) => wait(
            why,
            "a node with enough free resources: add a node, or lower spec.resources",
            None,
        ),
        Some(_) if made.is_some_and(|by| by > now) => {
            wait(why, "its StatefulSet to create its pod", made)
        }
        Some(_) if blameless => Verdict::Dead(format!("{why} (for {} s)", lost_ms / 1000)),
        // However long it was away: the pod that a corrected spec gave it has had no time yet.
        Some(_) if tried.is_some_and(|end| end > now) => wait(why, "its new pod to start", tried),
        Some(_) if beside.is_some() => Verdict::Stuck(
            "SidecarFailing",
            format!(
                "{why}; its server is not to blame, so it is not removed, and its volume is kept: repair that container, or what adds it to pods",
            ),
        ),
        Some(_) if twin_serves(s, name) => {
            Verdict::Dead(format!("{why} (for {} s)", lost_ms / 1000))
        }
        Some(_) => stuck(format!(
            "{why}; no healthy voter runs what it runs, so it is not removed: check the image and the pod template"
        )),
        None => wait(
            why,
            "your decision, because healing.unhealthySeconds is 0: name it in spec.replaceMembers to replace it",
            None,
        ),
    }
}

/// Whether a pod's server is not started before a certificate is signed for its kubelet's key, or may not be, where the requests are
/// not shown.
fn awaits_certificate(s: &Situation<'_>, name: &str, pod: &PodFacts) -> bool {
    if pod.started_ms.is_some() || pod.terminating {
        return false;
    }
    let asks = |port: &TlsPort| {
        let request = s.o.tls.request(name, *port);
        request.is_some_and(|request| request.pod_uid == pod.uid)
    };
    let never_ran = pod.last_exit.is_none() && pod.node.is_some();
    s.o.tls.pod_keys.iter().any(asks) || never_ran && s.o.tls.is_unanswerable()
}

/// Since when a pod's server could start: since the pod was made, or since the last certificate was signed for its kubelet's keys.
fn could_start_ms(s: &Situation<'_>, name: &str, pod: &PodFacts) -> u64 {
    let signed = s.o.tls.pod_keys.iter().filter_map(|port| {
        let facts = s.o.tls.secrets.get(&member_certificate_name(name, *port))?;
        let certificate = facts.certificate.as_ref()?;
        Some(certificate.not_before_ms + POD_CERTIFICATE_SKEW_MS)
    });
    pod.created_ms.max(signed.max().unwrap_or(0))
}

/// Whether the scheduler finds no node for a pod whose volume could go to any.
fn no_room(s: &Situation<'_>, name: &str) -> bool {
    let pod = s.o.pods.get(name).filter(|pod| pod.node.is_none());
    let waiting = pod.and_then(|pod| pod.waiting.as_deref());
    let anywhere = |pvc: &PvcFacts| {
        pvc.node_bound == Some(false) && pvc.nodes.is_none() && pvc.no_node.is_none()
    };
    waiting.is_some_and(|why| why.starts_with("Unschedulable"))
        && s.pvc(name)
            .is_some_and(|pvc| !pvc.terminating && anywhere(pvc))
        && !mutant!(RoomForgotten)
}

/// Since when a wait for this member is recorded; if the record is lost, it starts again.
fn remembered_age(s: &Situation<'_>, name: &str) -> u64 {
    match &s.o.status_memory.step {
        Some((_, Some(member), since)) if member == name => s.o.now_ms.saturating_sub(*since),
        _ => 0,
    }
}

/// Whether this member is the first that was restarted with the current spec.
fn on_trial(s: &Situation<'_>, name: &str) -> bool {
    let current = s.o.sets.get(name).and_then(|set| set.inputs.as_ref());
    current == Some(&s.o.wanted_inputs) && !twin_serves(s, name)
}

/// Whether another voter serves from the same template: then the template is not to blame. Resources count where the pod has found no
/// node: they may be more than any has.
fn twin_serves(s: &Situation<'_>, name: &str) -> bool {
    let unplaced = s.o.pods.get(name).is_some_and(|pod| pod.node.is_none());
    let inputs = |name: &str| {
        let pod = match unplaced {
            true => s.o.pods.get(name).and_then(|pod| pod.inputs.as_ref()),
            false => s.started_with(name),
        };
        pod.or_else(|| s.o.sets.get(name)?.inputs.as_ref())
    };
    let own = inputs(name);
    s.view
        .into_iter()
        .flat_map(|(_, d)| &d.members)
        .any(|other| {
            let serves = s
                .description(&other.name)
                .is_some_and(|d| d.phase == Phase::Member);
            !other.learner
                && other.name != name
                && serves
                && (own.is_none() || inputs(&other.name) == own)
        })
}

/// What another container of a pod does, if the server does not serve for that: it was not started, or it runs.
fn to_blame(pod: &PodFacts) -> Option<&Beside> {
    let beside = pod.beside.as_ref()?;
    (pod.started_ms.is_some() || beside.goes_first).then_some(beside)
}

/// The state of a pod in words.
pub(super) fn pod_in_words(pod: &PodFacts) -> String {
    let state = match (pod.terminating, pod.phase) {
        (true, _) => "its pod is terminating",
        (_, PodPhase::Pending) => "its pod is pending",
        (_, PodPhase::Running) if pod.started_ms.is_none() => "its pod does not stay up",
        (_, PodPhase::Running) => "its pod runs",
        (_, PodPhase::Ended) => "its pod ended",
        (_, PodPhase::Unknown) => "its pod's state is unknown",
    };
    let ended = pod.last_exit.filter(|_| pod.started_ms.is_none());
    let state = ended.map_or_else(|| state.to_owned(), |exit| exit_in_words(state, exit));
    let state = match &pod.waiting {
        Some(waiting) => format!("{state} ({waiting})"),
        None => state,
    };
    match &pod.beside {
        Some(beside) => format!("{state}, and its {}", beside.why),
        None => state,
    }
}

/// How a server that is not running exited, and what to do if the user has to act.
fn exit_in_words(state: &str, exit: Exit) -> String {
    let why = match exit {
        Exit::Corrupt => "its disk is damaged",
        Exit::ForeignDisk => "its disk belongs to another member",
        Exit::TooNew => "a newer version wrote its disk",
        Exit::Stray => "a foreign file is in its data directory",
        Exit::Copied => "its disk is an older state, or a copy, of the member's",
        Exit::LostLog => "its disk lost acknowledged entries",
        Exit::DiskFull => "its disk is full: raise spec.storage.size, or free space on its volume",
        Exit::Fsync => "its disk failed to persist a write: look at its volume and node",
        Exit::Other(code) => return format!("{state}: its server ended with code {code}"),
    };
    format!("{state}: {why}")
}
