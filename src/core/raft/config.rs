//! The settings of the core and what it starts from.

use super::error::Error;
use super::shape::LogShape;
use super::types::{Entry, HardState, Index, MemberId, SnapshotMeta};

/// The settings of one member's core. Ticks are whatever the caller calls
/// [`super::Raft::tick`] at; bytes are entry data plus a fixed overhead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// This member; not zero.
    pub id: MemberId,
    /// Ticks without a leader before a campaign. The actual timeout is drawn from
    /// `[election_ticks, 2 * election_ticks)` each time (paper §5.2).
    pub election_ticks: u32,
    /// Ticks between a leader's heartbeats; less than `election_ticks`.
    pub heartbeat_ticks: u32,
    /// Ask before campaigning, so that a member that was cut off raises no terms (thesis §9.6).
    pub pre_vote: bool,
    /// A leader steps down when it has received no responses from a quorum for an election timeout, and members in
    /// contact with a leader refuse votes (thesis §6.2).
    pub check_quorum: bool,
    /// The most entry bytes in one append message; one larger entry travels alone.
    pub max_message_bytes: u64,
    /// The most appends under way to one member.
    pub max_inflight_messages: usize,
    /// The most entry bytes under way to one member; one larger append travels alone.
    pub max_inflight_bytes: u64,
    /// The most entry bytes that a leader appends without seeing them committed.
    pub max_uncommitted_bytes: u64,
    /// The largest single entry that a proposal may hold.
    pub max_entry_bytes: u64,
    /// The most committed entry bytes handed out and not yet reported as applied.
    pub max_apply_bytes: u64,
    /// Durable entries are kept in memory up to this many bytes. What is not durable yet is
    /// kept whatever its size; the two limits above bound it.
    pub cache_bytes: u64,
    /// What was applied here an election timeout ago or earlier, and at a leader matches at every member that answers, goes
    /// from that memory until this many bytes are left in it. Whoever needs it later reads the log.
    pub matched_cache_bytes: u64,
    /// The most reads that wait at one member; more fail at once.
    pub max_pending_reads: usize,
    /// The seed of this member's election timeouts. The member's id is mixed in.
    pub seed: u64,
    /// A number that this member has not used at an earlier start, part of each read's
    /// identity.
    pub boot_nonce: u64,
}

impl Config {
    /// The defaults, for a tick of a tenth of the election timeout as in etcd.
    pub fn new(id: MemberId, seed: u64, boot_nonce: u64) -> Self {
        const MIB: u64 = 1 << 20;
        Self {
            id,
            election_ticks: 10,
            heartbeat_ticks: 1,
            pre_vote: true,
            check_quorum: true,
            max_message_bytes: MIB,
            max_inflight_messages: 512,
            max_inflight_bytes: 16 * MIB,
            max_uncommitted_bytes: 64 * MIB,
            max_entry_bytes: 32 * MIB,
            max_apply_bytes: 8 * MIB,
            cache_bytes: 32 * MIB,
            matched_cache_bytes: 4 * MIB,
            max_pending_reads: 100_000,
            seed,
            boot_nonce,
        }
    }

    /// Refuses settings that cannot work.
    pub fn check(&self) -> Result<(), Error> {
        let rules = [
            (self.id != 0, "the member id must not be 0"),
            (
                self.heartbeat_ticks > 0,
                "heartbeat ticks must be at least 1",
            ),
            (
                self.election_ticks > self.heartbeat_ticks,
                "election ticks must be more than heartbeat ticks",
            ),
            (
                self.election_ticks <= 1 << 20,
                "election ticks must be at most 1048576",
            ),
            (
                self.max_message_bytes > 0,
                "max message bytes must be at least 1",
            ),
            (
                self.max_inflight_messages > 0,
                "max inflight messages must be at least 1",
            ),
            (
                self.max_inflight_bytes >= self.max_message_bytes,
                "max inflight bytes must be at least max message bytes",
            ),
            (
                self.max_uncommitted_bytes > 0,
                "max uncommitted bytes must be at least 1",
            ),
            (
                self.max_entry_bytes > 0,
                "max entry bytes must be at least 1",
            ),
            (
                self.max_apply_bytes > 0,
                "max apply bytes must be at least 1",
            ),
            (
                self.max_pending_reads > 0,
                "max pending reads must be at least 1",
            ),
        ];
        match rules.iter().find(|(holds, _)| !holds) {
            Some((_, rule)) => Err(Error::Config(rule)),
            None => Ok(()),
        }
    }
}

/// What a core starts from: nothing for a member that has yet to join, a snapshot alone for
/// one that was just bootstrapped, or what the disk gave back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Restored {
    /// The last hard state that was made durable.
    pub hard_state: HardState,
    /// The newest snapshot; index 0 and no members when there is none.
    pub snapshot: SnapshotMeta,
    /// The shape of the whole log on disk, which may start before the snapshot (members that
    /// lag behind are served from there). `None`: the log is `entries` and starts after the
    /// snapshot.
    pub log: Option<LogShape>,
    /// The newest entries of the log, without a gap up to its end; as many as the caller wants
    /// to have cached. May be empty if `log` is given.
    pub entries: Vec<Entry>,
    /// The last index that the state machine has applied; what is below the snapshot counts
    /// as applied anyway.
    pub applied: Index,
}
