//! Watchers of every kind compared with the model: each must receive exactly the events of its span from its start on,
//! once and in order, or be cancelled because they were compacted.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::generator::Generator;
use super::model::Model;
use crate::store::*;

struct Received {
    spec: WatchSpec,
    start: Revision,
    events: Vec<Event>,
    /// Whether a missing `prev_kv` would be explained by a compaction up to there.
    compacted: Revision,
}

pub(super) struct Audience {
    watchers: Watchers,
    received: BTreeMap<WatcherId, Received>,
    next: WatcherId,
}

impl Audience {
    pub(super) fn new(view: &View) -> Self {
        Audience {
            watchers: Watchers::new(view),
            received: BTreeMap::new(),
            next: 0,
        }
    }

    pub(super) fn step(
        &mut self,
        generator: &mut Generator,
        view: &Arc<View>,
        model: &Model,
        at: &str,
    ) {
        match generator.below(8) {
            0 | 1 => self.create(generator, view, model, at),
            2 => self.cancel(generator, model, at),
            3 | 4 => self.catch_up(generator, view, model, at),
            _ => self.advance(generator, view, model),
        }
    }

    fn create(&mut self, generator: &mut Generator, view: &View, model: &Model, at: &str) {
        self.advance(generator, view, model);
        let (key, range_end) = generator.span();
        let start_revision = match generator.below(3) {
            0 => 0,
            _ => generator.between(model.compacted.max(1) - 1, model.revision + 3),
        };
        let spec = WatchSpec {
            key,
            range_end,
            start_revision,
            prev_kv: generator.one_in(2),
            no_put: generator.one_in(6),
            no_delete: generator.one_in(6),
        };
        let bad = !matches!(spec.range_end[..], [] | [0]) && spec.key >= spec.range_end;
        let created = self.watchers.create(self.next, spec.clone());
        assert_eq!(created.is_err(), bad, "{at}: {spec:?}");
        if bad {
            return;
        }
        let start = if start_revision == 0 {
            model.revision + 1
        } else {
            start_revision
        };
        let compacted = -1;
        self.received.insert(
            self.next,
            Received {
                spec,
                start,
                events: Vec::new(),
                compacted,
            },
        );
        self.next += 1;
    }

    fn cancel(&mut self, generator: &mut Generator, model: &Model, at: &str) {
        let id = generator.below(self.next + 1);
        let received = self.received.remove(&id);
        assert_eq!(self.watchers.cancel(id), received.is_some(), "{at}");
        if let Some(received) = received {
            received.check(model, self.watchers.revision(), false);
        }
    }

    fn advance(&mut self, generator: &mut Generator, view: &View, model: &Model) {
        let received = &mut self.received;
        self.watchers.advance(view, &mut |id, events| {
            if generator.one_in(6) {
                return false;
            }
            received
                .get_mut(&id)
                .expect("a known watcher")
                .take(events.to_vec(), model);
            true
        });
    }

    fn catch_up(&mut self, generator: &mut Generator, view: &View, model: &Model, at: &str) {
        self.advance(generator, view, model);
        let behind: Vec<WatcherId> = self.watchers.behind().collect();
        if behind.is_empty() {
            return;
        }
        let id = behind[generator.below(behind.len() as u64) as usize];
        let slice = Slice {
            records: generator.below(8) as usize + 1,
            bytes: 30,
        };
        self.slice(id, view, model, slice, at);
    }

    fn slice(&mut self, id: WatcherId, view: &View, model: &Model, slice: Slice, at: &str) {
        let outcome = self.watchers.catch_up(id, view, slice);
        let received = self.received.get_mut(&id).expect("a known watcher");
        match outcome {
            CatchUp::Behind(events) => {
                received.take(events, model);
                let promised = self.watchers.in_step(id);
                assert_eq!(promised, Some(false), "{at}: events are still to come");
            }
            CatchUp::Synced(events) => {
                received.take(events, model);
                let start = received.start;
                assert_eq!(
                    self.watchers.in_step(id),
                    Some(start <= model.revision + 1),
                    "{at}"
                );
            }
            CatchUp::Compacted(revision) => {
                assert_eq!(revision, model.compacted, "{at}");
                let received = self.received.remove(&id).expect("a known watcher");
                assert!(
                    received.start <= revision,
                    "{at}: nothing that it needs was compacted"
                );
                received.check(model, model.revision, false);
            }
            CatchUp::Unreadable(damaged) => panic!("{at}: {damaged}"),
            CatchUp::NotBehind => panic!("{at}: it was reported as behind"),
        }
    }

    /// Lets everyone catch up and checks what they have seen.
    pub(super) fn finish(mut self, view: &View, model: &Model) {
        self.watchers.advance(view, &mut |_, _| false);
        loop {
            let Some(id) = self.watchers.behind().next() else {
                break;
            };
            self.slice(
                id,
                view,
                model,
                Slice {
                    records: 7,
                    bytes: 50,
                },
                "at the end",
            );
        }
        for received in self.received.values() {
            received.check(model, model.revision, true);
        }
    }
}

impl Received {
    fn take(&mut self, events: Vec<Event>, model: &Model) {
        let last = self.events.last().map_or(0, |event| event.kv.mod_revision);
        if let Some(first) = events.first() {
            assert!(first.kv.mod_revision > last, "a revision is never split");
        }
        for event in &events {
            let gone = self.spec.prev_kv && event.prev_kv.is_none();
            let existed = model.events(event.kv.mod_revision, event.kv.mod_revision);
            let lost = existed
                .iter()
                .any(|e| e.kv == event.kv && e.prev_kv.is_some());
            if gone && lost {
                assert!(
                    event.kv.mod_revision <= model.compacted,
                    "prev_kv lost: {event:?}"
                );
                self.compacted = self.compacted.max(event.kv.mod_revision);
            }
        }
        self.events.extend(events);
    }

    /// Compares with the model up to a revision; one that was behind has seen a beginning.
    fn check(&self, model: &Model, revision: Revision, complete: bool) {
        let inside = |key: &[u8]| match &self.spec.range_end[..] {
            [] => key == self.spec.key,
            [0] => key >= &self.spec.key[..],
            end => key >= &self.spec.key[..] && key < end,
        };
        let mut expected = model.events(self.start, revision);
        expected.retain(|event| {
            let filtered = if event.kind.is_delete() {
                self.spec.no_delete
            } else {
                self.spec.no_put
            };
            inside(&event.kv.key) && !filtered
        });
        let mut received = self.events.clone();
        for (received, expected) in received.iter_mut().zip(&mut expected) {
            if !self.spec.prev_kv {
                assert!(received.prev_kv.is_none());
            } else if received.prev_kv.is_some() || received.kv.mod_revision > self.compacted {
                continue;
            }
            expected.prev_kv = None;
            received.prev_kv = None;
        }
        if !complete {
            expected.truncate(received.len());
        }
        assert_eq!(received, expected, "{:?} from {}", self.spec, self.start);
    }
}
