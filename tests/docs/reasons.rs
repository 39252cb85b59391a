//! Every reason of a problem or a wait that the operator reports is documented on a page with a remedy. The reasons
//! are taken from the plans in `tests/plan`.

use std::collections::BTreeSet;
use std::fs;

use super::root;

/// Conditions, with the status that reports a problem.
const WRONG: &[&str] = &[
    "Stalled=True ",
    "Degraded=True ",
    "TLSReady=False ",
    "Durable=False ",
    "Quorate=False ",
    "Quorate=Unknown ",
];

/// The reason in a line of a plan, if the line reports a problem or a wait.
fn reason(line: &str) -> Option<&str> {
    let condition = WRONG.iter().find_map(|start| line.strip_prefix(start));
    let end = |c: char| !c.is_ascii_alphanumeric();
    if let Some(rest) = condition {
        return rest.split(end).next();
    }
    // `waiting: ACTION MEMBER (REASON): TEXT`
    let (_, rest) = line.strip_prefix("waiting: ")?.split_once('(')?;
    rest.split(end).next()
}

fn missing<'r>(reasons: impl IntoIterator<Item = &'r str>, pages: &str) -> Vec<&'r str> {
    let words: BTreeSet<&str> = pages.split(|c: char| !c.is_ascii_alphanumeric()).collect();
    let reasons = reasons.into_iter();
    reasons.filter(|reason| !words.contains(reason)).collect()
}

#[test]
fn every_reason_has_its_remedy() {
    let mut plans = String::new();
    for entry in fs::read_dir(root().join("tests/plan")).expect("the plans") {
        plans += &fs::read_to_string(entry.expect("an entry").path()).expect("a plan");
    }
    let reasons: BTreeSet<&str> = plans.lines().filter_map(reason).collect();
    assert!(reasons.len() > 30, "{reasons:?}");
    let read = |page: &str| fs::read_to_string(root().join(page)).expect("a page");
    let pages =
        ["troubleshooting", "tls", "upgrades"].map(|page| read(&format!("docs/tasks/{page}.md")));
    assert_eq!(missing(reasons, &pages.concat()), Vec::<&str>::new());
}

#[test]
fn a_reason_without_a_remedy_is_found() {
    let plan = "Stalled=True DataLost: x\nStalled=False NotStalled: y\nwaiting: Heal demo-3 (Unhealthy): z\nReady=True A: b\n";
    let reasons: Vec<&str> = plan.lines().filter_map(reason).collect();
    assert_eq!(reasons, ["DataLost", "Unhealthy"]);
    assert_eq!(
        missing(reasons, "about DataLoss and Unhealthy"),
        ["DataLost"]
    );
}
