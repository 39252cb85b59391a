//! From a founded state to a member's files, and from files to a running member: restore the machine from its
//! checkpoint, the consensus half from the log. Never repairs anything.

use std::sync::Arc;

use super::state::{RuntimeState, random};
use super::{Parts, disk_stop, persist_stop};
use crate::disk::{
    self, Checkpoints, DataDirectory, LogOptions, MemberFiles, Position, create_member_with,
};
use crate::node::{
    CheckpointInfo, CheckpointPolicy, Member, MemberConfig, MemberRestored, Membership,
    StateMachine,
};
use crate::persist::{self, Saver, ValuesTo};
use crate::raft::{self, HardState, Restored, SnapshotMeta};
use crate::server::flags::config::{Config, ValuesOnDisk};
use crate::server::process::allocator;
use crate::server::process::exit::Stop;

/// Bytes of the log's end that are read into memory at start: what followers that come back at the same time are likely to
/// lack. The rest is read while entries before it are applied.
const TAIL_BYTES: u64 = 4 << 20;
/// Values of at least so many bytes go to files, if any do: the place of a value takes as much memory as a shorter one.
const VALUES_FROM: usize = 64;
/// Bytes of an entry beside a client's request.
const ENTRY_EXTRA: u64 = 64 << 10;

/// Who writes the checkpoints of a data directory that is no member's yet.
pub(crate) fn new_saver(directory: &DataDirectory, config: &Config) -> Saver {
    let checkpoints = Checkpoints::new(Arc::clone(directory.disk()));
    Saver::new(checkpoints, values_to(config))
}

/// Where checkpoints have values.
fn values_to(config: &Config) -> ValuesTo {
    match config.maintenance.values_on_disk {
        ValuesOnDisk::Never => ValuesTo::Memory,
        ValuesOnDisk::OnceAllCan => ValuesTo::FilesOnceAllowed(VALUES_FROM),
        ValuesOnDisk::Always => ValuesTo::Files(VALUES_FROM),
    }
}

/// Creates the files of a member: with the state that its cluster was founded with, or without one, of a joiner.
pub(crate) fn create(
    directory: &DataDirectory,
    founded: Option<&StateMachine>,
    saver: &Saver,
    options: LogOptions,
) -> Result<MemberFiles, persist::Error> {
    let checkpoints = saver.checkpoints();
    let Some(machine) = founded else {
        let settings = (HardState::default(), options);
        return create_member_with(directory, checkpoints, || Ok(None), settings);
    };
    let checkpoint = machine.checkpoint();
    // Term and commit index with which the cluster was founded.
    let hard_state = HardState {
        term: checkpoint.meta.term,
        vote: 0,
        commit: checkpoint.meta.index,
    };
    // No beats are expected before the core threads run.
    let save = || saver.save(checkpoint, || ()).map(Some);
    create_member_with(directory, checkpoints, save, (hard_state, options))
}

/// Creates the parts of a member from its files. Reads the whole checkpoint, so it must not run on
/// a thread of the async runtime.
pub(crate) fn open(
    files: MemberFiles,
    config: &Config,
    (disk_uuid, sizes): (String, LogOptions),
    member_id: u64,
    shared: &RuntimeState,
) -> Result<Parts, Stop> {
    let disk = |error| disk_stop(&error);
    let MemberFiles {
        log,
        checkpoints,
        checkpoint,
        discarded,
    } = files;
    for position in discarded {
        tracing::warn!(%position, "a damaged checkpoint was removed: an older one and the log make up for it");
    }
    let known = checkpoints.known().map_err(disk)?;
    let saver = Saver::new(checkpoints.clone(), values_to(config));
    saver.drop_unused().map_err(|error| persist_stop(&error))?;
    let (mut machine, snapshot) = match checkpoint {
        Some(info) => {
            let who = (member_id, shared.boot_nonce);
            // No beats are expected before the core threads run.
            let machine = restore(&checkpoints, info.position, who, || ())?;
            saver.goes_on_from(info.position, &machine);
            let snapshot = SnapshotMeta {
                index: machine.index(),
                term: machine.term(),
                configuration: machine.configuration(),
            };
            (machine, snapshot)
        }
        None => {
            let machine = StateMachine::new(member_id, shared.boot_nonce);
            (machine, SnapshotMeta::default())
        }
    };
    let restored = MemberRestored {
        raft: Restored {
            hard_state: log.hard_state(),
            log: Some(log.shape()),
            entries: log.tail(snapshot.index, TAIL_BYTES).map_err(disk)?,
            applied: machine.index(),
            snapshot,
        },
        checkpoints: known.into_iter().map(info).collect(),
        machine: machine.take_report(),
    };
    let mut settings = settings(config, disk_uuid, member_id, shared);
    // On a small volume a checkpoint is due after less log, and less is kept for others.
    let policy = &mut settings.checkpoints;
    policy.log_bytes = policy.log_bytes.min(sizes.segment_bytes);
    policy.hold_bytes = policy.hold_bytes.min(4 * sizes.segment_bytes);
    if let Some(most) = config.limits.in_memory_bytes {
        policy.log_bytes = policy.log_bytes.min(most / 4);
    }
    if config.maintenance.values_on_disk != ValuesOnDisk::Never {
        // What a checkpoint has not moved to a file yet is in memory, and read again by a start, however few entries it came with.
        policy.most_log_bytes = 2 * policy.log_bytes;
    }
    if config.maintenance.values_on_disk == ValuesOnDisk::Always {
        policy.behind_bytes = 2 * policy.log_bytes;
    }
    let tick_ms = settings.tick_ms;
    let first_ticks = first_ticks(config, machine.membership(), member_id);
    let member =
        Member::new(settings, restored).map_err(|reason| super::raft_task::stop(&reason))?;
    Ok(Parts {
        member,
        machine,
        log,
        saver: Arc::new(saver),
        tick_ms,
        first_ticks,
    })
}

/// Ticks to give at once: a sole voter has no leader to wait for. More than the longest election
/// timeout; if the log adds a voter, an early campaign does no harm.
fn first_ticks(config: &Config, membership: &Membership, id: u64) -> u32 {
    let sole =
        membership.voters().all(|voter| voter.id == id) && membership.voters().next().is_some();
    match sole && config.hurry_first_election {
        true => 2 * config.election_ticks(),
        false => 0,
    }
}

/// Interval between two checkpoints of the remaining TTL of a long lease (etcd's).
const LEASE_NOTE_MS: u64 = 300_000;

fn settings(config: &Config, disk_uuid: String, id: u64, shared: &RuntimeState) -> MemberConfig {
    let limits = &config.limits;
    let core = raft::Config {
        election_ticks: config.election_ticks().max(2),
        heartbeat_ticks: 1,
        pre_vote: config.pre_vote,
        max_entry_bytes: limits.max_request_bytes + ENTRY_EXTRA,
        ..raft::Config::new(id, random(), shared.boot_nonce)
    };
    MemberConfig {
        tick_ms: u64::try_from(config.heartbeat.as_millis())
            .unwrap_or(100)
            .max(1),
        disk_uuid,
        max_learners: usize::try_from(limits.max_learners).unwrap_or(usize::MAX),
        strict_reconfig: config.strict_reconfig_check,
        elects_when_complete: config.hurry_first_election,
        lease_note_ms: match config.maintenance.lease_checkpoints {
            true => LEASE_NOTE_MS,
            false => 0,
        },
        checkpoints: CheckpointPolicy {
            entries: config.snapshot_count,
            ..CheckpointPolicy::default()
        },
        ..MemberConfig::new(core)
    }
}

/// A checkpoint's index, term and size for the node.
pub(crate) fn info(info: disk::CheckpointInfo) -> CheckpointInfo {
    CheckpointInfo {
        index: info.position.index,
        term: info.position.term,
        bytes: info.bytes,
    }
}

/// The machine restored from a checkpoint, for a member and its start. `alive` is called with every
/// chunk.
pub(crate) fn restore(
    checkpoints: &Checkpoints,
    position: Position,
    (member_id, boot_nonce): (u64, u64),
    alive: impl Fn(),
) -> Result<StateMachine, Stop> {
    let machine = persist::restore(checkpoints, position, (member_id, boot_nonce), alive);
    allocator::give_back();
    machine.map_err(|error| persist_stop(&error))
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::sync::Arc;

    use super::*;
    use crate::disk::Disk as _;
    use crate::disk::double::MemoryDisk;
    use crate::node::LogPayload;
    use crate::raft::Entry;
    use crate::store::{Operation, Put};

    /// A member that installed a large checkpoint did not beat until all of it was read: after half
    /// a minute `/livez` failed and the kubelet killed it, and so after each restart.
    #[test]
    fn restore_shows_progress_with_every_chunk() {
        let membership = Membership::bootstrap(
            "",
            0,
            "",
            &[crate::node::InitialMember {
                name: "a".to_owned(),
                peer_urls: vec!["http://a:2380".to_owned()],
                ..Default::default()
            }],
        );
        let mut machine = StateMachine::founded(membership.expect("a membership"));
        for number in 0..16 {
            let put = Put {
                key: format!("k{number}").into(),
                value: vec![number; 1 << 19].into(),
                ..Put::default()
            };
            let data = LogPayload::command(None, Operation::Put(put).into());
            let entry = Entry::normal(machine.term(), machine.index() + 1, data);
            machine.apply(&entry).expect("it applies");
        }
        let disk = MemoryDisk::new();
        disk.create_directory("checkpoints").expect("a directory");
        let checkpoints = Checkpoints::new(Arc::new(disk));
        let written = Cell::new(0);
        let count = || written.set(written.get() + 1);
        let saver = Saver::new(checkpoints.clone(), ValuesTo::Memory);
        let info = saver.save(machine.checkpoint(), count);
        let position = info.expect("it is written").position;
        let read = Cell::new(0);
        let count = || read.set(read.get() + 1);
        let restored = restore(&checkpoints, position, (1, 1), count).expect("it is restored");
        assert_eq!(restored.index(), machine.index());
        assert!(written.get() > 4, "one chunk would show nothing");
        assert_eq!(read, written);
    }
}
