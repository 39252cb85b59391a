//! When the run has come to rest, all members have the same data, which follows from the history, and equal hashes.

use super::Found;
use super::log::Log;
use crate::history::{History, Kv};

/// Checks the members at rest.
pub(crate) fn check(history: &History, log: &Log, found: &mut Found) {
    for rest in &history.rest {
        let expected: Vec<&Kv> = log.range("", "\0", rest.revision).collect();
        if rest.revision != log.newest() {
            let text = format!(
                "{} is at revision {}, and watchers have seen {}",
                rest.member,
                rest.revision,
                log.newest()
            );
            found.add("at rest: one revision", text);
        } else if !expected.iter().copied().eq(&rest.kvs) {
            let differs = expected
                .iter()
                .zip(&rest.kvs)
                .find(|(expected, there)| **expected != *there);
            let text = format!(
                "{} has {} keys, the history {}; the first difference: {differs:?}",
                rest.member,
                rest.kvs.len(),
                expected.len()
            );
            found.add("at rest: what was written is there", text);
        }
    }
    for pair in history.rest.windows(2) {
        let hash = |at: usize| (pair[at].compacted, pair[at].hash);
        if pair[0].revision == pair[1].revision && hash(0) != hash(1) {
            let text = format!(
                "{} and {} have hashes {:?} and {:?} at revision {}",
                pair[0].member,
                pair[1].member,
                hash(0),
                hash(1),
                pair[0].revision
            );
            found.add("at rest: equal hashes", text);
        }
    }
}
