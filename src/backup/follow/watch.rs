//! The watch of every key of the followed cluster, as whole revisions in their order.

use std::time::{Duration, Instant};

use futures::FutureExt as _;
use prost::Message as _;
use tokio::sync::mpsc;
use tonic::Streaming;
use tonic::transport::Channel;

use super::origin::LARGEST;
use super::{Failed, now_ms};
use crate::backup::source::{text, with_token};
use crate::store::{FollowedEvent, FollowedRevision, KeyValue, Revision};
use crate::wire::etcd::watch_client::WatchClient;
use crate::wire::etcd::watch_request::RequestUnion;
use crate::wire::etcd::{WatchCreateRequest, WatchProgressRequest, WatchRequest, WatchResponse};
use crate::wire::mvccpb::Event;
use crate::wire::mvccpb::event::EventType;

/// Requests that wait to be sent.
const REQUESTS: usize = 4;
/// What is taken at once of what has arrived: about that many bytes, and revisions.
const AT_ONCE: usize = 1 << 20;
const REVISIONS_AT_ONCE: usize = 1000;
/// Bytes of a step: an entry of the log takes as much, also where --max-request-bytes is somewhat lower than usual.
const PIECE: usize = 512 << 10;
/// A followed cluster that says nothing for so long, though it is asked every second, is not reached any more.
const SILENCE: Duration = Duration::from_secs(15);

/// After this it is asked again.
const UNANSWERED: Duration = Duration::from_secs(4);

/// The watch.
pub(super) struct Watch {
    requests: mpsc::Sender<WatchRequest>,
    stream: Streaming<WatchResponse>,
    /// Pieces of a response whose rest is on its way.
    pieces: Vec<Event>,
    /// When it was asked how far it is, in Unix milliseconds, where it has not answered yet.
    asked_ms: Option<i64>,
    asked: Instant,
    /// Since when it was read and nothing came.
    quiet: Instant,
}

/// What has arrived.
#[derive(Debug, Default)]
pub(super) struct Arrived {
    pub(super) revisions: Vec<FollowedRevision>,
    /// Everything that was written up to this revision has arrived, and when that was asked for, in Unix milliseconds.
    pub(super) progress: Option<(Revision, i64)>,
    bytes: usize,
}

impl Watch {
    pub(super) async fn open(
        channel: Channel,
        token: Option<&str>,
        from: Revision,
    ) -> Result<Watch, Failed> {
        let (requests, sent) = mpsc::channel(REQUESTS);
        let create = WatchCreateRequest {
            // Every key.
            key: b"\0".to_vec().into(),
            range_end: b"\0".to_vec().into(),
            start_revision: from,
            fragment: true,
            ..WatchCreateRequest::default()
        };
        let sent_first = requests.try_send(request(RequestUnion::CreateRequest(create)));
        sent_first.map_err(|error| Failed::Passing(error.to_string()))?;
        let sent = tokio_stream::wrappers::ReceiverStream::new(sent);
        let call = with_token(sent, token).map_err(Failed::Passing)?;
        let mut client = WatchClient::new(channel).max_decoding_message_size(LARGEST);
        let stream = client.watch(call).await;
        let stream = stream.map_err(|it| lost(&text(&it)))?.into_inner();
        Ok(Watch {
            requests,
            stream,
            pieces: Vec::new(),
            asked_ms: None,
            asked: Instant::now(),
            quiet: Instant::now(),
        })
    }

    /// It was not read for a while: what is silent is not the followed cluster.
    pub(super) fn awake(&mut self) {
        self.quiet = Instant::now();
    }

    /// Asks how far it is, again only once it has answered, or for a while has not: etcd says nothing while the watch is
    /// behind.
    pub(super) fn ask_progress(&mut self) -> Result<(), Failed> {
        if self.quiet.elapsed() > SILENCE {
            let seconds = SILENCE.as_secs();
            return Err(lost(&format!("nothing was heard for {seconds} s")));
        }
        if self.asked_ms.is_some() && self.asked.elapsed() < UNANSWERED {
            return Ok(());
        }
        let progress = request(RequestUnion::ProgressRequest(WatchProgressRequest {}));
        if self.requests.try_send(progress).is_ok() {
            // Whichever is answered: everything is here that was there at the first of them.
            self.asked_ms.get_or_insert(now_ms());
            self.asked = Instant::now();
        }
        Ok(())
    }

    /// What arrives next, with all that has arrived behind it. Nothing is lost if this is dropped before it ends.
    pub(super) async fn next(&mut self) -> Result<Arrived, Failed> {
        let mut arrived = Arrived::default();
        let first = self.stream.message().await;
        self.take(first.map_err(|it| lost(&text(&it)))?, &mut arrived)?;
        while arrived.bytes < AT_ONCE && arrived.revisions.len() < REVISIONS_AT_ONCE {
            match self.stream.message().now_or_never() {
                Some(more) => self.take(more.map_err(|it| lost(&text(&it)))?, &mut arrived)?,
                None => break,
            }
        }
        Ok(arrived)
    }

    fn take(
        &mut self,
        response: Option<WatchResponse>,
        arrived: &mut Arrived,
    ) -> Result<(), Failed> {
        let Some(response) = response else {
            return Err(lost("it was ended"));
        };
        self.awake();
        if response.compact_revision > 0 {
            return Err(Failed::Compacted(response.compact_revision));
        }
        if response.canceled {
            return Err(lost(&response.cancel_reason));
        }
        if response.created {
            return Ok(());
        }
        let header = response.header.unwrap_or_default();
        if response.events.is_empty() && !response.fragment && self.pieces.is_empty() {
            if let Some(asked) = self.asked_ms.take() {
                arrived.progress = Some((header.revision, asked));
            }
            return Ok(());
        }
        self.pieces.extend(response.events);
        if !response.fragment {
            let events = std::mem::take(&mut self.pieces);
            arrived.bytes += events
                .iter()
                .map(prost::Message::encoded_len)
                .sum::<usize>();
            gather(events, &mut arrived.revisions)?;
        }
        Ok(())
    }
}

/// Events as the revisions that they are of.
fn gather(events: Vec<Event>, into: &mut Vec<FollowedRevision>) -> Result<(), Failed> {
    for event in events {
        let deleted = event.r#type == i32::from(EventType::Delete);
        let Some(kv) = event.kv else {
            return Err(lost("an event without a key"));
        };
        let revision = kv.mod_revision;
        let event = FollowedEvent {
            deleted,
            kv: KeyValue {
                key: kv.key,
                create_revision: kv.create_revision,
                mod_revision: kv.mod_revision,
                version: kv.version,
                value: kv.value,
                lease: kv.lease,
            },
        };
        match into.last_mut() {
            Some(last) if last.revision == revision => last.events.push(event),
            _ => into.push(FollowedRevision {
                revision,
                events: vec![event],
                ..FollowedRevision::default()
            }),
        }
    }
    Ok(())
}

fn request(union: RequestUnion) -> WatchRequest {
    WatchRequest {
        request_union: Some(union),
    }
}

fn lost(why: &str) -> Failed {
    Failed::Passing(format!("the watch of the followed cluster: {why}"))
}

/// Revisions as steps that fit into one entry each, or are one key that is larger.
pub(super) fn pieces(revisions: Vec<FollowedRevision>) -> Vec<Vec<FollowedRevision>> {
    let mut pieces: Vec<Vec<FollowedRevision>> = Vec::new();
    let mut bytes = PIECE;
    for revision in revisions.into_iter().flat_map(parts) {
        let size = revision.encoded_len();
        match pieces.last_mut() {
            Some(last) if bytes + size <= PIECE => last.push(revision),
            _ => {
                pieces.push(vec![revision]);
                bytes = 0;
            }
        }
        bytes += size;
    }
    pieces
}

/// A revision that is larger than an entry in parts that are not.
fn parts(whole: FollowedRevision) -> Vec<FollowedRevision> {
    let mut parts: Vec<FollowedRevision> = Vec::new();
    let (mut bytes, mut before) = (PIECE, 0);
    for event in whole.events {
        let size = event.encoded_len();
        match parts.last_mut() {
            Some(last) if bytes + size <= PIECE => last.events.push(event),
            last => {
                if let Some(last) = last {
                    last.more = true;
                    before += last.events.len() as u64;
                }
                parts.push(FollowedRevision {
                    revision: whole.revision,
                    events: vec![event],
                    before,
                    more: false,
                });
                bytes = 0;
            }
        }
        bytes += size;
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::mvccpb::KeyValue as Kv;

    fn event(revision: i64, key: &str, bytes: usize) -> Event {
        Event {
            kv: Some(Kv {
                key: key.to_owned().into(),
                mod_revision: revision,
                value: vec![0; bytes].into(),
                ..Kv::default()
            }),
            ..Event::default()
        }
    }

    #[test]
    fn revisions_stay_whole_and_in_order() {
        let mut gathered = Vec::new();
        gather(
            vec![event(2, "a", 1), event(2, "b", 1), event(3, "a", 1)],
            &mut gathered,
        )
        .expect("keys");
        let counts = |all: &[FollowedRevision]| -> Vec<(i64, usize)> {
            all.iter()
                .map(|it| (it.revision, it.events.len()))
                .collect()
        };
        assert_eq!(counts(&gathered), [(2, 2), (3, 1)]);
        // A key that is larger than a step is a step of its own.
        gather(
            vec![event(4, "a", 2 << 20), event(5, "a", 1)],
            &mut gathered,
        )
        .expect("keys");
        let pieces: Vec<_> = pieces(gathered).iter().map(|it| counts(it)).collect();
        assert_eq!(pieces, [vec![(2, 2), (3, 1)], vec![(4, 1)], vec![(5, 1)]]);
    }

    #[test]
    fn a_large_revision_is_cut_into_parts() {
        let mut gathered = Vec::new();
        let large = (0..5).map(|at| event(2, &at.to_string(), PIECE * 2 / 5));
        let large = large.chain([event(2, "large", 2 * PIECE), event(3, "a", 1)]);
        gather(large.collect(), &mut gathered).expect("keys");
        let pieces = pieces(gathered);
        let of = |it: &FollowedRevision| (it.revision, it.events.len(), it.before, it.more);
        let pieces: Vec<Vec<_>> = pieces
            .iter()
            .map(|it| it.iter().map(of).collect())
            .collect();
        let parts = [
            vec![(2, 2, 0, true)],
            vec![(2, 2, 2, true)],
            vec![(2, 1, 4, true)],
            vec![(2, 1, 5, false)],
            vec![(3, 1, 0, false)],
        ];
        assert_eq!(pieces, parts);
    }
}
