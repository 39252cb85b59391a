//! Names of labels, annotations and objects that more than one room must agree on.

/// The API group of the resource.
pub const GROUP: &str = "quorate.dev";
/// Field manager of every server-side apply, and the value of `app.kubernetes.io/managed-by`.
pub const MANAGER: &str = "quorate";
/// Value of `app.kubernetes.io/name`.
pub const APP: &str = "quorate";
/// Name of the Lease for leader election among operators, if no other is given: the plugin finds the active one by it.
pub const OPERATOR_LEASE: &str = "quorate-operator";
/// UID of the resource that an object belongs to: part of every selector.
pub const LABEL_CLUSTER_UID: &str = "quorate.dev/cluster-uid";
/// Name of the resource that an object belongs to.
pub const LABEL_CLUSTER: &str = "quorate.dev/cluster";
/// Name of the member that a set, pod or PVC belongs to.
pub const LABEL_MEMBER: &str = "quorate.dev/member";
/// The state of a PVC: absent while new, then `joined` or `retired`.
pub const LABEL_CLAIM_STATE: &str = "quorate.dev/claim-state";
/// Incarnation of the cluster that a PVC was created for; absent for the first one.
pub const LABEL_INCARNATION: &str = "quorate.dev/incarnation";
/// On a pod: the operator has prepared its member to leave, and it may be evicted. The value is the time of that, in
/// Unix seconds. The PDB does not select pods with this label. Not used under `disruption.policy: Budget`.
pub const LABEL_RELEASED: &str = "quorate.dev/released";
/// On a Node: a cordon does not count as a drain. Any value but `false`.
pub const ANNOTATION_IGNORE_CORDON: &str = "quorate.dev/ignore-cordon";
/// On a resource with TLS: the CA of the client port, or of the peer port, is rotated once for each value. One that
/// ends with `now` gives clients no grace period. On a CA's Secret: the value for which it was created.
pub const ANNOTATION_ROTATE_CLIENT: &str = "quorate.dev/rotate-client-ca";
/// The same for the peer port.
pub const ANNOTATION_ROTATE_PEER: &str = "quorate.dev/rotate-peer-ca";
/// On a ClusterTrustBundle, which no resource of a namespace can own: `NAMESPACE/NAME/UID` of the resource that it goes with.
pub const ANNOTATION_OF_RESOURCE: &str = "quorate.dev/of-resource";
/// Hash of the inputs that an object was rendered from.
pub const ANNOTATION_INPUTS: &str = "quorate.dev/inputs";
/// On the resource: the voters, by name and with commas between them, whose servers are stopped and stay so, with their volumes as they
/// are, until they are named no more.
pub const ANNOTATION_FENCED: &str = "quorate.dev/fenced";
/// On a member's pod: hash of those of its inputs that only a restart can change, which are all but its resources.
pub const ANNOTATION_RESTART_INPUTS: &str = "quorate.dev/restart-inputs";
/// On a member's pod: the inputs whose resources its kubelet was asked to provide, and when, in seconds since 1970.
pub const ANNOTATION_RESIZE: &str = "quorate.dev/resize";
/// On a PVC: the storage that the specification asked for when the PVC was created or last followed it, as JSON.
pub const ANNOTATION_STORAGE: &str = "quorate.dev/storage";
/// Number of the builder that rendered an object.
pub const ANNOTATION_BUILDER: &str = "quorate.dev/builder";

/// On the objects of a backup, a schedule or a restore: `backup`, `schedule` or `cluster`.
pub const LABEL_BACKUP_OWNER_KIND: &str = "quorate.dev/backup-owner-kind";
/// Its name.
pub const LABEL_BACKUP_OWNER: &str = "quorate.dev/backup-owner";
/// On a Job: what it does.
pub const LABEL_BACKUP_JOB: &str = "quorate.dev/backup-job";
/// On a Job: its number.
pub const LABEL_BACKUP_ATTEMPT: &str = "quorate.dev/backup-attempt";
/// On a Job that gives a recovered cluster its data: UID of the EtcdRecovery.
pub const LABEL_RECOVERY: &str = "quorate.dev/recovery";
/// On the pods of a Job that saves or restores: UID of the cluster whose peer ports admit it.
pub const LABEL_BACKUP_OF: &str = "quorate.dev/backup-of";
/// On a Job: where its store was when it was created.
pub const ANNOTATION_BACKUP_LOCATION: &str = "quorate.dev/backup-location";
/// The seconds after which a Job that archives stores what is new.
pub const ANNOTATION_ARCHIVE_INTERVAL: &str = "quorate.dev/archive-interval";
/// On a Job that follows another cluster: what it was made from.
pub const ANNOTATION_FOLLOW: &str = "quorate.dev/follow";
/// On an `EtcdBackup`: name of the schedule that created it.
pub const LABEL_BACKUP_SCHEDULE: &str = "quorate.dev/backup-schedule";
/// On an `EtcdBackup`: it is verified again if its last verification is older than this time (RFC 3339).
pub const ANNOTATION_VERIFY: &str = "quorate.dev/verify";
/// On an `EtcdBackup`: since when its store does not have it (RFC 3339).
pub const ANNOTATION_GONE: &str = "quorate.dev/gone";

/// The finalizer of a cluster that is saved before it is deleted.
pub const FINALIZER_BACKUP: &str = "quorate.dev/backup-before-deletion";
/// On a resource that is being deleted: it goes without its last backup. Any value but `false`.
pub const ANNOTATION_NO_LAST_BACKUP: &str = "quorate.dev/delete-without-backup";

/// The finalizer of a cluster that follows another one: that one is not left closed to writes.
pub const FINALIZER_SOURCE: &str = "quorate.dev/open-followed-cluster";
/// On a resource that is being deleted or hibernates: the cluster that it follows may stay closed to writes. Any value but
/// `false`.
pub const ANNOTATION_LEAVE_CLOSED: &str = "quorate.dev/leave-source-closed";

/// The finalizer of a user or a role that is deleted in the cluster before the resource goes.
pub const FINALIZER_ACCESS: &str = "quorate.dev/delete-in-cluster";
/// On a connection Secret: name of its EtcdUser.
pub const LABEL_USER: &str = "quorate.dev/user";
/// On a connection Secret: when the operator made the password in it (RFC 3339).
pub const ANNOTATION_PASSWORD_MADE: &str = "quorate.dev/password-made";

/// The version of a StatefulSet's image, where the spec names a version and no image.
pub const ANNOTATION_VERSION: &str = "quorate.dev/version";
/// That image.
pub const ANNOTATION_IMAGE: &str = "quorate.dev/image";
/// Hash of a StatefulSet's rendering.
pub const ANNOTATION_RENDERED: &str = "quorate.dev/rendered";

/// Name of the identity Secret of a cluster.
pub fn identity_secret_name(cluster: &str) -> String {
    format!("{cluster}-identity")
}

/// Name of the Secret with the key that authenticates the operator to the members.
pub fn operator_secret_name(cluster: &str) -> String {
    format!("{cluster}-operator")
}

/// Name of the headless Service that publishes every member, ready or not.
pub fn peers_service_name(cluster: &str) -> String {
    format!("{cluster}-peers")
}

/// Name of the Service for clients: ready voters only.
pub fn client_service_name(cluster: &str) -> String {
    format!("{cluster}-client")
}

/// Name of the Service of a slot: the endpoint of the voter that the slot is mapped to.
pub fn slot_service_name(cluster: &str, slot: u32) -> String {
    format!("{}-{slot}", client_service_name(cluster))
}

/// Number of a slot of this cluster by the name of its Service; `None` for any other name.
pub fn slot_number(cluster: &str, service: &str) -> Option<u32> {
    member_number(&client_service_name(cluster), service).and_then(|n| u32::try_from(n).ok())
}

/// Name of the PodDisruptionBudget of a cluster.
pub fn pdb_name(cluster: &str) -> String {
    cluster.to_owned()
}

/// Name of the NetworkPolicy of a cluster.
pub fn network_policy_name(cluster: &str) -> String {
    cluster.to_owned()
}

/// Name of member `n` of a cluster, also the name of its StatefulSet.
pub fn member_name(cluster: &str, n: u64) -> String {
    format!("{cluster}-{n}")
}

/// Number of a member of this cluster by its name; `None` for a name that is not ours. Numbers beyond 32 bits are
/// ignored, so that a made-up number cannot exhaust them.
pub fn member_number(cluster: &str, member: &str) -> Option<u64> {
    let digits = member.strip_prefix(cluster)?.strip_prefix('-')?;
    let plain = digits.bytes().all(|b| b.is_ascii_digit());
    let canonical = digits == "0" || !digits.starts_with('0');
    if plain && canonical {
        digits.parse::<u32>().ok().map(u64::from)
    } else {
        None
    }
}

/// Name of the PVC of a member: the cluster's UID distinguishes clusters that had the same name.
pub fn pvc_name(member: &str, cluster_uid: &str) -> String {
    let uid: String = cluster_uid
        .chars()
        .filter(char::is_ascii_alphanumeric)
        .take(5)
        .collect();
    format!("data-{member}-{}", uid.to_ascii_lowercase())
}

/// Name of the pod of a member: its StatefulSet has exactly one.
pub fn pod_name(member: &str) -> String {
    format!("{member}-0")
}
