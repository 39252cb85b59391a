//! A plan in the making: the rules add to it in their order.

use super::action::{Action, Fence};
use super::observed::JoinFailure;
use super::situation::Situation;
use super::step::{Class, Hold, Note, RecoveryReport, Rule, Step};

/// The results of the rules so far.
#[derive(Default)]
pub(super) struct Draft {
    pub(super) steps: Vec<Step>,
    pub(super) holds: Vec<Hold>,
    pub(super) notes: Vec<Note>,
    pub(super) waits: Vec<Wait>,
    /// The user has to change something: reason and message.
    pub(super) stalled: Option<(&'static str, String)>,
    /// Acts that give a new member up: which, and why.
    pub(super) failed_joins: Vec<(Action, String)>,
    /// The join failures to remember, when no new one is added.
    pub(super) remembered: Option<JoinFailure>,
    /// How EtcdRecoveries are doing.
    pub(super) recoveries: Vec<RecoveryReport>,
    /// Whether an eviction may take a member, or why none may; `None` where no rule decides that.
    pub(super) evictions: Option<Result<(), Closed>>,
    /// What the status counts as done.
    pub(super) done: Option<Action>,
}

/// Why no eviction may take a member.
pub(super) struct Closed {
    /// Machine-readable reason.
    pub(super) reason: &'static str,
    /// In words.
    pub(super) why: String,
    /// It passes with time, or with something that the cluster's objects do not tell of.
    pub(super) passes: bool,
}

/// Something that has to happen before the operator can go on.
pub(super) struct Wait {
    pub(super) action: &'static str,
    pub(super) member: Option<String>,
    pub(super) reason: &'static str,
    pub(super) waiting_for: String,
    pub(super) since_ms: Option<u64>,
    pub(super) deadline_ms: Option<u64>,
}

impl Draft {
    /// Adds an action. Of membership changes only the first one of a plan is kept: the next is decided on the view
    /// after it.
    pub(super) fn step(&mut self, rule: Rule, action: Action, reason: impl Into<String>) {
        let second = action.is_membership() && self.steps.iter().any(|s| s.action.is_membership());
        if !second {
            self.steps.push(Step {
                rule,
                action,
                reason: reason.into(),
            });
        }
    }

    pub(super) fn hold(&mut self, class: Class, reason: impl Into<String>) {
        let hold = Hold {
            class,
            reason: reason.into(),
        };
        if !self.holds.contains(&hold) {
            self.holds.push(hold);
        }
    }

    pub(super) fn note(&mut self, reason: &'static str, text: impl Into<String>) {
        self.notes.push(Note {
            reason,
            text: text.into(),
        });
    }

    pub(super) fn stall(&mut self, reason: &'static str, text: impl Into<String>) {
        self.stalled.get_or_insert((reason, text.into()));
    }

    pub(super) fn wait(
        &mut self,
        action: &'static str,
        member: &str,
        reason: &'static str,
        waiting_for: impl Into<String>,
    ) -> &mut Wait {
        self.waits.push(Wait {
            action,
            member: (!member.is_empty()).then(|| member.to_owned()),
            reason,
            waiting_for: waiting_for.into(),
            since_ms: None,
            deadline_ms: None,
        });
        let last = self.waits.len() - 1;
        &mut self.waits[last]
    }

    /// A step is ready, but a guard does not allow it now.
    pub(super) fn guarded(&mut self, action: &'static str, member: &str, held: &str) {
        self.wait(
            action,
            member,
            "Guard",
            format!("a safe moment for {action} of {member}: {held}"),
        );
    }

    pub(super) fn held(&self, class: Class) -> bool {
        self.holds.iter().any(|hold| hold.class == class)
    }
}

/// The fence of a membership call decided on this view.
pub(super) fn fence(s: &Situation<'_>) -> Fence {
    let configuration_index = s.view.map_or(0, |(_, d)| d.configuration_index);
    Fence {
        configuration_index,
        epoch: s.o.epoch,
    }
}
