//! The output of `kubectl quorate plan`: a function of a forecast. It states that it is a forecast, without failures
//! and delays.

use kube_core::ResourceExt as _;

use super::table::wrapped;
use crate::crd::EtcdCluster;
use crate::model::forecast::{End, Forecast};

/// The steps, and where they end.
pub(super) fn plan(wanted: &EtcdCluster, forecast: &Forecast, applied: bool) -> String {
    let namespace = wanted.namespace().unwrap_or_default();
    let mut lines = vec![format!("CLUSTER   {namespace}/{}", wanted.name_any())];
    let asked = if applied {
        "if this were applied, and nothing fails on the way; nothing was applied"
    } else {
        "as it is, if nothing fails on the way"
    };
    lines.extend(wrapped("PLAN      ", asked));
    lines.push(String::new());
    if forecast.steps.is_empty() {
        lines.push("nothing is to be done".to_owned());
    }
    for (number, step) in forecast.steps.iter().enumerate() {
        let at = format!("+{}s", step.after_seconds);
        lines.extend(wrapped(&format!("{:>3} {at:>6}  ", number + 1), &step.what));
        lines.extend(wrapped("            because ", &step.why));
    }
    lines.push(String::new());
    let (head, words) = match &forecast.end {
        End::Rest(words) => ("THEN      ", words),
        End::Waits(words) => ("THEN      it waits for ", words),
        End::Stalled(words) => ("THEN      NOTHING MORE CAN BE DONE: ", words),
        End::Open(words) => ("THEN      it goes on further than is looked: ", words),
    };
    lines.extend(paragraph(head, words));
    if !matches!(forecast.end, End::Rest(_)) {
        let mut held = forecast.holds.clone();
        held.dedup();
        lines.extend(held.iter().flat_map(|why| wrapped("HELD BACK ", why)));
    }
    if forecast.steps.iter().any(|step| step.after_seconds > 0) {
        lines.extend(wrapped(
            "",
            "Times are the earliest: pulling images, starting and catching up take none here.",
        ));
    }
    lines.push(String::new());
    lines.join("\n")
}

/// A title with words in the first line, the others below the titles.
fn paragraph(head: &str, words: &str) -> Vec<String> {
    let (title, rest) = head.split_at(10);
    wrapped(title, &format!("{rest}{words}"))
}
