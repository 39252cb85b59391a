//! The Watch service. Each stream pulls: while its client does not read, nothing is queued or kept
//! for it, so a slow client costs no memory and delays no other. It then catches up from history, a
//! slice at a time. A stream is woken only by what one of its watchers may have to be sent.

use std::collections::{BTreeMap, VecDeque};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use futures::{Stream, StreamExt as _};
use prost::Message as _;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at, sleep_until};
use tonic::{Code, Request, Response, Status, Streaming};

use super::call::{Services, wants_leader};
use super::caller::{Caller, permitted};
use super::{OVERHEAD, convert};
use crate::server::core::handle::MemberHandle;
use crate::server::core::wakes::StreamWatchers;
use crate::server::metrics::client::{ClientMetrics, Method};
use crate::server::metrics::watches::Cause;
use crate::server::scheduling::turns;
use crate::store::{CatchUp, Event, Slice, WatchError, WatchSpec};
use crate::wire::error::EtcdError;
use crate::wire::etcd::watch_create_request::FilterType;
use crate::wire::etcd::watch_request::RequestUnion;
use crate::wire::etcd::{self, watch_server::Watch};

/// The ID of responses that concern no single watcher.
const NO_WATCHER: i64 = -1;
/// The most revisions that a stream may be behind and still get in one step; beyond, its watchers
/// catch up in slices.
const MAX_LEAP: i64 = 1000;
/// Bytes of keys and values that one watcher gets in one step; beyond, it catches up in slices.
const MAX_SHOWN: usize = 2 << 20;
/// The most events that may be queued in one step for all watchers of a stream, or a few for each:
/// otherwise, after a pause of its client, a stream of a thousand watchers would hold a million.
const MAX_QUEUED: usize = 10_000;
const MAX_QUEUED_EACH: usize = 4;
/// Watchers of all streams of this member: each is a few hundred bytes and its key.
const MOST_WATCHERS: u64 = 1 << 20;
/// The cost of requests that a stream may make within [`AWHILE`] without waiting for a turn, where
/// examining [`EXAMINED_AT_ONCE`] watchers costs one; kube-apiserver requests progress ten times a second.
const PROMPT: usize = 64;
/// Watchers that are examined for the cost of one.
const EXAMINED_AT_ONCE: usize = 100;
/// The interval of that budget.
const AWHILE: Duration = Duration::from_millis(100);

#[tonic::async_trait]
impl Watch for Services {
    type WatchStream = Pin<Box<dyn Stream<Item = Result<etcd::WatchResponse, Status>> + Send>>;

    async fn watch(
        &self,
        request: Request<Streaming<etcd::WatchRequest>>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let call = self.begin(Method::Watch, request.metadata()).await?;
        let leaderless =
            wants_leader(request.metadata()).then(|| Leaderless::new(self.shared.leaderless));
        let caller = Caller::of(request.metadata(), request.extensions());
        let conversation = Conversation::new(self.clone(), caller, leaderless);
        let state = Some((conversation, request.into_inner(), call));
        let stream = futures::stream::unfold(state, |state| async move {
            let (mut conversation, mut requests, call) = state?;
            match conversation.next(&mut requests).await {
                Some(Ok(answer)) => {
                    call.sent();
                    Some((Ok(answer), Some((conversation, requests, call))))
                }
                Some(Err(error)) => Some((Err(call.refuse(error)), None)),
                None => {
                    call.finish();
                    None
                }
            }
        });
        Ok(Response::new(Box::pin(stream)))
    }
}

/// One stream: its watchers, and the responses to send next.
struct Conversation {
    services: Services,
    caller: Caller,
    watchers: StreamWatchers,
    known: BTreeMap<i64, Known>,
    next_id: i64,
    /// Responses in the order in which they must arrive.
    ready: VecDeque<etcd::WatchResponse>,
    /// The client may send further requests.
    asks: bool,
    /// A request whose turn has not come; those behind it wait, events do not.
    waits: Option<etcd::WatchRequest>,
    prompt: Prompt,
    /// The queue for turns.
    place: turns::Place,
    /// The watcher that caught up a slice last, so that they take turns.
    last_behind: u64,
    progress: Interval,
    leaderless: Option<Leaderless>,
    gauge: Gauge,
}

/// The part of a watcher's state that the store does not need.
struct Known {
    start_revision: i64,
    fragment: bool,
    progress_notify: bool,
    /// Nothing was sent since the last check: a progress notification is due at the next.
    quiet: bool,
}

/// The remaining budget for requests without a turn.
#[derive(Debug)]
struct Prompt {
    since: Instant,
    spent: usize,
}

impl Prompt {
    /// Whether this request is handled at once, on a stream of so many watchers. Creating a watcher
    /// takes a turn: a client may create thousands. Canceling one and reporting progress is cheap;
    /// only a flood of that takes turns as well.
    fn allows(&mut self, request: &etcd::WatchRequest, watchers: usize, now: Instant) -> bool {
        let price = match request.request_union {
            Some(RequestUnion::CreateRequest(_)) => return false,
            Some(RequestUnion::ProgressRequest(_)) => 1 + watchers / EXAMINED_AT_ONCE,
            Some(RequestUnion::CancelRequest(_)) | None => 1,
        };
        if now.duration_since(self.since) >= AWHILE {
            (self.since, self.spent) = (now, 0);
        }
        // The first one is allowed at any cost.
        let allowed = self.spent == 0 || self.spent + price <= PROMPT;
        self.spent += price * usize::from(allowed);
        allowed
    }
}

impl Conversation {
    fn new(services: Services, caller: Caller, leaderless: Option<Leaderless>) -> Conversation {
        let member = &services.shared.member;
        let watchers = member.watchers();
        let number = member.unique();
        let every = spread(services.shared.port.watch_progress_interval, number);
        let mut progress = interval_at(Instant::now() + every, every);
        progress.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let gauge = Gauge::new(services.shared.metrics.clone());
        Conversation {
            services,
            caller,
            watchers,
            known: BTreeMap::new(),
            next_id: 0,
            ready: VecDeque::new(),
            asks: true,
            waits: None,
            prompt: Prompt {
                since: Instant::now(),
                spent: 0,
            },
            place: turns::Place::default(),
            last_behind: 0,
            progress,
            leaderless,
            gauge,
        }
    }

    /// The next response.
    async fn next<S>(&mut self, requests: &mut S) -> Option<Result<etcd::WatchResponse, Status>>
    where
        S: Stream<Item = Result<etcd::WatchRequest, Status>> + Unpin,
    {
        loop {
            if let Some(answer) = self.ready.pop_front() {
                return Some(Ok(answer));
            }
            self.advance();
            self.gauge.behind(self.watchers.behind_count());
            if !self.ready.is_empty() {
                continue;
            }
            let works = self.waits.is_some() || self.watchers.behind().next().is_some();
            let mut stopping = self.services.shared.stopping.clone();
            tokio::select! {
                biased;
                () = crate::server::listen::until(&mut stopping) => {
                    return Some(Err(EtcdError::Stopped.into()));
                }
                request = requests.next(), if self.asks && self.waits.is_none() => match request {
                    Some(Ok(request)) => {
                        self.services.shared.metrics.received(Method::Watch);
                        let now = Instant::now();
                        match self.prompt.allows(&request, self.known.len(), now) {
                            true => self.asked(request).await,
                            false => self.waits = Some(request),
                        }
                    }
                    Some(Err(error)) => return Some(Err(error)),
                    // The client has half-closed the stream and still receives, as in etcd.
                    None => self.asks = false,
                },
                // The waiting request, and the next slice of history, in its turn.
                () = self.place.pass(), if works => {
                    if let Some(request) = self.waits.take() {
                        self.asked(request).await;
                    }
                    // What was published while it waited is included.
                    self.advance();
                    self.catch_up();
                }
                // A thousand streams that only catch up need not wake up for each put.
                () = self.watchers.woken(), if !self.watchers.all_behind() => {}
                _ = self.progress.tick() => self.signs_of_life(),
                () = Leaderless::over(self.leaderless.as_mut(), &self.services.shared.member) => {
                    self.ended(Cause::NoLeader);
                    return Some(Err(EtcdError::NoLeader.into()));
                }
            }
        }
    }

    fn ended(&self, cause: Cause) {
        self.services.shared.metrics.watches.ended(cause);
    }

    /// Sends the watchers that are in step what was published since.
    fn advance(&mut self) {
        let state = self.services.shared.member.published();
        let revision = state.view.revision();
        let Conversation {
            services,
            watchers,
            known,
            ready,
            ..
        } = self;
        let mut room = MAX_QUEUED.max(MAX_QUEUED_EACH * known.len());
        watchers.advance(&state.view, &mut |leap, id, events| {
            if leap > MAX_LEAP || events.len() > room || shown_bytes(events) > MAX_SHOWN {
                return false;
            }
            room -= events.len();
            let id = id.cast_signed();
            let events = events.iter().cloned().collect();
            show(services, known.get_mut(&id), ready, id, revision, events);
            true
        });
    }

    /// Sends one watcher that is behind a slice of history.
    fn catch_up(&mut self) {
        let next = self.watchers.behind().find(|id| *id > self.last_behind);
        let Some(id) = next.or_else(|| self.watchers.behind().next()) else {
            return;
        };
        self.last_behind = id;
        let state = self.services.shared.member.published();
        let caught = self.watchers.catch_up(id, &state.view, Slice::default());
        let id = id.cast_signed();
        match caught {
            CatchUp::Behind(events) | CatchUp::Synced(events) => {
                if !events.is_empty() {
                    let known = self.known.get_mut(&id);
                    let revision = self.watchers.revision();
                    show(&self.services, known, &mut self.ready, id, revision, events);
                }
            }
            CatchUp::Compacted(compacted) => {
                self.ended(Cause::Compacted);
                self.forget(id);
                self.ready.push_back(etcd::WatchResponse {
                    header: self.services.header(0),
                    watch_id: id,
                    canceled: true,
                    compact_revision: compacted,
                    ..Default::default()
                });
            }
            CatchUp::Unreadable(damaged) => {
                self.ended(Cause::Damaged);
                self.forget(id);
                self.ready.push_back(etcd::WatchResponse {
                    header: self.services.header(0),
                    watch_id: id,
                    canceled: true,
                    cancel_reason: format!("a value cannot be read: {damaged}"),
                    ..Default::default()
                });
            }
            CatchUp::NotBehind => {}
        }
    }

    async fn asked(&mut self, request: etcd::WatchRequest) {
        // "Now" is the newest state, and events before it are sent before the response.
        self.advance();
        match request.request_union {
            Some(RequestUnion::CreateRequest(request)) => self.create(request).await,
            Some(RequestUnion::CancelRequest(request)) => self.cancel(request.watch_id),
            Some(RequestUnion::ProgressRequest(_)) => self.progress_of_all(),
            // As in etcd, an unknown request is ignored.
            None => {}
        }
    }

    async fn create(&mut self, request: etcd::WatchCreateRequest) {
        // A negative start is refused for every caller, and before anything else.
        if request.start_revision >= 0
            && let Err(error) = self.permitted(&request).await
        {
            self.ended(Cause::Denied);
            self.ready.push_back(etcd::WatchResponse {
                header: self.services.header(self.watchers.revision()),
                watch_id: NO_WATCHER,
                created: true,
                canceled: true,
                cancel_reason: denial(&error),
                ..Default::default()
            });
            return;
        }
        let watches = &self.services.shared.metrics.watches;
        if watches.watchers.load(Relaxed) >= MOST_WATCHERS {
            self.ended(Cause::TooMany);
            self.ready.push_back(etcd::WatchResponse {
                header: self.services.header(self.watchers.revision()),
                watch_id: NO_WATCHER,
                created: true,
                canceled: true,
                cancel_reason: EtcdError::TooManyRequests.text().to_owned(),
                ..Default::default()
            });
            return;
        }
        let revision = self.watchers.revision();
        let known = Known {
            start_revision: request.start_revision,
            fragment: request.fragment,
            progress_notify: request.progress_notify,
            quiet: false,
        };
        let filtered = |filter: FilterType| request.filters.contains(&i32::from(filter));
        let spec = WatchSpec {
            no_put: filtered(FilterType::Noput),
            no_delete: filtered(FilterType::Nodelete),
            key: request.key,
            range_end: request.range_end,
            start_revision: request.start_revision,
            prev_kv: request.prev_kv,
        };
        let next_id = self.next_id;
        let id = if request.watch_id == 0 {
            self.free_id()
        } else {
            request.watch_id
        };
        let created = self.watchers.create(id.cast_unsigned(), spec);
        let mut answer = etcd::WatchResponse {
            header: self.services.header(revision),
            watch_id: id,
            created: true,
            ..Default::default()
        };
        match created {
            Ok(()) => {
                self.known.insert(id, known);
                self.gauge.watchers(1);
            }
            Err(error) => {
                // A refused watcher uses up no ID.
                self.next_id = next_id;
                answer.watch_id = NO_WATCHER;
                answer.canceled = true;
                answer.cancel_reason = reason(error).to_owned();
            }
        }
        self.ready.push_back(answer);
    }

    /// Whether the client may watch this range. As in etcd it is checked once: a watcher that was
    /// created stays, whatever happens to its user.
    async fn permitted(&self, request: &etcd::WatchCreateRequest) -> Result<(), Status> {
        let actor = self.services.actor_of(&self.caller).await?;
        let latest = self.services.shared.member.latest();
        let key = match &request.key[..] {
            // As in the watch itself: from the smallest key on.
            [] => &[0],
            key => key,
        };
        let auth = latest.overview.auth();
        permitted(auth.require_read(actor.as_ref(), key, &request.range_end))
    }

    /// The next ID that no watcher of this stream has.
    fn free_id(&mut self) -> i64 {
        while self.known.contains_key(&self.next_id) {
            self.next_id += 1;
        }
        self.next_id += 1;
        self.next_id - 1
    }

    fn cancel(&mut self, id: i64) {
        if !self.watchers.cancel(id.cast_unsigned()) {
            return;
        }
        self.forget(id);
        self.ready.push_back(etcd::WatchResponse {
            header: self.services.header(self.watchers.revision()),
            watch_id: id,
            canceled: true,
            ..Default::default()
        });
    }

    fn forget(&mut self, id: i64) {
        if self.known.remove(&id).is_some() {
            self.gauge.watchers(-1);
        }
    }

    /// No event at or below the stream's revision is outstanding for this watcher.
    fn is_current(&self, id: i64, known: &Known) -> bool {
        self.watchers.in_step(id.cast_unsigned()) == Some(true)
            && self.watchers.revision() >= known.start_revision
    }

    /// One response for the whole stream, or none: clients repeat the request.
    fn progress_of_all(&mut self) {
        let current = self
            .known
            .iter()
            .all(|(id, known)| self.is_current(*id, known));
        if current && !self.known.is_empty() {
            self.ready.push_back(self.progress(NO_WATCHER));
        }
    }

    /// Progress notifications for each watcher that requested them and got nothing for a whole
    /// interval.
    fn signs_of_life(&mut self) {
        self.advance();
        let due: Vec<i64> = self
            .known
            .iter()
            .filter(|(id, known)| {
                known.progress_notify && known.quiet && self.is_current(**id, known)
            })
            .map(|(id, _)| *id)
            .collect();
        for id in due {
            self.ready.push_back(self.progress(id));
        }
        for known in self.known.values_mut() {
            known.quiet = true;
        }
    }

    fn progress(&self, id: i64) -> etcd::WatchResponse {
        etcd::WatchResponse {
            header: self.services.header(self.watchers.revision()),
            watch_id: id,
            ..Default::default()
        }
    }
}

/// Bytes of keys and values in events.
fn shown_bytes(events: &[Event]) -> usize {
    let size = |kv: &crate::store::KeyValue| kv.key.len() + kv.value.len();
    let one = |event: &Event| size(&event.kv) + event.prev_kv.as_ref().map_or(0, size);
    events.iter().map(one).sum()
}

/// Queues events for one watcher.
fn show(
    services: &Services,
    known: Option<&mut Known>,
    ready: &mut VecDeque<etcd::WatchResponse>,
    id: i64,
    revision: i64,
    events: Vec<Event>,
) {
    let count = u64::try_from(events.len()).unwrap_or(u64::MAX);
    services
        .shared
        .metrics
        .watches
        .events
        .fetch_add(count, Relaxed);
    let answer = etcd::WatchResponse {
        header: services.header(revision),
        watch_id: id,
        events: events.into_iter().map(convert::event).collect(),
        ..Default::default()
    };
    let mut fragment = false;
    if let Some(known) = known {
        known.quiet = false;
        fragment = known.fragment;
    }
    if fragment {
        ready.extend(fragments(answer, services.max_request_bytes() + OVERHEAD));
    } else {
        ready.push_back(answer);
    }
}

/// Splits a response that is too large; every fragment but the last is marked as one.
fn fragments(answer: etcd::WatchResponse, limit: usize) -> Vec<etcd::WatchResponse> {
    if answer.events.len() < 2 || answer.encoded_len() < limit {
        return vec![answer];
    }
    let mut pieces = Vec::new();
    let empty = etcd::WatchResponse {
        events: Vec::new(),
        fragment: true,
        ..answer.clone()
    };
    let mut piece = empty.clone();
    let mut size = empty.encoded_len();
    for event in answer.events {
        // The field's tag and length beside the event itself.
        let more = event.encoded_len() + 6;
        if !piece.events.is_empty() && size + more >= limit {
            pieces.push(std::mem::replace(&mut piece, empty.clone()));
            size = empty.encoded_len();
        }
        size += more;
        piece.events.push(event);
    }
    piece.fragment = false;
    pieces.push(piece);
    pieces
}

fn reason(error: WatchError) -> &'static str {
    match error {
        WatchError::EmptyRange => "mvcc: watcher range is empty",
        WatchError::DuplicateId => "mvcc: duplicate watch ID provided on the WatchStream",
        WatchError::NegativeStart => EtcdError::Compacted.text(),
    }
}

/// A refusal as etcd's Go library formats it in a cancel reason.
fn denial(error: &Status) -> String {
    let code = match error.code() {
        Code::InvalidArgument => "InvalidArgument",
        Code::Unauthenticated => "Unauthenticated",
        _ => "PermissionDenied",
    };
    format!("rpc error: code = {code} desc = {}", error.message())
}

/// Up to a tenth more, by the stream's number, so that streams created together do not notify at
/// the same time.
fn spread(interval: Duration, number: u64) -> Duration {
    let tenth = (number % 16) as f64 / 160.0;
    interval + interval.mul_f64(tenth)
}

/// Detects that there has been no leader for too long.
pub(super) struct Leaderless {
    limit: Duration,
    since: Option<Instant>,
    next_check: Instant,
}

impl Leaderless {
    /// Expires after this long without a leader.
    pub(super) fn new(limit: Duration) -> Leaderless {
        Leaderless {
            limit,
            since: None,
            next_check: Instant::now() + limit / 6,
        }
    }

    /// Returns once it has expired; never if no leader was required. May be dropped and called
    /// again.
    pub(super) async fn over(this: Option<&mut Leaderless>, member: &MemberHandle) {
        let Some(this) = this else {
            return std::future::pending().await;
        };
        loop {
            sleep_until(this.next_check).await;
            let now = Instant::now();
            this.next_check = now + this.limit / 6;
            if member.status().leader != 0 {
                this.since = None;
            } else if now.duration_since(*this.since.get_or_insert(now)) >= this.limit {
                return;
            }
        }
    }
}

/// Counts this stream and its watchers for as long as it is open.
struct Gauge {
    metrics: Arc<ClientMetrics>,
    watchers: u64,
    behind: u64,
}

impl Gauge {
    fn new(metrics: Arc<ClientMetrics>) -> Gauge {
        metrics.watches.streams.fetch_add(1, Relaxed);
        Gauge {
            metrics,
            watchers: 0,
            behind: 0,
        }
    }

    fn watchers(&mut self, change: i64) {
        self.watchers = self.watchers.wrapping_add_signed(change);
        let all = &self.metrics.watches.watchers;
        all.fetch_add(change.cast_unsigned(), Relaxed);
    }

    /// So many of them are behind.
    fn behind(&mut self, number: usize) {
        let number = number as u64;
        if number != self.behind {
            let change = number.wrapping_sub(self.behind);
            self.metrics.watches.behind.fetch_add(change, Relaxed);
            self.behind = number;
        }
    }
}

impl Drop for Gauge {
    fn drop(&mut self) {
        let all = &self.metrics.watches;
        all.streams.fetch_sub(1, Relaxed);
        all.watchers.fetch_sub(self.watchers, Relaxed);
        all.behind.fetch_sub(self.behind, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::{AWHILE, EXAMINED_AT_ONCE, Instant, PROMPT, Prompt, RequestUnion, fragments};
    use crate::wire::{etcd, mvccpb};
    use prost::Message as _;

    fn answer(sizes: &[usize]) -> etcd::WatchResponse {
        let event = |size: &usize| mvccpb::Event {
            kv: Some(mvccpb::KeyValue {
                value: vec![1; *size].into(),
                ..Default::default()
            }),
            ..Default::default()
        };
        let events = sizes.iter().map(event).collect();
        etcd::WatchResponse {
            watch_id: 7,
            events,
            ..Default::default()
        }
    }

    /// Every request waited for a turn, and the responses and events behind it too: while a
    /// thousand streams requested history, kube-apiserver's progress requests waited for all of
    /// them.
    #[test]
    fn watchers_take_turns_and_cancels_are_prompt() {
        let asked = |request| etcd::WatchRequest {
            request_union: Some(request),
        };
        let create = asked(RequestUnion::CreateRequest(Default::default()));
        let cancel = asked(RequestUnion::CancelRequest(Default::default()));
        let progress = asked(RequestUnion::ProgressRequest(Default::default()));
        let start = Instant::now();
        let mut prompt = Prompt {
            since: start,
            spent: 0,
        };
        assert!(!prompt.allows(&create, 0, start));
        for _ in 0..PROMPT / 2 {
            assert!(prompt.allows(&cancel, 10, start) && prompt.allows(&progress, 10, start));
        }
        assert!(!prompt.allows(&progress, 10, start), "a flood");
        assert!(prompt.allows(&progress, 10, start + AWHILE), "and later");
        let many = EXAMINED_AT_ONCE * PROMPT;
        assert!(!prompt.allows(&progress, many, start + AWHILE));
        assert!(
            prompt.allows(&progress, many, start + 2 * AWHILE),
            "one passes"
        );
        assert!(!prompt.allows(&cancel, many, start + 2 * AWHILE));
    }

    #[test]
    fn small_responses_are_not_fragmented() {
        for sizes in [&[][..], &[10, 10], &[5000]] {
            let answer = answer(sizes);
            assert_eq!(fragments(answer.clone(), 1000), [answer]);
        }
    }

    #[test]
    fn watch_fragments_hold_each_event_once() {
        let whole = answer(&[400, 400, 400, 2000, 1, 1]);
        let pieces = fragments(whole.clone(), 1000);
        let shape: Vec<(usize, bool)> = pieces
            .iter()
            .map(|piece| (piece.events.len(), piece.fragment))
            .collect();
        assert_eq!(shape, [(2, true), (1, true), (1, true), (2, false)]);
        assert!(
            pieces
                .iter()
                .all(|piece| piece.events.len() == 1 || piece.encoded_len() < 1000)
        );
        let events: Vec<mvccpb::Event> =
            pieces.into_iter().flat_map(|piece| piece.events).collect();
        assert_eq!(events, whole.events);
    }
}
