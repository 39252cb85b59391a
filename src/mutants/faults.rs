//! The faults: name, place, what it breaks, who must notice. Decides nothing; the wrong turn
//! itself stands at the place.

macro_rules! faults {
    ($($(#[doc = $breaks:literal])+ $mutant:ident $name:literal in $place:literal,
        $killer:expr $(, like $like:literal)?;)*) => {
        /// A fault that can be planted.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        #[repr(u16)]
        pub enum Mutant {
            $($(#[doc = $breaks])+ $mutant,)*
        }

        /// All of them, in the order of the table.
        #[cfg(feature = "mutants")]
        pub const ALL: &[Fault] = &[$(Fault {
            mutant: Mutant::$mutant,
            symbol: stringify!($mutant),
            name: $name,
            place: $place,
            breaks: concat!($($breaks),+),
            killer: $killer,
            like: concat!($($like)?),
        },)*];
    };
}

/// A fault with its row of the table.
#[cfg(feature = "mutants")]
#[derive(Clone, Copy, Debug)]
pub struct Fault {
    /// The fault.
    pub mutant: Mutant,
    /// Its name in the code.
    pub symbol: &'static str,
    /// Its name in the table and in `MUTANT=name`.
    pub name: &'static str,
    /// The file below `src` that takes the wrong turn.
    pub place: &'static str,
    /// What it breaks, in words.
    pub breaks: &'static str,
    /// What must notice it.
    pub killer: Killer,
    /// A known fault of etcd that it is like; empty if none.
    pub like: &'static str,
}

/// What must notice a fault.
#[cfg(feature = "mutants")]
#[derive(Clone, Copy, Debug)]
pub enum Killer {
    /// The simulator, by one of these oracles.
    Sim(&'static [&'static str]),
    /// This test of the library.
    Test(&'static str),
    /// The operator's simulation: this scenario, by one of these oracles; [`STORY`] is what the
    /// scenario itself expects. The lints of the plan sleep meanwhile.
    Operator(&'static str, &'static [&'static str]),
}

#[cfg(feature = "mutants")]
use Killer::{Operator, Sim, Test};

/// What a scenario of the operator expects beside the invariants.
#[cfg(feature = "mutants")]
pub const STORY: &str = "story";
/// The oracle for what only a failing disk may bring about: a stop, a refused start.
#[cfg(feature = "mutants")]
const BY_ITSELF: &str = "nothing fails by itself";
#[cfg(feature = "mutants")]
const DURABLE: &str = "durable before committed";
#[cfg(feature = "mutants")]
const COMPLETE: &str = "leader completeness";
#[cfg(feature = "mutants")]
const ELECTION: &str = "election safety";
#[cfg(feature = "mutants")]
const MACHINES: &str = "state-machine safety";
#[cfg(feature = "mutants")]
const EQUAL: &str = "equal states";
#[cfg(feature = "mutants")]
const LINEAR: &str = "linearizability";
#[cfg(feature = "mutants")]
const REFUSALS: &str = "refusals";
#[cfg(feature = "mutants")]
const WATCHES: &str = "watches";
#[cfg(feature = "mutants")]
const LEASES: &str = "leases";
#[cfg(feature = "mutants")]
const LIVENESS: &str = "liveness";
#[cfg(feature = "mutants")]
const ROLES: &str = "roles";
#[cfg(feature = "mutants")]
const VOTES: &str = "votes";
#[cfg(feature = "mutants")]
const REVISIONS: &str = "revisions";

faults! {
    /// A follower acknowledges entries before they are synced.
    AckBeforeFsync "ack-before-fsync" in "core/raft/replication.rs",
        Sim(&["durable before acknowledged"]);
    /// A leader counts its own entries before they are synced.
    CountOwnUnsynced "leader-counts-unsynced" in "core/raft/replication.rs",
        Sim(&[DURABLE]), like "etcd #14370";
    /// A vote is granted before it is synced.
    VoteBeforeFsync "vote-before-fsync" in "core/raft/election.rs", Sim(&[VOTES]);
    /// The vote is not in the hard state, so a restarted member votes a second time in a term.
    ForgetVote "vote-not-persisted" in "core/raft/output.rs",
        Test("raft::tests::paper::section_5_2_one_vote_a_term");
    /// A member votes for whoever asks, also twice in a term.
    VoteTwice "vote-twice" in "core/raft/election.rs", Sim(&[VOTES, ELECTION, BY_ITSELF]);
    /// A vote goes to a candidate whose log lacks what the voter holds.
    VoteForOldLog "vote-for-old-log" in "core/raft/log.rs", Sim(&[COMPLETE]);
    /// Learners count when the commit index moves.
    CountLearner "learner-counts" in "core/raft/replication.rs", Sim(&[DURABLE]);
    /// A learner's vote counts in an election.
    CountLearnersVote "learner-votes" in "core/raft/quorum.rs",
        Test("raft::quorum::tests::removal_votes_decide_when_final");
    /// A learner, or a member that was removed, campaigns.
    LearnerCampaigns "learner-campaigns" in "core/raft/election.rs", Sim(&[ROLES]);
    /// A leader commits entries of older terms by counting (figure 8 of the paper).
    CommitOlderTerm "commit-older-term" in "core/raft/replication.rs",
        Test("raft::tests::paper::section_5_4_2_commits_only_its_own_term");
    /// A heartbeat names a commit index beyond what its receiver is known to hold.
    HeartbeatCommit "heartbeat-commit" in "core/raft/replication.rs",
        Sim(&[MACHINES, BY_ITSELF]);
    /// An append that comes late cuts off what later ones brought.
    TruncateOnLateAppend "truncate-on-late-append" in "core/raft/log.rs",
        Sim(&[DURABLE, COMPLETE, BY_ITSELF]);
    /// An append below the commit index cuts off committed entries.
    TruncateCommitted "truncate-committed" in "core/raft/replication.rs",
        Sim(&[DURABLE, COMPLETE, BY_ITSELF]);
    /// A leader answers reads without asking whether it still leads.
    SkipReadRound "skip-read-round" in "core/raft/read_only.rs",
        Sim(&[LINEAR]), like "etcd #20418";
    /// Any answer of a quorum in this term confirms all later reads: a lease without a clock.
    LeaseRead "lease-read" in "core/raft/read_only.rs",
        Sim(&[LINEAR]), like "etcd #20418";
    /// The identity of a read is used again, so a late answer confirms a later read.
    ReuseReadId "reuse-read-id" in "core/raft/read_only.rs",
        Test("raft::tests::script::scripts_give_their_golden_traces"), like "etcd #20418";
    /// A read is answered before the state has reached its index.
    ReadBeforeApply "read-before-apply" in "core/node/member/read_rounds.rs",
        Sim(&[LINEAR]);
    /// A leader that hears no quorum goes on leading.
    NoCheckQuorum "no-check-quorum" in "core/raft/election.rs",
        Test("raft::tests::script::scripts_give_their_golden_traces");
    /// A member that was cut off campaigns without asking first, and deposes a leader that is well.
    NoPreVote "no-pre-vote" in "core/raft/election.rs",
        Test("raft::tests::script::scripts_give_their_golden_traces");
    /// A member that hears its leader helps to depose it, on another's word that its process is gone.
    VoteAgainstLeader "vote-against-leader" in "core/raft/core.rs",
        Test("raft::tests::script::scripts_give_their_golden_traces");
    /// A report that the leader's process is gone counts on after its next heartbeat.
    GoneForEver "gone-for-ever" in "core/raft/core.rs",
        Test("raft::tests::script::scripts_give_their_golden_traces");
    /// A received snapshot replaces a state that is newer.
    SnapshotOverNewer "snapshot-over-newer" in "core/raft/membership.rs",
        Sim(&[BY_ITSELF, DURABLE, COMPLETE, MACHINES, EQUAL]);
    /// A second snapshot is taken on while the first is being installed.
    TwoSnapshots "two-snapshots" in "core/raft/membership.rs",
        Test("raft::tests::paper::section_7_one_snapshot_at_a_time"), like "etcd #18055";
    /// Two changes of the configuration are under way at a time.
    TwoChanges "two-changes" in "core/raft/membership.rs",
        Test("raft::tests::paper::thesis_4_1_one_change_at_a_time");
    /// A member that was removed still counts as a voter.
    RemovedCounts "removed-counts" in "core/raft/membership.rs",
        Sim(&[DURABLE, ROLES, LIVENESS]);
    /// A leader that was removed goes on leading and proposing.
    RemovedLeads "removed-leads" in "core/raft/membership.rs",
        Sim(&[ROLES]);
    /// A learner is promoted whether it has caught up or not.
    PromoteEarly "promote-early" in "core/node/admission.rs",
        Sim(&[ROLES]), like "etcd #15096";
    /// A new address of a learner makes it a voter.
    UpdatePromotes "update-promotes" in "core/node/membership.rs",
        Test("node::tests::rules::learner_stays_learner_at_a_new_address"), like "etcd #21736";
    /// A member is heard from another disk than the one that it is bound to.
    OtherDisk "other-disk-joins" in "core/node/membership.rs",
        Test("node::tests::rules::join_binds_the_disk_once_and_publishes");
    /// A change of the configuration does not wait until the one before it is settled.
    UnsettledChange "unsettled-change" in "core/node/member/proposing.rs",
        Test("node::tests::rules::second_change_waits_for_the_first");
    /// An addition is answered only when the new member has made a quorum with the others.
    AdditionWaits "addition-waits" in "core/node/state_machine.rs",
        Test("node::tests::rules::adding_to_a_single_voter_responds_at_once");
    /// The first leader of a cluster counts on members that have just connected.
    SteadyAtOnce "steady-at-once" in "core/node/member/contact.rs",
        Test("node::member::contact::tests::new_leader_counts_on_older_links");
    /// A removed member lets its disk be deleted while the others may still need its vote.
    PartsAtOnce "parts-at-once" in "core/node/member/mod.rs",
        Test("node::tests::rules::removed_follower_helps_for_a_timeout");
    /// A member believes the first one that reports its removal.
    OneEndsAMember "one-ends-a-member" in "core/node/removal.rs",
        Test("node::tests::strangers::one_report_removes_no_member");
    /// A server that is no member has its proposals carried out.
    StrangersPropose "strangers-propose" in "core/node/member/messages.rs",
        Test("node::tests::strangers::strangers_cannot_propose_or_depose");
    /// The operator believes an unsigned answer.
    UnsignedBelieved "unsigned-believed" in "server/operator_api/signed.rs",
        Test("server::operator_api::signed::tests::servers_without_the_key_are_rejected");
    /// A call is carried out by whoever it reaches.
    AnyRecipient "any-recipient" in "server/operator_api/auth.rs",
        Test("server::operator_api::auth::tests::captured_call_is_useless_elsewhere");
    /// A removal is not followed by an entry that makes its commit known for good.
    RemovalUnconfirmed "removal-unconfirmed" in "core/raft/membership.rs",
        Test("raft::tests::script::scripts_give_their_golden_traces");
    /// What is parked for another member is handed back, and kept as well.
    ProposeTwice "propose-twice" in "core/node/member/proposals.rs",
        Test("node::member::proposals::tests::waiting_proposals_are_bounded");
    /// A proposal that was committed under an earlier leader is taken for dead and made again.
    DeadByTerm "committed-taken-for-dead" in "core/node/member/proposals.rs",
        Sim(&[REFUSALS]);
    /// A proposal of unknown fate is taken for dead and proposed again.
    RepeatUnknown "repeat-unknown" in "core/node/member/proposals.rs",
        Test("node::member::proposals::tests::checkpoint_past_a_proposal_proves_nothing");
    /// A checkpoint over the term of a forward is taken for proof that the proposal was not committed.
    RepeatJumped "repeat-jumped" in "core/node/member/proposals.rs",
        Test("node::tests::forwarding::checkpoint_over_it_proves_nothing");
    /// The outcome of an earlier forward of a proposal counts for the present one.
    AnyOutcome "any-outcome" in "core/node/member/proposals.rs",
        Test("node::tests::forwarding::outcome_of_an_earlier_forward_is_void");
    /// The member learns that its removal or promotion was applied only when that is answered.
    HeldUnreported "held-unreported" in "core/node/state_machine.rs",
        Test("node::tests::forwarding::change_that_waits_to_be_settled_is_not_repeated");
    /// A forward that was not sent is reported without its term, as if it were another one.
    UnsentInNoTerm "unsent-in-no-term" in "core/node/peer.rs",
        Test("node::tests::forwarding::unsent_forward_is_made_again");
    /// Nobody tells the origin of a parked proposal that it could not be passed on.
    ParkedUntold "parked-untold" in "core/node/member/proposing.rs",
        Test("node::tests::forwarding::parked_plain_forward_that_is_not_sent_returns_to_its_origin");
    /// What was forwarded to the leader of a term is appended by whoever leads when it arrives.
    ForwardInAnyTerm "forward-in-any-term" in "core/node/member/proposing.rs",
        Test("node::tests::forwarding::refused_in_another_term");
    /// A forwarded proposal is made again when another member leads, before that one's first entry is applied.
    RepeatUnapplied "repeat-unapplied" in "core/node/member/mod.rs",
        Sim(&[REFUSALS]);
    /// A proposal that was withdrawn stays in the queue, and is made once somebody leads.
    WithdrawnStays "withdrawn-stays" in "core/node/member/proposals.rs",
        Sim(&[REFUSALS]);
    /// A proposal of unknown fate is answered as if it were known to be in no log.
    UnknownRefused "unknown-fate-refused" in "core/node/member/proposals.rs",
        Sim(&[REFUSALS]);
    /// A new leader gives leases less than their time.
    LeaseEarly "lease-early" in "core/node/lessor.rs",
        Sim(&[LEASES]);
    /// The end of a lease that a deposed leader proposed counts.
    LeaseOldTerm "lease-end-of-old-term" in "core/store/state_machine.rs",
        Test("store::tests::rules::expiry_of_another_term_is_ignored");
    /// A cluster that follows another one takes writes of its own.
    FollowerWrites "follower-writes" in "core/store/follow.rs",
        Test("store::tests::follow::clients_change_nothing_meanwhile");
    /// A followed revision is taken over whatever the keys were before it.
    FollowUnchecked "follow-unchecked" in "core/store/follow.rs",
        Test("store::tests::follow::nothing_is_left_out_and_nothing_is_guessed");
    /// A followed cluster is left before everything of it is there.
    FollowEndsEarly "follow-ends-early" in "core/store/follow.rs",
        Test("store::tests::follow::the_end_is_at_the_last_revision_of_a_closed_cluster");
    /// An attempt to leave a followed cluster that was given up ends the following.
    FollowAnyAttempt "follow-any-attempt" in "core/store/follow.rs",
        Test("store::tests::follow::only_the_last_attempt_ends_it");
    /// A standby takes the place of a lost cluster with less than was reviewed.
    FollowPromotesLess "follow-promotes-less" in "core/store/follow.rs",
        Test("store::tests::follow::a_lost_cluster_is_replaced_by_no_less_than_was_reviewed");
    /// A standby that takes the place of a lost cluster goes on at revisions that this one may have used.
    FollowPromotesAsItWas "follow-promotes-as-it-was" in "core/store/follow.rs",
        Test("store::tests::follow::a_lost_cluster_is_replaced_by_no_less_than_was_reviewed");
    /// A leader that was deposed answers renewals of leases.
    KeepaliveDeposed "keepalive-by-deposed" in "core/node/member/reading.rs",
        Test("node::tests::life::partitioned_leader_answers_no_reads");
    /// Who applies an entry decides what it does.
    MemberLeaks "member-leaks-into-apply" in "core/node/state_machine.rs",
        Sim(&[EQUAL, LINEAR]), like "etcd #14571";
    /// A checkpoint names an index below its state, so entries are applied twice after a restart.
    ApplyTwice "apply-twice" in "core/node/state_machine.rs",
        Sim(&[EQUAL, BY_ITSELF]);
    /// A checkpoint names an index above its state, so entries are skipped after a restart.
    IndexAhead "index-ahead-of-state" in "core/node/state_machine.rs",
        Sim(&[EQUAL, MACHINES, BY_ITSELF]), like "etcd #13766";
    /// A transaction with deletes alone leaves the revision where it is.
    DeleteKeepsRevision "delete-keeps-revision" in "core/store/txn.rs",
        Sim(&[REVISIONS, LINEAR, BY_ITSELF]);
    /// A compare of the version looks at another field.
    CompareWrongField "compare-wrong-field" in "core/store/txn.rs",
        Test("store::tests::random::store_equals_a_naive_model");
    /// A transaction that reads a compacted revision fails in its middle, half done.
    TxnHalfDone "txn-half-done" in "core/store/txn.rs",
        Test("store::tests::rules::refused_txn_changes_nothing"), like "etcd #18667";
    /// A compaction takes the version of a live key that readers above it still see.
    CompactionTakesLive "compaction-takes-live" in "core/store/state.rs",
        Test("store::tests::random::store_equals_a_naive_model");
    /// A change below a node of the tree leaves its number of living keys as it was.
    TreeCountOff "tree-count-off" in "core/store/tree/node.rs",
        Test("store::tests::tree::tree_equals_a_sorted_map");
    /// A key is searched in a node of the tree as if it had the prefix of those that are there.
    TreePrefixIgnored "tree-prefix-ignored" in "core/store/tree/heads.rs",
        Test("store::tests::tree::tree_equals_a_sorted_map");
    /// A restored state takes the revision of its newest row, not of its compaction.
    RevisionFromRows "revision-from-rows" in "core/store/rows.rs",
        Test("store::tests::rows::compacting_deleted_keys_keeps_the_revision"), like "etcd #17780";
    /// A snapshot leaves out the leases.
    SnapshotNoLeases "snapshot-without-leases" in "core/store/checkpoint.rs",
        Sim(&[BY_ITSELF, EQUAL]);
    /// A snapshot leaves out which keys hang on which lease.
    SnapshotNoAttachments "snapshot-without-attachments" in "core/store/checkpoint.rs",
        Sim(&[EQUAL, LEASES, LINEAR]);
    /// A snapshot leaves out users and roles.
    SnapshotNoAuth "snapshot-without-auth" in "core/store/checkpoint.rs",
        Test("store::tests::auth::checkpoint_holds_users_and_roles"), like "etcd #14571";
    /// A write that was allowed under older rights is carried out.
    AuthOldRevision "auth-revision-unchecked" in "core/store/auth/permit.rs",
        Test("store::tests::auth::writes_are_checked_when_they_are_applied");
    /// Transactions inside of transactions are not looked into.
    NestedTxnUnchecked "nested-txn-unchecked" in "core/store/auth/permit.rs",
        Test("store::tests::auth::nested_transactions_are_authorized"), like "CVE-2026-33343";
    /// A put shows the value before it, and takes a lease, without the right to.
    PutRightsUnchecked "put-rights-unchecked" in "core/store/auth/permit.rs",
        Test("store::tests::auth::previous_values_need_the_right_to_read"), like "CVE-2026-44283";
    /// A span without an end is allowed by a permission that has one.
    OpenEndedSpan "open-ended-span" in "core/store/auth/ranges.rs",
        Test("store::tests::auth::open_range_needs_an_open_permission"), like "GHSA-xg4h-6gfc-h4m8";
    /// A watcher that needs what was compacted goes on as if it were there.
    WatchLostByCompaction "watch-lost-by-compaction" in "core/store/watch.rs",
        Test("store::tests::watching::watcher_at_the_compacted_revision");
    /// A delete at the compacted revision itself is not shown to who starts there.
    DeleteAtCompaction "delete-lost-at-compaction" in "core/store/watch.rs",
        Test("store::tests::watching::watcher_at_the_compacted_revision"), like "etcd #18089, #19179";
    /// A resumed watcher misses the first revision.
    WatchSkips "watch-skips-first" in "core/store/watch.rs",
        Sim(&[WATCHES]);
    /// A resumed watcher goes back by a revision.
    WatchGoesBack "watch-goes-back" in "core/store/watch.rs",
        Sim(&[WATCHES]), like "etcd #15271";
    /// A slice of history ends in the middle of a revision.
    WatchSplits "watch-splits-revision" in "core/store/watch.rs",
        Sim(&[WATCHES]);
    /// A watcher that was too slow for an event never sees it.
    StarvedLoses "starved-watcher-loses" in "core/store/watch.rs",
        Sim(&[WATCHES]), like "etcd #17529";
    /// A watcher of the future is shown what comes before its start.
    FutureIgnored "future-start-ignored" in "core/store/watch.rs",
        Test("store::tests::watching::future_watchers_wait_in_step"), like "etcd #20221";
    /// Progress is promised while events are still to come.
    ProgressAhead "progress-ahead" in "core/store/watch.rs",
        Test("store::tests::random::store_equals_a_naive_model"), like "etcd #15220";
    /// The key before an event is the key after it.
    WrongPrevKv "wrong-prev-kv" in "core/store/state.rs",
        Sim(&[WATCHES]);
    /// The filters of a watcher count for nothing.
    FilterIgnored "filter-ignored" in "core/store/watch_index.rs",
        Sim(&[WATCHES]);
    /// A stream with a watcher of a key that changed is not told.
    StreamNotWoken "stream-not-woken" in "core/store/watched.rs",
        Test("store::tests::watched::streams_that_are_told_see_all_that_is_theirs");
    /// What is published while a watcher is being created was matched without it, and it never looks.
    LateWatcherMisses "late-watcher-misses" in "core/store/watched.rs",
        Test("store::tests::watched::watcher_is_told_what_was_published_before_it_was_added");
    /// A stream that looks at a view forgets what it was told of the next one.
    NewsForgotten "news-forgotten" in "core/store/watched.rs",
        Test("store::tests::watched::news_beyond_a_view_stay");
    /// A failed sync of the log is passed over.
    FsyncIgnored "fsync-error-ignored" in "core/disk/log/mod.rs",
        Test("disk::log::tests::failed_sync_is_final_until_a_restart");
    /// A record is taken whatever its checksum.
    BadChecksum "bad-checksum-accepted" in "core/disk/log/batch.rs",
        Test("disk::log::tests::flipped_bits_are_refused");
    /// A torn tail is not recognised as one.
    TornTail "torn-tail-ignored" in "core/disk/log/scan.rs",
        Sim(&[BY_ITSELF]);
    /// A segment is dropped whose last entry is still needed.
    DropTooMuch "drop-too-much" in "core/disk/log/mod.rs",
        Test("disk::log::tests::dropped_segments_are_gone");
    /// The machine goes on although the checkpoint that is being written is far behind it.
    CheckpointOutrun "checkpoint-outrun" in "core/node/member/retention.rs",
        Test("node::tests::life::machine_waits_for_its_checkpoint");
    /// The log is dropped up to the newest checkpoint, so that the older one is of no use.
    DropsOlderLog "drops-older-log" in "core/node/member/retention.rs",
        Test("node::member::retention::tests::log_since_the_older_checkpoint_stays");
    /// A segment gets its name before it is synced.
    SegmentUnsynced "segment-unsynced" in "core/disk/log/segment.rs",
        Sim(&["durability", BY_ITSELF]);
    /// The name of a segment is not synced.
    NameUnsynced "segment-name-unsynced" in "core/disk/log/segment.rs",
        Sim(&["durability", BY_ITSELF]);
    /// A frame of a checkpoint is taken whatever its checksum.
    CheckpointRot "checkpoint-rot-accepted" in "core/disk/checkpoint/reader.rs",
        Test("disk::checkpoint::tests::every_flipped_bit_is_detected");
    /// A damaged checkpoint is passed over where the log does not make up for it.
    DamagePassedOver "damage-passed-over" in "core/disk/checkpoint/mod.rs",
        Test("disk::checkpoint::tests::damaged_newest_checkpoint_needs_the_log");
    /// A checkpoint gets its name before it is synced.
    RenameBeforeSync "rename-before-sync" in "core/disk/checkpoint/writer.rs",
        Test("disk::checkpoint::tests::crash_leaves_a_whole_checkpoint_or_none");
    /// A value of a file is taken whatever its checksum.
    ValueRot "value-rot-accepted" in "core/disk/values/reader.rs",
        Test("disk::values::tests::every_flipped_bit_is_detected");
    /// A checkpoint names a file of values that is not synced.
    ValuesUnsynced "values-unsynced" in "core/disk/values/writer.rs",
        Test("disk::values::tests::finished_file_survives_a_crash");
    /// The values that only the older checkpoint needs are removed.
    ValuesOfOlderDropped "values-of-older-dropped" in "core/disk/checkpoint/mod.rs",
        Test("persist::tests::older_checkpoint_keeps_its_values");
    /// A sender leaves the places of its values in what it sends.
    PlacesSent "places-sent" in "core/persist/send.rs",
        Test("persist::tests::stream_is_that_of_a_member_without_files");
    /// A new leader's deadlines of leases are those of what it had applied when it was elected.
    LeasesOfLag "leases-of-lag" in "core/node/member/mod.rs",
        Test("node::tests::life::lease_renewed_before_an_election_lasts");
    /// A damaged value is healed with that of another revision.
    HealsWithAnother "heals-with-another" in "core/store/heal.rs",
        Test("store::tests::values::value_is_healed_by_its_own_revision_alone");
    /// A damaged value is healed with bytes that its checksum does not prove.
    HealsUnproven "heals-unproven" in "core/store/value.rs",
        Test("store::tests::values::value_is_healed_by_the_bytes_that_were_written_alone");
    /// A healed value is taken for a copy of a packed revision, and the revision stays damaged.
    PackedNotHealed "packed-not-healed" in "core/store/heal.rs",
        Test("store::tests::packed::packed_value_is_healed_and_moved");
    /// A checkpoint does not name the files that are named only by packed revisions.
    PackedFileUnnamed "packed-file-unnamed" in "core/store/moves.rs",
        Test("store::tests::packed::packed_store_is_as_one_that_is_not");
    /// A checkpoint that is made of the one before has a value where it was before it moved.
    MergedStale "merged-stale" in "core/store/merge.rs",
        Test("store::tests::packed::packed_store_is_as_one_that_is_not");
    /// A checkpoint that is made of the one before has revisions that compaction has forgotten.
    MergedForgotten "merged-forgotten" in "core/store/merged_rows.rs",
        Test("persist::tests::merged::checkpoint_made_of_the_one_before_is_as_one_of_the_state_alone");
    /// A checkpoint is made of the one before although the log of revisions does not reach back to it.
    MergedWithoutLog "merged-without-log" in "core/store/changes.rs",
        Test("persist::tests::merged::checkpoint_made_of_the_one_before_is_as_one_of_the_state_alone");
    /// The rows of a checkpoint that is made of the one before need not add up to the state.
    MergedUnproven "merged-unproven" in "core/store/merged_rows.rs",
        Test("store::tests::merged::checkpoint_of_another_state_is_found_out");
    /// Values that compaction has forgotten are written to files.
    MovesForgotten "moves-forgotten" in "core/store/changes.rs",
        Test("store::tests::merged::forgotten_values_do_not_move");
    /// A checkpoint is made of the one before although a value was healed since.
    HealedNotTold "healed-not-told" in "core/store/heal.rs",
        Test("persist::tests::merged::healed_value_is_not_where_the_last_checkpoint_has_it");
    /// A value is healed where its revision was held when it was asked for, and not where it is now.
    HealedWhereItWas "healed-where-it-was" in "core/store/heal.rs",
        Test("store::tests::packed::value_is_healed_that_was_packed_since_it_was_asked_for");
    /// Two rows of a checkpoint are at one place of the history, and one is taken for the other.
    TwoAtOnePlace "two-at-one-place" in "core/store/recents.rs",
        Test("store::tests::maintenance::checkpoint_with_two_rows_at_one_place_is_refused");
    /// A packed revision loses its lease.
    PackedLeaseLost "packed-lease-lost" in "core/store/unkeyed.rs",
        Test("store::tests::packed::packed_store_is_as_one_that_is_not");
    /// A packed revision is taken for its neighbour in the block.
    PackedRowOff "packed-row-off" in "core/store/chunk.rs",
        Test("store::tests::packed::packed_store_is_as_one_that_is_not");
    /// A revision that a compaction kept is lost once a later one is there and it leaves the log.
    KeptRevisionLost "kept-revision-lost" in "core/store/history.rs",
        Test("store::tests::packed::packed_store_is_as_one_that_is_not");
    /// A checkpoint that empties a worn file fails at a damaged value.
    DamageEndsCheckpoint "damage-ends-checkpoint" in "core/store/moves.rs",
        Test("persist::tests::checkpoint_leaves_a_damaged_value_where_it_is");
    /// What a transaction wrote stays when it then meets a damaged value.
    HalfDoneStays "half-done-stays" in "core/store/txn.rs",
        Test("persist::tests::transaction_that_meets_a_damaged_value_is_applied_again");
    /// No checkpoint is written again while nothing is applied.
    RenewsNewer "renews-newer" in "core/node/member/mod.rs",
        Test("node::tests::life::checkpoint_is_taken_again_at_its_index");
    /// A checkpoint that began before a value was healed is taken for one that has it.
    HealedTooEarly "healed-too-early" in "server/maintenance/healing.rs",
        Test("server::maintenance::healing::tests::healed_values_wait_for_a_checkpoint");
    /// A follower's word confirms its leader, however many members there are.
    AnyWordIsEnough "any-word-is-enough" in "core/raft/read_index.rs",
        Test("raft::tests::script::scripts_give_their_golden_traces");
    /// All are asked again whenever a message to any member is lost.
    LostAsksAgain "lost-asks-again" in "core/raft/read_only.rs",
        Test("raft::tests::script::scripts_give_their_golden_traces");
    /// Whoever is asked first to confirm a leader is waited for until a tick.
    AskedTooLong "asked-too-long" in "core/node/member/read_rounds.rs",
        Test("node::tests::life::read_does_not_wait_for_a_member_that_hangs");
    /// What is applied at once overtakes what is queued.
    OvertakesQueue "overtakes-queue" in "server/core/turns.rs",
        Test("server::core::turns::tests::what_is_queued_comes_first");
    /// What reads a value counts as short: consensus, and whoever reads another key, waits for a disk.
    ShortReadsValues "short-reads-values" in "server/core/short.rs",
        Test("server::core::short::tests::what_reads_a_value_is_not");
    /// A damaged place is forgotten when the file is closed that has it.
    DamageClosed "damage-closed" in "core/disk/values/known.rs",
        Test("persist::tests::damage_that_only_a_checkpoint_names_is_known");
    /// The oracle of elections sees nothing.
    BlindElections "blind-elections" in "core/sim/oracles/election.rs",
        Test("sim::oracles::election::tests::detects_two_leaders_in_one_term");
    /// The oracle of votes lets a member vote twice.
    BlindVoteTwice "blind-vote-twice" in "core/sim/oracles/votes.rs",
        Test("sim::oracles::votes::tests::detects_double_votes_and_lower_terms");
    /// The oracle of votes lets a restarted member forget.
    BlindForgottenVote "blind-forgotten-vote" in "core/sim/oracles/votes.rs",
        Test("sim::oracles::votes::tests::detects_a_vote_lost_by_a_restart");
    /// The oracle of votes lets one be sent before it is durable.
    BlindVoteDurable "blind-vote-durable" in "core/sim/oracles/votes.rs",
        Test("sim::oracles::votes::tests::detects_votes_before_durability");
    /// The oracle of votes does not count them.
    BlindVoteQuorum "blind-vote-quorum" in "core/sim/oracles/votes.rs",
        Test("sim::oracles::votes::tests::detects_a_leader_elected_by_a_learner");
    /// The oracle of logs takes another entry for the same.
    BlindLogMatching "blind-log-matching" in "core/sim/oracles/log.rs",
        Test("sim::oracles::log::tests::detects_two_entries_at_one_place");
    /// The oracle of logs does not look at what came before an entry.
    BlindPredecessor "blind-predecessor" in "core/sim/oracles/log.rs",
        Test("sim::oracles::log::tests::detects_same_entry_after_different_prefix");
    /// The oracle of logs does not miss what a crash took.
    BlindDurability "blind-durability" in "core/sim/oracles/log.rs",
        Test("sim::oracles::log::tests::detects_changed_log_after_a_restart");
    /// The oracle of logs believes every acknowledgement.
    BlindAcknowledged "blind-acknowledged" in "core/sim/oracles/log.rs",
        Test("sim::oracles::log::tests::detects_acks_before_durability");
    /// The oracle of commits takes half of the voters for a quorum.
    BlindQuorum "blind-quorum" in "core/sim/oracles/commit.rs",
        Test("sim::oracles::commit::tests::half_of_the_voters_commit_nothing");
    /// The oracle of commits does not compare terms at an applied index.
    BlindApplied "blind-applied" in "core/sim/oracles/commit.rs",
        Test("sim::oracles::commit::tests::detects_term_conflict_and_incomplete_leader");
    /// The oracle of commits lets a leader lead without what is committed.
    BlindCompleteness "blind-completeness" in "core/sim/oracles/commit.rs",
        Test("sim::oracles::commit::tests::detects_term_conflict_and_incomplete_leader");
    /// The oracle of commits takes what was committed for committed in a later term.
    BlindCommitTerm "blind-commit-term" in "core/sim/oracles/commit.rs",
        Test("sim::oracles::commit::tests::leader_holds_what_was_committed_before_its_term");
    /// The oracle of commits lets what nobody has committed be applied.
    BlindUncommitted "blind-uncommitted" in "core/sim/oracles/commit.rs",
        Test("sim::oracles::commit::tests::nothing_is_applied_that_nobody_has_committed");
    /// The oracle of states takes all states for equal.
    BlindStates "blind-states" in "core/sim/oracles/state.rs",
        Test("sim::oracles::state::tests::detects_different_states_at_one_index");
    /// The oracle of states takes all reported hashes for equal.
    BlindHashes "blind-hashes" in "core/sim/oracles/state.rs",
        Test("sim::oracles::state::tests::detects_different_hashes_at_one_revision");
    /// The oracle of revisions lets them jump and go back.
    BlindRevisions "blind-revisions" in "core/sim/oracles/history.rs",
        Test("sim::oracles::history::tests::detects_gaps_and_wrong_versions");
    /// The oracle of revisions does not look at versions.
    BlindVersions "blind-versions" in "core/sim/oracles/history.rs",
        Test("sim::oracles::history::tests::detects_gaps_and_wrong_versions");
    /// The oracle of reads lets a stale one pass.
    BlindStaleRead "blind-stale-read" in "core/sim/oracles/linear.rs",
        Test("sim::oracles::linear::tests::detects_stale_reads_and_wrong_values");
    /// The oracle of reads does not compare values.
    BlindValue "blind-value" in "core/sim/oracles/linear.rs",
        Test("sim::oracles::linear::tests::detects_stale_reads_and_wrong_values");
    /// The oracle of writes believes every answer.
    BlindLostWrite "blind-lost-write" in "core/sim/oracles/linear.rs",
        Test("sim::oracles::linear::tests::detects_lost_late_and_wrong_writes");
    /// The oracle of writes lets one stand before what it followed.
    BlindOrder "blind-order" in "core/sim/oracles/linear.rs",
        Test("sim::oracles::linear::tests::deletes_are_checked_by_the_model");
    /// The oracle of writes lets one be there twice.
    BlindTwice "blind-twice" in "core/sim/oracles/linear.rs",
        Test("sim::oracles::linear::tests::detects_duplicate_and_refused_writes");
    /// The oracle of writes lets a refused one be there.
    BlindRefused "blind-refused" in "core/sim/oracles/linear.rs",
        Test("sim::oracles::linear::tests::detects_duplicate_and_refused_writes");
    /// The oracle of refusals does not remember who was refused.
    BlindRefusals "blind-refusals" in "core/sim/oracles/refusals.rs",
        Test("sim::oracles::refusals::tests::detects_refused_but_applied_writes");
    /// The oracle of refusals does not remember what was applied.
    BlindLateRefusal "blind-late-refusal" in "core/sim/oracles/refusals.rs",
        Test("sim::oracles::refusals::tests::detects_applied_then_refused");
    /// The oracle of refusals lets a proposal be applied twice.
    BlindAppliedTwice "blind-applied-twice" in "core/sim/oracles/refusals.rs",
        Test("sim::oracles::refusals::tests::detects_proposals_applied_twice");
    /// The oracle of leases takes any end for due.
    BlindLeases "blind-leases" in "core/sim/oracles/leases.rs",
        Test("sim::oracles::leases::tests::detects_early_lease_end_with_late_answer");
    /// The oracle of leases forgets an end when a renewal is answered later.
    BlindLateRenewal "blind-late-renewal" in "core/sim/oracles/leases.rs",
        Test("sim::oracles::leases::tests::detects_early_lease_end_with_late_answer");
    /// The oracle of rights takes everything for right.
    BlindRights "blind-rights" in "core/sim/oracles/rights.rs",
        Test("sim::oracles::rights::tests::detects_wrong_permission_decisions");
    /// The oracle of rights does not look at the auth revision.
    BlindAuthRevision "blind-auth-revision" in "core/sim/oracles/rights.rs",
        Test("sim::oracles::rights::tests::detects_an_unchanged_auth_revision");
    /// The oracle of watches does not compare what is shown with what came next.
    BlindWatchOrder "blind-watch-order" in "core/sim/oracles/watched.rs",
        Test("sim::oracles::watched::tests::detects_gaps_repeats_and_reordering");
    /// The oracle of watches lets a revision be split.
    BlindAtomic "blind-atomic" in "core/sim/oracles/watched.rs",
        Test("sim::oracles::watched::tests::detects_a_revision_split_over_responses");
    /// The oracle of watches does not remember progress answers.
    BlindBookmark "blind-bookmark" in "core/sim/oracles/watched.rs",
        Test("sim::oracles::watched::tests::detects_events_behind_progress");
    /// The oracle of watches does not know of filters.
    BlindFilter "blind-filter" in "core/sim/oracles/watched.rs",
        Test("sim::oracles::watched::tests::detects_filter_mistakes");
    /// The oracle of watches does not look at the key before.
    BlindPrevKv "blind-prev-kv" in "core/sim/oracles/watched.rs",
        Test("sim::oracles::watched::tests::detects_a_missing_or_wrong_prev_kv");
    /// The oracle of watches does not miss what was never shown.
    BlindMissing "blind-missing" in "core/sim/oracles/watched.rs",
        Test("sim::oracles::watched::tests::detects_missed_watch_events");
    /// The oracle of watches believes any cancellation by a compaction.
    BlindCompaction "blind-compaction" in "core/sim/oracles/watched.rs",
        Test("sim::oracles::watched::tests::detects_missed_watch_events");
    /// The oracle of roles lets learners lead.
    BlindLearnerLeads "blind-learner-leads" in "core/sim/oracles/roles.rs",
        Test("sim::oracles::roles::tests::detects_a_leader_that_never_was_a_voter");
    /// The oracle of roles lets removed leaders go on.
    BlindRemovedLeads "blind-removed-leads" in "core/sim/oracles/roles.rs",
        Test("sim::oracles::roles::tests::detects_a_removed_leader_that_stays");
    /// The oracle of roles lets learners be promoted with an empty log.
    BlindPromotion "blind-promotion" in "core/sim/oracles/roles.rs",
        Test("sim::oracles::roles::tests::detects_promotion_of_a_lagging_learner");
    /// A plan is not made a second time from live objects.
    LintOff "lint-off" in "planner/plan/lint.rs",
        Test("plan::tests::lints::only_dead_or_surplus_voters_are_removed");
    /// A member is added while a voter is down.
    AddBesideDead "adds-beside-the-dead" in "planner/plan/guards.rs",
        Operator("five-and-one-down", &["I5"]);
    /// A second learner is added beside the first.
    TwoLearners "adds-two-learners" in "planner/plan/guards.rs",
        Operator("grow-and-shrink", &["I2"]);
    /// A member is removed although it leads and serves: no hand-over.
    NoHandOver "no-hand-over" in "planner/plan/rules/hand_over.rs",
        Operator("leader-replaced", &[STORY, "I13"]);
    /// A changed spec restarts members while one is down.
    RollBesideSick "rolls-beside-the-sick" in "planner/plan/rules/roll.rs",
        Operator("sick-while-rolled", &["I3"]);
    /// A changed spec restarts all members at once.
    RollAtOnce "rolls-at-once" in "planner/plan/rules/roll.rs",
        Operator("template-rolled", &["I3", "I13"]);
    /// A changed spec restarts no member.
    RollForgotten "roll-forgotten" in "planner/plan/rules/mod.rs",
        Operator("template-rolled", &["I10"]);
    /// A pod that cannot start stays, however the spec is corrected.
    StuckForGood "stuck-for-good" in "planner/plan/rules/unhealthy.rs",
        Operator("bad-image", &["I10"]);
    /// A spec that fails on one voter is given to every other one that has a moment of trouble.
    TriedByAll "tried-by-all" in "planner/plan/rules/trial.rs",
        Operator("bad-image-and-more", &[STORY]);
    /// A specification that cannot be recorded is carried out all the same.
    UnrecordedCarriedOut "unrecorded-carried-out" in "operator/reconcile.rs",
        Operator("spec-not-recorded", &["I4"]);
    /// A voter too many is removed.
    OneTooMany "removes-one-too-many" in "planner/plan/rules/shrink.rs",
        Operator("create-3", &["I4"]);
    /// A member that is to be replaced leaves before its successor is there.
    ReplacedFirst "replaced-first" in "planner/plan/rules/shrink.rs",
        Operator("slow-newcomers", &["I4"]);
    /// A voter on a node that does not report is dead.
    NotReadyIsDeath "notready-is-death" in "planner/plan/evidence.rs",
        Operator("node-reboots", &["I4"]);
    /// A pod that was asked to end and does not is waited for without end.
    HangsForGood "hangs-for-good" in "planner/plan/evidence.rs",
        Test("plan::tests::golden::faults::a_pod_that_does_not_end");
    /// A voter whose pod was deleted a moment ago is dead, however new the next one will be.
    PodlessIsDeath "podless-is-death" in "planner/plan/evidence.rs",
        Test("plan::tests::golden::growth::corrected_spec_gives_time_for_a_pod");
    /// A voter whose node goes away is removed before another one comes, whatever was asked for.
    RemoveFirstUnasked "removes-first-unasked" in "planner/plan/nodes.rs",
        Operator("cordon-alone", &["I4"]);
    /// The volume of a removed voter goes before its successor votes.
    VolumeBeforeSuccessor "volume-before-successor" in "planner/plan/situation.rs",
        Operator("disk-empty", &["I12"]);
    /// Without its identity's Secret a cluster that serves counts as lost.
    IdentityForgotten "identity-forgotten" in "planner/plan/rules/identity.rs",
        Operator("identity-deleted", &["I10"]);
    /// A retired voter goes before its pod was seen unready.
    UnreadyUnseen "unready-unseen" in "planner/plan/rules/hand_over.rs",
        Test("plan::tests::golden::nodes::retired_member_stays_until_unready");
    /// No specification is kept, so a refused one stops everything.
    AdmittedForgotten "admitted-forgotten" in "planner/plan/rules/admitted.rs",
        Operator("refused-and-healed", &[STORY]);
    /// A voter for whose pod no node has room is replaced by one for which none has either.
    RoomForgotten "room-forgotten" in "planner/plan/evidence.rs",
        Test("plan::tests::golden::faults::a_voter_that_no_node_has_room_for");
    /// A member is restarted with a template that selects no node that its volume can be used on.
    ZoneForgotten "zone-forgotten" in "planner/plan/volumes.rs",
        Test("plan::tests::golden::volumes::another_zone_replaces_members");
    /// Volumes become smaller whether or not the data have room on them.
    ShrunkUnmeasured "shrunk-unmeasured" in "planner/plan/volumes.rs",
        Test("plan::tests::golden::volumes::data_that_do_not_fit_keep_their_volumes");
    /// A voter whose disk hangs counts as one that serves.
    HungDiskCounts "hung-disk-counts" in "planner/plan/evidence.rs",
        Test("plan::tests::golden::faults::a_voter_whose_disk_hangs_does_not_count");
    /// A voter whose disk a newer version wrote is dead.
    TooNewIsDeath "too-new-is-death" in "planner/plan/evidence.rs",
        Test("plan::tests::golden::faults::a_disk_of_a_newer_version_is_kept");
    /// A disk is its member's whatever start of it was seen before.
    OlderStartAdmitted "older-start-admitted" in "core/disk/starts.rs",
        Test("disk::starts::tests::rolled_back_disk_lacks_the_seen_start");
    /// NOSPACE is switched off although a member is still full.
    DisarmedWhileFull "disarmed-while-full" in "planner/plan/space.rs",
        Operator("nospace-freed", &["I14"]);
    /// CORRUPT is switched off although the members' data was not seen to be equal.
    DisarmedUnequal "disarmed-unequal" in "planner/plan/alarms.rs",
        Operator("corrupt-minority", &["I14"]);
    /// A voter is removed for its data on one comparison.
    ComparedOnce "compared-once" in "planner/plan/alarms.rs",
        Operator("corrupt-for-a-moment", &["I4"]);
    /// A leader that CORRUPT names gives its data to those who join, and they vote.
    GivenByTheNamed "given-by-the-named" in "planner/plan/alarms.rs",
        Test("plan::tests::golden::alarms::a_learner_with_wrong_data_never_votes");
    /// The volume of a member that left while CORRUPT named it is deleted.
    NamedVolumeDeleted "named-volume-deleted" in "planner/plan/alarms.rs",
        Operator("corrupt-minority", &["I14"]);
    /// A voter that does not answer the operator is dead.
    SilenceIsDeath "silence-is-death" in "planner/plan/evidence.rs",
        Operator("one-unseen", &["I4"]);
    /// A cluster is formed anew when no member answers.
    FormsAgain "forms-again" in "planner/plan/situation.rs",
        Operator("disks-all-empty", &["I6"]);
    /// A cluster that is to be restored is formed before its data have arrived.
    RestoreSkipped "restore-skipped" in "planner/plan/rules/restore.rs",
        Operator("restore-late", &["I15"]);
    /// A cluster that has lost its quorum goes on while its former members run.
    RecoveryUnfenced "recovery-unfenced" in "planner/plan/rules/recovery.rs",
        Operator("quorum-recovered-node", &["I16"]);
    /// A verification that finds a backup damaged counts as one that succeeds.
    DamageUnread "damage-unread" in "planner/backup_plan/backup.rs",
        Operator("backup-damaged", &["I18"]);
    /// A second Job of a backup begins while the first one runs.
    SavedAtOnce "saved-at-once" in "planner/backup_plan/backup.rs",
        Operator("backup-member-lost", &["I21"]);
    /// A backup that was refused once is given up, and nobody says why.
    FailsInSilence "fails-in-silence" in "planner/backup_plan/backup.rs",
        Operator("backup-credentials", &[STORY]);
    /// After a retention the resources of what it kept are deleted.
    KeptForgotten "kept-forgotten" in "planner/backup_plan/schedule.rs",
        Operator("backup-schedule", &["I19"]);
    /// What was restored is restored once more, over the cluster that was formed from it.
    RestoredAgain "restored-again" in "planner/backup_plan/restore.rs",
        Operator("backup-restored", &["I20"]);
    /// A cluster is deleted while its last backup waits for its store.
    LastBackupSkipped "last-backup-skipped" in "planner/backup_plan/deletion.rs",
        Operator("backup-before-deletion", &[STORY]);
    /// What members leave behind stays.
    LeftoversForgotten "leftovers-forgotten" in "planner/plan/rules/mod.rs",
        Operator("grow-and-shrink", &["I10"]);
    /// A set that somebody deleted is not made again.
    SetForgotten "set-forgotten" in "planner/plan/rules/mod.rs",
        Operator("set-deleted", &[STORY]);
    /// Slots lead to no member.
    SlotsForgotten "slots-forgotten" in "planner/plan/rules/mod.rs",
        Operator("create-3", &["I10"]);
    /// Volumes never grow.
    VolumesForgotten "volumes-forgotten" in "planner/plan/rules/mod.rs",
        Operator("volume-grows", &[STORY]);
    /// A pause changes nothing.
    PauseIgnored "pause-ignored" in "planner/plan/rules/mod.rs",
        Operator("paused", &[STORY]);
    /// Another authority signs before everybody trusts it, and the one before is forgotten while it is in use.
    SwitchUntrusted "switches-before-trust" in "planner/plan/rules/rotate.rs",
        Operator("tls-rotated", &[STORY]);
    /// Members are dialled with TLS before they speak it.
    PlainEndsEarly "plain-ends-early" in "planner/plan/rules/enable_tls.rs",
        Operator("tls-switched-on", &[STORY]);
    /// Every certificate of a port is exchanged at once.
    RenewedAtOnce "renewed-at-once" in "planner/plan/rules/certificates.rs",
        Test("plan::tests::golden::tls::certificates_renew_one_at_a_time");
    /// A set is applied although a Secret is missing that its pod mounts.
    SetBeforeSecrets "set-before-secrets" in "planner/plan/rules/sets.rs",
        Test("plan::tests::golden::tls_missing::newcomers_wait_for_a_new_authority");
    /// A member whose Secret is gone is waited for to trust an authority, which only that Secret could bring.
    MissingWaits "missing-waits" in "planner/plan/rules/certificates.rs",
        Test("plan::tests::golden::tls_missing::all_secrets_deleted");
    /// A certificate that does not fit is as good as one that does.
    UnfitUsed "unfit-used" in "planner/plan/rules/user_certificates.rs",
        Operator("tls-secret-bad-then-good", &[STORY]);
    /// cert-manager is not asked before the certificate is there.
    IssueForgotten "issue-forgotten" in "planner/plan/rules/objects.rs",
        Operator("tls-cert-manager", &[STORY]);
    /// The leader goes to sleep first.
    LeaderSleepsFirst "leader-sleeps-first" in "planner/plan/rules/hibernate.rs",
        Test("plan::tests::golden::hibernate::hibernate_and_resume");
    /// `replicas: 0` is no reason to sleep.
    SleepForgotten "sleep-forgotten" in "planner/plan/rules/hibernate.rs",
        Operator("sleeps-and-wakes", &["I4"]);
    /// Any version may follow any other.
    VersionJump "version-jump" in "planner/plan/rules/version.rs",
        Operator("version-refused", &[STORY]);
    /// What an image is called counts, and not what its first server reports.
    VersionOnTrust "version-on-trust" in "planner/plan/rules/version.rs",
        Test("plan::tests::golden::version::image_contains_another_version_than_asked_for");
    /// A tag that was moved keeps lost members from being replaced.
    DriftStopsHealing "drift-stops-healing" in "planner/plan/rules/version.rs",
        Test("plan::tests::golden::version::a_tag_was_moved");
    /// An edit of a set is not seen once the operator has another image.
    EarlierImageHides "earlier-image-hides" in "operator/kubernetes/drift.rs",
        Test("operator::kubernetes::drift::tests::edits_are_seen_whatever_image_the_operator_has");
    /// Members are pulled by a tag of their version, whatever the operator's own image is.
    OwnImageForgotten "own-image-forgotten" in "planner/build/image.rs",
        Test("build::image::tests::members_of_the_operators_version_run_its_image");
    /// The operator's image, with its digest, is taken for that of any version.
    OneImageForAll "one-image-for-all" in "planner/build/image.rs",
        Test("build::image::tests::another_version_has_its_own_tag");
    /// The operator's Secrets are named for images of any repository.
    SecretsForAnyImage "secrets-for-any-image" in "planner/build/image.rs",
        Test("build::image::tests::secrets_follow_the_operators_image");
    /// A Service that Kubernetes refuses holds everything up.
    RefusedHolds "refused-holds-all" in "operator/reconcile.rs",
        Operator("service-refused", &[STORY]);
    /// A write that fails holds everything up.
    FailureHolds "failure-holds-all" in "operator/reconcile.rs",
        Operator("webhook-dead", &[STORY]);
    /// The status reports a quorum that was not observed.
    StatusFromMemory "status-from-memory" in "planner/plan/report/conditions.rs",
        Operator("quorum-lost", &["I8"]);
    /// The status changes in each reconcile.
    StatusTicks "status-ticks" in "planner/plan/report.rs",
        Test("plan::tests::calm::status_at_rest_does_not_change_with_time");
    /// A learner is promoted before the PDB counts with its vote.
    PromotedUnbudgeted "promoted-unbudgeted" in "planner/plan/guards.rs",
        Operator("pdb-grow-shrink", &["I11"]);
    /// The PDB is lowered while the pod of a removed member is still there.
    LoweredEarly "pdb-lowered-early" in "planner/plan/rules/pod_disruption_budget.rs",
        Operator("pdb-grow-shrink", &["I11"]);
    /// Under a PDB a pod that serves is deleted, and the PDB is not asked.
    DeletedUnasked "deleted-unasked" in "planner/plan/rules/pod_disruption_budget.rs",
        Operator("pdb-drain", &[STORY]);
    /// Members do what an operator asks that was overtaken by another.
    FenceIgnored "fence-ignored" in "core/node/membership.rs",
        Test("node::tests::rules::stale_fence_is_refused");
    /// Whoever has a cluster's labels is believed: pods, sets and PVCs count by their labels alone.
    LabelsBelieved "labels-believed" in "operator/kubernetes/ours.rs",
        Test("operator::kubernetes::ours::tests::a_pod_counts_only_as_its_set_made_it");
    /// What was denied for a moment stays hidden as long as the operator runs.
    DeniedForGood "denied-for-good" in "operator/kubernetes/cache.rs",
        Test("operator::kubernetes::cache::tests::what_was_denied_for_a_moment_is_shown_again");
    /// The pod's own arguments decide whether a member is dialled with TLS, whatever its set was made for.
    PodChoosesTls "pod-chooses-tls" in "operator/kubernetes/certificates.rs",
        Test("operator::kubernetes::certificates::tests::no_way_back_from_tls");
    /// An operator acts on although it could not renew its Lease.
    ActsWithoutLease "acts-without-lease" in "operator/kubernetes/lease.rs",
        Test("operator::kubernetes::lease::tests::lease_holder_ends_before_its_successor");
    /// A member goes while a Service still sends clients to it.
    RoutesUnseen "routes-unseen" in "planner/plan/rules/hand_over.rs",
        Operator("endpoints-late", &["I13"]);
    /// What an earlier release made is compared with nothing.
    EarlierUnseen "earlier-unseen" in "operator/kubernetes/drift.rs",
        Operator("upgraded-and-edited", &[STORY]);
    /// What somebody edits by hand stays as it is.
    EditsStay "edits-stay" in "operator/kubernetes/drift.rs",
        Test("operator::kubernetes::drift::tests::mutated_fields_are_kept_without_a_fight");
    /// An edit that was looked at right after an own write is looked at again in five minutes.
    EditsPassedOver "edits-passed-over" in "operator/kubernetes/drift.rs",
        Test("operator::kubernetes::drift::tests::edits_that_were_passed_over_are_looked_at_again");
    /// What changed while a watch was interrupted has no reconcile.
    ListUnheard "list-unheard" in "operator/kubernetes/indexed.rs",
        Test("operator::kubernetes::indexed::tests::second_list_tells_of_what_no_event_told");
    /// Certificates are verified in each Secret that has a cluster's label, whether it is one of ours or not.
    EveryCertificateVerified "every-certificate-verified" in "operator/kubernetes/certificates.rs",
        Test("operator::kubernetes::kept_secret::tests::only_certificates_of_clusters_are_verified");
    /// A Secret with any number of CAs is verified by each of them.
    AnyNumberOfAuthorities "any-number-of-authorities" in "operator/kubernetes/certificates.rs",
        Test("operator::kubernetes::kept_secret::tests::long_certificates_are_not_verified");
    /// The cache of Secrets keeps the texts of certificates and of their keys.
    CertificateKeysKept "certificate-keys-kept" in "operator/kubernetes/kept_secret.rs",
        Test("operator::kubernetes::kept_secret::tests::no_key_of_a_certificate_is_kept");
    /// What was read of a Secret's certificates counts for its next version.
    CertificatesReadOnce "certificates-read-once" in "operator/kubernetes/kept_secret.rs",
        Test("operator::kubernetes::kept_secret::tests::certificates_are_verified_once_a_version");
    /// A hash has to be done within the time of a usual request.
    HashInAHurry "hash-in-a-hurry" in "server/etcd/call.rs",
        Test("server::etcd::call::tests::a_hash_may_take_longer_than_a_request");
    /// A cluster whose quorum nobody has seen is said to tolerate so many failures.
    ToleranceUnseen "tolerance-unseen" in "operator/metrics/figures.rs",
        Test("operator::metrics::figures::tests::what_is_not_known_is_absent");
    /// Whatever PDB has a cluster's name says how many evictions it allows.
    AnyPdbCounts "any-pdb-counts" in "operator/kubernetes/scrape.rs",
        Test("operator::kubernetes::scrape::tests::only_the_own_counted_pdb_is_believed");
    /// Another leader is no change of a description.
    DigestWithoutLeader "digest-without-leader" in "server/operator_api/digest.rs",
        Test("server::operator_api::digest::tests::what_is_acted_on_counts");
    /// Free space that comes and goes is a change of a description.
    DigestOfSpace "digest-of-space" in "server/operator_api/digest.rs",
        Test("server::operator_api::digest::tests::space_does_not_count");
    /// A member that has changed is asked no more, and its cluster not reconciled.
    HeldEndsUnheard "held-ends-unheard" in "operator/held.rs",
        Operator("told-of-members", &[STORY]);
    /// An answer that comes after the session of TLS was given up tells of nothing.
    UnreadUnheard "unread-unheard" in "operator/held.rs",
        Test("operator::held::tests::ends_of_calls_are_told_apart");
    /// The calls of a deleted cluster stay.
    ReleaseForgotten "release-forgotten" in "operator/held.rs",
        Test("operator::held::tests::released_calls_tell_nothing");
    /// An archive is read on behind a hole.
    ArchiveHolePassedOver "archive-hole-passed-over" in "backup/archive/chain.rs",
        Test("backup::archive::tests::chains_reach_the_first_hole_and_no_further");
    /// An object in the middle of an archive is left out of what is replayed.
    ArchiveLinkLeftOut "archive-link-left-out" in "backup/archive/chain.rs",
        Test("backup::archive::replay_test::every_entry_is_replayed_once");
    /// An entry that two objects of an archive hold is replayed twice.
    ArchiveEntryTwice "archive-entry-twice" in "backup/archive/attempt.rs",
        Test("backup::archive::replay_test::every_entry_is_replayed_once");
    /// The expiry of leases is lost in a replay.
    ArchiveExpiryDropped "archive-expiry-dropped" in "backup/archive/attempt.rs",
        Test("backup::archive::replay_test::every_entry_is_replayed_once");
    /// A restore begins with a backup that holds more than the moment that is asked for.
    ArchiveNewerBase "archive-newer-base" in "backup/archive/moment.rs",
        Test("backup::archive::tests::backup_of_a_moment_holds_nothing_behind_it");
    /// A time is reached although the entries up to it are missing in the archive.
    ArchiveMarkBehindHole "archive-mark-behind-hole" in "backup/archive/attempt.rs",
        Test("backup::archive::replay_test::idle_time_is_reached_as_far_as_the_entries_lead");
    /// An object of the archive is taken for what was to be stored by its name alone.
    ArchiveExistingBelieved "archive-existing-believed" in "backup/archive/objects.rs",
        Test("backup::archive::objects_test::object_of_the_same_name_is_read");
}
