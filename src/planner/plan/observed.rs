//! Everything that a plan may depend on: facts of the platform and of the members, as seen in one
//! reconcile. Platform-neutral: Kubernetes and local processes both fill it in. Times are Unix
//! milliseconds, ages are milliseconds before `now_ms`.

use std::collections::{BTreeMap, BTreeSet};

use crate::crd::{
    ClusterBackups, EtcdRecoverySpec, FollowStatus, IpFamily, RestoreStatus, Server, Timings,
    TlsPort, ValidatedCluster,
};

use super::certificates::{PortSecurity, TlsFacts};
use super::pdb::PdbFacts;

/// The facts of one reconcile.
#[derive(Clone, Debug, PartialEq)]
pub struct Observed {
    /// Time of this reconcile.
    pub now_ms: u64,
    /// Fresh random hexadecimal text, used only as the nonce of an identity Secret created in this reconcile.
    pub entropy: String,
    /// The Lease's epoch, carried by every membership call.
    pub epoch: u64,
    /// The resource has a deletion timestamp.
    pub deleting: bool,
    /// The user does not care whether the followed cluster stays closed to writes, by an annotation of the resource.
    pub source_waived: bool,
    /// The specification that this is planned from is the last one that was admitted; why not the
    /// one that the resource has now.
    pub refused: Option<Refusal>,
    /// Members whose servers the user wants stopped, by an annotation of the resource.
    pub fenced: BTreeSet<String>,
    /// Which specification this is planned from and which one is kept; `None` where the platform
    /// keeps none.
    pub spec: Option<SpecFacts>,
    /// The resource, or the problems that make it invalid.
    pub cluster: Result<ValidatedCluster, InvalidCluster>,
    /// URL of the client Service, for `status.endpoints`.
    pub client_endpoint: String,
    /// A finalizer of ours is there, of `backupBeforeDeletion` or of a followed cluster: a resource that is being deleted
    /// goes on until it is removed.
    pub held: bool,
    /// What the deletion of the resource waits for.
    pub last_backup: Option<LastBackupFacts>,
    /// Whether the API server refuses to delete a resource with `deletionProtection`.
    pub deletion_policy: DeletionPolicy,
    /// `status.clusterID` as stored: proof that the cluster once was bootstrapped.
    pub status_cluster_id: Option<String>,
    /// `status.incarnation` as stored: the incarnation that this is the cluster ID of.
    pub status_incarnation: Option<u64>,
    /// What earlier reconciles wrote into the status. Losing it only restarts waits.
    pub status_memory: StatusMemory,
    /// The identity Secret, read live.
    pub identity_secret: Option<IdentitySecret>,
    /// Objects other than the members' that the platform wants (Services, Secret, PDB), with the hash of their desired
    /// inputs. Empty if the platform has none.
    pub wanted_objects: BTreeMap<ObjectKey, String>,
    /// The same objects as they are.
    pub objects: BTreeMap<ObjectKey, ObjectFacts>,
    /// The PDB's limit and count; `None` while it does not exist.
    pub pdb: Option<PdbFacts>,
    /// URLs of the slots, from slot 0 to one less than the voters wanted. Empty where the platform
    /// has no slots.
    pub slot_endpoints: Vec<String>,
    /// IP families of the client Service as it is. Empty while there is none, and where the platform has no Services.
    pub service_families: Vec<IpFamily>,
    /// Hash of the inputs that a slot's Service is rendered from now, its member aside.
    pub wanted_slot_inputs: String,
    /// The slots' Services by number, also those of other owners under our names.
    pub slots: BTreeMap<u32, SlotFacts>,
    /// The cluster's certificates.
    pub tls: TlsFacts,
    /// Hash of the inputs that a member's set is rendered from now.
    pub wanted_inputs: String,
    /// StatefulSets by member name; also those of other owners under our names.
    pub sets: BTreeMap<String, SetFacts>,
    /// Pods by member name.
    pub pods: BTreeMap<String, PodFacts>,
    /// Volume PVCs by PVC name: all that carry this cluster's name or UID, read live.
    pub pvcs: BTreeMap<String, PvcFacts>,
    /// Whether the storage class creates volumes that only one node can use, as far as the class alone shows; `None` if
    /// it does not, or cannot be read.
    pub class_node_bound: Option<bool>,
    /// Storage classes by name. Empty where the platform has none, or they cannot be read.
    pub classes: BTreeMap<String, ClassFacts>,
    /// Nodes by name. Empty where the platform has none, or they cannot be read.
    pub nodes: BTreeMap<String, NodeFacts>,
    /// Members that send their clients away, and that a Service still sends clients to.
    pub routed: BTreeSet<String>,
    /// Kinds, in the plural, that the operator has no right to read.
    pub denied: BTreeSet<String>,
    /// Each member's own description, by member name; absent when it did not answer.
    pub descriptions: BTreeMap<String, Description>,
    /// How the Job that gives the seed its first data is doing; `None` while that is not known.
    pub restore: Option<RestoreFacts>,
    /// How the Job of a cluster that follows another one is doing; `None` while that is not known.
    pub follow: Option<FollowFacts>,
    /// The cluster's backups; `None` while they are not known.
    pub backups: Option<ClusterBackups>,
    /// The EtcdRecoveries that name this cluster.
    pub recoveries: Vec<RecoveryFacts>,
    /// Members of earlier incarnations. Platforms leave it empty: the plan sorts them out of the facts above.
    pub earlier: Earlier,
}

/// What a resource that is being deleted waits for: its last backup, or the followed cluster. For reports alone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LastBackupFacts {
    /// In words.
    pub message: String,
    /// It waits until the user does something.
    pub needs_user: bool,
    /// It waits until the followed cluster is not closed to writes.
    pub of_source: bool,
}

/// Whether the API server refuses to delete a resource with `deletionProtection`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DeletionPolicy {
    /// Not known, or not yet.
    #[default]
    Unknown,
    /// A policy refuses it.
    Enforced,
    /// No policy does.
    Missing,
}

/// An EtcdRecovery that names this cluster.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RecoveryFacts {
    /// Its name.
    pub name: String,
    /// What is asked for.
    pub spec: EtcdRecoverySpec,
    /// Why it was refused before: it stays so, and is not carried out when the cluster happens to fit it later.
    pub refused: Option<String>,
    /// Something was done for it.
    pub begun: bool,
    /// It was carried out, and is not again.
    pub recovered: bool,
}

/// What is left of earlier incarnations of the cluster.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Earlier {
    /// StatefulSets by member name.
    pub sets: BTreeMap<String, SetFacts>,
    /// Pods by member name.
    pub pods: BTreeMap<String, PodFacts>,
    /// PVCs by PVC name.
    pub pvcs: BTreeMap<String, PvcFacts>,
    /// Descriptions by member name.
    pub descriptions: BTreeMap<String, Description>,
}

impl Observed {
    /// Whether the kubelet of a node reports. Where nodes are not seen, all do.
    pub(crate) fn node_reports(&self, node: &str) -> bool {
        self.nodes.is_empty() || self.nodes.get(node).is_some_and(|facts| facts.ready)
    }
}

/// How the Job of a cluster that follows another one is doing. Whether the cluster follows, and whether the followed one is
/// closed, its members say themselves.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FollowFacts {
    /// What it does or waits for; empty if there is nothing to say.
    pub message: String,
    /// It fails, and goes on failing until the user does something.
    pub needs_user: bool,
    /// Why the last one failed, if the newest attempt has.
    pub failure: Option<String>,
    /// What the one reported that has carried out the cutover.
    pub cut_over: Option<CutOverFacts>,
    /// Since when no Job is there that may close the followed cluster, in Unix milliseconds; `None`: one is, or that is not
    /// known.
    pub quiet_since_ms: Option<u64>,
    /// Cutovers came to nothing, it follows, and the next cutover is tried then, in Unix milliseconds.
    pub cutover_after_ms: Option<u64>,
}

/// A cutover, as the Job that carried it out reported it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CutOverFacts {
    /// Revision at which clients could write here.
    pub revision: i64,
    /// When the followed cluster was closed to writes, in Unix milliseconds.
    pub frozen_ms: u64,
    /// When clients could write here.
    pub writable_ms: u64,
}

/// How the Job that gives the seed its first data is doing. For reports alone: whether the seed has the data, it says
/// itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RestoreFacts {
    /// What it does or waits for, or why it failed.
    pub message: String,
    /// It fails, and goes on failing until the user does something.
    pub needs_user: bool,
}

/// Why a specification is not carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Machine-readable reason.
    pub reason: &'static str,
    /// In words, with what to do about it.
    pub text: String,
    /// It is about a certificate, which TLSReady reports as well.
    pub of_certificate: bool,
}

/// Hashes of specifications.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpecFacts {
    /// Of the one that this is planned from.
    pub hash: String,
    /// Of the one that is kept as the last that was admitted, if one is.
    pub kept: Option<String>,
}

/// A resource that cannot be planned for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidCluster {
    /// Name of the resource.
    pub name: String,
    /// The violated rules, in words.
    pub problems: String,
}

/// What earlier reconciles remembered in the status.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StatusMemory {
    /// The start of the current step: (action, member, since).
    pub step: Option<(String, Option<String>, u64)>,
    /// Pods replaced by the operator since the member was last healthy.
    pub restarts: BTreeMap<String, u32>,
    /// New members given up in a row.
    pub join_failures: Option<JoinFailure>,
    /// NOSPACE, disarmed in a row.
    pub disarms: Option<Disarms>,
    /// The lowest version that was seen to run, last time that any was.
    pub version: Option<String>,
    /// Names of the voters when a leader was last seen.
    pub voters: Vec<String>,
    /// How the cluster came to its first data.
    pub restore: Option<RestoreStatus>,
    /// How far it is that it follows another one.
    pub follow: Option<FollowStatus>,
    /// Its backups, as last known.
    pub backup: Option<ClusterBackups>,
}

/// How often NOSPACE was disarmed in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Disarms {
    /// How often.
    pub count: u32,
    /// When last.
    pub last_ms: u64,
    /// The member ID that it named then.
    pub member: u64,
}

/// New members given up in a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoinFailure {
    /// How many.
    pub count: u32,
    /// When the last one was given up.
    pub last_ms: u64,
    /// Its inputs and deadline: hash and seconds.
    pub inputs: String,
    /// Why, in words.
    pub reason: String,
}

/// The owner of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Owner {
    /// This resource.
    Ours,
    /// A deleted resource of the same kind and name: the object will be garbage-collected.
    EarlierLife,
    /// Something else, in words such as `StatefulSet web`.
    Other(String),
    /// No owner.
    Unowned,
}

/// The identity Secret: written once, before anything else of the cluster exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdentitySecret {
    /// Its owner.
    pub owner: Owner,
    /// It is being deleted.
    pub terminating: bool,
    /// UID of the resource that the cluster belongs to.
    pub cluster_uid: String,
    /// Life of the cluster under this UID.
    pub incarnation: u64,
    /// Name of the member that bootstraps the cluster.
    pub seed: String,
    /// Random text that makes the bootstrap call recognisable.
    pub nonce: String,
}

/// Kind and name of an object that is not a member's.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ObjectKey {
    /// The kind.
    pub kind: ObjectKind,
    /// The name.
    pub name: String,
}

/// Kinds of objects that are not a member's, in the order of their creation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ObjectKind {
    /// A Secret.
    Secret,
    /// A Service.
    Service,
    /// A PodDisruptionBudget.
    PodDisruptionBudget,
    /// A NetworkPolicy.
    NetworkPolicy,
    /// A Certificate of cert-manager's.
    Certificate,
}

impl ObjectKind {
    /// The kind as Kubernetes writes it.
    pub fn as_str(self) -> &'static str {
        match self {
            ObjectKind::Secret => "Secret",
            ObjectKind::Service => "Service",
            ObjectKind::PodDisruptionBudget => "PodDisruptionBudget",
            ObjectKind::NetworkPolicy => "NetworkPolicy",
            ObjectKind::Certificate => "Certificate",
        }
    }
}

/// A live object that is not a member's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectFacts {
    /// Its owner.
    pub owner: Owner,
    /// It is being deleted.
    pub terminating: bool,
    /// Hash of the inputs that it was rendered from, if recorded and not edited since.
    pub inputs: Option<String>,
}

/// A slot's Service as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotFacts {
    /// Its UID.
    pub uid: String,
    /// Its owner.
    pub owner: Owner,
    /// It is being deleted.
    pub terminating: bool,
    /// Hash of the inputs that it was rendered from, if recorded and not edited since.
    pub inputs: Option<String>,
    /// The member that its selector names.
    pub member: Option<String>,
}

/// A member's StatefulSet (or process slot) as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetFacts {
    /// Its UID.
    pub uid: String,
    /// Its owner.
    pub owner: Owner,
    /// It is being deleted.
    pub terminating: bool,
    /// Hash of the inputs that it was rendered from, if recorded.
    pub inputs: Option<String>,
    /// Its server accepts connections without TLS on its peer port, for as long as some member is dialled so.
    pub plain_peers: bool,
    /// When it was created.
    pub created_ms: u64,
    /// It has 0 replicas: its member hibernates.
    pub hibernated: bool,
    /// It was edited by hand: it differs from its rendering.
    pub edited: bool,
}

/// A member's pod (or process) as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodFacts {
    /// Its UID.
    pub uid: String,
    /// Where it is in its life.
    pub phase: PodPhase,
    /// Since when Kubernetes calls it ready; `None` while it does not.
    pub ready_since_ms: Option<u64>,
    /// It is being deleted.
    pub terminating: bool,
    /// If it is being deleted, the end of its grace period.
    pub ends_ms: Option<u64>,
    /// The node that it is bound to.
    pub node: Option<String>,
    /// Since when an eviction may take it, because its member's leave was prepared; `None` while the
    /// PDB refuses that.
    pub released_ms: Option<u64>,
    /// Hash of the inputs that it was created from or has been given since, if recorded.
    pub inputs: Option<String>,
    /// How it gets the wanted inputs without a restart, where that is possible.
    pub resize: Option<Resize>,
    /// Its server was started with TLS on its peer port.
    pub peer_tls: bool,
    /// Further settings that its server was started with.
    pub server: ServerFacts,
    /// When it was created.
    pub created_ms: u64,
    /// When its container last started; absent while it does not run.
    pub started_ms: Option<u64>,
    /// Why it does not run, such as `ImagePullBackOff: …` or `Unschedulable: …`.
    pub waiting: Option<String>,
    /// Its container's last termination message.
    pub last_exit: Option<Exit>,
    /// A container beside the server's that is not well.
    pub beside: Option<Beside>,
    /// When one of these last began to run, or the last of those that go before the server ended; `None`: there is none.
    pub beside_ms: Option<u64>,
}

/// A container of a member's pod that is not the server's, such as one that a mesh injects, and is not well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Beside {
    /// Which, and what is seen of it, in words such as `container istio-proxy is not ready`.
    pub why: String,
    /// The server is not started before it.
    pub goes_first: bool,
}

/// How far a pod is from the resources of the specification, where it has all else that is asked for, and its
/// container can have them while it runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resize {
    /// Its kubelet was not asked for them yet.
    Wanted,
    /// Its kubelet has still to provide them.
    Asked {
        /// When it was asked.
        since_ms: u64,
        /// Why it does not provide them, if it reports that.
        why: Option<String>,
        /// The node never has them, as its kubelet reports.
        infeasible: bool,
    },
    /// Its container has them; only the recorded inputs are still the earlier ones.
    Provided,
}

/// Settings that a pod's server was started with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServerFacts {
    /// To leave out every sync of its disk.
    pub unsynced: bool,
    /// How long to wait for heartbeats and leaders.
    pub timings: Timings,
}

impl ServerFacts {
    /// Those of a server that is created from these settings.
    pub fn of(server: &Server) -> ServerFacts {
        ServerFacts {
            unsynced: server.leaves_out_syncs(),
            timings: server.timings(),
        }
    }
}

/// Where a pod is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodPhase {
    /// Not started.
    Pending,
    /// Its container was started.
    Running,
    /// It ended and will not be started again.
    Ended,
    /// Its node does not report.
    Unknown,
}

/// Why a member's server ended, by its exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Its log or a checkpoint is damaged.
    Corrupt,
    /// Its disk belongs to another member or cluster.
    ForeignDisk,
    /// Its disk holds less than it acknowledged.
    LostLog,
    /// A newer version wrote its disk: the disk is intact.
    TooNew,
    /// A foreign file is in its data directory: the disk is intact.
    Stray,
    /// The others have seen a newer state of its disk: the volume was rolled back, or copied.
    Copied,
    /// Its disk is full.
    DiskFull,
    /// The disk failed to persist.
    Fsync,
    /// Anything else.
    Other(i32),
}

/// A PVC (or data directory) as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PvcFacts {
    /// Its UID.
    pub uid: String,
    /// UID of the resource that it was created for, if recorded.
    pub cluster_uid: Option<String>,
    /// The incarnation that it was created for.
    pub incarnation: u64,
    /// The member that it was created for, if recorded.
    pub member: Option<String>,
    /// What it has been.
    pub state: PvcState,
    /// It is being deleted.
    pub terminating: bool,
    /// It is bound to a volume.
    pub bound: bool,
    /// Its volume no longer exists, according to the PVC.
    pub volume_gone: Option<String>,
    /// No existing node can use its volume, in words. The node may come back, and its data with it: so this is subject
    /// to the time limit, and not evidence of a lost disk.
    pub no_node: Option<String>,
    /// Its volume can be used on one node only; `None` while no volume of it is seen.
    pub node_bound: Option<bool>,
    /// The nodes that can use its volume; `None` for any, and while no volume of it is seen.
    pub nodes: Option<BTreeSet<String>>,
    /// Requested bytes.
    pub requested_bytes: u64,
    /// What its volume is, and what it was asked to be.
    pub storage: StorageFacts,
    /// It is deleted with the resource.
    pub owned: bool,
}

/// What the volume of a PVC is, and what the specification asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StorageFacts {
    /// What the specification asked for when the PVC was created or last followed it; `None`: not recorded, as by
    /// version 0.1.0.
    pub asked: Option<AskedStorage>,
    /// Its storage class, as the API server has it.
    pub class: Option<String>,
    /// Bytes of its volume; 0 while it has none.
    pub capacity_bytes: u64,
    /// Why its volume does not become as large as requested, as reported by Kubernetes.
    pub resize_problem: Option<String>,
}

/// The storage that a specification asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AskedStorage {
    /// Bytes of each volume.
    pub bytes: u64,
    /// The storage class; `None`: the default one.
    pub class: Option<String>,
}

/// A storage class as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClassFacts {
    /// Its volumes can grow.
    pub expands: bool,
    /// PVCs without a class get this one.
    pub is_default: bool,
}

/// What a PVC has been.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PvcState {
    /// No member was ever bound to it, as far as is recorded.
    New,
    /// A member uses it.
    Joined,
    /// Its member was removed; it is kept by the retention policy.
    Retired,
}

/// A Node as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeFacts {
    /// Its kubelet reports, and reports ready.
    pub ready: bool,
    /// Why it counts as drained, in words such as `is cordoned`; `None` for other nodes.
    pub drain_reason: Option<String>,
    /// The scheduler puts no member's pod there: it is cordoned, or has a taint that members do not
    /// tolerate, or is none that the pod template selects.
    pub closed: bool,
    /// It is none that the pod template selects, by its node selector or a required affinity.
    pub unselected: bool,
    /// It has the out-of-service taint: nothing runs on it any more.
    pub out_of_service: bool,
}

/// How far a log is archived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Archived {
    /// Where to, as the archiver was told.
    pub location: String,
    /// Everything that was committed at this time is stored, in Unix milliseconds.
    pub as_of_ms: u64,
    /// The last entry that is stored.
    pub index: u64,
}

/// What a member of a cluster that follows another one says of that.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Following {
    /// ID of the followed cluster.
    pub source_cluster: u64,
    /// When the followed cluster was closed to writes, in Unix milliseconds by the clock of whoever follows; `None`: not
    /// yet.
    pub frozen_ms: Option<u64>,
    /// Revision of the followed cluster, as the member was last told; 0: nobody has.
    pub source_revision: i64,
    /// Everything that the followed cluster had then is applied, in Unix milliseconds; `None`: not told.
    pub as_of_ms: Option<u64>,
    /// How long before the description it was told; `None`: not since its start.
    pub told_ms: Option<u64>,
    /// Why it does not go on, and what to do.
    pub problem: Option<String>,
}

/// A server's own description. The description of another pod than the cached one is dropped.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Description {
    /// When it was received, before `now_ms`.
    pub age_ms: u64,
    /// UID of the pod that answered.
    pub pod_uid: String,
    /// Version that runs.
    pub version: String,
    /// The oldest version whose servers can read its disk; `None` from servers that do not report it.
    pub readable_since: Option<String>,
    /// UUID of its data directory.
    pub disk_uuid: String,
    /// Its data directory has never held a member.
    pub disk_empty: bool,
    /// It is unsigned, as from a server of version 0.1.0: it is not evidence against a member.
    pub unsigned: bool,
    /// What it is.
    pub phase: Phase,
    /// The snapshot that it received or receives as a standby.
    pub staged: Option<Staged>,
    /// Nonce of the bootstrap call that made it, if one did.
    pub nonce: Option<String>,
    /// UID of the resource that its disk belongs to.
    pub cluster_uid: Option<String>,
    /// Incarnation of the cluster that it belongs to; 0 for none.
    pub incarnation: u64,
    /// Cluster ID; 0 while it has none.
    pub cluster_id: u64,
    /// Member ID; 0 while it has none.
    pub member_id: u64,
    /// It leads, and received answers from a quorum within an election timeout; its member list below was read
    /// linearizably.
    pub leads: bool,
    /// Its term.
    pub term: u64,
    /// Member ID of the leader that it follows; 0 for none.
    pub leader_id: u64,
    /// Term of the last entry of its log; 0 if it has none, or its version does not report it.
    pub last_term: u64,
    /// Index of the last entry of its log.
    pub last_index: u64,
    /// When its log last grew, as far as its disk shows.
    pub last_append_ms: Option<u64>,
    /// How far its cluster's log is archived, as it was told since its start.
    pub archived: Option<Archived>,
    /// Its cluster follows another one, as far as it has applied the log.
    pub following: Option<Following>,
    /// Revision of its data.
    pub revision: i64,
    /// Its commit index.
    pub commit: u64,
    /// Its applied index.
    pub applied: u64,
    /// It answers linearizable reads as a voter.
    pub ready: bool,
    /// Milliseconds since it was asked to retire: it has been unready since, and serves again only after a restart.
    /// `None` if it was not.
    pub retiring_ms: Option<u64>,
    /// What it has loaded for its ports; empty if it does not report it.
    pub security: BTreeMap<TlsPort, PortSecurity>,
    /// Raised alarms, such as `NOSPACE`.
    pub alarms: Vec<String>,
    /// How full it is; `None` if it has not checked yet, or its version does not report it.
    pub space: Option<Space>,
    /// Comparisons of the members' data that it made as leader of this term, the newest first.
    pub comparisons: Vec<Comparison>,
    /// Index of the last configuration change that it applied.
    pub configuration_index: u64,
    /// Its member list; only a leader fills in contact and progress.
    pub members: Vec<MemberView>,
    /// Members that were removed: ID and name.
    pub tombstones: Vec<(u64, String)>,
    /// IDs of removed members that came as learners and were never promoted, as far back as its
    /// record of changes goes: no quorum ever counted on their volumes.
    pub never_voted: BTreeSet<u64>,
}

impl Description {
    /// Whether it takes part in elections and follows a leader. A learner remembers one that is gone.
    pub fn follows_a_leader(&self) -> bool {
        let mut own = self.members.iter().filter(|view| view.id == self.member_id);
        self.phase == Phase::Member && self.leader_id != 0 && !own.any(|view| view.learner)
    }

    /// Whether the alarm CORRUPT names this member, or none in particular.
    pub fn is_corrupt(&self) -> bool {
        let own = format!("CORRUPT {:x}", self.member_id);
        let mut alarms = self.alarms.iter();
        alarms.any(|alarm| *alarm == own || alarm == "CORRUPT")
    }

    /// Whether it shows that the disk that this server has is an empty one.
    pub fn proves_an_empty_disk(&self) -> bool {
        self.disk_empty && !self.unsigned
    }
}

/// A snapshot on the disk of a standby.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Staged {
    /// SHA-256 of all of it, in hexadecimal.
    pub sha256: String,
    /// Bytes of all of it.
    pub length: u64,
    /// Bytes that are there.
    pub received: u64,
    /// It is there as a whole, and was checked.
    pub complete: bool,
    /// Revision of its data; 0 before it is complete.
    pub revision: i64,
    /// Keys in it; 0 before it is complete.
    pub keys: u64,
    /// For how long this start of the server has received it, in milliseconds; 0 if it has not.
    pub elapsed_ms: u64,
    /// Bytes that were there when this start of the server began to receive.
    pub resumed_at: u64,
    /// Why it could not be received or the cluster not formed from it, when that was last tried.
    pub problem: Option<String>,
    /// ID of the living cluster that it was taken from; 0: of none, as a backup.
    pub source_cluster: u64,
}

/// What a server holds, and what it may hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Space {
    /// Bytes that count for its quota.
    pub used: u64,
    /// Its quota in bytes; 0: none.
    pub quota: u64,
    /// Bytes that are free on its volume.
    pub free: u64,
    /// With fewer free it raises NOSPACE.
    pub needed: u64,
    /// With files of values: bytes of those used that stay in memory, keys and short values.
    pub in_memory: u64,
    /// With so many it raises NOSPACE; 0: there is no limit.
    pub in_memory_most: u64,
}

/// The members' hashes of the data at one revision.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Comparison {
    /// IDs of those whose hash a majority of the voters gave or, where none did, a majority of all
    /// members; empty: none did.
    pub agree: BTreeSet<u64>,
    /// IDs of those that gave another one.
    pub differ: BTreeSet<u64>,
    /// IDs of those that gave none.
    pub silent: BTreeSet<u64>,
    /// How long before the description it was made.
    pub age_ms: u64,
}

/// What a server is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Phase {
    /// It waits to be bootstrapped or added.
    #[default]
    Standby,
    /// It was added and fetches its first snapshot.
    Joining,
    /// It is a member.
    Member,
    /// It was removed from the cluster.
    Removed,
}

/// A member as another one sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemberView {
    /// Member ID.
    pub id: u64,
    /// Name; empty if it never published one.
    pub name: String,
    /// Where the others dial it.
    pub peer_urls: Vec<String>,
    /// Receives the log, does not vote.
    pub learner: bool,
    /// UUID of the disk that it is bound to; empty before it joined.
    pub disk_uuid: String,
    /// Match index.
    pub match_index: u64,
    /// Milliseconds since the leader's last contact with it; `None` for never.
    pub last_contact_ms: Option<u64>,
    /// For how long it has synced nothing of what the leader has sent it; 0 while nothing is owed.
    pub unsynced_ms: u64,
    /// A learner that the leader would promote now.
    pub promotable: bool,
    /// Why it would not.
    pub not_promotable: String,
}
