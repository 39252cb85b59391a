//! Watchers: each sits on one server for as long as that lives and pleases it, is shown what the
//! server publishes, falls behind and catches up, and goes on at another server from where it was.

use std::sync::Arc;

use bytes::Bytes;
use rand::RngExt as _;
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::store::{CatchUp, Event as Shown, Slice, View, WatchSpec, Watchers};

use super::client::any_key;
use super::clock::MILLISECOND;
use super::network::HostId;
use super::oracles::{Progress, Wish};
use super::world::{Event, Step, World, broken};

/// One watcher.
#[derive(Debug, Default)]
pub(super) struct Watching {
    progress: Progress,
    seat: Option<Seat>,
}

/// Where it sits.
#[derive(Debug)]
struct Seat {
    host: HostId,
    boot: u64,
    watchers: Watchers,
}

impl Watching {
    /// One that watches all of this.
    pub(super) fn new(wish: Wish) -> Self {
        Self {
            progress: Progress::new(wish),
            seat: None,
        }
    }
}

/// What is watched: everything, one key, and some keys with a filter.
pub(super) fn wishes(random: &mut Xoshiro256PlusPlus) -> [Wish; 3] {
    let bytes = Bytes::from_static;
    let deletes = random.random_bool(0.5);
    [
        Wish {
            range_end: bytes(b"\0"),
            ..Wish::default()
        },
        Wish {
            key: any_key(random),
            ..Wish::default()
        },
        Wish {
            key: bytes(b"key 2"),
            range_end: bytes(b"leased 2"),
            no_put: deletes,
            no_delete: !deletes,
        },
    ]
}

impl World {
    /// The watchers' turn: take a seat, or catch up.
    pub(super) fn watchers_act(&mut self) -> Step {
        let pause = self
            .random
            .random_range(20 * MILLISECOND..200 * MILLISECOND);
        self.agenda.after(pause, Event::Watch);
        for at in 0..self.watching.len() {
            let mut watching = std::mem::take(&mut self.watching[at]);
            let acted = self.watcher_acts(&mut watching);
            self.watching[at] = watching;
            acted?;
        }
        Ok(())
    }

    /// Once all is well, every watcher is brought up to date and must have seen everything.
    pub(super) fn watchers_catch_up(&mut self) -> Step {
        for at in 0..self.watching.len() {
            let mut watching = std::mem::take(&mut self.watching[at]);
            let caught_up = self.watcher_catches_up(&mut watching);
            self.watching[at] = watching;
            caught_up?;
        }
        Ok(())
    }

    fn watcher_catches_up(&mut self, watching: &mut Watching) -> Step {
        // A server, perhaps a compaction, perhaps another server: a few rounds are enough.
        for _ in 0..10 {
            match self.seat(watching) {
                Some(view) => {
                    self.advance_one(watching, &view)?;
                    self.catch_up_one(watching, &view, Slice::default())?;
                }
                None => {
                    if let Some(host) = self.any_running() {
                        self.sit(watching, host)?;
                    }
                }
            }
        }
        match self.seat(watching) {
            Some(view) => watching.progress.in_step(&self.history, view.revision()),
            None => Err(broken("a watcher", "it found no server to go on at")),
        }
    }

    fn watcher_acts(&mut self, watching: &mut Watching) -> Step {
        let bored = self.stormy && self.random.random_bool(0.03);
        let Some(view) = self.seat(watching).filter(|_| !bored) else {
            let Some(host) = self.any_running() else {
                return Ok(());
            };
            return self.sit(watching, host);
        };
        self.advance_one(watching, &view)?;
        let slice = Slice {
            records: self.random.random_range(1..40),
            bytes: self.random.random_range(1..4000),
        };
        self.catch_up_one(watching, &view, slice)?;
        self.check_progress(watching)
    }

    /// What a server answers to a request for progress, where it may.
    fn check_progress(&mut self, watching: &mut Watching) -> Step {
        let Some(seat) = &watching.seat else {
            return Ok(());
        };
        if seat.watchers.in_step(0) != Some(true) {
            return Ok(());
        }
        self.counters.bookmarks += 1;
        let revision = seat.watchers.revision();
        watching.progress.in_step(&self.history, revision)
    }

    /// What the watcher's server publishes, if that server is still there.
    fn seat(&self, watching: &Watching) -> Option<Arc<View>> {
        let seat = watching.seat.as_ref()?;
        let host = &self.hosts[seat.host];
        let there = self.runs(seat.host, seat.boot) && !host.retired;
        let there = there && !self.is_paused(seat.host);
        let process = host.process.as_ref().filter(|_| there)?;
        Some(process.machine.view())
    }

    fn sit(&mut self, watching: &mut Watching, host: HostId) -> Step {
        let paused = self.is_paused(host);
        let Some(process) = self.hosts[host].process.as_ref().filter(|_| !paused) else {
            return Ok(());
        };
        let mut watchers = Watchers::new(&process.machine.view());
        // Most go on from where they were; some begin anew with what comes after now.
        let anew = self.stormy && self.random.random_bool(0.1);
        let progress = &mut watching.progress;
        if anew && watchers.revision() >= progress.seen {
            progress.begin_after(&self.history, watchers.revision());
        }
        let wish = progress.wish.clone();
        let spec = WatchSpec {
            key: wish.key,
            range_end: wish.range_end,
            start_revision: if anew && watchers.revision() == progress.seen {
                0
            } else {
                progress.seen + 1
            },
            prev_kv: true,
            no_put: wish.no_put,
            no_delete: wish.no_delete,
        };
        let created = watchers.create(0, spec);
        created.map_err(|error| broken("a watcher", error))?;
        let boot = self.hosts[host].boot;
        watching.seat = Some(Seat {
            host,
            boot,
            watchers,
        });
        self.counters.seats += 1;
        Ok(())
    }

    /// A server has published: whoever sits there is shown it.
    pub(super) fn show(&mut self, host: HostId) -> Step {
        for at in 0..self.watching.len() {
            let mut watching = std::mem::take(&mut self.watching[at]);
            let here = watching.seat.as_ref().is_some_and(|seat| seat.host == host);
            let view = self.seat(&watching).filter(|_| here);
            let shown = match view {
                Some(view) => self.advance_one(&mut watching, &view),
                None => Ok(()),
            };
            self.watching[at] = watching;
            shown?;
        }
        Ok(())
    }

    fn advance_one(&mut self, watching: &mut Watching, view: &View) -> Step {
        let Some(seat) = &mut watching.seat else {
            return Ok(());
        };
        let mut shown: Vec<Arc<Vec<Shown>>> = Vec::new();
        let random = &mut self.random;
        seat.watchers.advance(view, &mut |_, events| {
            let takes = !random.random_bool(0.1);
            if takes {
                shown.push(Arc::clone(events));
            }
            takes
        });
        for events in shown {
            self.shown(watching, &events, view)?;
        }
        Ok(())
    }

    fn catch_up_one(&mut self, watching: &mut Watching, view: &View, slice: Slice) -> Step {
        let Some(seat) = &mut watching.seat else {
            return Ok(());
        };
        match seat.watchers.catch_up(0, view, slice) {
            CatchUp::Behind(events) => self.shown(watching, &events, view),
            CatchUp::Synced(events) => {
                self.shown(watching, &events, view)?;
                watching.progress.in_step(&self.history, view.revision())
            }
            CatchUp::Compacted(to) => {
                self.counters.compacted_watchers += 1;
                watching.seat = None;
                watching.progress.compacted(&self.history, to)
            }
            CatchUp::Unreadable(damaged) => {
                let host = seat.host;
                watching.seat = None;
                // It goes on where it was, here or elsewhere: what it waits for can be read then.
                if self.heal(host) {
                    return Ok(());
                }
                let read = Err::<(), _>(damaged);
                self.unless_damaged(host, "a watcher's history", read)
                    .map(drop)
            }
            CatchUp::NotBehind => watching.progress.in_step(&self.history, view.revision()),
        }
    }

    fn shown(&mut self, watching: &mut Watching, events: &[Shown], view: &View) -> Step {
        self.counters.events += events.len() as u64;
        let compacted = view.compacted();
        watching.progress.shown(&self.history, events, compacted)
    }
}
