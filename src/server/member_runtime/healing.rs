//! Values that are damaged on this member's disk, healed from another member: what readers found is looked at, one member
//! after the other is asked, and the value goes back to memory, from where the next checkpoint writes it to a new file.
//! Whom to ask, and when, is decided by `server::maintenance::healing`.
//!
//! Never answers a reader, and never writes to a file.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tokio::task::spawn_blocking;
use tokio::time::sleep;

use super::MemberRuntime;
use crate::disk::ValuePlace;
use crate::node::Input;
use crate::persist::Saver;
use crate::server::link::frame::FRAME_LIMIT;
use crate::server::link::hello::{PeerResponse, RequestKind, ValueAt, ValueOf};
use crate::server::listen::quiet::Quiet;
use crate::server::maintenance::healing::Healing;
use crate::store::{Healed, KeyValue, LostValue, Row};

/// How often it is looked at what readers found.
const LOOK: Duration = Duration::from_millis(500);
/// Time for the answer of one member.
const PATIENCE: Duration = Duration::from_secs(2);
/// What an answer takes beside the value, a refusal included.
const ANSWER: usize = 64 << 10;
/// Limits the log lines about values: there may be many on a disk that fails.
static HEALED: Quiet = Quiet::new();
static UNHEALED: Quiet = Quiet::new();
static DIFFERS: Quiet = Quiet::new();

/// Heals what readers find damaged, one value after the other.
pub(super) async fn heal(local: &MemberRuntime) {
    let mut plan = Plan {
        healing: Healing::default(),
        began: Instant::now(),
    };
    loop {
        sleep(LOOK).await;
        let Some(saver) = local.saver.get() else {
            continue;
        };
        let values = saver.checkpoints().values();
        let damaged = values.damaged();
        let metric = &local.shared.metrics.damaged_values;
        metric.store(damaged.len() as u64, Ordering::Relaxed);
        heal_some(local, saver, damaged, &mut plan).await;
        let now = plan.now();
        if plan.healing.wants_checkpoint(saver.written(), now) {
            local.shared.report(Input::RenewCheckpoint);
        }
    }
}

struct Plan {
    healing: Healing,
    began: Instant,
}

impl Plan {
    fn now(&self) -> Duration {
        self.began.elapsed()
    }
}

/// Asks for each value that is due.
async fn heal_some(
    local: &MemberRuntime,
    saver: &Arc<Saver>,
    damaged: BTreeMap<ValuePlace, String>,
    plan: &mut Plan,
) {
    let values = saver.checkpoints().values();
    plan.healing.found(&damaged.keys().copied().collect());
    let due = plan.healing.due(&values.needed(), plan.now());
    if due.is_empty() {
        return;
    }
    for (place, lost) in whose(local, due.clone()).await {
        let needed = values.needed();
        if !needed.is_subset(&due) || plan.healing.is_full() && !needed.contains(&place) {
            // Somebody waits for another one, or there are enough until a checkpoint has them.
            return;
        }
        let Some(lost) = lost else {
            // Compacted, or written to another file: the state needs it no more.
            is_needless(saver, place, plan).await;
            continue;
        };
        let what = damaged.get(&place).map_or("", String::as_str);
        match ask_in_turn(local, &lost, plan).await {
            Asked::Gives(giver) => {
                values.forget(place);
                plan.healing.healed(lost.length(), saver.begun());
                is_healed(local, &lost, giver, what);
            }
            Asked::Needless => is_needless(saver, place, plan).await,
            Asked::Nobody => is_unhealed(&lost, what),
        }
    }
}

/// The value at this place is asked for no more. As long as the newest checkpoint has it, that cannot be sent to another member.
async fn is_needless(saver: &Arc<Saver>, place: ValuePlace, plan: &mut Plan) {
    let begun = saver.begun();
    saver.checkpoints().values().forget(place);
    let asked = Arc::clone(saver);
    let named = spawn_blocking(move || asked.checkpoints().newest_names(place.0));
    // It fails only when the server ends.
    if named.await.unwrap_or_default() {
        // Made of that one, the next would have it as well.
        saver.write_anew();
        plan.healing.healed(0, begun);
    }
}

/// The values that the state has at these places. Not on this thread: it takes time in proportion to the number of keys.
async fn whose(
    local: &MemberRuntime,
    places: BTreeSet<ValuePlace>,
) -> BTreeMap<ValuePlace, Option<LostValue>> {
    let view = Arc::clone(&local.handle.published().view);
    let found = spawn_blocking(move || {
        let lost = view.lost_values(&places);
        let none = places.into_iter().map(|place| (place, None));
        let lost = lost.into_iter().map(|lost| (lost.place(), Some(lost)));
        none.chain(lost).collect()
    });
    // It fails only when the server ends.
    found.await.unwrap_or_default()
}

/// What came of asking.
enum Asked {
    /// This member gave the value.
    Gives(u64),
    /// It is read from elsewhere already.
    Needless,
    /// No member gave it, and some pause begins.
    Nobody,
}

/// Asks the others until one has healed the value.
async fn ask_in_turn(local: &MemberRuntime, lost: &LostValue, plan: &mut Plan) -> Asked {
    let members = others(local);
    while let Some(member) = plan.healing.ask(lost.place(), &members, plan.now()) {
        let peer = format!("{member:x}");
        match ask(local, member, lost).await {
            Some(Ok(answer)) => match heal_by(local, lost, &answer) {
                Healed::Taken => return Asked::Gives(member),
                Healed::Elsewhere => return Asked::Needless,
                Healed::Refused => differs(&peer),
                Healed::Unproven => {
                    tracing::debug!(peer, "no checksum was kept of a value that is damaged");
                }
            },
            Some(Err(why)) => tracing::debug!(peer, "gives no value for a damaged one: {why}"),
            None => plan.healing.is_silent(member, plan.now()),
        }
    }
    Asked::Nobody
}

/// Takes an answer, in the view of now: since it was looked for, its revision may have come to be held elsewhere.
fn heal_by(local: &MemberRuntime, lost: &LostValue, answer: &ValueOf) -> Healed {
    let view = Arc::clone(&local.handle.published().view);
    view.heal(lost, &row(lost, answer))
}

/// The other members that know of such requests, and whose data is not known to differ from the majority's: 0.1.0 shows no
/// start.
fn others(local: &MemberRuntime) -> Vec<u64> {
    let latest = local.handle.latest();
    let (own, standing) = (local.who().member_id, local.standing());
    let ids = latest.membership.members.keys().copied();
    let asked = |id: &u64| *id != own && standing.contains_key(id) && !local.shared.is_corrupt(*id);
    ids.filter(asked).collect()
}

/// What a member answers: the value, or why not. `None`: it does not answer.
async fn ask(
    local: &MemberRuntime,
    member: u64,
    lost: &LostValue,
) -> Option<Result<ValueOf, String>> {
    let (revision, sub) = lost.revision();
    let key = lost.key_value().key;
    for endpoint in local.endpoints(member) {
        let at = ValueAt {
            key: key.clone(),
            revision,
            sub,
        };
        let bounds = (PATIENCE, lost.length() + ANSWER);
        let answer = local.ask_member(member, &endpoint, RequestKind::Value(at), bounds);
        match answer.await {
            Ok(PeerResponse {
                value: Some(value), ..
            }) => return Some(Ok(value)),
            Ok(refused) => return Some(Err(refused.error)),
            Err(error) => {
                let peer = format!("{member:x}");
                tracing::debug!(peer, "cannot be asked for a value: {error}");
            }
        }
    }
    None
}

/// The answer as a row of a store.
fn row(lost: &LostValue, answer: &ValueOf) -> Row {
    Row {
        main: answer.revision,
        sub: answer.sub,
        tombstone: false,
        kv: KeyValue {
            key: lost.key_value().key,
            create_revision: answer.create_revision,
            mod_revision: answer.revision,
            version: answer.version,
            value: answer.value.clone(),
            lease: answer.lease,
        },
    }
}

fn is_healed(local: &MemberRuntime, lost: &LostValue, giver: u64, what: &str) {
    local
        .shared
        .metrics
        .healed_values
        .fetch_add(1, Ordering::Relaxed);
    if let Some(more) = HEALED.line(Instant::now()) {
        let (peer, key_bytes) = (format!("{giver:x}"), lost.key_value().key.len());
        tracing::warn!(
            peer,
            key_bytes,
            more,
            "a value was damaged, and was healed from another member: {what}"
        );
    }
}

fn differs(peer: &str) {
    if let Some(more) = DIFFERS.line(Instant::now()) {
        tracing::warn!(
            peer,
            more,
            "gives another value for a damaged one than was written here: the data of one of both differs from the others'"
        );
    }
}

fn is_unhealed(lost: &LostValue, what: &str) {
    if let Some(more) = UNHEALED.line(Instant::now()) {
        let key_bytes = lost.key_value().key.len();
        tracing::warn!(
            key_bytes,
            more,
            "a value is damaged, and no other member gives it now: {what}"
        );
    }
}

impl MemberRuntime {
    /// Answers another member whose own value is damaged.
    pub(super) async fn value_for(&self, at: ValueAt) -> PeerResponse {
        if self.shared.is_corrupt(self.who().member_id) {
            return self.refused("this member's own data differs from the others'");
        }
        let view = Arc::clone(&self.handle.published().view);
        let read = spawn_blocking(move || view.row_at(&at.key, (at.revision, at.sub)));
        let row = match read.await {
            Ok(Ok(Some(row))) => row,
            Ok(Ok(None)) => {
                return self.refused("this revision of the key is not here: compacted, or not yet");
            }
            Ok(Err(damaged)) => return self.refused(&damaged.to_string()),
            Err(_) => return self.refused("this server is ending"),
        };
        let kv = row.kv;
        if kv.value.len() > FRAME_LIMIT / 2 {
            return self.refused("the value is too large for an answer");
        }
        PeerResponse {
            cluster_id: self.who().cluster_id,
            value: Some(ValueOf {
                revision: row.main,
                sub: row.sub,
                create_revision: kv.create_revision,
                version: kv.version,
                lease: kv.lease,
                value: kv.value,
            }),
            ..PeerResponse::default()
        }
    }
}
