//! I8: the status never reports health that was not observed within its freshness bound. Judged when the
//! status changes; and, while an operator acts, a loss of the quorum is reported before long.

use serde_json::Value;

use super::{BELIEVED_MS, History, Of};

/// A condition that has become false is withdrawn within this, while an operator acts: its longest
/// pause between two reconciles, and then some.
const TAKEN_BACK_MS: u64 = 120_000;

pub(super) fn moment(of: &Of<'_>, history: &mut History) -> Option<String> {
    if !of.cluster.exists {
        return None;
    }
    let status = &of.cluster.status;
    let news = history.judged.get(of.uid) != Some(status);
    history.judged.insert(of.uid.to_owned(), status.clone());
    let quorate = holds(status, "Quorate");
    if news {
        let seen = history.quorate_ms.get(of.uid);
        if quorate && seen.is_none_or(|at| at + BELIEVED_MS < of.now_ms) {
            return Some("the status reports Quorate, and there was no quorum lately".into());
        }
        if let Some(name) = healthy_by_word(of, history) {
            return Some(format!(
                "the status reports that {name} is Healthy, and it is not"
            ));
        }
    }
    let since = history.not_quorate_ms.get(of.uid)?;
    let late = of.now_ms > since + TAKEN_BACK_MS;
    (late && quorate).then(|| "the status still reports Quorate without a quorum".into())
}

fn holds(status: &Value, type_: &str) -> bool {
    let mut conditions = status["conditions"].as_array().into_iter().flatten();
    conditions.any(|condition| condition["type"] == type_ && condition["status"] == "True")
}

/// A member that the status calls healthy and that did not serve lately.
fn healthy_by_word(of: &Of<'_>, history: &History) -> Option<String> {
    let reported = of.cluster.status["members"].as_array()?;
    let healthy = reported
        .iter()
        .filter(|member| member["health"] == "Healthy");
    let mut names = healthy.filter_map(|member| member["name"].as_str());
    let members = || of.cluster.voters.iter().chain(&of.cluster.learners);
    let lies = |name: &&str| {
        let found = members().find(|(_, member)| member.name == *name);
        found.is_some_and(|(id, member)| {
            !member.reached && !history.lately_lost(of.uid, *id, of.now_ms)
        })
    };
    names.find(lies).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{cluster, ground_truth, history, of};
    use super::*;

    fn status(health: &str, quorate: &str) -> std::sync::Arc<Value> {
        let status = serde_json::json!({
            "members": [{"name": "demo-1", "health": health}],
            "conditions": [{"type": "Quorate", "status": quorate}],
        });
        status.into()
    }

    #[test]
    fn unobserved_health_is_not_reported() {
        let mut three = cluster(3);
        let mut past = history(&three);
        three.voters.entry(1).and_modify(|m| m.reached = false);
        three.status = status("Healthy", "True");
        assert_eq!(moment(&of(&three, 5_000), &mut past), None, "seen lately");
        three.status = status("Healthy", "False");
        assert!(moment(&of(&three, 60_000), &mut past).is_some());
        three.status = status("Unknown", "True");
        assert!(moment(&of(&three, 61_000), &mut past).is_some());
    }

    #[test]
    fn a_lost_quorum_is_reported_soon() {
        let mut three = cluster(3);
        three.status = status("Healthy", "True");
        let mut past = history(&three);
        assert_eq!(moment(&of(&three, 0), &mut past), None);
        three.quorate = false;
        past.note(&ground_truth(&three, 1_000));
        assert_eq!(moment(&of(&three, 60_000), &mut past), None);
        assert!(moment(&of(&three, 200_000), &mut past).is_some());
    }
}
