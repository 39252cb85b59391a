//! Reduces a run to the fewest requests that still show a difference.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::Step;
use crate::cluster::Kind;
use crate::pair::{Difference, Pair};

/// The time limit of the search.
const LIMIT: Duration = Duration::from_secs(120);

/// Repeats requests on new clusters.
async fn repeat(ours: Kind, peers: &Path, size: usize, steps: &[Step]) -> Option<Difference> {
    let mut pair = Pair::start(ours, peers, size).await;
    for (member, question) in steps {
        if let Err(difference) = pair.ask(*member, question).await {
            return Some(difference);
        }
    }
    None
}

/// Removes requests that are not needed, larger parts first, and returns the rest as text.
pub(crate) async fn shrink(ours: Kind, peers: &Path, size: usize, mut steps: Vec<Step>) -> String {
    let start = Instant::now();
    let Some(mut shown) = repeat(ours, peers, size, &steps).await else {
        return "the same requests did not differ again".to_owned();
    };
    let mut part = steps.len() / 2;
    while part > 0 && start.elapsed() < LIMIT {
        let mut at = 0;
        while at < steps.len() && start.elapsed() < LIMIT {
            let end = (at + part).min(steps.len());
            let mut fewer = steps.clone();
            fewer.drain(at..end);
            match repeat(ours, peers, size, &fewer).await {
                Some(difference) => {
                    shown = difference;
                    steps = fewer;
                }
                None => at = end,
            }
        }
        part /= 2;
    }
    let lines: Vec<String> = steps
        .iter()
        .take(40)
        .map(|step| format!("  {step:?}"))
        .collect();
    format!(
        "{} requests that still differ:\n{}\n{shown}",
        steps.len(),
        lines.join("\n")
    )
}
