//! Calls that a simulated server holds until its description changes: who waits with which digest, and when they are woken.

use std::collections::BTreeMap;
use std::task::Waker;

use super::Servers;

/// Between two looks, in milliseconds, as shipped.
const LOOK_MS: u64 = 500;
/// A connection on which probes have had no answer for so long ends, as shipped.
const SILENCE_MS: u64 = 20_000;

/// The calls that are held.
#[derive(Default)]
pub(super) struct Held {
    /// By UID of the server's pod.
    waiting: BTreeMap<String, Vec<Waiting>>,
    /// Since when nobody reaches a server that holds calls, by the same.
    silent: BTreeMap<String, u64>,
    /// The last look, counted in looks.
    looked: u64,
}

/// One that waits.
struct Waiting {
    known: u64,
    until_ms: u64,
    waker: Waker,
}

impl Servers {
    /// Whether the server of a pod, which runs, is reached by operators and answers.
    pub(super) fn is_reached(&self, pod: &str) -> bool {
        let Some(process) = self.processes.get(pod) else {
            return false;
        };
        let container = &process.container;
        container.connected && !self.unseen.contains(&container.node) && self.answers(process)
    }

    /// The digest that a pod's server gives; `None` where nobody reaches it.
    fn told(&self, pod: &str) -> Option<u64> {
        let reached = self.is_reached(pod);
        let description = reached.then(|| self.describe(pod, false).ok()).flatten();
        description.map(|description| description.digest)
    }

    /// Whether a call is held any longer. What changes while nobody reaches the server is told by nobody.
    pub(super) fn holds(&self, pod: &str, known: u64, until_ms: u64) -> bool {
        self.processes.contains_key(pod)
            && self.now_ms < until_ms
            && !self.is_silent(pod)
            && self.told(pod).is_none_or(|digest| digest == known)
    }

    fn is_silent(&self, pod: &str) -> bool {
        let since = self.held.silent.get(pod);
        since.is_some_and(|since| self.now_ms >= since + SILENCE_MS)
    }

    /// Notes whether a pod that holds calls is reached.
    fn listen(&mut self, pod: &str, is_reached: bool) {
        if is_reached {
            self.held.silent.remove(pod);
        } else {
            let now_ms = self.now_ms;
            self.held.silent.entry(pod.to_owned()).or_insert(now_ms);
        }
    }

    /// Wakes a call at the first look at which it is held no longer.
    pub(super) fn wake_then(&mut self, pod: &str, known: u64, until_ms: u64, waker: Waker) {
        let waiting = self.held.waiting.entry(pod.to_owned()).or_default();
        waiting.push(Waiting {
            known,
            until_ms,
            waker,
        });
    }

    pub(super) fn wake_due(&mut self) {
        let look = self.now_ms / LOOK_MS;
        if std::mem::replace(&mut self.held.looked, look) == look {
            return;
        }
        let waiting = std::mem::take(&mut self.held.waiting);
        self.held.silent.retain(|pod, _| waiting.contains_key(pod));
        for (pod, all) in waiting {
            // One digest for all of them: there may be thousands.
            let (there, digest) = (self.processes.contains_key(&pod), self.told(&pod));
            self.listen(&pod, digest.is_some());
            let there = there && !self.is_silent(&pod);
            let is_held = |one: &Waiting| {
                let same = digest.is_none_or(|digest| digest == one.known);
                there && self.now_ms < one.until_ms && same
            };
            let (held, ended): (Vec<_>, Vec<_>) = all.into_iter().partition(is_held);
            ended.into_iter().for_each(|one| one.waker.wake());
            if !held.is_empty() {
                self.held.waiting.insert(pod, held);
            }
        }
    }
}
