//! Streams that look only when they are told, compared with streams that look at everything.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::generator::Generator;
use super::helpers::*;
use bytes::Bytes;

use crate::store::*;

type Seen = BTreeMap<WatcherId, Vec<Event>>;

/// Shows watchers in step a view, and lets those behind catch up.
fn look(watchers: &mut Watchers, seen: &mut Seen, view: &View) {
    watchers.advance(view, &mut |id, events| {
        seen.entry(id).or_default().extend(events.iter().cloned());
        true
    });
    let behind: Vec<WatcherId> = watchers.behind().collect();
    for id in behind {
        match watchers.catch_up(id, view, Slice::default()) {
            CatchUp::Synced(events) => seen.entry(id).or_default().extend(events),
            CatchUp::Compacted(_) => {}
            other => panic!("{other:?}"),
        }
    }
}

/// A stream, and its twin that looks at everything.
struct Stream {
    id: StreamId,
    watchers: Watchers,
    news: News,
    seen: Seen,
    twin: Watchers,
    twin_seen: Seen,
    next: WatcherId,
}

impl Stream {
    fn new(id: StreamId, view: &View) -> Stream {
        Stream {
            id,
            watchers: Watchers::new(view),
            news: News::default(),
            seen: Seen::new(),
            twin: Watchers::new(view),
            twin_seen: Seen::new(),
            next: 0,
        }
    }

    fn looks(&mut self, view: &View) {
        let revision = view.revision();
        let first = self.news.take(revision).unwrap_or(revision + 1);
        self.watchers.pass(first - 1);
        look(&mut self.watchers, &mut self.seen, view);
    }

    /// Whether its twin was shown something.
    fn twin_looks(&mut self, view: &View) -> bool {
        let events = |seen: &Seen| seen.values().map(Vec::len).sum::<usize>();
        let before = events(&self.twin_seen);
        look(&mut self.twin, &mut self.twin_seen, view);
        events(&self.twin_seen) > before
    }

    fn is_like_its_twin(&self, at: &str) {
        assert_eq!(self.seen, self.twin_seen, "{at}");
        assert_eq!(self.watchers.revision(), self.twin.revision(), "{at}");
        for id in 0..self.next {
            let (own, twin) = (self.watchers.in_step(id), self.twin.in_step(id));
            assert_eq!(own, twin, "{at}: watcher {id}");
        }
    }
}

struct World {
    generator: Generator,
    store: Store,
    watched: Watched<StreamId>,
    published: Arc<View>,
    streams: Vec<Stream>,
    /// How often a stream was told, and how often it was not.
    told: usize,
    left: usize,
}

impl World {
    fn new(seed: u64) -> World {
        let store = Store::new();
        let published = store.publish();
        World {
            generator: Generator::new(seed),
            watched: Watched::new(&published),
            streams: (0..8).map(|id| Stream::new(id, &published)).collect(),
            store,
            published,
            told: 0,
            left: 0,
        }
    }

    fn step(&mut self, at: &str) {
        match self.generator.below(16) {
            0..=5 => self.write(),
            6..=9 => self.publish(at),
            10 | 11 => self.create(at),
            12 => self.cancel(),
            13 => {
                let published = Arc::clone(&self.published);
                let stream = self.any();
                stream.looks(&published);
                stream.is_like_its_twin(at);
            }
            14 => self.compact(at),
            _ => {
                // More than is matched at once.
                if self.generator.one_in(8) {
                    (0..40).for_each(|_| self.write());
                }
            }
        }
    }

    fn any(&mut self) -> &mut Stream {
        let at = self.generator.below(self.streams.len() as u64) as usize;
        &mut self.streams[at]
    }

    fn write(&mut self) {
        let operation = match self.generator.below(4) {
            0 => Operation::DeleteRange(self.generator.delete()),
            _ => {
                let key = self.generator.key();
                let value = Bytes::from_static(b"value");
                let put = Put {
                    key,
                    value,
                    ..Default::default()
                };
                Operation::Put(put)
            }
        };
        // A range that is empty is refused.
        let _ = run(&mut self.store, operation);
    }

    fn publish(&mut self, at: &str) {
        let view = self.store.publish();
        let since = self.published.revision() + 1;
        let written = view.state.log.len() - view.state.log.position(since);
        // Each record may be for each watcher.
        let watchers: u64 = self.streams.iter().map(|stream| stream.next).sum();
        let many = written > 24 || written as u64 * watchers > 100;
        let unusual = view.compacted() > since || many;
        let mut told = Vec::new();
        self.watched
            .advance(&view, &mut |stream, news| told.push((*stream, news)));
        for (stream, news) in &told {
            self.streams[*stream as usize].news.add(*news);
        }
        self.published = view;
        for stream in &mut self.streams {
            let was_told = told.iter().any(|(told, _)| *told == stream.id);
            let waits = (0..stream.next).any(|id| stream.twin.in_step(id) == Some(false));
            let shown = stream.twin_looks(&self.published);
            assert!(was_told || !shown, "{at}: stream {}", stream.id);
            assert!(
                !was_told || shown || unusual || waits,
                "{at}: stream {}",
                stream.id
            );
            *(if was_told {
                &mut self.told
            } else {
                &mut self.left
            }) += 1;
            // Some look later, at more.
            if was_told && !self.generator.one_in(3) {
                stream.looks(&self.published);
                stream.is_like_its_twin(at);
            }
        }
    }

    fn create(&mut self, at: &str) {
        let (key, range_end) = self.generator.span();
        let now = self.published.revision();
        let spec = WatchSpec {
            key,
            range_end,
            start_revision: match self.generator.below(3) {
                0 => self
                    .generator
                    .between(self.published.compacted().max(1), now + 3),
                _ => 0,
            },
            prev_kv: self.generator.one_in(2),
            no_put: self.generator.one_in(6),
            no_delete: self.generator.one_in(6),
        };
        let published = Arc::clone(&self.published);
        let stream = self.any();
        stream.looks(&published);
        let (at_stream, id, seen) = (stream.id, stream.next, stream.watchers.revision());
        if stream.watchers.create(id, spec.clone()).is_err() {
            return;
        }
        stream.twin.create(id, spec).expect("a watcher");
        stream.next += 1;
        look(&mut stream.watchers, &mut stream.seen, &published);
        look(&mut stream.twin, &mut stream.twin_seen, &published);
        // It may have been removed, its start compacted.
        let group = stream.watchers.group_of(id).cloned();
        // Something may be published before it is known what the stream watches now.
        if self.generator.one_in(2) {
            self.write();
            self.publish_unheard(at_stream, at);
        }
        if let Some(group) = group {
            let news = self.watched.add(at_stream, at_stream, &group, seen);
            self.streams[at_stream as usize].news.add(news);
        }
    }

    /// Publishes while one stream is busy: it does not look, and need not have been told.
    fn publish_unheard(&mut self, busy: StreamId, at: &str) {
        let view = self.store.publish();
        let streams = &mut self.streams;
        self.watched.advance(&view, &mut |stream, news| {
            streams[*stream as usize].news.add(news)
        });
        self.published = view;
        for stream in &mut self.streams {
            stream.twin_looks(&self.published);
            if stream.id != busy {
                stream.looks(&self.published);
                stream.is_like_its_twin(at);
            }
        }
    }

    fn cancel(&mut self) {
        let published = Arc::clone(&self.published);
        let id = self.generator.below(12);
        let stream = self.any();
        stream.looks(&published);
        let Some(group) = stream.watchers.group_of(id).cloned() else {
            return;
        };
        stream.watchers.cancel(id);
        stream.twin.cancel(id);
        if !stream.watchers.has_group(&group) {
            let stream = stream.id;
            self.watched.remove(stream, &group);
        }
    }

    /// Compacts and reclaims. Whoever was told before has looked by then; the others need not have.
    fn compact(&mut self, at: &str) {
        self.publish(at);
        for stream in &mut self.streams {
            if stream.news != News::default() {
                stream.looks(&self.published);
            }
        }
        let now = self.store.publish().revision();
        let revision = self.generator.between(now - 8, now);
        // Refused if it is compacted already.
        let _ = compact(&mut self.store, revision);
        self.store.reclaim(usize::MAX);
    }
}

#[test]
fn streams_that_are_told_see_all_that_is_theirs() {
    let (mut told, mut left) = (0, 0);
    for seed in 0..60 {
        let mut world = World::new(seed);
        for op in 0..400 {
            world.step(&format!("seed {seed}, operation {op}"));
        }
        world.publish("the end");
        for stream in &mut world.streams {
            stream.looks(&world.published);
            stream.is_like_its_twin(&format!("seed {seed}, the end"));
            for group in stream.watchers.groups() {
                world.watched.remove(stream.id, group);
            }
        }
        (told, left) = (told + world.told, left + world.left);
    }
    assert!(told > 5_000 && left > 5_000, "{told} told, {left} left");
}

fn one(key: &str) -> WatchSpec {
    WatchSpec {
        key: bytes(key),
        ..Default::default()
    }
}

/// What is published between a stream's last look and the addition of its watcher was matched without it.
#[test]
fn watcher_is_told_what_was_published_before_it_was_added() {
    let mut store = Store::new();
    let mut watched = Watched::new(&store.publish());
    let mut stream = Stream::new(1, &store.publish());
    stream.watchers.create(0, one("a")).expect("a watcher");
    do_put(&mut store, "a", "v");
    watched.advance(&store.publish(), &mut |_: &StreamId, _| {
        panic!("nobody is known")
    });
    let group = stream.watchers.group_of(0).expect("its group").clone();
    stream
        .news
        .add(watched.add(1, 1, &group, stream.watchers.revision()));
    stream.looks(&store.publish());
    assert_eq!(stream.seen[&0].len(), 1);
    assert_eq!(watched.add(1, 1, &group, 0), News::default(), "it is known");
    watched.remove(1, &group);
    assert!(watched.is_empty());
}

#[test]
fn news_beyond_a_view_stay() {
    let mut store = Store::new();
    let mut watched = Watched::new(&store.publish());
    let mut stream = Stream::new(1, &store.publish());
    stream.watchers.create(0, one("a")).expect("a watcher");
    let group = stream.watchers.group_of(0).expect("its group").clone();
    stream.news.add(watched.add(1, 1, &group, 1));
    do_put(&mut store, "a", "v");
    let first = store.publish();
    watched.advance(&first, &mut |_, news| stream.news.add(news));
    do_put(&mut store, "a", "v");
    let second = store.publish();
    // Matched, and not published yet.
    watched.advance(&second, &mut |_, news| stream.news.add(news));
    stream.looks(&first);
    assert_eq!(stream.seen[&0].len(), 1);
    stream.looks(&second);
    assert_eq!(stream.seen[&0].len(), 2);
}

/// A stream that was not told of anything for long has missed nothing, whatever was compacted meanwhile.
#[test]
fn stream_sleeps_through_compactions() {
    let mut store = Store::new();
    let mut watched = Watched::new(&store.publish());
    let mut stream = Stream::new(1, &store.publish());
    stream.watchers.create(0, one("a")).expect("a watcher");
    let future = WatchSpec {
        start_revision: 40,
        ..one("a")
    };
    stream.watchers.create(1, future).expect("a watcher");
    let group = stream.watchers.group_of(0).expect("its group").clone();
    stream.news.add(watched.add(1, 1, &group, 1));
    for round in 0..20 {
        (0..10).for_each(|_| _ = do_put(&mut store, "b", "v"));
        watched.advance(&store.publish(), &mut |_, _| panic!("round {round}"));
        let now = store.publish().revision();
        compact(&mut store, now).expect("a compaction");
        store.reclaim(usize::MAX);
    }
    do_put(&mut store, "a", "v");
    watched.advance(&store.publish(), &mut |_, news| stream.news.add(news));
    stream.looks(&store.publish());
    assert_eq!((stream.seen[&0].len(), stream.seen[&1].len()), (1, 1));
}
