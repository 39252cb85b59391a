//! Whether the cause of the alarm NOSPACE is gone, and how soon after a disarm it may be disarmed again. Decides
//! nothing: `rules::alarms` does.

use crate::mutants::mutant;

use super::alarms::{self, is_known};
use super::observed::{Disarms, Observed, Space};
use super::report::timestamp;
use super::situation::Situation;

/// A request that does not fit raises NOSPACE, however much space there is: the default maximum request size of
/// servers, and its overhead.
const REQUEST: u64 = 2 << 20;
/// The pause after the first of several disarms in a row, and the longest one. Members may have space and one
/// transaction may be too large all the same: it would raise the alarm again after each.
const FIRST_PAUSE_MS: u64 = 60_000;
const LONGEST_PAUSE_MS: u64 = 1_800_000;
/// Off for so long, the next alarm is another one.
const ROW_MS: u64 = 3_600_000;

/// Why NOSPACE of this member is to be disarmed: its cause is gone on every voter.
///
/// # Errors
/// What blocks it and what the user has to do, in a message that changes only with that.
pub(super) fn is_free(s: &Situation<'_>, id: u64) -> Result<String, String> {
    let Some((_, leader)) = s.view else {
        return Err("no leader with a quorum was seen".to_owned());
    };
    if alarms::is_closed_by(id) {
        return Err(alarms::CLOSED.to_owned());
    }
    if !is_known(leader, id) {
        return Err(
            "it names an ID that never was a member of this cluster: it came with a restored backup, or was raised by hand: run `etcdctl alarm disarm`"
                .to_owned(),
        );
    }
    let mut full = Vec::new();
    for name in s.voters.keys().chain(s.learners.keys()) {
        let description = s.description(name).filter(|d| !d.unsigned);
        let space = description.and_then(|d| d.space);
        match (description, space) {
            (_, Some(space)) => full.extend(of_member(name, space)),
            // What a newcomer has to hold the voters hold already.
            _ if s.learners.contains_key(name) => {}
            (None, None) => full.push(format!("{name} was not heard")),
            (Some(description), None) => full.push(format!(
                "{name} (version {}) does not report its usage: it has not checked yet, its disk hangs, or it runs version 0.1.0; if every member has space, run `etcdctl alarm disarm`",
                description.version
            )),
        }
    }
    if full.is_empty() || mutant!(DisarmedWhileFull) {
        return Ok("every member has space again".to_owned());
    }
    Err(format!("writes are refused: {}", full.join("; ")))
}

fn of_member(name: &str, space: Space) -> Option<String> {
    let of_quota = of_quota(name, space);
    let of_volume = || of_volume(name, space);
    of_quota
        .or_else(of_volume)
        .or_else(|| of_memory(name, space))
}

/// A margin is left, or the next writes would raise it again: a tenth, and one large request.
fn with_margin(most: u64) -> u64 {
    most.saturating_sub((most / 10).max(REQUEST))
}

fn of_memory(name: &str, space: Space) -> Option<String> {
    let most = with_margin(space.in_memory_most);
    (space.in_memory_most > 0 && space.in_memory > most).then(|| {
        format!(
            "{name} has {} in memory that is in no file of values, of {} that its memory limit allows: raise resources.limits.memory, or delete keys and compact, until it is at most {}",
            bytes(space.in_memory),
            bytes(space.in_memory_most),
            bytes(most)
        )
    })
}

fn of_quota(name: &str, space: Space) -> Option<String> {
    let most = with_margin(space.quota);
    (space.quota > 0 && space.used > most).then(|| {
        format!(
            "{name} holds {} of the {} that its quota allows: raise server.quota, or delete keys and compact, until it is at most {}",
            bytes(space.used),
            bytes(space.quota),
            bytes(most)
        )
    })
}

fn of_volume(name: &str, space: Space) -> Option<String> {
    let least = space.needed + space.needed / 10;
    // Not the free space itself: that changes with every log line.
    (space.free < least).then(|| {
        format!(
            "the volume of {name} is nearly full: raise storage.size, compact, or remove what else lies on it, until {} are free",
            bytes(least)
        )
    })
}

/// Bytes as Kubernetes writes them, in whole MiB where they are that many.
pub(super) fn bytes(bytes: u64) -> String {
    match bytes >> 20 {
        0 => format!("{bytes} bytes"),
        mebibytes => format!("{mebibytes}Mi"),
    }
}

/// The disarms that the next one follows.
pub(super) fn in_a_row(o: &Observed) -> Option<Disarms> {
    let known = o.status_memory.disarms;
    known.filter(|known| o.now_ms < known.last_ms + ROW_MS)
}

/// The same after that of this member was disarmed. An alarm of several members counts as one.
pub(super) fn after(o: &Observed, id: u64) -> Disarms {
    let before = in_a_row(o);
    let more = before.is_none_or(|before| !is_of(o, before, id));
    Disarms {
        count: before.map_or(0, |before| before.count) + u32::from(more),
        last_ms: o.now_ms,
        member: id,
    }
}

/// Whether this alarm goes off together with the last one: they do so in the order of their IDs.
fn is_of(o: &Observed, last: Disarms, id: u64) -> bool {
    id > last.member && o.now_ms < last.last_ms + FIRST_PAUSE_MS
}

/// Until when it stays raised because it was raised repeatedly, and in words.
pub(super) fn rests(s: &Situation<'_>, id: u64) -> Option<(String, u64)> {
    let last = in_a_row(s.o).filter(|last| !is_of(s.o, *last, id))?;
    let doubled = FIRST_PAUSE_MS.saturating_mul(1 << last.count.saturating_sub(1).min(16));
    let until = last.last_ms + doubled.min(LONGEST_PAUSE_MS);
    (until > s.o.now_ms).then(|| {
        let words = format!(
            "it was raised again after it was disarmed, {} in a row, as a transaction does that finds no room: the operator disarms it again at {}, or run `etcdctl alarm disarm`",
            super::report::count(last.count as usize, "time"),
            timestamp(until)
        );
        (words, until)
    })
}
