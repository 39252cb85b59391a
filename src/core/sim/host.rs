//! One server of the simulation: a disk, and the process that runs on it for a while. Carries out
//! a member's effects on the shipped log and checkpoints; when each of them ends is the world's
//! choice.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use prost::Message as _;

use crate::disk::double::MemoryDisk;
use crate::disk::{
    self, Checkpoints, DataDirectory, Descent, Disk, Identity, Lineage, Log, LogOptions, Phase,
    Position, Starts, create_member, open_member,
};
use crate::node::{
    Checkpoint, CheckpointInfo, CheckpointMeta, Member, MemberConfig, MemberRestored, Membership,
    StateMachine,
};
use crate::persist::{self, Saver, ValuesTo, WholeCheckpoint};
use crate::raft::{self, Entry, HardState, LogRead, MemberId, Persist, SnapshotMeta};
use crate::store::Limits;

use super::clock::{LocalClock, Micros};
use super::network::HostId;

/// Values of at least so many bytes go to files, where a member has them in files: nearly all.
const VALUES_FROM: usize = 4;

/// A server's disk, and what is known of it from outside.
#[derive(Debug)]
pub(super) struct Host {
    pub(super) id: HostId,
    pub(super) disk: MemoryDisk,
    pub(super) disk_uuid: [u8; 16],
    /// The member that lives on this disk.
    pub(super) member: Option<MemberId>,
    /// How often a process was started here.
    pub(super) boot: u64,
    pub(super) process: Option<Process>,
    /// The disk as it was before an earlier start.
    pub(super) older: Option<MemoryDisk>,
    /// The disk was lost for good.
    pub(super) lost: bool,
    /// The member was removed and knows it.
    pub(super) retired: bool,
    /// Its own clock, for as long as the machine is up.
    pub(super) clock: LocalClock,
    /// Its process is stopped until then, and goes on as if nothing had been.
    pub(super) paused_until: Micros,
    /// Its disk takes many times as long until then.
    pub(super) slow_until: Micros,
    /// No space is left until then.
    pub(super) full_until: Micros,
    /// A slow disk does nothing at all until it is slow no more.
    pub(super) hangs: bool,
    /// Bytes that were durable have changed since the process started, or will be found changed
    /// when the next one starts.
    pub(super) spoilt: bool,
    /// Values were healed, and the file may still have them damaged.
    pub(super) mended: bool,
    /// What this server refuses before it proposes: other limits than the next one's.
    pub(super) limits: Limits,
    /// Its process is of version 0.1.0, in that it knows no term of a forward and no file of values.
    pub(super) old: bool,
    /// Some process here was not, and may have told others so.
    pub(super) was_new: bool,
}

/// Why a process does not start.
#[derive(Debug)]
pub(super) enum StartError {
    /// Its disk.
    Disk(disk::Error),
    /// Anything else.
    Other(String),
}

impl StartError {
    /// The class of the disk's error.
    pub(super) fn class(&self) -> Option<disk::Class> {
        match self {
            Self::Disk(error) => Some(error.class()),
            Self::Other(_) => None,
        }
    }
}

impl std::fmt::Display for StartError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Disk(error) => error.fmt(f),
            Self::Other(error) => error.fmt(f),
        }
    }
}

impl From<persist::Error> for StartError {
    fn from(error: persist::Error) -> Self {
        match error {
            persist::Error::Disk(error) => Self::Disk(error),
            error => Self::Other(error.to_string()),
        }
    }
}

impl From<disk::Error> for StartError {
    fn from(error: disk::Error) -> Self {
        Self::Disk(error)
    }
}

fn other(error: impl std::fmt::Display) -> StartError {
    StartError::Other(error.to_string())
}

/// What the applier is asked to do.
#[derive(Debug)]
pub(super) enum ApplyJob {
    /// Apply these.
    Entries(Vec<Entry>),
    /// Freeze the machine for a checkpoint.
    Checkpoint,
    /// Install this checkpoint, which is on disk.
    Install(SnapshotMeta),
    /// This member was removed.
    Part,
}

/// A running process.
pub(super) struct Process {
    directory: DataDirectory,
    /// The starts of its disk, and those of others that it has seen.
    pub(super) starts: Starts,
    pub(super) log: Log,
    pub(super) checkpoints: Checkpoints,
    saver: Saver,
    pub(super) member: Member,
    pub(super) machine: StateMachine,
    /// The nonce of this start, part of each request's identity.
    pub(super) boot_nonce: u64,
    /// The write under way.
    pub(super) writing: Option<Persist>,
    /// What the applier has to do, in order: one thing after the other, as in the server.
    pub(super) applying: VecDeque<ApplyJob>,
    /// When it will have done all of that.
    pub(super) applies_until: Micros,
    /// The checkpoint being written in the background.
    pub(super) checkpointing: Option<Checkpoint>,
}

impl std::fmt::Debug for Process {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Process").finish_non_exhaustive()
    }
}

impl Host {
    pub(super) fn new(
        id: HostId,
        disk: MemoryDisk,
        disk_uuid: [u8; 16],
        clock: LocalClock,
        limits: Limits,
    ) -> Self {
        Self {
            clock,
            paused_until: 0,
            slow_until: 0,
            full_until: 0,
            hangs: false,
            spoilt: false,
            mended: false,
            limits,
            old: false,
            was_new: false,
            id,
            disk,
            disk_uuid,
            member: None,
            boot: 0,
            process: None,
            older: None,
            lost: false,
            retired: false,
        }
    }

    /// Whether version 0.1.0 can read the disk.
    pub(super) fn is_readable_by_old(&self) -> bool {
        let files = self.disk.files();
        !files.iter().any(|name| name.ends_with(".values"))
    }

    /// Whether its next start may find damage on its disk.
    pub(super) fn is_doubtful(&self) -> bool {
        (self.spoilt || self.mended) && !self.lost
    }

    /// The disk's UUID as the membership writes it.
    pub(super) fn disk_name(&self) -> String {
        self.disk_uuid
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect()
    }

    /// Makes the disk that of a member: one that founds the cluster, or one that waits for its
    /// first checkpoint.
    pub(super) fn adopt(
        &mut self,
        member: MemberId,
        founding: Option<&Membership>,
        options: LogOptions,
    ) -> disk::Result<()> {
        let mut directory = DataDirectory::open(self.shared_disk())?;
        let mut identity = Identity::standby(self.disk_uuid, &format!("host-{}", self.id));
        directory.store_identity(identity.clone())?;
        let first = founding.map(|membership| {
            let checkpoint = StateMachine::founded(membership.clone()).checkpoint();
            let position = Position {
                index: checkpoint.meta.index,
                term: checkpoint.meta.term,
            };
            let chunks: Vec<Vec<u8>> = checkpoint.chunks.map(|chunk| chunk.to_vec()).collect();
            (position, checkpoint.meta.encode_to_vec(), chunks)
        });
        let first = first.as_ref();
        let first =
            first.map(|(position, meta, chunks)| (*position, meta.as_slice(), chunks.clone()));
        create_member(&directory, first, HardState::default(), options)?;
        identity.set_phase(if founding.is_some() {
            Phase::Member
        } else {
            Phase::Joining
        });
        identity.member_id = member;
        directory.store_identity(identity)?;
        self.member = Some(member);
        Ok(())
    }

    /// Starts a process: the steps of a server's start, in their order.
    pub(super) fn start(
        &mut self,
        config: MemberConfig,
        options: LogOptions,
        cache_bytes: u64,
    ) -> Result<(), StartError> {
        let id = config.raft.id;
        let boot_nonce = config.raft.boot_nonce;
        if self.boot.is_multiple_of(3) && !self.spoilt && !self.mended {
            self.older = Some(self.disk.fork());
        }
        let directory = DataDirectory::open(self.shared_disk())?;
        let starts = Starts::begin(directory.disk(), self.disk_uuid, boot_nonce)?;
        let files = open_member(&directory, options)?;
        let (snapshot, mut machine) = match files.checkpoint {
            None => (SnapshotMeta::default(), StateMachine::new(id, boot_nonce)),
            Some(info) => restore(&files.checkpoints, info.position, id, boot_nonce)?,
        };
        // Members differ in this, and each of them from one start to the next.
        let to_files = (self.id as u64 + self.boot).is_multiple_of(3) && !self.old;
        let values = match to_files {
            true => ValuesTo::Files(VALUES_FROM),
            false => ValuesTo::Memory,
        };
        let saver = Saver::new(files.checkpoints.clone(), values);
        saver.drop_unused()?;
        if let Some(info) = files.checkpoint {
            saver.goes_on_from(info.position, &machine);
        }
        let known = files.checkpoints.known()?;
        let tail = files.log.tail(snapshot.index, cache_bytes)?;
        let restored = MemberRestored {
            raft: raft::Restored {
                hard_state: files.log.hard_state(),
                snapshot,
                log: Some(files.log.shape()),
                entries: tail,
                applied: machine.index(),
            },
            checkpoints: known.into_iter().map(info_of).collect(),
            machine: machine.take_report(),
        };
        let member = Member::new(config, restored).map_err(other)?;
        self.boot += 1;
        self.process = Some(Process {
            directory,
            starts,
            log: files.log,
            checkpoints: files.checkpoints,
            saver,
            member,
            machine,
            boot_nonce,
            writing: None,
            applying: VecDeque::new(),
            applies_until: 0,
            checkpointing: None,
        });
        Ok(())
    }

    fn shared_disk(&self) -> Arc<dyn Disk> {
        Arc::new(self.disk.clone())
    }
}

impl Process {
    /// Appends the write under way; the entries that are durable now.
    pub(super) fn write(&mut self) -> Result<Option<Persist>, disk::Error> {
        let Some(batch) = self.writing.take() else {
            return Ok(None);
        };
        self.log.append(batch.hard_state.as_ref(), &batch.entries)?;
        Ok(Some(batch))
    }

    /// Judges the starts that a member shows, and remembers the newest one.
    pub(super) fn note_start(
        &mut self,
        (id, disk_uuid): (MemberId, &str),
        shown: &Lineage,
    ) -> Result<Descent, disk::Error> {
        let mut after = self.starts.clone();
        let members = &self.machine.membership().members;
        let descent = after.note(id, disk_uuid, shown, |id| members.contains_key(&id));
        if after != self.starts {
            match after.store(self.directory.disk()) {
                // As in the server: it goes on, and writes it down with the next one.
                Err(error) if error.class() == disk::Class::DiskFull => {}
                stored => stored?,
            }
            self.starts = after;
        }
        Ok(descent)
    }

    /// Writes the frozen checkpoint, and removes old ones.
    pub(super) fn write_checkpoint(&mut self) -> Result<Option<CheckpointInfo>, persist::Error> {
        let Some(checkpoint) = self.checkpointing.take() else {
            return Ok(None);
        };
        let again = checkpoint.again();
        let written = self.saver.save(checkpoint, || ());
        if let Err(persist::Error::Value(_)) = &written {
            // Until the value is healed.
            self.checkpointing = Some(again);
        }
        Ok(Some(info_of(written?)))
    }

    /// The checkpoint of an index, whole: its place, description and chunks.
    pub(super) fn read_checkpoint(
        &self,
        index: u64,
    ) -> Result<(Position, Bytes, Vec<Bytes>), persist::Error> {
        let positions = self.checkpoints.list()?;
        let position = positions
            .into_iter()
            .find(|position| position.index == index);
        let position = position.ok_or_else(|| {
            disk::Error::Misuse(format!("there is no checkpoint at index {index}"))
        })?;
        let mut whole = WholeCheckpoint::open(&self.checkpoints, position)?;
        let mut chunks = Vec::new();
        while let Some(chunk) = whole.next_chunk()? {
            chunks.push(chunk);
        }
        Ok((position, whole.meta().clone(), chunks))
    }

    /// Makes a checkpoint that came from a leader durable.
    pub(super) fn receive_checkpoint(
        &self,
        position: Position,
        meta: &[u8],
        chunks: &[Bytes],
    ) -> Result<(CheckpointInfo, SnapshotMeta), String> {
        let read = CheckpointMeta::read(meta).map_err(|e| e.to_string())?;
        let begun = self.saver.receive(position, meta, 0);
        let mut received = begun.map_err(|e| e.to_string())?;
        for chunk in chunks {
            received.chunk(chunk).map_err(|e| e.to_string())?;
        }
        let info = received.finish().map_err(|e| e.to_string())?;
        Ok((info_of(info), read.snapshot()))
    }

    /// Begins the log anew after a received checkpoint; the applier restores that in its turn.
    pub(super) fn reset_log(&mut self, meta: &SnapshotMeta) -> Result<(), disk::Error> {
        self.log.reset(Position {
            index: meta.index,
            term: meta.term,
        })?;
        self.applying.push_back(ApplyJob::Install(meta.clone()));
        Ok(())
    }

    /// Lets the machine go on after a received checkpoint.
    pub(super) fn install(&mut self, meta: &SnapshotMeta) -> Result<(), String> {
        let position = Position {
            index: meta.index,
            term: meta.term,
        };
        let id = self.member.id();
        let restored = restore(&self.checkpoints, position, id, self.boot_nonce);
        self.machine = restored.map_err(|e| e.to_string())?.1;
        self.saver.goes_on_from(position, &self.machine);
        self.checkpoints
            .prune(position)
            .map_err(|e| e.to_string())?;
        Ok(())
    }

    /// All entries of the log, as they are on disk.
    pub(super) fn all_entries(&self) -> Result<Vec<Entry>, disk::Error> {
        let shape = self.log.shape();
        self.log.read(shape.floor() + 1, shape.last() + 1, u64::MAX)
    }

    pub(super) fn read_log(&self, read: LogRead) -> Result<Vec<Entry>, String> {
        match self.log.read(read.from, read.to, read.max_bytes) {
            // They were dropped meanwhile, as in the server.
            Err(crate::disk::Error::NotInLog { .. }) => Ok(Vec::new()),
            other => other.map_err(|e| e.to_string()),
        }
    }
}

fn restore(
    checkpoints: &Checkpoints,
    position: Position,
    id: MemberId,
    boot_nonce: u64,
) -> Result<(SnapshotMeta, StateMachine), StartError> {
    let machine = persist::restore(checkpoints, position, (id, boot_nonce), || ())?;
    let snapshot = SnapshotMeta {
        index: machine.index(),
        term: machine.term(),
        configuration: machine.configuration(),
    };
    Ok((snapshot, machine))
}

fn info_of(info: disk::CheckpointInfo) -> CheckpointInfo {
    CheckpointInfo {
        index: info.position.index,
        term: info.position.term,
        bytes: info.bytes,
    }
}
