//! The Job of a backup, a verification, a prune, a restore or an archive, or of a cluster that follows another one
//! (`follow_job`), and the Secret with the key by which it talks to a member. One pod of the server's image, restricted as
//! the members' are; its result is its termination message.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::batch::v1::{
    Job, JobSpec, PodFailurePolicy, PodFailurePolicyOnExitCodesRequirement,
    PodFailurePolicyOnPodConditionsPattern, PodFailurePolicyRule,
};
use k8s_openapi::api::core::v1::{
    Container, EmptyDirVolumeSource, EnvFromSource, EnvVar, EphemeralVolumeSource, KeyToPath,
    PersistentVolumeClaimSpec, PersistentVolumeClaimTemplate, PersistentVolumeClaimVolumeSource,
    PodSpec, PodTemplateSpec, ResourceRequirements, Secret, SecretEnvSource, SecretVolumeSource,
    Volume, VolumeMount, VolumeResourceRequirements,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};

use crate::crd::backups::{EtcdBackupStoreSpec, ScheduleRetention, Scratch, SecretKeyRef};
use crate::crd::{
    ANNOTATION_ARCHIVE_INTERVAL, ANNOTATION_BACKUP_LOCATION, ANNOTATION_FOLLOW, APP,
    FollowedCluster, LABEL_BACKUP_ATTEMPT, LABEL_BACKUP_JOB, LABEL_BACKUP_OF, LABEL_BACKUP_OWNER,
    LABEL_BACKUP_OWNER_KIND, LABEL_RECOVERY, MANAGER, Survivor, TlsPort, ValidatedCluster,
    authority_secret_name, peers_service_name,
};

use super::certificates::CA_CERTIFICATES;
use super::common::{PEER_PORT, Settings, strings};
use super::follow_job;
use super::image::{cluster_image, pull_policy, pull_secrets};
use super::member::host;
use super::pod::{EPHEMERAL, restricted_container, restricted_pod};

/// Value of `app.kubernetes.io/component` of a backup's pods.
pub(super) const BACKUP_COMPONENT: &str = "backup";
/// The only container.
pub const BACKUP_CONTAINER: &str = "backup";
/// Name of the key for the member that a Job saves, or that it gives data.
pub const KEY_OF_MEMBER: &str = "key";
/// Name of the key for a member of the incarnation before, whose data a Job reads.
pub const KEY_OF_SURVIVOR: &str = "survivor";
/// Where Kubernetes takes a result from.
const RESULT_FILE: &str = "/dev/termination-log";
const SCRATCH: &str = "/scratch";
const STORE: &str = "/backups";
const MEMBER_KEY: &str = "/etc/quorate/backup";
const ROOTS: &str = "/etc/quorate/peer";
const STORE_ROOTS: &str = "/etc/quorate/store";
const KEYS: &str = "/etc/quorate/encryption";
/// MiB a second that a member writes for a backup and sends, where its resource names no other rate: as fast as those who
/// write at the leader hardly notice (docs/figures.md).
const RATE: i32 = 25;
/// A Job is ended after this; `quorate backup save` gives up by itself before.
const LONGEST_SECONDS: i64 = 13 * 3600;
/// Exit code of a process that was called wrongly: repeating it does not help.
const USAGE_CODE: i32 = 2;

/// The resource that a Job belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackupOwner {
    /// `EtcdBackup`, `EtcdBackupSchedule` or `EtcdCluster`.
    pub kind: &'static str,
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
}

impl BackupOwner {
    /// The value of the label of the kind.
    #[must_use]
    pub fn label(&self) -> &'static str {
        match self.kind {
            "EtcdBackup" => "backup",
            "EtcdCluster" => "cluster",
            _ => "schedule",
        }
    }
}

/// What a Job does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BackupWork {
    /// Saves under a name.
    Save {
        /// The name in the store.
        id: String,
        /// MiB a second at most.
        rate: Option<i32>,
    },
    /// Verifies a backup.
    Verify {
        /// The name in the store.
        id: String,
    },
    /// Applies a retention.
    Prune {
        /// What is kept.
        retention: ScheduleRetention,
        /// Where days and weeks begin.
        time_zone: String,
        /// For so many seconds back the archive is kept, where there is one; 0: behind every backup.
        archive_window: Option<i32>,
    },
    /// Stores what is committed, until it is ended.
    Archive {
        /// Seconds after which what is new is stored.
        interval: i32,
    },
    /// Gives a member that forms a cluster its first data, from a store.
    Restore {
        /// Where they are below the store's prefix.
        path: String,
        /// The moment that is restored from the archive behind the backup, as `--at` takes it.
        at: Option<String>,
        /// The member.
        seed: String,
        /// The recovery that asks for it, if one does.
        recovery: Option<Recovers>,
    },
    /// The same from a member of the incarnation before. Needs no store.
    Recover {
        /// Whose data, and what its disk holds at least.
        survivor: Survivor,
        /// The member.
        seed: String,
        /// The recovery that asks for it.
        recovery: Recovers,
    },
    /// The same from a living cluster. Needs no store.
    Seed {
        /// The cluster.
        follow: FollowedCluster,
        /// The member.
        seed: String,
    },
    /// Applies what is written in a living cluster, until its place is taken. Needs no store.
    Follow {
        /// The cluster, and when its place is taken.
        follow: FollowedCluster,
        /// What it is made from: another text asks for another Job.
        made_from: String,
    },
}

/// The recovery that a Job is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recovers {
    /// UID of the EtcdRecovery.
    pub uid: String,
    /// The incarnation that gets the data.
    pub incarnation: u64,
}

impl BackupWork {
    fn name(&self) -> &'static str {
        match self {
            BackupWork::Save { .. } => "save",
            BackupWork::Verify { .. } => "verify",
            BackupWork::Prune { .. } => "prune",
            BackupWork::Archive { .. } => "archive",
            BackupWork::Restore { .. } | BackupWork::Recover { .. } | BackupWork::Seed { .. } => {
                "restore"
            }
            BackupWork::Follow { .. } => "follow",
        }
    }

    /// The subcommand of `quorate` that does it.
    fn command(&self) -> [&'static str; 2] {
        match self {
            BackupWork::Seed { .. } => ["follow", "seed"],
            BackupWork::Follow { .. } => ["follow", "run"],
            _ => ["backup", self.name()],
        }
    }

    /// The living cluster that it reads.
    fn source(&self) -> Option<&FollowedCluster> {
        match self {
            BackupWork::Seed { follow, .. } | BackupWork::Follow { follow, .. } => Some(follow),
            _ => None,
        }
    }

    fn recovery(&self) -> Option<&Recovers> {
        match self {
            BackupWork::Restore { recovery, .. } => recovery.as_ref(),
            BackupWork::Recover { recovery, .. } => Some(recovery),
            BackupWork::Save { .. }
            | BackupWork::Verify { .. }
            | BackupWork::Prune { .. }
            | BackupWork::Archive { .. }
            | BackupWork::Seed { .. }
            | BackupWork::Follow { .. } => None,
        }
    }

    /// Part of a Job's name: no two incarnations of a cluster have Jobs of one name.
    fn part(&self) -> String {
        match self.recovery() {
            Some(recovery) => format!("{}-{}", self.name(), recovery.incarnation),
            None => self.name().to_owned(),
        }
    }

    /// Whether it talks to members, and needs a key for that.
    fn calls_members(&self) -> bool {
        match self {
            BackupWork::Save { .. }
            | BackupWork::Archive { .. }
            | BackupWork::Restore { .. }
            | BackupWork::Recover { .. }
            | BackupWork::Seed { .. }
            | BackupWork::Follow { .. } => true,
            BackupWork::Verify { .. } | BackupWork::Prune { .. } => false,
        }
    }
}

/// The name of a Job.
#[must_use]
pub fn backup_job_name(owner: &str, work: &str, attempt: u32) -> String {
    format!("{owner}-{work}-{attempt}")
}

/// The name of the Secret with the keys of a Job that calls members.
#[must_use]
pub fn backup_key_name(job: &str) -> String {
    format!("{job}-key")
}

/// Where the backups of a cluster are in a store: all that decides it, so that two places never have one text.
#[must_use]
pub fn backup_location(store: &EtcdBackupStoreSpec, namespace: &str, cluster: &str) -> String {
    let url = format!("{}/{namespace}/{cluster}", store_url(store));
    let endpoint = store.s3.as_ref().and_then(|it| it.endpoint.clone());
    let azure = store.azure.as_ref();
    let azure = azure.map(|it| it.endpoint.clone().unwrap_or_else(|| it.account.clone()));
    match endpoint.or(azure) {
        Some(server) => format!("{url} at {server}"),
        None => url,
    }
}

/// The URL of a store, for people.
#[must_use]
pub fn store_url(store: &EtcdBackupStoreSpec) -> String {
    let below = |prefix: &Option<String>| match prefix {
        Some(prefix) => format!("/{prefix}"),
        None => String::new(),
    };
    match store {
        EtcdBackupStoreSpec { s3: Some(it), .. } => {
            format!("s3://{}{}", it.bucket, below(&it.prefix))
        }
        EtcdBackupStoreSpec { gcs: Some(it), .. } => {
            format!("gs://{}{}", it.bucket, below(&it.prefix))
        }
        EtcdBackupStoreSpec {
            azure: Some(it), ..
        } => {
            format!("az://{}{}", it.container, below(&it.prefix))
        }
        EtcdBackupStoreSpec {
            volume: Some(it), ..
        } => {
            format!("pvc://{}{}", it.claim_name, below(&it.prefix))
        }
        _ => String::new(),
    }
}

/// The Secret with the keys by which a Job calls members, by their names in it; it goes with the Job.
#[must_use]
pub fn backup_key_secret(
    namespace: &str,
    owner: &BackupOwner,
    (job, job_uid): (&str, &str),
    keys: &[(&str, &[u8])],
) -> Secret {
    let keys = keys.iter();
    let data = keys.map(|(name, key)| ((*name).to_owned(), ByteString(key.to_vec())));
    let data: BTreeMap<String, ByteString> = data.collect();
    let mut metadata = metadata(namespace, backup_key_name(job), owner);
    metadata.owner_references = Some(vec![OwnerReference {
        api_version: "batch/v1".to_owned(),
        kind: "Job".to_owned(),
        name: job.to_owned(),
        uid: job_uid.to_owned(),
        controller: Some(true),
        block_owner_deletion: None,
    }]);
    Secret {
        metadata,
        type_: Some("quorate.dev/backup-key".to_owned()),
        data: Some(data),
        ..Secret::default()
    }
}

/// A Job. `store`: the default of one for work that needs none.
#[must_use]
pub fn backup_job(
    cluster: &ValidatedCluster,
    settings: &Settings,
    store: &EtcdBackupStoreSpec,
    owner: &BackupOwner,
    work: &BackupWork,
    attempt: u32,
) -> Job {
    let name = backup_job_name(&owner.name, &work.part(), attempt);
    let mut metadata = metadata(&cluster.namespace, name.clone(), owner);
    let location = match work {
        BackupWork::Restore { path, .. } => format!("{}/{path}", store_url(store)),
        BackupWork::Recover { survivor, .. } => format!("member {}", survivor.member),
        BackupWork::Seed { follow, .. } | BackupWork::Follow { follow, .. } => {
            follow.endpoints.join(",")
        }
        _ => backup_location(store, &cluster.namespace, &cluster.name),
    };
    let mut annotations = strings(&[(ANNOTATION_BACKUP_LOCATION, &location)]);
    if let BackupWork::Archive { interval } = work {
        annotations.insert(ANNOTATION_ARCHIVE_INTERVAL.to_owned(), interval.to_string());
    }
    if let BackupWork::Follow { made_from, .. } = work {
        annotations.insert(ANNOTATION_FOLLOW.to_owned(), made_from.clone());
    }
    metadata.annotations = Some(annotations);
    let labels = metadata.labels.get_or_insert_default();
    labels.insert(LABEL_BACKUP_JOB.to_owned(), work.name().to_owned());
    labels.insert(LABEL_BACKUP_ATTEMPT.to_owned(), attempt.to_string());
    if let Some(recovery) = work.recovery() {
        labels.insert(LABEL_RECOVERY.to_owned(), recovery.uid.clone());
    }
    let mut pod_labels = labels.clone();
    if work.calls_members() {
        pod_labels.insert(LABEL_BACKUP_OF.to_owned(), cluster.life.clone());
    }
    let template = ObjectMeta {
        labels: Some(pod_labels),
        ..ObjectMeta::default()
    };
    Job {
        metadata,
        spec: Some(JobSpec {
            // The operator repeats it: it knows for how long, and whether it helps.
            backoff_limit: Some(0),
            active_deadline_seconds: Some(LONGEST_SECONDS),
            pod_failure_policy: Some(failure_policy()),
            template: PodTemplateSpec {
                metadata: Some(template),
                spec: Some(pod(cluster, settings, store, &name, work)),
            },
            ..JobSpec::default()
        }),
        status: None,
    }
}

/// A pod that was evicted is made again, and does not count as a failure.
fn failure_policy() -> PodFailurePolicy {
    PodFailurePolicy {
        rules: vec![
            PodFailurePolicyRule {
                action: "Ignore".to_owned(),
                on_pod_conditions: Some(vec![PodFailurePolicyOnPodConditionsPattern {
                    type_: "DisruptionTarget".to_owned(),
                    status: Some("True".to_owned()),
                }]),
                ..PodFailurePolicyRule::default()
            },
            PodFailurePolicyRule {
                action: "FailJob".to_owned(),
                on_exit_codes: Some(PodFailurePolicyOnExitCodesRequirement {
                    container_name: Some(BACKUP_CONTAINER.to_owned()),
                    operator: "In".to_owned(),
                    values: vec![USAGE_CODE],
                }),
                ..PodFailurePolicyRule::default()
            },
        ],
    }
}

fn pod(
    cluster: &ValidatedCluster,
    settings: &Settings,
    store: &EtcdBackupStoreSpec,
    job: &str,
    work: &BackupWork,
) -> PodSpec {
    let user = &cluster.spec.pod_template.spec;
    let image = cluster_image(cluster, settings);
    let mounted = mounted(cluster, store, job, work);
    let (volumes, mounts) = mounted.into_iter().unzip();
    PodSpec {
        restart_policy: Some("Never".to_owned()),
        automount_service_account_token: Some(store.service_account_name.is_some()),
        service_account_name: store.service_account_name.clone(),
        enable_service_links: Some(false),
        security_context: Some(restricted_pod(settings)),
        node_selector: (!user.node_selector.is_empty()).then(|| user.node_selector.clone()),
        tolerations: (!user.tolerations.is_empty()).then(|| user.tolerations.clone()),
        image_pull_secrets: pull_secrets(cluster, settings),
        containers: vec![Container {
            name: BACKUP_CONTAINER.to_owned(),
            image_pull_policy: Some(pull_policy(&image)),
            image: Some(image),
            args: Some(arguments(cluster, store, work)),
            env: Some(environment(store)).filter(|all| !all.is_empty()),
            env_from: store.credentials_secret_ref.as_ref().map(|secret| {
                vec![EnvFromSource {
                    secret_ref: Some(SecretEnvSource {
                        name: secret.name.clone(),
                        optional: None,
                    }),
                    ..EnvFromSource::default()
                }]
            }),
            resources: Some(ResourceRequirements {
                requests: Some(BTreeMap::from([
                    ("cpu".to_owned(), Quantity("50m".to_owned())),
                    (
                        "ephemeral-storage".to_owned(),
                        Quantity(EPHEMERAL.to_owned()),
                    ),
                    ("memory".to_owned(), Quantity("128Mi".to_owned())),
                ])),
                ..ResourceRequirements::default()
            }),
            volume_mounts: Some(mounts),
            security_context: Some(restricted_container()),
            ..Container::default()
        }],
        volumes: Some(volumes),
        ..PodSpec::default()
    }
}

fn arguments(
    cluster: &ValidatedCluster,
    store: &EtcdBackupStoreSpec,
    work: &BackupWork,
) -> Vec<String> {
    let mut all: Vec<String> = work.command().map(str::to_owned).into();
    all.push(format!("--result-file={RESULT_FILE}"));
    match work {
        BackupWork::Recover { survivor, seed, .. } => {
            all.extend(from_survivor(cluster, survivor));
            all.extend(into_seed(cluster, seed));
            return all;
        }
        BackupWork::Seed { follow, seed } => {
            all.extend(follow_job::arguments(follow));
            all.extend(into_seed(cluster, seed));
            all.push(format!("--rate={RATE}"));
            return all;
        }
        BackupWork::Follow { follow, .. } => {
            all.extend(follow_job::arguments(follow));
            all.extend(any_member(cluster));
            all.extend(follow_job::until(follow.until));
            all.push(format!("--scratch={SCRATCH}"));
            return all;
        }
        _ => {}
    }
    // A restore names the whole path below the store's prefix.
    let folder = match work {
        BackupWork::Restore { .. } => None,
        _ => Some(format!("{}/{}", cluster.namespace, cluster.name)),
    };
    let (url, prefix) = match &store.volume {
        None => (store_url(store), None),
        // The volume's root exists, and nothing below it at first.
        Some(volume) => (format!("file://{STORE}"), volume.prefix.clone()),
    };
    let prefix: Vec<String> = [prefix, folder].into_iter().flatten().collect();
    all.push(format!("--to={url}"));
    if !prefix.is_empty() {
        all.push(format!("--prefix={}", prefix.join("/")));
    }
    let endpoint = store.s3.as_ref().and_then(|it| it.endpoint.as_ref());
    let endpoint = endpoint.or(store.azure.as_ref().and_then(|it| it.endpoint.as_ref()));
    all.extend(endpoint.map(|url| format!("--store-endpoint={url}")));
    if store.ca_secret_ref.is_some() {
        all.push(format!("--store-ca-file={STORE_ROOTS}/{CA_CERTIFICATES}"));
    }
    let keys = 0..keys(store).len();
    all.extend(keys.map(|number| format!("--key-file={KEYS}/{number}/key")));
    match work {
        BackupWork::Save { id, rate } => {
            all.extend(any_member(cluster));
            all.push(format!("--id={id}"));
            all.push(format!("--scratch={SCRATCH}"));
            all.push(format!("--rate={}", rate.unwrap_or(RATE)));
        }
        BackupWork::Verify { id } => {
            all.push(format!("--scratch={SCRATCH}"));
            all.push(id.clone());
        }
        BackupWork::Archive { interval } => {
            all.extend(any_member(cluster));
            all.push(format!("--interval={interval}s"));
            let location = backup_location(store, &cluster.namespace, &cluster.name);
            all.push(format!("--location={location}"));
        }
        BackupWork::Restore { path, at, seed, .. } => {
            all.extend(into_seed(cluster, seed));
            all.extend(at.iter().map(|moment| format!("--at={moment}")));
            all.push(path.clone());
        }
        // They have no store.
        BackupWork::Recover { .. } | BackupWork::Seed { .. } | BackupWork::Follow { .. } => {}
        BackupWork::Prune {
            retention,
            time_zone,
            archive_window,
        } => {
            let kept = [
                ("keep-last", retention.last),
                ("keep-hourly", retention.hourly),
                ("keep-daily", retention.daily),
                ("keep-weekly", retention.weekly),
                ("min-keep", retention.min_keep),
            ];
            all.extend(kept.map(|(flag, count)| format!("--{flag}={count}")));
            all.push(format!("--time-zone={time_zone}"));
            let window = archive_window.iter();
            all.extend(window.map(|seconds| format!("--archive-window={seconds}s")));
        }
    }
    all
}

/// How the member whose data are kept is called, and what it has to hold.
fn from_survivor(cluster: &ValidatedCluster, survivor: &Survivor) -> Vec<String> {
    let address = host(cluster, &survivor.member);
    let mut all = vec![format!("--survivor={address}:{PEER_PORT}")];
    all.extend(access(cluster, "survivor", KEY_OF_SURVIVOR));
    let expect = &survivor.expect;
    all.push(format!("--survivor-disk={}", expect.disk_uuid));
    all.push(format!("--survivor-term={}", expect.term));
    all.push(format!("--survivor-index={}", expect.index));
    all
}

/// How the member that receives the data is called.
fn into_seed(cluster: &ValidatedCluster, seed: &str) -> Vec<String> {
    let mut all = vec![format!("--member={}:{PEER_PORT}", host(cluster, seed))];
    all.extend(member_access(cluster));
    all.push(format!("--scratch={SCRATCH}"));
    all
}

/// Where the members are found that a Job may choose from, and how they are called.
fn any_member(cluster: &ValidatedCluster) -> Vec<String> {
    let (peers, namespace) = (peers_service_name(&cluster.name), &cluster.namespace);
    let mut all = vec![format!("--members={peers}.{namespace}.svc:{PEER_PORT}")];
    all.extend(member_access(cluster));
    all
}

/// How members are called.
fn member_access(cluster: &ValidatedCluster) -> Vec<String> {
    access(cluster, "member", KEY_OF_MEMBER)
}

fn access(cluster: &ValidatedCluster, whose: &str, key: &str) -> Vec<String> {
    let mut all = vec![format!("--{whose}-key-file={MEMBER_KEY}/{key}")];
    if cluster.spec.tls.is_some() {
        all.push(format!("--{whose}-cacert={ROOTS}/{CA_CERTIFICATES}"));
    }
    all
}

/// The newest key first, with which a backup is encrypted. An earlier attempt may have used another one.
fn keys(store: &EtcdBackupStoreSpec) -> Vec<&SecretKeyRef> {
    let encryption = store.encryption.iter();
    encryption
        .flat_map(|it| std::iter::once(&it.key_secret_ref).chain(&it.previous_key_secret_refs))
        .collect()
}

fn environment(store: &EtcdBackupStoreSpec) -> Vec<EnvVar> {
    let pairs = [
        (
            "AWS_REGION",
            store.s3.as_ref().and_then(|it| it.region.clone()),
        ),
        (
            "AZURE_STORAGE_ACCOUNT_NAME",
            store.azure.as_ref().map(|it| it.account.clone()),
        ),
    ];
    let given = pairs.into_iter().filter_map(|(name, value)| {
        Some(EnvVar {
            name: name.to_owned(),
            value: Some(value?),
            value_from: None,
        })
    });
    given.collect()
}

/// Volumes, and where they are mounted.
fn mounted(
    cluster: &ValidatedCluster,
    store: &EtcdBackupStoreSpec,
    job: &str,
    work: &BackupWork,
) -> Vec<(Volume, VolumeMount)> {
    let mut all = Vec::new();
    if !matches!(work, BackupWork::Prune { .. } | BackupWork::Archive { .. }) {
        all.push(at(SCRATCH, false, scratch(store.scratch.as_ref())));
    }
    if let Some(volume) = &store.volume {
        // What is restored may be what is left of another system.
        let reads = matches!(work, BackupWork::Restore { .. });
        let claim = Volume {
            name: "store".to_owned(),
            persistent_volume_claim: Some(PersistentVolumeClaimVolumeSource {
                claim_name: volume.claim_name.clone(),
                read_only: reads.then_some(true),
            }),
            ..Volume::default()
        };
        all.push(at(STORE, reads, claim));
    }
    if work.calls_members() {
        let name = backup_key_name(job);
        let mut files = vec![(KEY_OF_MEMBER, KEY_OF_MEMBER)];
        if matches!(work, BackupWork::Recover { .. }) {
            files.push((KEY_OF_SURVIVOR, KEY_OF_SURVIVOR));
        }
        all.push(secret("member-key", MEMBER_KEY, &name, &files));
        if let Some(tls) = &cluster.spec.tls {
            let trusted = match tls.user_secrets(&cluster.name, TlsPort::Peer) {
                Some((_, trusted)) => trusted,
                None => authority_secret_name(&cluster.name, TlsPort::Peer),
            };
            let files = [(CA_CERTIFICATES, CA_CERTIFICATES)];
            all.push(secret("peer", ROOTS, &trusted, &files));
        }
    }
    if let Some(follow) = work.source() {
        all.extend(follow_job::volumes(follow));
    }
    if let Some(roots) = &store.ca_secret_ref {
        let volume = secret(
            "store-ca",
            STORE_ROOTS,
            &roots.name,
            &[(&roots.key, CA_CERTIFICATES)],
        );
        all.push(volume);
    }
    for (number, key) in keys(store).into_iter().enumerate() {
        let (name, folder) = (format!("key-{number}"), format!("{KEYS}/{number}"));
        all.push(secret(&name, &folder, &key.name, &[(&key.key, "key")]));
    }
    all
}

/// Keys of a Secret as files of these names.
pub(super) fn secret(
    volume: &str,
    folder: &str,
    secret: &str,
    files: &[(&str, &str)],
) -> (Volume, VolumeMount) {
    let item = |(key, file): &(&str, &str)| KeyToPath {
        key: (*key).to_owned(),
        path: (*file).to_owned(),
        mode: None,
    };
    let volume = Volume {
        name: volume.to_owned(),
        secret: Some(SecretVolumeSource {
            secret_name: Some(secret.to_owned()),
            default_mode: Some(0o440),
            items: Some(files.iter().map(item).collect()),
            optional: None,
        }),
        ..Volume::default()
    };
    at(folder, true, volume)
}

pub(super) fn at(folder: &str, read_only: bool, volume: Volume) -> (Volume, VolumeMount) {
    let mount = VolumeMount {
        name: volume.name.clone(),
        mount_path: folder.to_owned(),
        read_only: read_only.then_some(true),
        ..VolumeMount::default()
    };
    (volume, mount)
}

fn scratch(asked: Option<&Scratch>) -> Volume {
    let name = "scratch".to_owned();
    let Some(asked) = asked else {
        return Volume {
            name,
            empty_dir: Some(EmptyDirVolumeSource::default()),
            ..Volume::default()
        };
    };
    let requests = BTreeMap::from([("storage".to_owned(), Quantity(asked.size.clone()))]);
    Volume {
        name,
        ephemeral: Some(EphemeralVolumeSource {
            volume_claim_template: Some(PersistentVolumeClaimTemplate {
                metadata: None,
                spec: PersistentVolumeClaimSpec {
                    access_modes: Some(vec!["ReadWriteOnce".to_owned()]),
                    storage_class_name: asked.storage_class_name.clone(),
                    resources: Some(VolumeResourceRequirements {
                        requests: Some(requests),
                        limits: None,
                    }),
                    ..PersistentVolumeClaimSpec::default()
                },
            }),
        }),
        ..Volume::default()
    }
}

fn metadata(namespace: &str, name: String, owner: &BackupOwner) -> ObjectMeta {
    ObjectMeta {
        name: Some(name),
        namespace: Some(namespace.to_owned()),
        labels: Some(strings(&[
            ("app.kubernetes.io/name", APP),
            ("app.kubernetes.io/component", BACKUP_COMPONENT),
            ("app.kubernetes.io/managed-by", MANAGER),
            (LABEL_BACKUP_OWNER_KIND, owner.label()),
            (LABEL_BACKUP_OWNER, &owner.name),
        ])),
        owner_references: Some(vec![OwnerReference {
            api_version: "quorate.dev/v1alpha1".to_owned(),
            kind: owner.kind.to_owned(),
            name: owner.name.clone(),
            uid: owner.uid.clone(),
            controller: Some(true),
            block_owner_deletion: None,
        }]),
        ..ObjectMeta::default()
    }
}
