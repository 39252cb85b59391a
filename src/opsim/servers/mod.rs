//! Simulated servers: processes on disks that form clusters, elect leaders, replicate and change
//! their membership. The rules of a change are the server's own ([`Membership::after`] and
//! [`Facts::admit`](crate::node::Facts::admit)); consensus is a model: a leader is a live voter
//! that holds everything committed and reaches a quorum, and what is acknowledged is a number of
//! entries, held by disks.
//!
//! Never asks a clock: its owner passes the time.

mod alarmed;
mod certificates;
mod change;
mod describe;
mod group;
mod held;
mod jobs;
mod port;
mod restore;

use std::collections::{BTreeMap, BTreeSet};

use rand_xoshiro::Xoshiro256PlusPlus;

use crate::crd::TlsPort;
use crate::node::Membership;
use crate::wire::member as proto;

pub(crate) use certificates::{Texts, moved};
pub(crate) use group::Group;
pub(crate) use jobs::{Given, Receiver};
pub(crate) use port::{hold, way};

/// Between a container's start and the server's first answer.
const START_MS: u64 = 400;
/// Between a standby's questions whether it was added.
const ASK_MS: u64 = 300;
/// Between joining and holding the cluster's state.
const SNAPSHOT_MS: u64 = 600;
/// How long a voter that was away needs to catch up.
const CATCH_UP_MS: u64 = 300;
/// Readiness outlives the last success by this.
const READY_MS: u64 = 10_000;

/// What a disk holds of a server's identity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Empty.
    #[default]
    Standby,
    /// Joined, without the cluster's state.
    Joining,
    /// A member.
    Member,
    /// Removed for good.
    Removed,
}

/// One volume as a server sees it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Disk {
    pub(crate) uuid: String,
    pub(crate) phase: Phase,
    cluster_uid: String,
    incarnation: u64,
    nonce: String,
    pvc_uid: String,
    pub(crate) cluster_id: u64,
    pub(crate) member_id: u64,
    /// The last entry that it holds, with all before.
    pub(crate) matched: u64,
    /// The membership as this disk has it.
    membership: Membership,
    /// How a server ends on this disk: exit code and class.
    damage: Option<(i32, &'static str)>,
    /// Stands for a hash of its keys: that of whoever it had them from, unless a fault changed it.
    pub(crate) data: u32,
    /// When it holds what is committed, while its server runs and is reached.
    caught_up_ms: Option<u64>,
    /// Bytes of a snapshot that it received as a standby.
    staged: u64,
}

/// A container that runs, as the kubelet reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Container {
    /// The member's name.
    pub(crate) name: String,
    /// UID of its pod.
    pub(crate) pod_uid: String,
    /// The pod's address.
    pub(crate) ip: String,
    /// The node that it runs on.
    pub(crate) node: String,
    /// The volume that it has mounted; two PVCs never share one.
    pub(crate) volume: String,
    /// UID of the cluster's resource, from its arguments.
    pub(crate) cluster_uid: String,
    /// From its arguments.
    pub(crate) peer_url: String,
    /// From its arguments.
    pub(crate) client_url: String,
    /// The tag of its image.
    pub(crate) version: String,
    /// How often the container was started.
    pub(crate) starts: u32,
    /// The pod is being deleted: the server was asked to end.
    pub(crate) stopping: bool,
    /// Whether its node is connected with others.
    pub(crate) connected: bool,
    /// Whether it is configured for TLS.
    pub(crate) tls: bool,
    /// The Secrets with its certificate and with who is trusted, by port.
    pub(crate) secrets: BTreeMap<TlsPort, (String, String)>,
    /// Whether it is configured to accept connections without TLS too until all members have it.
    pub(crate) plaintext_peers: bool,
}

/// A server's process.
#[derive(Clone, Debug)]
struct Process {
    container: Container,
    serves_from_ms: u64,
    asks_ms: u64,
    retired_ms: Option<u64>,
    /// The last time that it could answer a linearizable read as a voter.
    ready_ms: Option<u64>,
    exit: Option<(i32, &'static str)>,
    /// The highest epoch that a caller named.
    newest: u64,
    loaded: BTreeMap<TlsPort, certificates::Loaded>,
}

/// What the kubelet sees of a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Health {
    /// It runs; whether its readiness probe passes.
    Runs(bool),
    /// It ended: exit code and termination message.
    Ended(i32, String),
}

/// A stranger's pod that answers as a member, with the cluster's own key.
#[derive(Clone, Debug)]
pub(crate) struct Liar {
    pub(crate) pod_uid: String,
    pub(crate) cluster_uid: String,
}

/// How the simulated servers behave.
#[derive(Clone, Debug)]
pub(crate) struct Behaviour {
    /// How long a new member needs to catch up.
    pub(crate) catch_up_ms: u64,
    /// Writes of clients a second, while there is a leader.
    pub(crate) writes_per_second: u64,
    /// The oldest version that can read what the servers write.
    pub(crate) readable_since: String,
    /// How often a leader compares the members' data under the alarm CORRUPT.
    pub(crate) compare_ms: u64,
    /// Bytes that are taken on every volume.
    pub(crate) filled_bytes: u64,
    /// Descriptions have a digest, and calls are held; version 0.1.0 does neither.
    pub(crate) tells: bool,
}

impl Default for Behaviour {
    fn default() -> Self {
        Self {
            catch_up_ms: 2_000,
            writes_per_second: 20,
            readable_since: "0.1.0".to_owned(),
            compare_ms: 5_000,
            filled_bytes: 200 << 20,
            tells: true,
        }
    }
}

/// All servers of a world.
pub(crate) struct Servers {
    pub(crate) now_ms: u64,
    pub(crate) behaviour: Behaviour,
    /// By volume.
    pub(crate) disks: BTreeMap<String, Disk>,
    /// By UID of their pods.
    processes: BTreeMap<String, Process>,
    /// By cluster ID.
    pub(crate) groups: BTreeMap<u64, Group>,
    /// The operator's keys as members have them mounted, by UID of the cluster's resource.
    pub(crate) keys: BTreeMap<String, Vec<u8>>,
    /// Pods whose server does nothing any more, and does not end.
    pub(crate) hung: BTreeSet<String>,
    /// Members whose disk syncs nothing, and since when.
    pub(crate) hung_disks: BTreeMap<String, u64>,
    /// Nodes whose servers are apart from those of all other nodes.
    pub(crate) islands: BTreeSet<String>,
    /// Nodes whose pods the operator cannot dial.
    pub(crate) unseen: BTreeSet<String>,
    /// Cluster IDs that were founded, in order, by UID of the resource.
    pub(crate) founded: BTreeMap<String, Vec<u64>>,
    /// The snapshots that Jobs give to standbys, by UID of the cluster's resource.
    snapshots: BTreeMap<String, restore::Snapshot>,
    /// What an archiver told last, by UID of the resource.
    archived: BTreeMap<String, proto::Archived>,
    /// What a Job sent to a server that held data already.
    pub(crate) overwrites: Vec<String>,
    /// What each cluster was founded from, by its ID; a cluster that started empty has no entry.
    pub(crate) founded_from: BTreeMap<u64, String>,
    /// The clusters among those that were founded to follow another one.
    pub(crate) founded_following: BTreeSet<u64>,
    /// What the clusters follow that still do.
    following: BTreeMap<u64, u64>,
    /// A Job has closed the followed clusters to writes.
    pub(crate) frozen: bool,
    /// Alarms that every member reports, in its format.
    pub(crate) alarms: Vec<String>,
    /// Names of members that have no space: their quota is used up.
    pub(crate) full: BTreeSet<String>,
    /// Calls that were refused because a newer operator had spoken.
    pub(crate) fenced: u64,
    /// Strangers' pods that answer as members, by address.
    pub(crate) liars: BTreeMap<String, Liar>,
    /// What was asked of them.
    pub(crate) deceived: Vec<String>,
    /// The Secrets with certificates, by name.
    mounted: BTreeMap<String, certificates::Mounted>,
    /// The namespaces for which these servers stand, and what certificates they have there: fingerprints by the names of
    /// Secrets.
    pub(crate) stands_for: BTreeMap<String, BTreeMap<String, String>>,
    /// Bytes of each volume.
    pub(crate) sizes: BTreeMap<String, u64>,
    /// Volumes that a fault destroyed.
    gone: BTreeSet<String>,
    /// Volumes that a fault took away or emptied, with what they held.
    pub(crate) lost: BTreeMap<String, Disk>,
    random: Xoshiro256PlusPlus,
    uuids: u64,
    held: held::Held,
}

impl Servers {
    pub(crate) fn new(random: Xoshiro256PlusPlus, now_ms: u64) -> Self {
        Self {
            now_ms,
            behaviour: Behaviour::default(),
            disks: BTreeMap::new(),
            processes: BTreeMap::new(),
            groups: BTreeMap::new(),
            keys: BTreeMap::new(),
            hung: BTreeSet::new(),
            hung_disks: BTreeMap::new(),
            islands: BTreeSet::new(),
            unseen: BTreeSet::new(),
            founded: BTreeMap::new(),
            snapshots: BTreeMap::new(),
            archived: BTreeMap::new(),
            overwrites: Vec::new(),
            founded_from: BTreeMap::new(),
            founded_following: BTreeSet::new(),
            following: BTreeMap::new(),
            frozen: false,
            alarms: Vec::new(),
            full: BTreeSet::new(),
            fenced: 0,
            liars: BTreeMap::new(),
            deceived: Vec::new(),
            stands_for: BTreeMap::new(),
            mounted: BTreeMap::new(),
            sizes: BTreeMap::new(),
            gone: BTreeSet::new(),
            lost: BTreeMap::new(),
            random,
            uuids: 0,
            held: held::Held::default(),
        }
    }

    fn uuid(&mut self) -> String {
        self.uuids += 1;
        format!("00000000-0000-4000-8000-{:012x}", self.uuids)
    }

    /// Starts and stops processes so that exactly these containers run; makes a disk of each
    /// volume that is mounted for the first time.
    pub(crate) fn run(&mut self, containers: Vec<Container>) {
        let uids: BTreeSet<&str> = containers.iter().map(|c| c.pod_uid.as_str()).collect();
        self.processes.retain(|uid, _| uids.contains(uid.as_str()));
        for container in containers {
            let known = self.processes.get_mut(&container.pod_uid);
            if let Some(process) = known
                && process.container.starts == container.starts
            {
                process.container = container;
                continue;
            }
            let known = self.disks.contains_key(&container.volume);
            if !known {
                let uuid = self.uuid();
                let disk = Disk {
                    uuid,
                    ..Disk::default()
                };
                self.disks.insert(container.volume.clone(), disk);
            }
            let process = Process {
                serves_from_ms: self.now_ms + START_MS,
                asks_ms: 0,
                retired_ms: None,
                ready_ms: None,
                exit: self.refuses(&container),
                newest: 0,
                loaded: BTreeMap::new(),
                container,
            };
            let uid = process.container.pod_uid.clone();
            self.processes.insert(uid, process);
        }
    }

    /// Why a server ends at once on its disk, if it does.
    fn refuses(&self, container: &Container) -> Option<(i32, &'static str)> {
        let disk = self.disks.get(&container.volume)?;
        let foreign = !disk.cluster_uid.is_empty() && disk.cluster_uid != container.cluster_uid;
        disk.damage.or(foreign.then_some((21, "foreign_disk")))
    }

    /// What the kubelet sees of each container: UID of its pod, how often it was started, and how
    /// it is.
    pub(crate) fn health(&self) -> Vec<(String, u32, Health)> {
        // As in etcd, /readyz fails under this alarm; a description states whether the server serves.
        let corrupt = self.alarms.iter().any(|alarm| alarm.starts_with("CORRUPT"));
        let all = self.processes.iter().map(|(uid, process)| {
            let health = match process.exit {
                Some((code, class)) => {
                    let line =
                        serde_json::json!({"class": class, "exitCode": code, "message": class});
                    Health::Ended(code, format!("{line}\n"))
                }
                None => Health::Runs(self.is_ready(process) && !corrupt),
            };
            (uid.clone(), process.container.starts, health)
        });
        all.collect()
    }

    fn is_ready(&self, process: &Process) -> bool {
        let recent = process
            .ready_ms
            .is_some_and(|at| at + READY_MS >= self.now_ms);
        recent
            && process.retired_ms.is_none()
            && !process.container.stopping
            && self.answers(process)
    }

    /// Whether its process answers at all.
    fn answers(&self, process: &Process) -> bool {
        process.exit.is_none()
            && self.now_ms >= process.serves_from_ms
            && !self.hung.contains(&process.container.pod_uid)
    }

    /// Takes note of a caller's epoch, and refuses one that is older than the newest.
    pub(crate) fn heard(&mut self, pod: &str, epoch: u64) -> Result<(), tonic::Status> {
        let Some(process) = self.processes.get_mut(pod) else {
            return Ok(());
        };
        process.newest = process.newest.max(epoch);
        let newest = process.newest;
        if epoch < newest {
            self.fenced += 1;
            return Err(tonic::Status::aborted(format!(
                "epoch {epoch} is older than {newest}, which this server has seen"
            )));
        }
        Ok(())
    }

    /// Time has come to `now_ms`.
    pub(crate) fn advance(&mut self, now_ms: u64) {
        let past_ms = now_ms.saturating_sub(self.now_ms);
        self.now_ms = now_ms;
        self.carry();
        self.receive(past_ms);
        self.join();
        for id in self.groups.keys().copied().collect::<Vec<_>>() {
            self.lead(id, past_ms);
        }
        self.update_ready();
        self.wake_due();
    }

    /// Standbys ask whether their disk is on a list of members.
    fn join(&mut self) {
        let uids: Vec<String> = self.processes.keys().cloned().collect();
        for uid in uids {
            let Some(process) = self.processes.get(&uid) else {
                continue;
            };
            let container = process.container.clone();
            let asks = process.asks_ms <= self.now_ms && self.answers(process);
            let disk = self.disks.get(&container.volume);
            let Some(disk) = disk.filter(|disk| asks && disk.phase == Phase::Standby) else {
                continue;
            };
            let listed = self.listing(process, &disk.uuid.clone());
            if let Some(process) = self.processes.get_mut(&uid) {
                process.asks_ms = self.now_ms + ASK_MS;
            }
            let Some((cluster_id, member_id)) = listed else {
                continue;
            };
            let incarnation = self.groups[&cluster_id].membership.incarnation;
            let held = self.now_ms + SNAPSHOT_MS;
            if let Some(disk) = self.disks.get_mut(&container.volume) {
                disk.phase = Phase::Joining;
                disk.cluster_id = cluster_id;
                disk.member_id = member_id;
                disk.cluster_uid = container.cluster_uid;
                disk.incarnation = incarnation;
                disk.caught_up_ms = Some(held + self.behaviour.catch_up_ms);
            }
        }
    }

    /// The member that a live server of this cluster knows to be bound to this disk.
    fn listing(&self, asker: &Process, disk_uuid: &str) -> Option<(u64, u64)> {
        let answers = self.processes.values().filter(|process| {
            let other = &process.container;
            self.answers(process)
                && other.cluster_uid == asker.container.cluster_uid
                && self.connected(&process.container, &asker.container)
                && self.asks(asker, process)
        });
        let disks = answers.filter_map(|process| self.disks.get(&process.container.volume));
        let members = disks.filter(|disk| disk.phase == Phase::Member);
        members
            .flat_map(|disk| disk.membership.members.values().map(move |m| (disk, m)))
            .find(|(_, member)| member.disk_uuid == disk_uuid)
            .map(|(disk, member)| (disk.cluster_id, member.id))
    }

    /// Whether two servers reach each other and accept each other.
    fn meets(&self, one: &Process, other: &Process) -> bool {
        self.connected(&one.container, &other.container)
            && self.dials(one, other)
            && self.dials(other, one)
    }

    /// Whether servers in these containers reach each other.
    fn connected(&self, one: &Container, other: &Container) -> bool {
        let apart = |c: &Container| !c.connected || self.islands.contains(&c.node);
        one.node == other.node || (!apart(one) && !apart(other))
    }

    /// Two voters of one cluster that run, could reach each other, and do not accept each other.
    pub(crate) fn estranged(&self) -> Option<String> {
        self.groups.values().find_map(|group| {
            let voters = group.membership.voters();
            let running: Vec<&Process> = voters
                .filter_map(|member| self.process_of(group.id, member.id))
                .collect();
            let pairs = running
                .iter()
                .flat_map(|one| running.iter().map(move |other| (*one, *other)));
            let apart = |(one, other): &(&Process, &Process)| {
                self.connected(&one.container, &other.container) && !self.dials(one, other)
            };
            let (one, other) = pairs
                .filter(|(one, other)| !std::ptr::eq(*one, *other))
                .find(apart)?;
            Some(format!(
                "{} does not get through to {}",
                one.container.name, other.container.name
            ))
        })
    }

    /// The process that speaks for this member now.
    fn process_of(&self, group: u64, id: u64) -> Option<&Process> {
        let record = self.groups.get(&group)?.membership.member(id)?;
        self.processes.values().find(|process| {
            self.disks
                .get(&process.container.volume)
                .is_some_and(|disk| {
                    disk.cluster_id == group
                        && disk.member_id == id
                        && matches!(disk.phase, Phase::Member | Phase::Joining)
                        && (record.disk_uuid.is_empty() || record.disk_uuid == disk.uuid)
                })
                && self.answers(process)
        })
    }

    /// Whether this member's process speaks now.
    pub(crate) fn lives(&self, group: u64, id: u64) -> bool {
        self.process_of(group, id).is_some()
    }

    /// When this member was asked to send its clients away, if it was.
    pub(crate) fn retired_ms(&self, group: u64, id: u64) -> Option<u64> {
        self.process_of(group, id)?.retired_ms
    }

    /// Voters of the group that live and are reached by its leader, the leader included; without
    /// a leader, none.
    pub(crate) fn reached_voters(&self, group: &Group) -> BTreeSet<u64> {
        let Some(leader) = group.leader else {
            return BTreeSet::new();
        };
        let voters = group.membership.voters().map(|member| member.id);
        voters
            .filter(|id| self.reaches(group.id, leader, *id))
            .collect()
    }

    fn reaches(&self, group: u64, one: u64, other: u64) -> bool {
        let (one, other) = (self.process_of(group, one), self.process_of(group, other));
        one.zip(other).is_some_and(|(a, b)| self.meets(a, b))
    }

    fn disk_of(&self, group: u64, id: u64) -> Option<&Disk> {
        let record = self.groups.get(&group)?.membership.member(id)?;
        let there = self
            .disks
            .iter()
            .filter(|(volume, _)| !self.gone.contains(*volume));
        let mut disks = there.map(|(_, disk)| disk);
        disks.find(|disk| {
            disk.cluster_id == group && disk.member_id == id && disk.uuid == record.disk_uuid
        })
    }

    /// Entries that the disk of this member holds; `None` where no such disk exists.
    pub(crate) fn held(&self, group: u64, id: u64) -> Option<u64> {
        self.disk_of(group, id).map(|disk| disk.matched)
    }

    /// The cluster that serves for this resource.
    pub(crate) fn group_of(&self, cluster_uid: &str) -> Option<&Group> {
        self.groups
            .values()
            .filter(|group| group.membership.cluster_uid == cluster_uid)
            .max_by_key(|group| group.membership.incarnation)
    }

    /// A fault destroys a volume: its server ends for want of a disk.
    pub(crate) fn forget_volume(&mut self, volume: &str) {
        self.damage(volume, 23, "fsync");
        self.gone.insert(volume.to_owned());
    }

    /// Disks of volumes that do not exist any more are gone, whoever took them.
    pub(crate) fn keep_only(&mut self, volumes: &BTreeSet<String>) {
        let used: BTreeSet<&str> = (self.processes.values())
            .map(|process| process.container.volume.as_str())
            .collect();
        self.disks
            .retain(|volume, _| volumes.contains(volume) || used.contains(volume.as_str()));
    }

    /// Somebody other than the operator takes a disk away before long: it is not missed.
    pub(crate) fn excuse(&mut self, volume: &str) {
        if let Some(disk) = self.disks.get(volume) {
            self.lost.insert(volume.to_owned(), disk.clone());
        }
    }

    /// Somebody restores another cluster's data into a volume.
    pub(crate) fn swap(&mut self, volume: &str, cluster_uid: &str) {
        self.excuse(volume);
        if let Some(disk) = self.disks.get_mut(volume) {
            cluster_uid.clone_into(&mut disk.cluster_uid);
        }
    }

    /// A fault empties a disk: what is mounted next time is a new file system.
    pub(crate) fn empty(&mut self, volume: &str) {
        let uuid = self.uuid();
        let new = Disk {
            uuid,
            ..Disk::default()
        };
        if let Some(old) = self.disks.insert(volume.to_owned(), new) {
            self.lost.insert(volume.to_owned(), old);
        }
        self.kill_on(volume);
    }

    /// A fault damages a disk so that servers end on it with this code and class.
    pub(crate) fn damage(&mut self, volume: &str, code: i32, class: &'static str) {
        if let Some(disk) = self.disks.get_mut(volume) {
            disk.damage = Some((code, class));
            let held = disk.clone();
            self.lost.insert(volume.to_owned(), held);
        }
        self.kill_on(volume);
    }

    /// Servers end on a disk, which is sound, with this code and class; `None`: no more.
    pub(crate) fn refuse(&mut self, volume: &str, how: Option<(i32, &'static str)>) {
        if let Some(disk) = self.disks.get_mut(volume) {
            disk.damage = how;
        }
        self.kill_on(volume);
    }

    fn kill_on(&mut self, volume: &str) {
        let damage = self.disks.get(volume).and_then(|disk| disk.damage);
        for process in self.processes.values_mut() {
            if process.container.volume == volume {
                process.exit = damage.or(Some((137, "killed")));
            }
        }
    }
}
