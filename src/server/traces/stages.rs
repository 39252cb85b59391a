//! The stages of a call, from what it noted of itself and what the core threads noted of its entry.
//!
//! Pure: works on moments that others noted. Never guesses: what no note tells is part of the stage before it.

use std::fmt;
use std::time::{Duration, Instant};

use super::marks::{Marks, Wait, Waited};
use super::moments::Moments;

/// Where a part of a call's time went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::server) enum Stage {
    /// Until it first waited for something: this member may answer, and the caller may ask.
    Admitted,
    /// It waited for its turn.
    Turn,
    /// The read index, and until it was applied.
    ReadIndex,
    /// The leader's answer about a lease.
    Lease,
    /// Its proposal waited for the task of consensus.
    Queued,
    /// From there until this member knew that its entry is committed.
    Replicated,
    /// From there until the entry was applied and published.
    Applied,
    /// From there until the call went on.
    Answered,
    /// This member worked on it.
    Served,
}

impl Stage {
    /// Its name, in lines and spans.
    pub(in crate::server) fn name(self) -> &'static str {
        match self {
            Stage::Admitted => "admitted",
            Stage::Turn => "turn",
            Stage::ReadIndex => "read_index",
            Stage::Lease => "lease",
            Stage::Queued => "queued",
            Stage::Replicated => "replicated",
            Stage::Applied => "applied",
            Stage::Answered => "answered",
            Stage::Served => "served",
        }
    }

    /// Whether the call waited for others.
    pub(in crate::server) fn is_wait(self) -> bool {
        !matches!(self, Stage::Admitted | Stage::Served)
    }
}

/// One stage of a call, in time since the call began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::server) struct Step {
    pub(in crate::server) stage: Stage,
    pub(in crate::server) from: Duration,
    pub(in crate::server) to: Duration,
}

/// The stages of a call: each begins where the one before it ends, and together they are all of its time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::server) struct Stages {
    pub(in crate::server) steps: Vec<Step>,
    /// When this member's own log had the entry, which may be before or after it was committed.
    pub(in crate::server) logged: Option<Duration>,
}

impl Stages {
    /// Of a call that ended then.
    pub(in crate::server) fn of(marks: &Marks, moments: &Moments, end: Instant) -> Stages {
        let mut cut = Cut {
            began: marks.began(),
            at: marks.began(),
            end,
            steps: Vec::new(),
        };
        let mut logged = None;
        for waited in marks.waits(end) {
            let before = match cut.steps.is_empty() {
                true => Stage::Admitted,
                false => Stage::Served,
            };
            cut.until(before, waited.from);
            match waited.wait {
                Wait::Turn => cut.until(Stage::Turn, waited.to),
                Wait::ReadIndex => cut.until(Stage::ReadIndex, waited.to),
                Wait::Lease => cut.until(Stage::Lease, waited.to),
                Wait::Proposal => {
                    proposal(&mut cut, &waited, moments);
                    logged = waited.index.and_then(|index| moments.logged.of(index));
                }
            }
        }
        cut.until(Stage::Served, end);
        let since = |at: Instant| at.saturating_duration_since(marks.began());
        Stages {
            logged: logged.map(since),
            steps: cut.steps,
        }
    }
}

/// The stages of a proposal that was waited for.
fn proposal(cut: &mut Cut, waited: &Waited, moments: &Moments) {
    let (taken, to) = (moments.taken.of(waited.number), waited.to);
    if let Some(taken) = taken {
        cut.until(Stage::Queued, taken.min(to));
    }
    let Some(index) = waited.index else {
        let waits = match taken {
            Some(_) => Stage::Replicated,
            None => Stage::Queued,
        };
        return cut.until(waits, to);
    };
    if let Some(committed) = moments.committed.of(index) {
        cut.until(Stage::Replicated, committed.min(to));
        if let Some(applied) = moments.applied.of(index) {
            cut.until(Stage::Applied, applied.min(to));
        }
        cut.until(Stage::Answered, to);
    } else {
        cut.until(Stage::Replicated, to);
    }
}

/// A call's time, cut into stages from its beginning on.
struct Cut {
    began: Instant,
    at: Instant,
    end: Instant,
    steps: Vec<Step>,
}

impl Cut {
    /// The next stage lasts until then; left out if it took no time.
    fn until(&mut self, stage: Stage, to: Instant) {
        let to = to.min(self.end);
        if to <= self.at {
            return;
        }
        let since = |at: Instant| at.saturating_duration_since(self.began);
        self.steps.push(Step {
            stage,
            from: since(self.at),
            to: since(to),
        });
        self.at = to;
    }
}

impl fmt::Display for Stages {
    fn fmt(&self, text: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, step) in self.steps.iter().enumerate() {
            let comma = if number > 0 { ", " } else { "" };
            write!(
                text,
                "{comma}{} {:.1?}",
                step.stage.name(),
                step.to - step.from
            )?;
        }
        if let Some(logged) = self.logged {
            write!(text, "; logged here after {logged:.1?}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn of(stages: &Stages) -> Vec<(&'static str, u128)> {
        let took = |step: &Step| (step.stage.name(), (step.to - step.from).as_millis());
        stages.steps.iter().map(took).collect()
    }

    /// A proposal with these moments after the call began, in milliseconds.
    fn proposed(
        taken: Option<u32>,
        index: u64,
        committed: Option<u32>,
        applied: Option<u32>,
    ) -> Stages {
        let began = Instant::now();
        let (mut marks, moments) = (Marks::new(began), Moments::default());
        marks.begin(Wait::Proposal, 5, began + MS);
        for (moment, number, at) in [
            (&moments.taken, 5, taken),
            (&moments.logged, 9, Some(4)),
            (&moments.committed, 9, committed),
            (&moments.applied, 9, applied),
        ] {
            if let Some(at) = at {
                moment.note(number, began + at * MS);
            }
        }
        if index > 0 {
            marks.applied(index, began + 20 * MS);
        }
        Stages::of(&marks, &moments, began + 30 * MS)
    }

    #[test]
    fn stages_of_a_put_are_all_of_its_time() {
        let stages = proposed(Some(3), 9, Some(8), Some(10));
        let want = [
            ("admitted", 1),
            ("queued", 2),
            ("replicated", 5),
            ("applied", 2),
            ("answered", 10),
            ("served", 10),
        ];
        assert_eq!(of(&stages), want);
        assert_eq!(stages.logged, Some(4 * MS));
        let text = stages.to_string();
        assert!(
            text.starts_with("admitted 1.0ms, queued 2.0ms, replicated 5.0ms"),
            "{text}"
        );
        assert!(
            text.ends_with("served 10.0ms; logged here after 4.0ms"),
            "{text}"
        );
    }

    /// What a timed out write waited for is what its line is read for.
    #[test]
    fn a_write_without_an_answer_waits_where_it_was_last_seen() {
        assert_eq!(
            of(&proposed(None, 0, None, None)),
            [("admitted", 1), ("queued", 29)]
        );
        let stuck = proposed(Some(2), 0, None, None);
        assert_eq!(
            of(&stuck),
            [("admitted", 1), ("queued", 1), ("replicated", 28)]
        );
    }

    #[test]
    fn what_is_not_known_is_part_of_what_was_before() {
        let forgotten = proposed(None, 9, None, None);
        assert_eq!(
            of(&forgotten),
            [("admitted", 1), ("replicated", 19), ("served", 10)]
        );
        // A note of a batch that was taken a moment before this one was queued.
        let early = proposed(Some(0), 9, Some(8), Some(10));
        assert_eq!(of(&early)[1], ("replicated", 7));
    }

    #[test]
    fn a_read_waits_for_its_index_and_is_served_then() {
        let began = Instant::now();
        let mut marks = Marks::new(began);
        marks.begin(Wait::ReadIndex, 1, began + 2 * MS);
        marks.end(began + 5 * MS);
        marks.begin(Wait::Turn, 0, began + 5 * MS);
        marks.end(began + 6 * MS);
        let stages = Stages::of(&marks, &Moments::default(), began + 9 * MS);
        let want = [
            ("admitted", 2),
            ("read_index", 3),
            ("turn", 1),
            ("served", 3),
        ];
        assert_eq!(of(&stages), want);
    }
}
