//! I14: an alarm is switched off only where its reason is gone: NOSPACE where every voter has space,
//! CORRUPT where whom it names is a member no more and the data of all members is equal.

use super::Step;

pub(super) fn deed(step: &Step<'_>) -> Option<String> {
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
    use super::super::fixture::{cluster, step};
    use super::*;
    use crate::opsim::harness::truth::ClusterTruth;

    fn off(alarm: &str, change: impl Fn(&mut ClusterTruth)) -> Option<String> {
        let mut after = cluster(3);
        change(&mut after);
        let mut before = after.clone();
        before.alarms = vec![alarm.to_owned()];
        assert_eq!(deed(&step(&before, &before, 10)), None, "it stays on");
        deed(&step(&before, &after, 10))
    }

    #[test]
    fn an_alarm_goes_off_only_where_its_reason_is_gone() {
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
}
