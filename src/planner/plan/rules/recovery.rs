//! A cluster that has lost its quorum for good goes on as its next incarnation, if an EtcdRecovery asks for it: every
//! former member is stopped but the survivor, and only then a new identity is created. The new seed gets the survivor's
//! data, or a backup's, as that of a restored cluster does. No volume of a former member is changed or deleted.

use crate::crd::{EtcdRecoverySpec, RecoveryPhase, Survivor};
use crate::mutants::mutant;
use crate::plan::Rule;
use crate::plan::action::{Action, ObjectAction};
use crate::plan::draft::Draft;
use crate::plan::observed::{Description, Phase, PodFacts, PvcState, RecoveryFacts};
use crate::plan::situation::{Situation, quorum};
use crate::plan::step::{Class, RecoveryReport};

use super::{bootstrap, certificates, objects, sets};

/// What keeps a recovery from its next step.
enum Held {
    /// It is not carried out.
    Refused(String),
    /// Something has to happen first: whose, the reason, and what.
    Waits(String, &'static str, String),
}

/// Carries out a recovery of the current incarnation, and reports on all. Returns whether the plan ends here.
pub(super) fn rule(s: &Situation<'_>, draft: &mut Draft) -> bool {
    let mut acts = false;
    for recovery in &s.o.recoveries {
        let (phase, message) = match standing(s, recovery) {
            Standing::Over(phase, message) => (phase, message),
            Standing::Founds => founds(s, recovery),
            Standing::Begins => match begin(s, draft, recovery) {
                Ok(message) => {
                    acts = true;
                    (RecoveryPhase::Fencing, message)
                }
                Err(Held::Refused(why)) => (RecoveryPhase::Refused, why),
                Err(Held::Waits(member, reason, what)) => {
                    acts = true;
                    let message = format!("waits for {what}");
                    draft.wait("Recover", &member, reason, what);
                    (RecoveryPhase::Fencing, message)
                }
            },
        };
        draft.recoveries.push(report(s, recovery, phase, message));
    }
    if acts {
        let why = "an EtcdRecovery makes the next incarnation of the cluster";
        for class in [Class::Membership, Class::Disruption, Class::Objects] {
            draft.hold(class, why);
        }
        objects::rule(s, draft);
        certificates::rule(s, draft);
    }
    acts
}

/// Where a recovery is.
enum Standing {
    /// There is nothing to do.
    Over(RecoveryPhase, String),
    /// Its incarnation has an identity.
    Founds,
    /// The incarnation that it recovers is the current one.
    Begins,
}

fn standing(s: &Situation<'_>, recovery: &RecoveryFacts) -> Standing {
    let (asked, now) = (asked(&recovery.spec), s.incarnation);
    let refused = |why: String| Standing::Over(RecoveryPhase::Refused, why);
    if let Some(why) = &recovery.refused {
        return refused(why.clone());
    }
    if recovery.spec.cluster_uid != s.cluster.life {
        return refused(format!(
            "it names the cluster with UID {}, and this one has {}: it is another one of the name",
            recovery.spec.cluster_uid, s.cluster.life
        ));
    }
    if asked.saturating_add(1) == now {
        return Standing::Founds;
    }
    if recovery.recovered {
        let text = "it was carried out before: another recovery is another EtcdRecovery";
        return Standing::Over(RecoveryPhase::Recovered, text.to_owned());
    }
    if asked != now {
        return refused(format!(
            "it asks for the recovery of incarnation {asked}, and the cluster is incarnation {now}: delete it"
        ));
    }
    let others = s.o.recoveries.iter();
    let others = others.filter(|it| {
        let over = it.refused.is_some() || it.recovered;
        !over && it.spec.cluster_uid == s.cluster.life && self::asked(&it.spec) == asked
    });
    if others.count() > 1 {
        return refused(format!(
            "more than one EtcdRecovery asks for the recovery of incarnation {asked}: delete them, and create the one that is meant"
        ));
    }
    Standing::Begins
}

/// The incarnation that a recovery names.
fn asked(spec: &EtcdRecoverySpec) -> u64 {
    // At least 1, by the schema.
    u64::try_from(spec.incarnation).unwrap_or(0)
}

/// Recoveries that no rule has come to, because something else ends the plan before.
pub(super) fn held(s: &Situation<'_>, draft: &mut Draft) {
    let why = match (&draft.stalled, draft.holds.first(), draft.waits.first()) {
        (Some((_, text)), ..) => text.clone(),
        (None, Some(hold), _) => hold.reason.clone(),
        (None, None, Some(wait)) => format!("the operator waits for {}", wait.waiting_for),
        (None, None, None) => "the operator does something else first".to_owned(),
    };
    for recovery in &s.o.recoveries {
        let mut reports = draft.recoveries.iter();
        if reports.any(|report| report.name == recovery.name) {
            continue;
        }
        let message = format!("nothing is done for it: {why}");
        draft
            .recoveries
            .push(report(s, recovery, RecoveryPhase::Pending, message));
    }
}

fn report(
    s: &Situation<'_>,
    recovery: &RecoveryFacts,
    phase: RecoveryPhase,
    message: String,
) -> RecoveryReport {
    RecoveryReport {
        name: recovery.name.clone(),
        phase,
        message,
        incarnation: asked(&recovery.spec).saturating_add(1),
        seed: seed(s, &recovery.spec),
    }
}

fn seed(s: &Situation<'_>, spec: &EtcdRecoverySpec) -> Option<String> {
    let identity = s.o.identity_secret.as_ref()?;
    let ours = identity.cluster_uid == s.cluster.life;
    (ours && identity.incarnation == asked(spec).saturating_add(1)).then(|| identity.seed.clone())
}

fn founds(s: &Situation<'_>, recovery: &RecoveryFacts) -> (RecoveryPhase, String) {
    match s.bootstrapped() {
        true if !recovery.begun => (
            RecoveryPhase::Refused,
            format!(
                "the cluster is incarnation {} by now, by another EtcdRecovery: delete this one",
                s.incarnation
            ),
        ),
        true => (
            RecoveryPhase::Recovered,
            format!(
                "the cluster goes on as incarnation {}; volumes of former members are kept, delete them when nobody needs them",
                s.incarnation
            ),
        ),
        false => (
            RecoveryPhase::Restoring,
            "a new member receives the data".to_owned(),
        ),
    }
}

/// The next step of a recovery: in words, or what holds it.
fn begin(s: &Situation<'_>, draft: &mut Draft, recovery: &RecoveryFacts) -> Result<String, Held> {
    admit(s, &recovery.spec)?;
    let survivor = recovery.spec.survivor.as_ref();
    if let Some(survivor) = survivor {
        check_survivor(s, draft, survivor)?;
    }
    let name = survivor.map(|survivor| survivor.member.as_str());
    if !mutant!(RecoveryUnfenced) && stops(s, draft, name)? {
        return Ok("the other former members are stopped".to_owned());
    }
    if !keeps(s, draft) {
        return Ok("the volumes of the former members are marked as kept".to_owned());
    }
    next_identity(s, draft, &recovery.spec)
}

/// Stops the former members but the survivor. Returns false once nothing of them runs any more.
fn stops(s: &Situation<'_>, draft: &mut Draft, survivor: Option<&str>) -> Result<bool, Held> {
    let running = awake(s, survivor);
    for member in &running {
        let reason = "the cluster is recovered without it: it stops, and its volume stays";
        draft.step(Rule::Recovery, s.sleeping_set(member), reason);
    }
    match not_gone(s, survivor) {
        Some((member, what)) if running.is_empty() => Err(Held::Waits(member, "Fencing", what)),
        _ => Ok(!running.is_empty()),
    }
}

/// Whether the recovery fits the cluster.
fn admit(s: &Situation<'_>, spec: &EtcdRecoverySpec) -> Result<(), Held> {
    let refused = |why: &str| Err(Held::Refused(why.to_owned()));
    if !spec.accept_loss || spec.source().is_none() {
        return refused("it breaks its own rules: create it again");
    }
    if s.view.is_some() {
        return refused("a leader with a quorum answers: there is nothing to recover");
    }
    let foreign = |uid: &str| uid != s.cluster.life;
    let identity = s.o.identity_secret.as_ref();
    if identity.is_some_and(|identity| foreign(&identity.cluster_uid)) {
        return refused(
            "the identity Secret is another resource's: delete that Secret, and create the EtcdRecovery again",
        );
    }
    if s.hibernates() {
        return refused(
            "spec.replicas is 0, and a cluster that sleeps has lost nothing: set it, and create the EtcdRecovery again if there is no quorum then",
        );
    }
    quorum_may_be_there(s)
}

/// Whether anything speaks for a quorum that only this operator does not see.
fn quorum_may_be_there(s: &Situation<'_>) -> Result<(), Held> {
    let known = bootstrap::known_voters(s);
    let answers = known.iter().filter(|name| is_member(s, name)).count();
    if !known.is_empty() && answers >= quorum(known.len()) {
        return Err(Held::Refused(format!(
            "{answers} of {} voters answer, which is a quorum: they need no recovery, but to reach each other",
            known.len()
        )));
    }
    let waits =
        |member: &str, what: String| Err(Held::Waits(member.to_owned(), "QuorumPossible", what));
    let mut names = s.o.descriptions.keys();
    let follows = |name: &&String| {
        s.description(name)
            .is_some_and(Description::follows_a_leader)
    };
    let follows = names.find(follows);
    if let Some(name) = follows {
        let what = format!("{name} to have no leader: it follows one, so there may be a quorum");
        return waits(name, what);
    }
    let mut pods = s.o.pods.iter();
    if let Some((name, _)) = pods.find(|(_, pod)| pod.ready_since_ms.is_some()) {
        let what = format!(
            "the pod of {name} to be unready: Kubernetes calls it ready, so there may be a quorum that only the operator does not reach"
        );
        return waits(name, what);
    }
    Ok(())
}

fn is_member(s: &Situation<'_>, name: &str) -> bool {
    let ours = Some(s.cluster.life.as_str());
    s.description(name)
        .is_some_and(|d| d.phase == Phase::Member && d.cluster_uid.as_deref() == ours)
}

/// Whether the survivor runs and holds what was reviewed. Starts it where it does not run.
fn check_survivor(s: &Situation<'_>, draft: &mut Draft, survivor: &Survivor) -> Result<(), Held> {
    let member = survivor.member.as_str();
    if s.pvc(member).is_none_or(|pvc| pvc.terminating) {
        return Err(Held::Refused(format!(
            "{member} has no volume that its data could be on"
        )));
    }
    // Nobody starts what the user has stopped, but the user.
    if s.fenced.contains(member) {
        let what = format!(
            "{member} to be unfenced (kubectl quorate unfence {} {member}): it is to give its data, and is stopped",
            s.cluster.name
        );
        return Err(Held::Waits(member.to_owned(), "SurvivorNotReady", what));
    }
    let set = s.o.sets.get(member);
    if set.is_none_or(|set| set.hibernated && !set.terminating) {
        sets::apply(s, draft, Rule::Recovery, member, "its data are kept");
    }
    bootstrap::free_stuck_pods(s, draft, Some(member));
    let Some(description) = s.description(member) else {
        let what = format!("{member} to answer: its disk is compared with what was reviewed");
        return Err(Held::Waits(member.to_owned(), "SurvivorNotReady", what));
    };
    if description.is_corrupt() {
        return Err(Held::Refused(format!(
            "the alarm CORRUPT names {member}: choose another member, or a backup"
        )));
    }
    let expect = &survivor.expect;
    if description.disk_uuid != expect.disk_uuid {
        return Err(Held::Refused(format!(
            "{member} runs on the disk {}, and {} was reviewed",
            description.disk_uuid, expect.disk_uuid
        )));
    }
    if let Some(why) = unfit(s, description) {
        return Err(Held::Waits(member.to_owned(), "SurvivorNotReady", why));
    }
    let holds = (description.last_term, description.last_index);
    let number = |value: i64| u64::try_from(value).unwrap_or(u64::MAX);
    if holds < (number(expect.term), number(expect.index)) {
        return Err(Held::Refused(format!(
            "the log of {member} ends at term {}, index {}, and term {}, index {} was reviewed",
            holds.0, holds.1, expect.term, expect.index
        )));
    }
    Ok(())
}

/// Why a server cannot give its data now.
fn unfit(s: &Situation<'_>, description: &Description) -> Option<String> {
    let ours = description.cluster_uid.as_deref() == Some(s.cluster.life.as_str());
    if description.phase != Phase::Member || !ours {
        return Some("the survivor to be a member: it has no data of this cluster".to_owned());
    }
    if description.unsigned || description.last_term == 0 {
        return Some(
            "the survivor to run a version that gives its whole log: set spec.version to a newer one"
                .to_owned(),
        );
    }
    None
}

/// Former members that are not told to stop, but the survivor.
fn awake<'a>(s: &'a Situation<'_>, survivor: Option<&str>) -> Vec<&'a str> {
    let sets = s.o.sets.iter().chain(&s.o.earlier.sets);
    let others = sets.filter(|(name, _)| Some(name.as_str()) != survivor);
    let awake = others.filter(|(_, set)| !set.hibernated && !set.terminating);
    awake.map(|(name, _)| name.as_str()).collect()
}

/// A pod of a former member that may still run: its member, and what has to happen.
fn not_gone(s: &Situation<'_>, survivor: Option<&str>) -> Option<(String, String)> {
    let pods = s.o.pods.iter().chain(&s.o.earlier.pods);
    let mut others = pods.filter(|(name, _)| Some(name.as_str()) != survivor);
    let (name, pod) = others.find(|(_, pod)| !is_out_of_service(s, pod))?;
    let node = pod.node.as_deref();
    let advice = node.filter(|node| !s.o.node_reports(node)).map(|node| {
        format!("; node {node} does not report: once nothing runs on it, delete it or taint it (kubectl taint nodes {node} node.kubernetes.io/out-of-service=nodeshutdown:NoExecute)")
    });
    let what = format!("the pod of {name} to be gone{}", advice.unwrap_or_default());
    Some((name.clone(), what))
}

fn is_out_of_service(s: &Situation<'_>, pod: &PodFacts) -> bool {
    let node = pod.node.as_ref().and_then(|node| s.o.nodes.get(node));
    // On a node that reports, its kubelet ends the pod first.
    node.is_some_and(|node| node.out_of_service && !node.ready)
}

/// Marks the volumes of former members as kept. Only then the next incarnation begins: an operator of an older version
/// takes it for the same cluster, and deletes volumes of former members that are not marked.
fn keeps(s: &Situation<'_>, draft: &mut Draft) -> bool {
    let mut marked = true;
    let earlier = s.o.earlier.pvcs.iter();
    let earlier = earlier.map(|(name, pvc)| (name.as_str(), pvc));
    for (name, pvc) in s
        .our_pvcs()
        .chain(earlier)
        .filter(|(_, pvc)| !pvc.terminating)
    {
        if pvc.state == PvcState::Retired {
            continue;
        }
        marked = false;
        let action = Action::Object(ObjectAction::MarkPvc {
            pvc: name.to_owned(),
            uid: pvc.uid.clone(),
            state: PvcState::Retired,
        });
        draft.step(
            Rule::Recovery,
            action,
            "the cluster is recovered without it, and its data stay",
        );
    }
    marked
}

/// The identity of the next incarnation, in two steps: the Secret is immutable.
fn next_identity(
    s: &Situation<'_>,
    draft: &mut Draft,
    spec: &EtcdRecoverySpec,
) -> Result<String, Held> {
    let (incarnation, next) = (s.incarnation, s.incarnation + 1);
    match &s.o.identity_secret {
        Some(identity) if identity.terminating => {
            let what = "the identity Secret to be deleted".to_owned();
            return Err(Held::Waits(String::new(), "Terminating", what));
        }
        Some(_) => {
            let action = Action::Object(ObjectAction::DeleteIdentitySecret { incarnation });
            let reason = format!("incarnation {next} gets another one");
            draft.step(Rule::Recovery, action, reason);
        }
        None => {
            let action = Action::Object(ObjectAction::CreateIdentitySecret {
                seed: s.next_name(),
                nonce: s.o.entropy.clone(),
                incarnation: next,
            });
            let reason = match spec.source() {
                Some(source) => format!("the cluster goes on with {}", source.in_words()),
                None => "the cluster goes on".to_owned(),
            };
            draft.step(Rule::Recovery, action, reason);
        }
    }
    Ok(format!("incarnation {next} gets its identity"))
}
