//! One reconcile of the deletion of a cluster that is saved first, or that follows another one: observes the resource and
//! its last EtcdBackup, plans (`super::source`), carries out one step, and notes for
//! the cluster's own reconcile what the deletion waits for. What it writes of the resource are its own finalizers, and
//! nothing else.

use jiff::SignedDuration;
use kube::api::{ObjectMeta, PostParams};
use kube::runtime::events::{Event, EventType};
use kube::{Api, Resource, ResourceExt};

use super::source::{Seen, Step, is_seen_open, source_of};
use super::{Backups, PERIOD_MS, facts};
use crate::backup_plan::{
    DeletionStep, LetGo, ObservedDeletion, ObservedSource, SeenBackup, SourceStep, last_backup_name,
};
use crate::crd::backups::{EtcdBackup, EtcdBackupSpec, LocalRef};
use crate::crd::{
    ANNOTATION_NO_LAST_BACKUP, EtcdCluster, FINALIZER_BACKUP, FINALIZER_SOURCE, FollowPhase,
    MANAGER,
};
use crate::operator::kubernetes::facts::is_asked;
use crate::operator::kubernetes::objects::{failure, set_finalizer};
use crate::operator::platform::{Failure, Freshness};
use crate::operator::queue::Ended;

/// Clocks of API servers differ by less.
const CLOCKS: SignedDuration = SignedDuration::from_secs(60);

/// The finalizer that Kubernetes itself adds for `--cascade=foreground`.
pub(super) const FOREGROUND: &str = "foregroundDeletion";
/// Characters of an event.
const MOST_NOTE: usize = 1000;
/// While a backup is made: its phase has no event of the cluster.
const WAITING_MS: u64 = 2_000;

/// Whether a finalizer of ours is on a resource.
pub(in crate::operator::kubernetes) fn is_held(meta: &ObjectMeta) -> bool {
    has(meta, FINALIZER_BACKUP) || has(meta, FINALIZER_SOURCE)
}

/// Whether a finalizer of ours has to be added to a resource, or removed.
pub(in crate::operator::kubernetes) fn is_due(cluster: &EtcdCluster) -> bool {
    let meta = &cluster.metadata;
    let saved = cluster.spec.backup_before_deletion.is_some();
    has(meta, FINALIZER_BACKUP) != saved || has(meta, FINALIZER_SOURCE) != facts::follows(cluster)
}

pub(super) fn has(meta: &ObjectMeta, finalizer: &str) -> bool {
    let mut all = meta.finalizers.iter().flatten();
    all.any(|it| it == finalizer)
}

impl Backups {
    /// Plans on the caches; a step is planned once more on a live resource and a live backup.
    pub(super) async fn reconcile_deletion(
        &self,
        namespace: &str,
        name: &str,
    ) -> Result<Ended, Failure> {
        let Some((_, cached)) = self
            .observe_deletion(namespace, name, Freshness::Cached)
            .await?
        else {
            return Ok(Ended::Gone);
        };
        let (step, facts) = cached.plan();
        let key = (namespace.to_owned(), name.to_owned());
        let waits = facts.is_some();
        if facts.as_ref().is_some_and(|facts| facts.of_source) {
            self.shared.backup_notes.look_at_follow(&key);
        }
        self.shared.backup_notes.note_last_backup(key, facts);
        if step.is_none() {
            return Ok(match waits {
                true => Ended::After(WAITING_MS),
                false => Ended::Gone,
            });
        }
        let Some((cluster, live)) = self
            .observe_deletion(namespace, name, Freshness::Live)
            .await?
        else {
            return Ok(Ended::Gone);
        };
        let (step, _) = live.plan();
        match step {
            Some(Step::OfSource(step)) => {
                self.act_for_source(&cluster, &live.of_source, step).await?
            }
            Some(Step::OfBackup(step)) => {
                self.act_for_deletion(&cluster, &live.of_backup, &step)
                    .await?;
            }
            None => {}
        }
        Ok(Ended::After(if live.of_backup.deleting {
            WAITING_MS
        } else {
            PERIOD_MS
        }))
    }

    /// A cluster with what its deletion depends on; `None`: there is none.
    async fn observe_deletion(
        &self,
        namespace: &str,
        name: &str,
        freshness: Freshness,
    ) -> Result<Option<(EtcdCluster, Seen)>, Failure> {
        let found: Option<EtcdCluster> = match freshness {
            Freshness::Cached => self.cached_cluster(namespace, name),
            Freshness::Live => self.live(namespace, name).await?,
        };
        let Some(cluster) = found else {
            return Ok(None);
        };
        let of_source = source_of(&cluster, self.now());
        let mut observed = of_resource(&cluster);
        if let Some(store) = observed.store.clone().filter(|_| observed.deleting) {
            let last = last_backup_name(name, &observed.uid, &store);
            let backup: Option<EtcdBackup> = match freshness {
                Freshness::Cached => self.backup(namespace, &last),
                Freshness::Live => self.live(namespace, &last).await?,
            };
            observed.backup = backup.map(|backup| seen(&cluster, &store, &backup));
        }
        let seen = Seen {
            of_source,
            of_backup: observed,
        };
        Ok(Some((cluster, seen)))
    }

    async fn act_for_source(
        &self,
        cluster: &EtcdCluster,
        observed: &ObservedSource,
        step: SourceStep,
    ) -> Result<(), Failure> {
        let SourceStep::LetGo(why) = step else {
            return self.set_finalizer(cluster, FINALIZER_SOURCE, true).await;
        };
        if let Some(note) = why.in_words(observed) {
            self.tell(cluster, (EventType::Warning, "SourceClosed"), note)
                .await;
        }
        self.set_finalizer(cluster, FINALIZER_SOURCE, false).await
    }

    async fn act_for_deletion(
        &self,
        cluster: &EtcdCluster,
        observed: &ObservedDeletion,
        step: &DeletionStep,
    ) -> Result<(), Failure> {
        match step {
            DeletionStep::Hold => self.set_finalizer(cluster, FINALIZER_BACKUP, true).await,
            DeletionStep::LetGo(why) => self.let_go(cluster, observed, *why).await,
            DeletionStep::CreateBackup { name, store } => {
                match self.create_last_backup(cluster, name, store).await {
                    Err(error) if namespace_goes(&error) => {
                        self.let_go(cluster, observed, LetGo::NamespaceGoes).await
                    }
                    Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
                    done => done.map_err(|error| failure("create", name, &error)),
                }
            }
        }
    }

    /// The event first: what is said twice is better than what is not said.
    async fn let_go(
        &self,
        cluster: &EtcdCluster,
        observed: &ObservedDeletion,
        why: LetGo,
    ) -> Result<(), Failure> {
        let store = observed.store.as_deref().unwrap_or_default();
        let backup = last_backup_name(&observed.cluster, &observed.uid, store);
        if let Some(note) = why.in_words(&backup) {
            let event = match why.is_a_loss() {
                true => (EventType::Warning, "DeletedWithoutBackup"),
                false => (EventType::Normal, "DeletionGoesOn"),
            };
            self.tell(cluster, event, note).await;
        }
        self.set_finalizer(cluster, FINALIZER_BACKUP, false).await
    }

    /// Writes an event. In a namespace that is being deleted none can be written: then the log has it.
    async fn tell(&self, cluster: &EtcdCluster, (type_, reason): (EventType, &str), note: String) {
        let (namespace, name) = (cluster.namespace().unwrap_or_default(), cluster.name_any());
        tracing::info!(%namespace, cluster = %name, "{note}");
        let event = Event {
            type_,
            reason: reason.to_owned(),
            // The API server refuses one of more than 1024 bytes.
            note: Some(note.chars().take(MOST_NOTE).collect()),
            action: "Delete".to_owned(),
            secondary: None,
        };
        let about = cluster.object_ref(&());
        if let Err(error) = self.shared.recorder.publish(&event, &about).await {
            tracing::warn!(cluster = %name, %error, "an event was not written");
        }
    }

    async fn set_finalizer(
        &self,
        cluster: &EtcdCluster,
        finalizer: &str,
        held: bool,
    ) -> Result<(), Failure> {
        set_finalizer(&self.shared.client, cluster, finalizer, held).await
    }

    /// Without an owner: it outlives the cluster.
    async fn create_last_backup(
        &self,
        cluster: &EtcdCluster,
        name: &str,
        store: &str,
    ) -> Result<(), kube::Error> {
        let namespace = cluster.namespace().unwrap_or_default();
        let api: Api<EtcdBackup> = Api::namespaced(self.shared.client.clone(), &namespace);
        let spec = EtcdBackupSpec {
            cluster_ref: LocalRef {
                name: cluster.name_any(),
            },
            store_ref: LocalRef {
                name: store.to_owned(),
            },
            deadline_seconds: EtcdBackupSpec::DEADLINE_SECONDS,
            ..EtcdBackupSpec::default()
        };
        let backup = EtcdBackup::new(name, spec);
        let parameters = PostParams {
            field_manager: Some(MANAGER.into()),
            ..PostParams::default()
        };
        api.create(&parameters, &backup).await.map(|_| ())
    }
}

/// What the resource says of its deletion.
pub(super) fn of_resource(cluster: &EtcdCluster) -> ObservedDeletion {
    let meta = &cluster.metadata;
    let asked = cluster.spec.backup_before_deletion.as_ref();
    let status = cluster.status.as_ref();
    ObservedDeletion {
        cluster: cluster.name_any(),
        uid: cluster.uid().unwrap_or_default(),
        store: asked.map(|asked| asked.store_ref.name.clone()),
        held: has(meta, FINALIZER_BACKUP),
        deleting: meta.deletion_timestamp.is_some(),
        foreground: has(meta, FOREGROUND),
        // One that is being recovered has data, and an adopted one whose members never came up, if it has any.
        formed: status.is_some_and(|status| {
            let adopted = cluster.spec.adopts().is_some() && !status.members.is_empty();
            let recovered = status.incarnation.is_some_and(|number| number > 1);
            status.cluster_id.is_some() || adopted || recovered
        }),
        follows: facts::has_no_data_of_its_own(cluster) || is_seen_open(cluster),
        may_follow: !has(meta, FINALIZER_SOURCE)
            && status
                .and_then(|it| it.follow.as_ref())
                .is_some_and(|it| it.phase != FollowPhase::CutOver),
        waived: is_asked(meta, ANNOTATION_NO_LAST_BACKUP),
        backup: None,
    }
}

fn seen(cluster: &EtcdCluster, store: &str, backup: &EtcdBackup) -> SeenBackup {
    let status = backup.status.clone().unwrap_or_default();
    let (asked, made) = (
        cluster.metadata.deletion_timestamp.as_ref(),
        backup.metadata.creation_timestamp.as_ref(),
    );
    // The two times may be of two API servers.
    let younger = asked.is_some_and(|asked| made.is_some_and(|made| made.0 + CLOCKS >= asked.0));
    let spec = &backup.spec;
    SeenBackup {
        is_last: younger
            && spec.cluster_ref.name == cluster.name_any()
            && spec.store_ref.name == store,
        phase: status.phase,
        message: status.message,
        deleting: backup.metadata.deletion_timestamp.is_some(),
    }
}

/// Whether the API server refuses to create anything, because the namespace is being deleted.
fn namespace_goes(error: &kube::Error) -> bool {
    let kube::Error::Api(status) = error else {
        return false;
    };
    let causes = status.details.iter().flat_map(|details| &details.causes);
    let mut reasons = causes.map(|cause| cause.reason.as_str());
    status.code == 403 && reasons.any(|reason| reason == "NamespaceTerminating")
}

#[cfg(test)]
pub(super) mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::operator::kubernetes::objects::finalizer_change;

    pub(in crate::operator::kubernetes::backups) fn cluster(
        metadata: Value,
        spec: Value,
    ) -> EtcdCluster {
        let mut all =
            json!({"name": "demo", "namespace": "prod", "uid": "u1", "resourceVersion": "7"});
        for (key, value) in metadata.as_object().expect("an object") {
            all[key] = value.clone();
        }
        let resource = json!({"apiVersion": "quorate.dev/v1alpha1", "kind": "EtcdCluster",
            "metadata": all, "spec": spec});
        serde_json::from_value(resource).expect("a cluster")
    }

    fn asked() -> Value {
        json!({"backupBeforeDeletion": {"storeRef": {"name": "nightly"}}})
    }

    /// A status that is lost, or behind a cutover that is under way, gives no backup up.
    #[test]
    fn only_who_surely_follows_is_not_saved() {
        let follows = |cutover: &str, phase: Value| {
            let follow = json!({"endpoints": ["http://a:2379"], "cutover": cutover});
            let mut found = cluster(json!({}), json!({"bootstrap": {"follow": follow}}));
            let status = json!({"clusterID": "9f", "follow": phase});
            found.status = serde_json::from_value(status).expect("a status");
            of_resource(&found).follows
        };
        assert!(follows("Manual", json!({"phase": "Following"})));
        assert!(!follows("WhenCaughtUp", json!({"phase": "Following"})));
        assert!(!follows("Manual", json!({"phase": "Frozen"})));
        assert!(!follows("Manual", json!({"phase": "CutOver"})));
        assert!(!follows("Manual", Value::Null));
    }

    #[test]
    fn a_resource_says_what_its_deletion_depends_on() {
        let plain = of_resource(&cluster(json!({}), json!({})));
        assert_eq!(
            (plain.store, plain.held, plain.deleting),
            (None, false, false)
        );
        let metadata = json!({
            "deletionTimestamp": "2026-03-01T00:00:00Z",
            "finalizers": [FINALIZER_BACKUP, "foregroundDeletion"],
            "annotations": {ANNOTATION_NO_LAST_BACKUP: "true"},
        });
        let goes = of_resource(&cluster(metadata, asked()));
        assert_eq!(goes.store.as_deref(), Some("nightly"));
        assert!(goes.held && goes.deleting && goes.foreground && goes.waived && !goes.formed);
        let refused = json!({"annotations": {ANNOTATION_NO_LAST_BACKUP: "false"}});
        assert!(!of_resource(&cluster(refused, asked())).waived);
        let adopted = json!({"bootstrap": {"adopt": {"clusterUID": "u0"}}});
        let mut adopts = cluster(json!({}), adopted);
        assert!(!of_resource(&adopts).formed, "it found nothing to adopt");
        let member = json!({"members": [{"name": "demo-1", "role": "Voter", "health": "Unknown"}]});
        adopts.status = Some(serde_json::from_value(member).expect("a status"));
        assert!(of_resource(&adopts).formed);
        let mut recovers = cluster(json!({}), asked());
        recovers.status =
            Some(serde_json::from_value(json!({"incarnation": 2})).expect("a status"));
        assert!(of_resource(&recovers).formed);
    }

    #[test]
    fn only_a_backup_of_this_deletion_counts() {
        let goes = cluster(
            json!({"deletionTimestamp": "2026-03-01T00:00:00Z"}),
            asked(),
        );
        let backup = |created: &str, name: &str, store: &str| -> EtcdBackup {
            let backup = json!({"apiVersion": "quorate.dev/v1alpha1", "kind": "EtcdBackup",
                "metadata": {"name": "demo-last-1", "creationTimestamp": created},
                "spec": {"clusterRef": {"name": name}, "storeRef": {"name": store}},
                "status": {"phase": "Uploaded"}});
            serde_json::from_value(backup).expect("a backup")
        };
        let is_last =
            |created, name, store| seen(&goes, "nightly", &backup(created, name, store)).is_last;
        assert!(is_last("2026-03-01T00:00:00Z", "demo", "nightly"));
        assert!(
            !is_last("2026-02-28T23:58:59Z", "demo", "nightly"),
            "older than the deletion"
        );
        assert!(!is_last("2026-03-01T00:00:01Z", "other", "nightly"));
        assert!(!is_last("2026-03-01T00:00:01Z", "demo", "other"));
    }

    #[test]
    fn no_other_finalizer_is_touched() {
        let held = cluster(
            json!({"finalizers": ["a/b", FINALIZER_BACKUP, "c/d"]}),
            asked(),
        );
        assert!(is_held(&held.metadata));
        assert_eq!(
            finalizer_change(&held, FINALIZER_BACKUP, false)["metadata"]["finalizers"],
            json!(["a/b", "c/d"])
        );
        assert_eq!(
            finalizer_change(&held, FINALIZER_BACKUP, false)["metadata"]["resourceVersion"],
            "7"
        );
        let free = cluster(json!({"finalizers": ["a/b"]}), asked());
        assert!(!is_held(&free.metadata));
        assert_eq!(
            finalizer_change(&free, FINALIZER_BACKUP, true)["metadata"]["finalizers"],
            json!(["a/b", FINALIZER_BACKUP])
        );
    }

    /// As the API server answers.
    #[test]
    fn a_namespace_that_goes_is_recognised() {
        let answer = |reason: &str| -> kube::Error {
            let status = json!({"status": "Failure", "code": 403, "reason": "Forbidden",
                "message": "etcdbackups.quorate.dev \"demo-last-1\" is forbidden: unable to create new content in namespace prod because it is being terminated",
                "details": {"causes": [{"reason": reason, "message": "namespace prod is being terminated", "field": "metadata.namespace"}]}});
            kube::Error::Api(serde_json::from_value(status).expect("a status"))
        };
        assert!(namespace_goes(&answer("NamespaceTerminating")));
        assert!(!namespace_goes(&answer("FieldValueInvalid")));
    }
}
