//! I14: an alarm is switched off only where its reason is gone: NOSPACE where every voter has space,
//! CORRUPT where the member that it names was removed and the data of all members is equal. While CORRUPT
//! is on no member joins a leader that it names, no learner with other data than most voters' becomes a voter,
//! and the volume of a voter that left under it is never deleted.

use super::{History, Step};

pub(super) fn deed(step: &Step<'_>, history: &History) -> Option<String> {
    joined(step, history)
        .or_else(|| deleted(step, history))
        .or_else(|| switched_off(step))
}

fn joined(step: &Step<'_>, history: &History) -> Option<String> {
    let (before, after) = (step.before, step.after);
    let known = |since| History::is_known(since, step.now_ms);
    let new = |id: &&u64| !before.learners.contains_key(id) && !before.voters.contains_key(id);
    if known(history.named_leads_ms.get(step.uid))
        && let Some(id) = after.learners.keys().find(new)
    {
        return Some(format!(
            "{id:x} joins a leader that the alarm CORRUPT names"
        ));
    }
    // Most of those that voted before: its own vote may have ended that there is a majority.
    let same = |data: Option<u32>| before.voters.values().filter(move |m| m.data == data);
    let mut had = before.voters.values().map(|member| member.data);
    let most = had.find(|data| data.is_some() && same(*data).count() >= before.quorum());
    let other = |id: &u64| after.voters.get(id).map(|m| m.data) != most;
    let promoted = |id: &&u64| before.learners.contains_key(id) && most.is_some() && other(id);
    let wrong = after.voters.keys().find(promoted);
    let wrong = wrong.filter(|_| known(history.corrupt_ms.get(step.uid)))?;
    Some(format!("{wrong:x} votes, and its data differs"))
}

fn deleted(step: &Step<'_>, history: &History) -> Option<String> {
    let (before, after) = (step.before, step.after);
    let named = history.named.get(step.uid)?;
    let mut gone = before.volumes.difference(&after.volumes);
    let member = gone.find(|member| before.exists && after.exists && named.contains(*member))?;
    Some(format!(
        "the volume of {member} was deleted, which left while CORRUPT was on"
    ))
}

fn switched_off(step: &Step<'_>) -> Option<String> {
    let (before, after) = (step.before, step.after);
    let off = before
        .alarms
        .iter()
        .filter(|alarm| !after.alarms.contains(alarm));
    for alarm in off {
        let (kind, id) = alarm.split_once(' ').unwrap_or((alarm, "0"));
        let full = after.voters.values().find(|member| member.full);
        if let Some(member) = full.filter(|_| kind == "NOSPACE") {
            return Some(format!(
                "{alarm} was switched off, and {} is full",
                member.name
            ));
        }
        if kind != "CORRUPT" {
            continue;
        }
        let all = || after.voters.iter().chain(&after.learners);
        if all().any(|(known, _)| u64::from_str_radix(id, 16) == Ok(*known)) {
            return Some(format!("{alarm} was switched off, and it names a member"));
        }
        let first = all().next().map(|(_, member)| member.data);
        if all().any(|(_, member)| Some(member.data) != first) {
            return Some(format!(
                "{alarm} was switched off, and the members' data differs"
            ));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{cluster, history, member, step};
    use super::*;
    use crate::opsim::harness::ground_truth::ClusterTruth;

    fn off(alarm: &str, change: impl Fn(&mut ClusterTruth)) -> Option<String> {
        let mut after = cluster(3);
        change(&mut after);
        let mut before = after.clone();
        before.alarms = vec![alarm.to_owned()];
        let past = history(&before);
        assert_eq!(deed(&step(&before, &before, 10), &past), None);
        deed(&step(&before, &after, 10), &past)
    }

    #[test]
    fn alarm_is_disarmed_when_its_cause_is_gone() {
        assert_eq!(off("NOSPACE 2", |_| {}), None);
        let fill = |c: &mut ClusterTruth| {
            c.voters.entry(1).and_modify(|m| m.full = true);
        };
        assert!(off("NOSPACE 2", fill).is_some());
        assert_eq!(off("CORRUPT 9", |_| {}), None);
        assert!(off("CORRUPT 2", |_| {}).is_some(), "it is a member still");
        let spoil = |c: &mut ClusterTruth| {
            c.voters.entry(1).and_modify(|m| m.data = Some(7));
        };
        assert!(off("CORRUPT 9", spoil).is_some());
    }

    #[test]
    fn no_member_votes_with_wrong_data() {
        let mut before = cluster(3);
        (before.leader, before.alarms) = (Some(1), vec!["CORRUPT 1".to_owned()]);
        let past = history(&before);
        let mut after = before.clone();
        after.learners.extend([member(4)]);
        assert_eq!(deed(&step(&before, &after, 10_000), &past), None);
        assert!(deed(&step(&before, &after, 60_000), &past).is_some());
        // Another one leads: who joined is promoted, if its data is the others'.
        before = after;
        before.leader = Some(2);
        let past = history(&before);
        let promoted = |data: u32| {
            let mut after = before.clone();
            after.learners.clear();
            after.voters.extend([member(4)]);
            after.voters.entry(4).and_modify(|m| m.data = Some(data));
            deed(&step(&before, &after, 60_000), &past)
        };
        assert_eq!(promoted(0), None);
        assert!(promoted(7).is_some());
    }

    #[test]
    fn volume_of_a_named_member_stays() {
        let mut before = cluster(3);
        before.alarms = vec!["CORRUPT 2".to_owned()];
        let past = history(&before);
        before.voters.remove(&2);
        before.voters.extend([member(4)]);
        let without = |member: &str| {
            let mut after = before.clone();
            after.volumes.remove(member);
            deed(&step(&before, &after, 60_000), &past)
        };
        assert!(without("demo-2").is_some());
        before.alarms.clear();
        let past = history(&before);
        let mut after = before.clone();
        after.volumes.remove("demo-1");
        assert_eq!(deed(&step(&before, &after, 60_000), &past), None);
    }
}
