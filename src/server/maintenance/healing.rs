//! Which damaged value is asked of which member next, how many are healed before a checkpoint has them, and how long whoever
//! needs one waits for it. Takes the time as an argument.
//!
//! Never asks itself, and never decides what a value is.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::disk::ValuePlace;
use crate::mutants::mutant;

/// The pause after every member was asked in vain; each is twice as long as the one before, up to the last.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LAST_PAUSE: Duration = Duration::from_secs(60);
/// How long a member that did not answer is not asked.
const SILENCE: Duration = Duration::from_secs(5);
/// Bytes of healed values, which are in memory, after which it rests until a checkpoint has written them.
const MOST_UNWRITTEN: u64 = 64 << 20;
/// The shortest interval between two checkpoints that are wanted for healed values alone.
const CHECKPOINT_AGAIN: Duration = Duration::from_secs(60);
/// How long an entry, or a checkpoint, waits for one value.
const WAIT: Duration = Duration::from_secs(5);

/// What was asked for.
#[derive(Debug, Default)]
pub(crate) struct Healing {
    values: BTreeMap<ValuePlace, Asked>,
    /// Members that did not answer, and until when they are not asked.
    silent: BTreeMap<u64, Duration>,
    /// Healed values that may be in memory only.
    unwritten: Option<Unwritten>,
    /// When a checkpoint was wanted for them.
    wanted: Option<Duration>,
}

#[derive(Debug)]
struct Unwritten {
    bytes: u64,
    /// Checkpoints of a larger number than this have them.
    begun: u64,
}

#[derive(Debug, Default)]
struct Asked {
    /// Whom, since the last pause.
    members: BTreeSet<u64>,
    pauses: u32,
    not_before: Duration,
}

impl Healing {
    /// These places are damaged now; what is known of others is forgotten.
    pub(crate) fn found(&mut self, damaged: &BTreeSet<ValuePlace>) {
        self.values.retain(|place, _| damaged.contains(place));
        for place in damaged {
            self.values.entry(*place).or_default();
        }
    }

    /// The places whose values may be asked for: those for which somebody waits at once, and no others meanwhile.
    pub(crate) fn due(&self, needed: &BTreeSet<ValuePlace>, now: Duration) -> BTreeSet<ValuePlace> {
        if !needed.is_empty() {
            return needed.clone();
        }
        if self.is_full() {
            return BTreeSet::new();
        }
        let due = self.values.iter();
        let due = due.filter(|(_, asked)| now >= asked.not_before);
        due.map(|(place, _)| *place).collect()
    }

    /// Whom of these members to ask for the value at a place, each once between two pauses. `None`: nobody is left, and a
    /// pause begins.
    pub(crate) fn ask(&mut self, place: ValuePlace, members: &[u64], now: Duration) -> Option<u64> {
        self.silent.retain(|_, until| *until > now);
        let asked = self.values.entry(place).or_default();
        let next = members
            .iter()
            .find(|member| !asked.members.contains(member) && !self.silent.contains_key(member));
        match next {
            Some(member) => drop(asked.members.insert(*member)),
            None => {
                let pause = FIRST_PAUSE.saturating_mul(1 << asked.pauses.min(10));
                asked.not_before = now + pause.min(LAST_PAUSE);
                asked.pauses += 1;
                asked.members.clear();
            }
        }
        next.copied()
    }

    /// This member did not answer.
    pub(crate) fn is_silent(&mut self, member: u64, now: Duration) {
        self.silent.insert(member, now + SILENCE);
    }

    /// So many bytes were healed before the next checkpoint begins to be written. This is the number of the one before.
    pub(crate) fn healed(&mut self, bytes: usize, begun: u64) {
        let before = self.unwritten.as_ref().map_or(0, |before| before.bytes);
        let bytes = before + bytes as u64;
        self.unwritten = Some(Unwritten { bytes, begun });
    }

    /// Whether no more may be healed before there is a checkpoint.
    pub(crate) fn is_full(&self) -> bool {
        let unwritten = self.unwritten.as_ref();
        unwritten.is_some_and(|unwritten| unwritten.bytes >= MOST_UNWRITTEN)
    }

    /// This is the number of the last checkpoint that was written. Whether another one is to be asked for: until then a
    /// start reads the damaged places again, and no other member can be sent all of it.
    pub(crate) fn wants_checkpoint(&mut self, written: u64, now: Duration) -> bool {
        let unwritten = self.unwritten.take();
        let lacks = |it: &Unwritten| mutant!(HealedTooEarly => written < it.begun, else written <= it.begun);
        self.unwritten = unwritten.filter(lacks);
        let again = self.wanted.is_none_or(|at| now >= at + CHECKPOINT_AGAIN);
        let wants = self.unwritten.is_some() && again;
        if wants {
            self.wanted = Some(now);
        }
        wants
    }
}

/// How long somebody has waited for a value to be healed.
#[derive(Debug, Default)]
pub(crate) struct Waited(Option<(ValuePlace, Duration)>);

impl Waited {
    /// How long to wait for the value at this place from now on, if at all. For another one than before it begins anew.
    pub(crate) fn left(&mut self, place: ValuePlace, now: Duration) -> Option<Duration> {
        let since = match self.0 {
            Some((waits_for, since)) if waits_for == place => since,
            _ => now,
        };
        self.0 = Some((place, since));
        (since + WAIT)
            .checked_sub(now)
            .filter(|left| !left.is_zero())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: ValuePlace = (1, 24);
    const B: ValuePlace = (1, 99);

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn members_are_asked_in_turn_and_then_after_growing_pauses() {
        let mut healing = Healing::default();
        healing.found(&BTreeSet::from([A]));
        let mut now = seconds(100);
        for pause in [1, 2, 4, 8, 16, 32, 60, 60] {
            assert_eq!(healing.due(&BTreeSet::new(), now), BTreeSet::from([A]));
            assert_eq!(healing.ask(A, &[7, 8], now), Some(7));
            assert_eq!(healing.ask(A, &[7, 8], now), Some(8));
            assert_eq!(healing.ask(A, &[7, 8], now), None);
            now += seconds(pause);
            assert!(
                healing
                    .due(&BTreeSet::new(), now - Duration::from_millis(1))
                    .is_empty()
            );
        }
        healing.found(&BTreeSet::from([A, B]));
        assert_eq!(
            healing.due(&BTreeSet::new(), now - seconds(1)),
            BTreeSet::from([B])
        );
        healing.found(&BTreeSet::from([B]));
        healing.found(&BTreeSet::from([A]));
        assert_eq!(healing.ask(A, &[], now), None);
        assert_eq!(
            healing.due(&BTreeSet::new(), now + seconds(1)),
            BTreeSet::from([A]),
            "anew"
        );
    }

    /// A thousand values are not each kept waiting by the same member that is gone.
    #[test]
    fn silent_member_is_left_out_for_a_while() {
        let mut healing = Healing::default();
        healing.found(&BTreeSet::from([A, B]));
        assert_eq!(healing.ask(A, &[7, 8], seconds(1)), Some(7));
        healing.is_silent(7, seconds(3));
        assert_eq!(healing.ask(A, &[7, 8], seconds(3)), Some(8));
        assert_eq!(healing.ask(B, &[7, 8], seconds(3)), Some(8));
        assert_eq!(healing.ask(B, &[7, 8], seconds(8)), Some(7));
    }

    /// A disk that fails as a whole would have all of its values in memory.
    #[test]
    fn healed_values_wait_for_a_checkpoint() {
        let mut healing = Healing::default();
        assert!(!healing.wants_checkpoint(7, seconds(1)));
        healing.healed(40 << 20, 7);
        assert!(!healing.is_full());
        assert!(healing.wants_checkpoint(7, seconds(2)));
        // The one that is asked for has begun, and does not have this.
        healing.healed(40 << 20, 8);
        assert!(healing.is_full());
        assert!(!healing.wants_checkpoint(8, seconds(61)), "not so soon");
        assert!(healing.wants_checkpoint(8, seconds(62)), "begun before");
        assert!(!healing.wants_checkpoint(9, seconds(200)));
        assert!(!healing.is_full(), "it has them");
    }

    /// An entry that waited for its value had its member stopped: the value had been asked for in vain while the member was
    /// alone, and the pause after that was longer than the wait.
    #[test]
    fn value_that_somebody_waits_for_is_asked_for_at_once() {
        let mut healing = Healing::default();
        healing.found(&BTreeSet::from([A, B]));
        assert_eq!(healing.ask(A, &[], seconds(1)), None);
        healing.healed(80 << 20, 1);
        assert!(healing.due(&BTreeSet::new(), seconds(1)).is_empty());
        let needed = BTreeSet::from([A]);
        assert_eq!(healing.due(&needed, seconds(1)), needed);
        assert_eq!(healing.ask(A, &[7], seconds(1)), Some(7));
    }

    #[test]
    fn waiting_for_one_value_ends() {
        let mut waited = Waited::default();
        assert_eq!(waited.left(A, seconds(10)), Some(WAIT));
        assert_eq!(waited.left(A, seconds(14)), Some(seconds(1)));
        assert_eq!(waited.left(A, seconds(15)), None);
        assert_eq!(waited.left(B, seconds(15)), Some(WAIT), "A was healed");
        assert_eq!(waited.left(B, seconds(30)), None);
    }
}
