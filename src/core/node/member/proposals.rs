//! Proposals between their origin and the log: which wait for a leader, which are on their way,
//! which were appended where, and which are provably lost and may be proposed again.
//!
//! A proposal is sent to a leader a second time only if it is certain that the first time left
//! nothing in any log that could still be committed. One whose outcome is unknown is never
//! repeated.
//!
//! One that was sent for a term can be only in an entry of that term. Terms never decrease along a
//! log: once this member has applied an entry of a later term, it has applied every entry of that
//! term that will ever be committed. A proposal that was not among them is proposed again.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;

use crate::mutants::mutant;
use crate::node::change::MembershipCommand;
use crate::node::payload::RequestId;
use crate::raft::{Index, MemberId, Position, Term};

/// Runs of terms of committed entries that are remembered.
const REMEMBERED_RUNS: usize = 1024;
/// Bytes added to the size of a waiting proposal beside its entry.
const OVERHEAD: u64 = 128;
/// Bytes that the core adds to the size of an entry beside its data.
const ENTRY_OVERHEAD: u64 = 24;
/// The minimum that the entry of a change needs beside the change.
const CHANGE_OVERHEAD: u64 = 128;

/// What is proposed.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Payload {
    /// The encoded data of a normal entry.
    Data(Bytes),
    /// A membership change, to be checked by the leader.
    Change(MembershipCommand),
}

impl Payload {
    fn cost(&self) -> u64 {
        self.entry_bytes() + OVERHEAD
    }

    /// Bytes of its entry as the core counts them, rounded up for a change.
    pub(super) fn entry_bytes(&self) -> u64 {
        match self {
            Self::Data(data) => data.len() as u64 + ENTRY_OVERHEAD,
            Self::Change(command) => prost::Message::encoded_len(command) as u64 + CHANGE_OVERHEAD,
        }
    }
}

/// A proposal that waits here to be appended or sent to the leader.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Waiting {
    pub(super) request: RequestId,
    pub(super) payload: Payload,
    /// Since when, in milliseconds.
    pub(super) since: u64,
    /// The term in which alone it may be appended, of one that another member sent for a term.
    pub(super) term: Option<Term>,
}

#[derive(Debug)]
struct Own {
    payload: Payload,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// In the queue.
    Waiting,
    /// Sent to a leader of a version that knows no terms of forwards; its outcome is unknown until
    /// some member answers. There is one copy of it at a time (links repeat nothing), so an answer
    /// never refers to an earlier sending.
    Sent,
    /// Sent to the leader of a term, which appends it in that term or never.
    SentInTerm {
        to: MemberId,
        term: Term,
        /// A checkpoint replaced entries of that term: whether it was among them is not known.
        jumped: bool,
    },
    /// In a leader's log.
    Appended(Position),
}

/// All proposals that concern this member and are not applied here yet.
#[derive(Debug)]
pub(super) struct Proposals {
    member: MemberId,
    limit: u64,
    bytes: u64,
    own: BTreeMap<RequestId, Own>,
    /// Own proposals in state `Waiting` and those of other members that are parked here, in order.
    queue: VecDeque<Waiting>,
    places: BTreeMap<(Index, Term), RequestId>,
    committed: Committed,
    /// The term of the last entry that was applied.
    applied: Term,
    repeated: u64,
}

/// The terms of the entries that were committed since this member started.
#[derive(Debug, Default)]
struct Committed {
    /// (first index, term), ascending.
    runs: VecDeque<(Index, Term)>,
    last: Option<Position>,
}

/// What is known of the entry at a position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    Committed,
    Dead,
    Open,
    Unknown,
}

impl Committed {
    fn note(&mut self, index: Index, term: Term) {
        let new_run = self.runs.back().is_none_or(|(_, last)| *last != term);
        if new_run || self.last.is_some_and(|last| last.index + 1 != index) {
            self.runs.push_back((index, term));
            if self.runs.len() > REMEMBERED_RUNS {
                self.runs.pop_front();
            }
        }
        self.last = Some(Position { index, term });
    }

    /// A checkpoint replaced the entries up to here: their terms are not known.
    fn jump(&mut self, index: Index, term: Term) {
        self.runs.clear();
        self.note(index, term);
    }

    fn standing(&self, place: Position) -> Standing {
        match self.last {
            None => Standing::Open,
            // Terms never decrease along a log, so no committed log ever has it here.
            Some(last)
                if (place.index > last.index || mutant!(DeadByTerm)) && place.term < last.term =>
            {
                Standing::Dead
            }
            Some(last) if place.index > last.index => Standing::Open,
            Some(_) => {
                let run = self
                    .runs
                    .partition_point(|(first, _)| *first <= place.index);
                match run.checked_sub(1).and_then(|at| self.runs.get(at)) {
                    Some((_, term)) if *term == place.term => Standing::Committed,
                    Some(_) => Standing::Dead,
                    None if mutant!(RepeatUnknown) => Standing::Dead,
                    None => Standing::Unknown,
                }
            }
        }
    }
}

impl Proposals {
    /// For a member that keeps at most `limit` bytes.
    pub(super) fn new(member: MemberId, limit: u64) -> Self {
        Self {
            member,
            limit,
            bytes: 0,
            own: BTreeMap::new(),
            queue: VecDeque::new(),
            places: BTreeMap::new(),
            committed: Committed::default(),
            applied: 0,
            repeated: 0,
        }
    }

    /// How many wait or are on their way.
    pub(super) fn len(&self) -> usize {
        let forwarded = self
            .queue
            .iter()
            .filter(|w| !self.own.contains_key(&w.request));
        self.own.len() + forwarded.count()
    }

    /// How many were proposed again because an entry of a later term was applied without them.
    pub(super) fn repeated(&self) -> u64 {
        self.repeated
    }

    /// Queues a proposal of a client of this member or, parked here, of another member. False when
    /// there is no room.
    pub(super) fn take_in(&mut self, waiting: Waiting) -> bool {
        let (request, payload) = (waiting.request, &waiting.payload);
        let cost = payload.cost();
        if self.bytes + cost > self.limit {
            return false;
        }
        if request.member == self.member {
            if self.own.contains_key(&request) {
                return true;
            }
            let own = Own {
                payload: payload.clone(),
                state: State::Waiting,
            };
            self.own.insert(request, own);
        }
        self.bytes += cost;
        self.queue.push_back(waiting);
        true
    }

    /// Takes all waiting proposals out of the queue, in order. Those that cannot be moved on have
    /// to be put back.
    pub(super) fn take_waiting(&mut self) -> VecDeque<Waiting> {
        std::mem::take(&mut self.queue)
    }

    /// How many wait to be moved on.
    pub(super) fn waiting(&self) -> usize {
        self.queue.len()
    }

    /// Whether anything waits.
    pub(super) fn any_waiting(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Puts back what could not be moved on, before what has arrived since.
    pub(super) fn put_back(&mut self, mut waiting: VecDeque<Waiting>) {
        waiting.append(&mut self.queue);
        self.queue = waiting;
    }

    /// It was sent to a leader, of a term if one is given: this member no longer keeps it if it is
    /// another member's.
    pub(super) fn sent(&mut self, waiting: &Waiting, to: MemberId, term: Option<Term>) {
        let jumped = false;
        let state = term.map_or(State::Sent, |term| State::SentInTerm { to, term, jumped });
        match self.own.get_mut(&waiting.request) {
            Some(own) => own.state = state,
            None => self.bytes -= waiting.payload.cost(),
        }
    }

    /// It was appended here: see [`Proposals::placed`] for an own one.
    pub(super) fn appended(&mut self, now: u64, waiting: &Waiting, place: Position) {
        match self.own.contains_key(&waiting.request) {
            true => self.placed(now, waiting.request, place),
            false => self.bytes -= waiting.payload.cost(),
        }
    }

    /// It will not be appended. Returns whether it is an own one for which a caller waits.
    pub(super) fn refused(&mut self, waiting: &Waiting) -> bool {
        if self.own.contains_key(&waiting.request) {
            return self.forget(waiting.request);
        }
        self.bytes -= waiting.payload.cost();
        false
    }

    /// Whether an outcome, of a forward for this term or (0) for any, is one of the last sending of
    /// an own one. Others are void.
    pub(super) fn expects(&self, request: RequestId, from: MemberId, of: Term) -> bool {
        match self.own.get(&request).map(|own| own.state) {
            Some(State::Sent) => of == 0,
            Some(State::SentInTerm { to, term, .. }) => {
                (to, term) == (from, of) || mutant!(AnyOutcome)
            }
            Some(State::Waiting | State::Appended(_)) | None => false,
        }
    }

    /// An own one is at this place of a leader's log.
    pub(super) fn placed(&mut self, now: u64, request: RequestId, place: Position) {
        let Some(own) = self.own.get_mut(&request) else {
            return;
        };
        match self.committed.standing(place) {
            Standing::Committed | Standing::Unknown => {
                self.forget(request);
            }
            Standing::Dead => self.again(now, request),
            Standing::Open => {
                own.state = State::Appended(place);
                self.places.insert((place.index, place.term), request);
            }
        }
    }

    /// An own one is certain never to be committed by what was done so far: it is queued again.
    pub(super) fn again(&mut self, now: u64, request: RequestId) {
        let Some(own) = self.own.get_mut(&request) else {
            return;
        };
        if let State::Appended(place) = own.state {
            self.places.remove(&(place.index, place.term));
        }
        own.state = State::Waiting;
        self.queue.push_back(Waiting {
            request,
            payload: own.payload.clone(),
            since: now,
            term: None,
        });
    }

    /// Its outcome is final. Returns whether it was known.
    pub(super) fn forget(&mut self, request: RequestId) -> bool {
        let Some(own) = self.own.remove(&request) else {
            return false;
        };
        self.bytes -= own.payload.cost();
        match own.state {
            State::Waiting => self.queue.retain(|waiting| waiting.request != request),
            State::Sent | State::SentInTerm { .. } => {}
            State::Appended(place) => {
                self.places.remove(&(place.index, place.term));
            }
        }
        true
    }

    /// The caller no longer waits for an own one. True if it had not left this member: then it is
    /// in no log, and never will be. One that was sent or appended before may still be carried out.
    pub(super) fn withdraw(&mut self, request: RequestId) -> bool {
        let waits = |own: &Own| own.state == State::Waiting;
        let here = self.own.get(&request).is_some_and(waits);
        if !(here && mutant!(WithdrawnStays)) {
            self.forget(request);
        }
        here || mutant!(UnknownRefused)
    }

    /// Entries were committed: decides what was appended at or before them.
    pub(super) fn committed(&mut self, now: u64, places: impl Iterator<Item = Position>) {
        for place in places {
            self.committed.note(place.index, place.term);
        }
        self.settle(now);
    }

    /// A checkpoint replaced the log up to `place`. What was sent for that term or an earlier one
    /// may be in it.
    pub(super) fn jumped(&mut self, now: u64, place: Position) {
        for own in self.own.values_mut() {
            if let State::SentInTerm { term, jumped, .. } = &mut own.state
                && *term <= place.term
                && !mutant!(RepeatJumped)
            {
                *jumped = true;
            }
        }
        self.committed.jump(place.index, place.term);
        self.settle(now);
    }

    fn settle(&mut self, now: u64) {
        let Some(last) = self.committed.last else {
            return;
        };
        let passed = self.places.range(..=(last.index, Term::MAX));
        let later = self.places.range((last.index, Term::MAX)..);
        let dead = later.filter(|((_, term), _)| *term < last.term);
        let settled: Vec<(Position, RequestId)> = passed
            .chain(dead)
            .map(|((index, term), request)| {
                let place = Position {
                    index: *index,
                    term: *term,
                };
                (place, *request)
            })
            .collect();
        for (place, request) in settled {
            match self.committed.standing(place) {
                Standing::Dead => self.again(now, request),
                // An unknown one is left alone: its caller times out.
                Standing::Committed | Standing::Unknown => {
                    self.forget(request);
                }
                Standing::Open => {}
            }
        }
    }

    /// Entries up to one of this term were applied, those with own ones were reported: what was
    /// sent for an earlier term and is still there will not be committed.
    pub(super) fn applied_through(&mut self, now: u64, last: Term) {
        if last <= self.applied {
            return;
        }
        self.applied = last;
        let lost = self.own.iter().filter(|(_, own)| {
            matches!(own.state, State::SentInTerm { term, jumped, .. } if term < last && !jumped)
        });
        let lost: Vec<RequestId> = lost.map(|(request, _)| *request).collect();
        for request in lost {
            self.repeated += 1;
            self.again(now, request);
        }
    }

    /// Takes out what was parked here for other members before `since`.
    pub(super) fn overdue_forwarded(&mut self, since: u64) -> Vec<Waiting> {
        let own = &self.own;
        let (overdue, rest): (VecDeque<Waiting>, VecDeque<Waiting>) =
            std::mem::take(&mut self.queue)
                .into_iter()
                .partition(|w| w.since < since && !own.contains_key(&w.request));
        self.queue = rest;
        if mutant!(ProposeTwice) {
            self.queue.extend(overdue.clone());
            return overdue.into();
        }
        let freed: u64 = overdue.iter().map(|w| w.payload.cost()).sum();
        self.bytes -= freed;
        overdue.into()
    }

    /// An own one of this start was applied here.
    pub(super) fn applied(&mut self, boot_nonce: u64, counter: u64) {
        self.forget(RequestId {
            member: self.member,
            boot_nonce,
            counter,
        });
    }

    /// Gives up all own ones, for a member that will propose no more. Returns those that never left
    /// it; the outcome of the others stays unknown here.
    pub(super) fn give_up(&mut self) -> Vec<RequestId> {
        let own: Vec<(RequestId, State)> =
            self.own.iter().map(|(id, own)| (*id, own.state)).collect();
        for (request, _) in &own {
            self.forget(*request);
        }
        let waiting = own
            .into_iter()
            .filter(|(_, state)| *state == State::Waiting);
        waiting.map(|(request, _)| request).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(member: MemberId, counter: u64) -> RequestId {
        RequestId {
            member,
            boot_nonce: 1,
            counter,
        }
    }

    fn waiting(since: u64, request: RequestId, payload: Payload) -> Waiting {
        Waiting {
            request,
            payload,
            since,
            term: None,
        }
    }

    fn place(index: Index, term: Term) -> Position {
        Position { index, term }
    }

    /// Member 1 with one own proposal that a leader reported as appended at index 10, term 2.
    fn appended() -> Proposals {
        let mut proposals = Proposals::new(1, 1 << 20);
        let data = Payload::Data(Bytes::from_static(b"data"));
        assert!(proposals.take_in(waiting(0, request(1, 1), data)));
        for waiting in proposals.take_waiting() {
            proposals.sent(&waiting, 2, None);
        }
        proposals.placed(0, request(1, 1), place(10, 2));
        proposals
    }

    /// Member 1 with one own proposal that it sent to member 2 as the leader of term 2.
    fn sent_in_term() -> Proposals {
        let mut proposals = Proposals::new(1, 1 << 20);
        let data = Payload::Data(Bytes::from_static(b"data"));
        assert!(proposals.take_in(waiting(0, request(1, 1), data)));
        for waiting in proposals.take_waiting() {
            proposals.sent(&waiting, 2, Some(2));
        }
        proposals
    }

    #[test]
    fn later_term_applied_without_it_ends_a_sending() {
        let mut proposals = sent_in_term();
        proposals.applied_through(1, 2);
        assert!(!proposals.any_waiting(), "more of term 2 may follow");
        proposals.applied_through(1, 3);
        assert_eq!(proposals.take_waiting()[0].request, request(1, 1));
        assert_eq!(proposals.repeated(), 1);
        assert!(!proposals.expects(request(1, 1), 2, 2), "it is over");

        let mut proposals = sent_in_term();
        proposals.applied(1, 1);
        proposals.applied_through(1, 3);
        assert!(!proposals.any_waiting(), "it was among them");
    }

    #[test]
    fn outcomes_of_other_sendings_are_void() {
        let proposals = sent_in_term();
        assert!(proposals.expects(request(1, 1), 2, 2));
        for (from, of) in [(3, 2), (2, 1), (2, 3), (2, 0)] {
            assert!(!proposals.expects(request(1, 1), from, of), "{from} {of}");
        }
        assert!(!proposals.expects(request(1, 2), 2, 2), "there is none");
        assert!(!appended().expects(request(1, 1), 2, 0), "it has one");
    }

    #[test]
    fn checkpoint_over_its_term_proves_nothing() {
        for (term, again) in [(1, true), (2, false), (3, false)] {
            let mut proposals = sent_in_term();
            proposals.jumped(1, place(20, term));
            proposals.applied_through(2, 4);
            assert_eq!(
                proposals.any_waiting(),
                again,
                "a checkpoint of term {term}"
            );
            let open = proposals.expects(request(1, 1), 2, 2);
            assert_eq!(open, !again, "its leader may still answer");
        }
    }

    #[test]
    fn proposal_committed_at_its_index_is_done() {
        let mut proposals = appended();
        proposals.committed(1, (8..=12).map(|index| place(index, 2)));
        assert_eq!((proposals.len(), proposals.bytes), (0, 0));
    }

    #[test]
    fn entry_of_another_term_ends_the_proposal() {
        let mut proposals = appended();
        proposals.committed(1, [place(9, 2), place(10, 3)].into_iter());
        assert_eq!(proposals.take_waiting()[0].request, request(1, 1));
    }

    #[test]
    fn later_term_before_its_index_ends_a_proposal() {
        let mut proposals = appended();
        proposals.committed(1, [place(8, 2)].into_iter());
        assert!(!proposals.any_waiting());
        proposals.committed(1, [place(9, 3)].into_iter());
        assert!(proposals.any_waiting());
    }

    #[test]
    fn checkpoint_past_a_proposal_proves_nothing() {
        let mut proposals = appended();
        proposals.jumped(1, place(20, 4));
        assert!(!proposals.any_waiting(), "it may be in there");
        assert_eq!(proposals.len(), 0);
        let mut proposals = appended();
        proposals.jumped(1, place(9, 4));
        assert!(proposals.any_waiting(), "nothing of term 2 ever follows");
    }

    #[test]
    fn late_responses_use_the_newer_commits() {
        for (committed, again) in [(2, false), (3, true)] {
            let mut proposals = Proposals::new(1, 1 << 20);
            let data = Payload::Data(Bytes::from_static(b"data"));
            proposals.take_in(waiting(0, request(1, 1), data));
            for waiting in proposals.take_waiting() {
                proposals.sent(&waiting, 2, None);
            }
            proposals.committed(1, (9..=11).map(|index| place(index, committed)));
            assert_eq!(proposals.len(), 1, "its fate is unknown");
            proposals.placed(1, request(1, 1), place(10, 2));
            assert_eq!(proposals.any_waiting(), again);
        }
    }

    /// A member without a leader keeps what its clients propose. One whose client had given up used
    /// to be kept for good: it was carried out when a leader came back, hours after its client had
    /// been answered that there was none.
    #[test]
    fn withdrawn_proposal_is_never_sent() {
        let data = || Payload::Data(Bytes::from_static(b"data"));
        let mut proposals = Proposals::new(1, 1 << 20);
        assert!(proposals.take_in(waiting(0, request(1, 1), data())));
        assert!(proposals.withdraw(request(1, 1)), "it never left");
        assert_eq!((proposals.len(), proposals.bytes), (0, 0));
        assert!(!proposals.any_waiting());
        assert!(!proposals.withdraw(request(1, 1)), "nothing is known of it");

        let mut proposals = Proposals::new(1, 1 << 20);
        assert!(proposals.take_in(waiting(0, request(1, 2), data())));
        for waiting in proposals.take_waiting() {
            proposals.sent(&waiting, 2, None);
        }
        assert!(!proposals.withdraw(request(1, 2)), "a leader may have it");

        let mut proposals = appended();
        assert!(!proposals.withdraw(request(1, 1)), "it is in a log");
        assert_eq!((proposals.len(), proposals.bytes), (0, 0));

        let mut proposals = appended();
        proposals.committed(1, [place(9, 2), place(10, 3)].into_iter());
        assert!(proposals.withdraw(request(1, 1)), "proved dead before");
        assert!(!proposals.any_waiting());
    }

    #[test]
    fn waiting_proposals_are_bounded() {
        let mut proposals = Proposals::new(1, 2000);
        let data = || Payload::Data(Bytes::from(vec![0; 500]));
        assert!(proposals.take_in(waiting(0, request(1, 1), data())));
        assert!(proposals.take_in(waiting(0, request(2, 1), data())));
        assert!(proposals.take_in(waiting(5, request(3, 1), data())));
        assert!(!proposals.take_in(waiting(5, request(1, 2), data())));
        let overdue = proposals.overdue_forwarded(5);
        assert_eq!(
            overdue.len(),
            1,
            "own ones stay, and so does the younger forwarded one"
        );
        assert_eq!(overdue[0].request, request(2, 1));
        proposals.forget(request(1, 1));
        assert_eq!(proposals.take_waiting().len(), 1);
    }

    #[test]
    fn giving_up_fails_only_unsent_proposals() {
        let mut proposals = appended();
        let data = Payload::Data(Bytes::from_static(b"more"));
        proposals.take_in(waiting(0, request(1, 2), data));
        assert_eq!(proposals.give_up(), [request(1, 2)]);
        assert_eq!((proposals.len(), proposals.bytes), (0, 0));
    }
}
