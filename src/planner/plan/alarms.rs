//! Evaluates the alarms of a cluster: which members are wrong according to the members' own comparisons, who may join
//! and vote meanwhile, and what the user has to do where nothing is proven. Does not decide which member leaves:
//! `rules::alarms` does.

use std::collections::BTreeSet;

use crate::mutants::mutant;

use super::action::{Action, AlarmKind, MemberAction};
use super::draft::Draft;
use super::observed::{Comparison, Description, Phase, PvcState};
use super::situation::{Seat, Situation, quorum};
use super::space;
use super::victims;

/// Two comparisons count as two only if this much time lies between them.
const APART_MS: u64 = 4_000;
/// An older comparison is outdated.
const OLD_MS: u64 = 600_000;
/// The wait for comparisons, as the current step.
pub(super) const COMPARE: &str = "Compare";
/// Fewest voters among which one that differs is in the minority. There may be no nodes for more, and the alarm would
/// stay raised as long.
const ENOUGH: usize = 3;
/// After this time the message states what the user can do.
const LONG_MS: u64 = 600_000;
/// What the user has to do where the operator cannot know which data is right.
const BY_HAND: &str = "find out whose data is right (`etcdctl endpoint hashkv --cluster`), let one of those lead (`etcdctl move-leader`), replace the others by spec.replaceMembers, then run `etcdctl alarm disarm`";

/// An alarm that is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Alarm {
    pub(super) kind: AlarmKind,
    /// The member that it names; 0: none.
    pub(super) id: u64,
}

/// An alarm as a server reports it: etcd's name for it, a space, the member ID in hexadecimal.
pub(super) fn parse(words: &str) -> Option<Alarm> {
    let (kind, id) = words.split_once(' ').unwrap_or((words, "0"));
    let kind = [AlarmKind::NoSpace, AlarmKind::Corrupt]
        .into_iter()
        .find(|known| known.as_str() == kind)?;
    let id = u64::from_str_radix(id, 16).ok()?;
    Some(Alarm { kind, id })
}

/// The raised alarms, as reported by the leader.
pub(super) fn raised(s: &Situation<'_>, kind: AlarmKind) -> BTreeSet<u64> {
    let alarms = s.view.into_iter().flat_map(|(_, d)| &d.alarms);
    let known = alarms.filter_map(|words| parse(words));
    known
        .filter(|alarm| alarm.kind == kind)
        .map(|alarm| alarm.id)
        .collect()
}

/// A member's name, also of a removed one, or the ID if the name is unknown.
pub(super) fn name_of(s: &Situation<'_>, id: u64) -> String {
    let leader = s.view.map(|(_, d)| d);
    let members = leader.into_iter().flat_map(|d| &d.members);
    let members = members.map(|member| (member.id, &member.name));
    let gone = leader.into_iter().flat_map(|d| &d.tombstones);
    let gone = gone.map(|(id, name)| (*id, name));
    let mut known = members.chain(gone);
    let known = known.find(|(known, name)| *known == id && !name.is_empty());
    known.map_or_else(|| format!("member {id:x}"), |(_, name)| name.clone())
}

/// Whether this ID is or was a member's: clients may raise an alarm in any name.
pub(super) fn is_known(leader: &Description, id: u64) -> bool {
    let mut gone = leader.tombstones.iter();
    leader.members.iter().any(|member| member.id == id) || gone.any(|(known, _)| *known == id)
}

/// The upper half of the ID that an alarm names by which a cluster is closed to writes for another one that follows it, and
/// takes its place (`backup::follow::CLOSED`, which this room does not see).
pub const CLOSED_BY: u64 = 0x666f_6c6c;
/// What is to be said of it.
pub(super) const CLOSED: &str = "this cluster is closed to writes, because another one follows it and takes its place, or has done so: `etcdctl alarm disarm` opens it again; delete the other one first, or both take writes";

/// Whether the alarm of this ID says that.
pub(super) fn is_closed_by(id: u64) -> bool {
    id >> 32 == CLOSED_BY
}

/// What the operator waits for, and what the user can do if it takes long.
fn waits(s: &Situation<'_>, what: String) -> Corruption {
    let step = s.o.status_memory.step.as_ref();
    let since = step.filter(|(action, member, _)| action == COMPARE && member.is_none());
    let long = since.is_some_and(|(_, _, since)| s.o.now_ms.saturating_sub(*since) >= LONG_MS);
    Corruption::Wait(match long {
        true => format!("{what}, which takes long; otherwise {BY_HAND}"),
        false => what,
    })
}

/// The same, for all members: which of those that were asked gave no hash.
fn waits_for_all(s: &Situation<'_>, twice: &[&Comparison]) -> Corruption {
    let silent: BTreeSet<u64> = twice.iter().flat_map(|c| &c.silent).copied().collect();
    let silent: Vec<String> = silent.iter().map(|id| name_of(s, *id)).collect();
    let none = match silent.as_slice() {
        [] => String::new(),
        some => format!("; {} gave no hash in time", some.join(", ")),
    };
    waits(s, format!("the data of all members to be compared{none}"))
}

/// What the alarm CORRUPT comes to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Corruption {
    /// Nothing is done; what the user has to do.
    Person(String),
    /// What has to be known before anything is done.
    Wait(String),
    /// A member that the alarm names leads, and this voter, by name and member ID, can take over: before anything is
    /// proven, because new members get the leader's data, and comparisons are against it.
    Led(String, u64),
    /// Two comparisons show that the data of exactly the members that are named differs from that of a
    /// majority which agrees among itself: their names.
    Proven(BTreeSet<String>),
    /// The named ones are no longer members, and two comparisons show that the data of all members is equal: the alarms
    /// to disarm.
    Healed(BTreeSet<u64>),
}

/// Judges the alarm CORRUPT, where it is on.
pub(super) fn corruption(s: &Situation<'_>) -> Option<Corruption> {
    let named = raised(s, AlarmKind::Corrupt);
    let (_, leader) = s.view.filter(|_| !named.is_empty())?;
    Some(judge(s, leader, named))
}

fn judge(s: &Situation<'_>, leader: &Description, named: BTreeSet<u64>) -> Corruption {
    let person = |text: &str| Corruption::Person(text.to_owned());
    if let Some(member) = decided(s) {
        if s.view.is_some_and(|(leads, _)| s.to_replace(leads))
            && let Some((to, id)) = heir(s, &named)
        {
            return Corruption::Led(to.to_owned(), id);
        }
        return Corruption::Person(format!(
            "{member} is replaced because spec.replaceMembers names it, whatever was compared; afterwards run `etcdctl alarm disarm`"
        ));
    }
    if named.iter().any(|id| is_closed_by(*id)) {
        return person(CLOSED);
    }
    if named.contains(&0) {
        let unnamed = "it names no member, because no majority of the members has equal data";
        return Corruption::Person(format!("{unnamed}: {BY_HAND}"));
    }
    if !named.iter().all(|id| is_known(leader, *id)) {
        return person(
            "it names an ID that never was a member of this cluster: it came with a restored backup, or was raised by hand: run `etcdctl alarm disarm`",
        );
    }
    let voters: BTreeSet<u64> = s.voters.values().map(|seat| seat.view.id).collect();
    let all: BTreeSet<u64> = leader.members.iter().map(|member| member.id).collect();
    let corrupt: BTreeSet<u64> = named.intersection(&all).copied().collect();
    if let Some(member) = s.leaving.iter().find(|member| is_to_be_kept(s, member)) {
        return Corruption::Wait(format!("the volume of {member} to be marked as kept"));
    }
    if (voters.len() - corrupt.intersection(&voters).count()) < quorum(voters.len()) {
        return Corruption::Person(format!("it names no minority of the voters: {BY_HAND}"));
    }
    if corrupt.contains(&leader.member_id)
        && let Some((to, id)) = heir(s, &named)
    {
        return Corruption::Led(to.to_owned(), id);
    }
    // The successor of a named member is named: the next one would be as well, and the members would no longer be
    // copies of the original data.
    let left = gone(s, &named).count();
    let were = s.cluster.target().min(voters.len() + left);
    if !corrupt.is_empty() && left + corrupt.len() > were.saturating_sub(quorum(were)) {
        return Corruption::Person(format!(
            "it named {left} that left already, and who is named now would make it more than a minority: {BY_HAND}"
        ));
    }
    if leader.unsigned {
        let old = "the leader's version does not report comparisons";
        return Corruption::Person(format!("{old}: {BY_HAND}"));
    }
    let Some(twice) = compared(leader) else {
        return waits(s, "two comparisons of the members' data".to_owned());
    };
    let healed = |c: &&Comparison| c.differ.is_empty() && all.is_subset(&c.agree);
    mutant!(DisarmedUnequal => return Corruption::Healed(named));
    if corrupt.is_empty() {
        return match twice {
            // A successor counts once it votes.
            _ if voters.len() < s.cluster.target().min(ENOUGH) => {
                Corruption::Wait("a successor of the member that was removed".to_owned())
            }
            twice if twice.iter().all(healed) => Corruption::Healed(named),
            twice if twice.iter().any(|c| !c.differ.is_empty()) => {
                Corruption::Person(format!("the members' data differs still: {BY_HAND}"))
            }
            twice => waits_for_all(s, &twice),
        };
    }
    // A learner that also differs is given up by its own rule.
    let learners = s.learners.values().map(|seat| seat.view.id);
    let others: BTreeSet<u64> = learners.filter(|id| !corrupt.contains(id)).collect();
    let shown = |c: &&Comparison| {
        let right = c.agree.intersection(&voters).count() >= quorum(voters.len());
        let rest = voters.difference(&corrupt).all(|id| c.agree.contains(id));
        right && rest && c.differ.difference(&others).eq(&corrupt)
    };
    if twice.iter().all(shown) {
        return Corruption::Proven(corrupt.iter().map(|id| name_of(s, *id)).collect());
    }
    if twice.iter().any(|c| !c.silent.is_empty()) {
        return waits_for_all(s, &twice);
    }
    if twice.iter().all(healed) {
        return person(
            "the data of all members is equal by now: find out why it was not, or who raised the alarm, then run `etcdctl alarm disarm`",
        );
    }
    Corruption::Person(format!(
        "the members that it names are not those whose data differs: {BY_HAND}"
    ))
}

/// Names of those that were members, of these.
fn gone<'s>(s: &'s Situation<'_>, named: &'s BTreeSet<u64>) -> impl Iterator<Item = &'s str> {
    let gone = s.view.into_iter().flat_map(|(_, d)| &d.tombstones);
    let gone = gone.filter(|(id, _)| named.contains(id));
    gone.map(|(_, name)| name.as_str())
}

/// Whether the volume of this member, which leaves or has left, has to be marked as kept: it votes or voted, and the
/// alarm CORRUPT is raised. A majority that agrees is not proof that it is right, and a lost member's data need not be
/// wrong: this may be the only correct copy.
pub(super) fn is_to_be_kept(s: &Situation<'_>, member: &str) -> bool {
    let pvc = s.pvc(member).filter(|pvc| !pvc.terminating);
    pvc.is_some_and(|pvc| pvc.state != PvcState::Retired)
        && is_on(s)
        && (s.voters.contains_key(member) || has_voted(s, member))
        && !mutant!(NamedVolumeDeleted)
}

/// Whether one of this name was removed that had voted.
fn has_voted(s: &Situation<'_>, member: &str) -> bool {
    s.view.is_some_and(|(_, d)| {
        let mut gone = d.tombstones.iter().filter(|(_, name)| name == member);
        gone.any(|(id, _)| !d.never_voted.contains(id))
    })
}

/// The voter that takes over from a named leader: healthy, and not named itself.
fn heir<'s>(s: &'s Situation<'_>, named: &BTreeSet<u64>) -> Option<(&'s str, u64)> {
    let (leader, _) = s.view?;
    let heir = victims::successor(s, leader);
    heir.filter(|(name, id)| !s.to_replace(name) && (decided(s).is_some() || !named.contains(id)))
}

/// Whether CORRUPT is on, whomever it names.
pub(super) fn is_on(s: &Situation<'_>) -> bool {
    !raised(s, AlarmKind::Corrupt).is_empty()
}

/// Members that the user wants replaced while CORRUPT is raised: the user has decided which data is right, and neither
/// the alarm nor a comparison overrules that.
pub(super) fn decided<'s>(s: &'s Situation<'_>) -> Option<&'s str> {
    let mut voters = s.voters.keys().map(String::as_str);
    let named = voters.find(|name| s.to_replace(name))?;
    is_on(s).then_some(named)
}

/// Which data is right while CORRUPT is raised, according to the latest comparison of the current members: that of the
/// members that agree, if they are a quorum of the voters. Learners do not count: they have what some leader sent them.
/// If voters are lost, that of the members that agree with the leader, if the alarm named each voter that does not: a
/// quorum of the voters disagreed with those when it was raised.
///
/// # Errors
/// Why it is unknown, and what helps.
fn right(s: &Situation<'_>) -> Result<BTreeSet<u64>, String> {
    let on = "the alarm CORRUPT is on, and";
    let leader = s.view.map(|(_, leader)| leader);
    let Some(leader) = leader.filter(|leader| !leader.unsigned) else {
        return Err(format!(
            "{on} the leader's version does not report comparisons: {BY_HAND}"
        ));
    };
    let Some(newest) = covering(leader).next() else {
        return Err(format!("{on} the members' data was not compared yet"));
    };
    let agrees = |seat: &&Seat<'_>| newest.agree.contains(&seat.view.id);
    if s.voters.values().filter(agrees).count() >= quorum(s.voters.len()) {
        return Ok(newest.agree.clone());
    }
    if vouches(s, leader, newest) {
        let with_it = newest.agree.iter().copied();
        let with_it = with_it.filter(|_| newest.agree.contains(&leader.member_id));
        return Ok(with_it.chain([leader.member_id]).collect());
    }
    Err(format!(
        "{on} no majority of the voters is known to have the same data: {BY_HAND}"
    ))
}

/// Whether the alarm itself proves that the leader's data is right: it names a minority, and every voter that it does
/// not name and that gave a hash agrees with the leader.
fn vouches(s: &Situation<'_>, leader: &Description, newest: &Comparison) -> bool {
    let named = raised(s, AlarmKind::Corrupt);
    let most = s.voters.len().max(s.cluster.target());
    let corrupt = s
        .voters
        .values()
        .filter(|seat| named.contains(&seat.view.id));
    let minority = corrupt.count() <= most.saturating_sub(quorum(most));
    let mut others = s.voters.values().map(|seat| seat.view.id);
    let same = |id: u64| {
        let with_it = newest.agree.contains(&id) && newest.agree.contains(&leader.member_id);
        id == leader.member_id || with_it || named.contains(&id) || newest.silent.contains(&id)
    };
    minority && !named.contains(&0) && !named.contains(&leader.member_id) && others.all(same)
}

/// Whether a voter may leave for good while CORRUPT is raised. While it is unknown which data is right, it may be the
/// one that decides: of three of which two differ and the third is lost, the third.
///
/// # Errors
/// Why not.
pub(super) fn may_leave(s: &Situation<'_>) -> Result<(), String> {
    match is_on(s) && decided(s).is_none() && !mutant!(GivenByTheNamed) {
        true => right(s).map(drop),
        false => Ok(()),
    }
}

/// Whether a learner may be added while CORRUPT is raised: it gets the leader's data.
///
/// # Errors
/// The leader, and what helps.
pub(super) fn may_add(s: &Situation<'_>) -> Result<(), String> {
    let Some((name, leader)) = s.view.filter(|_| is_on(s)) else {
        return Ok(());
    };
    mutant!(GivenByTheNamed => return Ok(()));
    let others =
        "so who joined would have its data: let another voter lead (`etcdctl move-leader`)";
    if decided(s).is_some() {
        return match s.to_replace(name) {
            true => Err(format!("{name} leads and is to be replaced, {others}")),
            false => Ok(()),
        };
    }
    if raised(s, AlarmKind::Corrupt).contains(&leader.member_id) {
        return Err(format!(
            "{name} leads and the alarm CORRUPT names it, {others}"
        ));
    }
    match right(s)?.contains(&leader.member_id) {
        true => Ok(()),
        false => Err(format!(
            "{name} leads and its data is not the majority's, {others}"
        )),
    }
}

/// Whether a learner may be promoted while CORRUPT is raised: it may have its data from a leader that was wrong, and
/// has to agree with the current one. There is no time limit. Writes are refused under the alarm in any case: a missing
/// voter costs the tolerance of the next failure; a wrong one can change which data has the majority and counts as
/// right.
///
/// # Errors
/// What has to happen first.
pub(super) fn may_vote(s: &Situation<'_>, id: u64) -> Result<(), String> {
    let Some((_, leader)) = s.view.filter(|_| is_on(s)) else {
        return Ok(());
    };
    may_add(s)?;
    mutant!(GivenByTheNamed => return Ok(()));
    if decided(s).is_some() {
        let same = |c: &Comparison| sides(c, leader.member_id, id) == Some(true);
        return match covering(leader).next() {
            // An older version does not compare and never will; the user who decided is aware of that.
            _ if leader.unsigned => Ok(()),
            Some(c) if same(c) => Ok(()),
            Some(_) => Err("the alarm CORRUPT is on, and its data is not the leader's".to_owned()),
            None => Err("the alarm CORRUPT is on, and its data was not compared yet".to_owned()),
        };
    }
    match right(s)?.contains(&id) {
        true => Ok(()),
        false => Err(
            "the alarm CORRUPT is on, and its data is not known to be the majority's".to_owned(),
        ),
    }
}

/// Whether two members are on the same side; nothing where one of them gave no hash.
fn sides(c: &Comparison, one: u64, other: u64) -> Option<bool> {
    let answered = |id: &u64| !c.silent.contains(id);
    let both = answered(&one) && answered(&other);
    both.then(|| c.agree.contains(&one) == c.agree.contains(&other))
}

/// Whether a learner has wrong data, according to two comparisons: it differs from a quorum of the voters and from the
/// leader that is one of them or, if the user has decided, from the leader. It was created from a wrong member, and is
/// never promoted.
pub(super) fn is_spoiled(s: &Situation<'_>, id: u64) -> bool {
    let signed = s.view.filter(|(_, leader)| !leader.unsigned);
    let Some((name, leader)) = signed.filter(|_| is_on(s)) else {
        return false;
    };
    let agrees = |c: &Comparison, seat: &Seat<'_>| c.agree.contains(&seat.view.id);
    let is_decided = decided(s).is_some() && !s.to_replace(name);
    let shows = |c: &Comparison| {
        let right = s.voters.values().filter(|seat| agrees(c, seat)).count();
        let leads = c.agree.contains(&leader.member_id);
        let known = leads && right >= quorum(s.voters.len());
        (known && c.differ.contains(&id))
            || (is_decided && sides(c, leader.member_id, id) == Some(false))
    };
    compared(leader).is_some_and(|both| both.into_iter().all(shows))
}

/// The last two comparisons of this leader, of the current members: one from before a membership change does not apply
/// to the current members.
fn compared(leader: &Description) -> Option<Vec<&Comparison>> {
    let mut young = covering(leader);
    let newest = young.next()?;
    mutant!(ComparedOnce => return Some(vec![newest]));
    let second = young.find(|c| c.age_ms >= newest.age_ms + APART_MS)?;
    Some(vec![newest, second])
}

/// The comparisons of the members as they are now, the newest first.
fn covering(leader: &Description) -> impl Iterator<Item = &Comparison> {
    let members: BTreeSet<u64> = leader.members.iter().map(|member| member.id).collect();
    let covers = move |c: &&Comparison| {
        let ids = [&c.agree, &c.differ, &c.silent].into_iter().flatten();
        ids.copied().collect::<BTreeSet<u64>>() == members
    };
    let young = leader.comparisons.iter().filter(|c| c.age_ms <= OLD_MS);
    young.filter(covers)
}

/// The message for an alarm: what it is about and what is done, or has to be done.
pub(super) fn in_words(s: &Situation<'_>, draft: &Draft, words: &str) -> String {
    let Some(alarm) = parse(words) else {
        return format!("alarm {words}: see `etcdctl alarm list`");
    };
    let of = match alarm.id {
        0 => String::new(),
        id => format!(" of {}", name_of(s, id)),
    };
    let then = match alarm.kind {
        AlarmKind::NoSpace => match space::is_free(s, alarm.id) {
            Ok(why) => match space::rests(s, alarm.id) {
                Some((again, _)) => format!("{why}; {again}{}", paused(s)),
                None => format!("{why}; {}{}", switches(draft), paused(s)),
            },
            Err(held) => held,
        },
        AlarmKind::Corrupt => {
            let what = match corruption(s) {
                Some(Corruption::Person(text)) => text,
                Some(Corruption::Wait(what)) => format!("waiting for {what}"),
                Some(Corruption::Led(to, _)) => {
                    format!("it leads, and {to} is to lead before anything else is done")
                }
                Some(Corruption::Proven(names)) => {
                    let names: Vec<String> = names.into_iter().collect();
                    format!(
                        "the data of {} differs from the majority's: replaced, one at a time; their volumes are kept",
                        names.join(", ")
                    )
                }
                Some(Corruption::Healed(_)) => {
                    format!("the members' data is equal; {}", switches(draft))
                }
                None => "no leader with a quorum was seen".to_owned(),
            };
            format!("writes are refused; {what}{}", paused(s))
        }
    };
    format!("alarm {}{of}: {then}", alarm.kind.as_str())
}

/// What is left undone for now.
fn paused(s: &Situation<'_>) -> &'static str {
    match s.cluster.spec.paused {
        true => "; while spec.paused is set the operator does nothing of it",
        false => "",
    }
}

fn switches(draft: &Draft) -> &'static str {
    let mut steps = draft.steps.iter();
    let acts = steps.any(|step| matches!(step.action, Action::Member(MemberAction::Disarm { .. })));
    if draft.stalled.is_some() && !acts {
        return "the operator disarms it once it is no longer stalled";
    }
    "the operator disarms it"
}

/// Whether all wanted members are present and healthy: no member is removed while another one is unhealthy or joining.
pub(super) fn is_whole(s: &Situation<'_>) -> bool {
    let voters = s.voters.len();
    let serves = |name: &String| {
        s.description(name)
            .is_some_and(|d| d.phase == Phase::Member)
    };
    voters >= s.cluster.target().min(ENOUGH)
        && s.healthy() == voters
        && s.learners.is_empty()
        && s.voters.keys().all(serves)
}
