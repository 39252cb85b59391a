//! The last events of each cluster, as this process has published them: a bounded number, kept in memory for the console.
//! `kubectl get events` has those of others and of earlier operators. Publishes nothing.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use jiff::Timestamp;
use serde::Serialize;

use super::Key;
use crate::operator::platform::{self, Severity};

/// Of one cluster.
const OF_ONE: usize = 30;
/// Of all clusters.
const OF_ALL: usize = 2_000;

/// An event, or the same one several times in a row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Event {
    /// When it was last published.
    pub(crate) time: Timestamp,
    pub(crate) count: u32,
    /// Normal or Warning.
    #[serde(rename = "type")]
    pub(crate) severity: &'static str,
    pub(crate) reason: String,
    pub(crate) action: String,
    pub(crate) note: String,
}

impl Event {
    fn of(event: &platform::Event, time: Timestamp) -> Self {
        Self {
            time,
            count: 1,
            severity: match event.severity {
                Severity::Normal => "Normal",
                Severity::Warning => "Warning",
            },
            reason: event.reason.clone(),
            action: event.action.clone(),
            note: event.note.clone(),
        }
    }

    fn is_repeated_by(&self, other: &Self) -> bool {
        let said = |event: &Self| (event.reason.clone(), event.note.clone());
        said(self) == said(other)
    }
}

/// The last ones of all clusters, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct Recent {
    events: Mutex<VecDeque<(Key, Event)>>,
}

impl Recent {
    /// Keeps one more, and no longer the oldest where there are too many.
    pub(crate) fn keep(&self, key: &Key, event: &platform::Event, time: Timestamp) {
        let mut event = Event::of(event, time);
        let mut events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        let own = |(of, _): &(Key, Event)| of == key;
        if let Some(last) = events.iter().rposition(own)
            && events[last].1.is_repeated_by(&event)
            && let Some((_, before)) = events.remove(last)
        {
            event.count = before.count.saturating_add(1);
        }
        events.push_back((key.clone(), event));
        if events.iter().filter(|one| own(one)).count() > OF_ONE
            && let Some(first) = events.iter().position(own)
        {
            events.remove(first);
        }
        if events.len() > OF_ALL {
            events.pop_front();
        }
    }

    /// Those of a cluster, the newest first.
    pub(crate) fn of(&self, key: &Key) -> Vec<Event> {
        let events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        let own = events.iter().rev().filter(|(of, _)| of == key);
        own.map(|(_, event)| event.clone()).collect()
    }

    /// Drops those of a deleted cluster.
    pub(crate) fn forget(&self, key: &Key) {
        let mut events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        events.retain(|(of, _)| of != key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(note: &str) -> platform::Event {
        platform::Event {
            severity: Severity::Warning,
            reason: "MemberUnhealthy".into(),
            action: "Remove".into(),
            note: note.into(),
        }
    }

    fn key(name: &str) -> Key {
        ("default".into(), name.into())
    }

    fn second(number: i64) -> Timestamp {
        Timestamp::from_second(number).expect("a time")
    }

    #[test]
    fn repeated_events_are_counted_and_others_kept_in_order() {
        let recent = Recent::default();
        recent.keep(&key("a"), &event("one"), second(1));
        recent.keep(&key("b"), &event("one"), second(2));
        recent.keep(&key("a"), &event("one"), second(3));
        recent.keep(&key("a"), &event("two"), second(4));
        let of = |name| {
            let events = recent.of(&key(name)).into_iter();
            let told = events.map(|it| (it.note, it.count, it.time.as_second()));
            told.collect::<Vec<_>>()
        };
        assert_eq!(of("a"), [("two".into(), 1, 4), ("one".into(), 2, 3)]);
        assert_eq!(of("b"), [("one".into(), 1, 2)]);
        recent.forget(&key("a"));
        assert!(of("a").is_empty());
        assert_eq!(of("b").len(), 1);
    }

    #[test]
    fn no_cluster_takes_the_place_of_all_others() {
        let recent = Recent::default();
        recent.keep(&key("calm"), &event("it is there"), second(0));
        for number in 0..3_000 {
            recent.keep(
                &key("restless"),
                &event(&number.to_string()),
                second(number),
            );
        }
        assert_eq!(recent.of(&key("restless")).len(), OF_ONE);
        assert_eq!(recent.of(&key("restless"))[0].note, "2999");
        assert_eq!(recent.of(&key("calm")).len(), 1);
        for number in 0..3_000 {
            recent.keep(&key(&number.to_string()), &event("new"), second(number));
        }
        let events = recent.events.lock().expect("unpoisoned");
        assert_eq!(events.len(), OF_ALL);
    }
}
