//! A stranger in the clusters' namespace: whoever may make objects there. Its objects carry a
//! cluster's labels, its pods answer as members with the cluster's own key (whoever may make a pod
//! may mount any Secret of the namespace), and they lie. None of it may have any effect, and nothing
//! may be asked of them.

use serde_json::{Value, json};

use crate::crd::{
    LABEL_CLAIM_STATE, LABEL_CLUSTER, LABEL_CLUSTER_UID, LABEL_MEMBER, member_name, pod_name,
};
use crate::opsim::api::{Kind, object};
use crate::opsim::servers::Liar;

use super::containers::NAMESPACE;
use super::request_faults::lock;
use super::world::World;

const ACTOR: &str = "intruder";
/// On all that it makes, so that oracles distinguish it from a cluster's objects.
const MARK: &str = "opsim/intruder";
/// The number of a member that no cluster of a story ever has.
const NUMBER: u64 = 77;

/// Whether the stranger made this.
pub(crate) fn made(object: &Value) -> bool {
    object::label(object, MARK).is_some()
}

impl World {
    /// Has the stranger make what it has not made yet for each resource.
    pub(super) fn turn_intruder(&mut self) {
        if !self.intruder {
            return;
        }
        let api = self.api.clone();
        let mut api = api.lock();
        let resources: Vec<_> = api.all(Kind::EtcdCluster).cloned().collect();
        for resource in resources {
            let (cluster, uid) = (object::name(&resource), object::life(&resource));
            // Once a life: what somebody takes away stays away.
            if !self.intruded.insert(uid.to_owned()) {
                continue;
            }
            let mut set_uid = String::new();
            for (kind, name, mut made) in objects(cluster, uid) {
                if let Some(found) = api.get(kind, NAMESPACE, &name) {
                    if kind == Kind::StatefulSet {
                        set_uid = object::uid(&found).to_owned();
                    }
                    continue;
                }
                // A controller that is there: what is of one that is gone is collected.
                for owner in made["metadata"]["ownerReferences"]
                    .as_array_mut()
                    .into_iter()
                    .flatten()
                {
                    owner["uid"] = json!(set_uid);
                }
                let made = api.create(ACTOR, kind, made);
                debug_assert!(made.is_ok(), "{made:?}");
                if let (Ok(made), Kind::StatefulSet) = (&made, kind) {
                    set_uid = object::uid(made).to_owned();
                }
                let (Ok(made), Kind::Pod) = (made, kind) else {
                    continue;
                };
                self.intruders += 1;
                let ip = format!("10.66.0.{}", self.intruders);
                api.edit(ACTOR, Kind::Pod, (NAMESPACE, &name), |pod| {
                    pod["status"] = running(&ip);
                });
                let liar = Liar {
                    pod_uid: object::uid(&made).to_owned(),
                    cluster_uid: uid.to_owned(),
                };
                lock(&self.servers).liars.insert(ip, liar);
            }
        }
    }
}

fn objects(cluster: &str, uid: &str) -> Vec<(Kind, String, Value)> {
    let of = |name: &str, member: &str, mut more: Value| {
        let labels = json!({
            LABEL_CLUSTER: cluster, LABEL_CLUSTER_UID: uid, LABEL_MEMBER: member,
            LABEL_CLAIM_STATE: "joined", MARK: "yes",
            "app.kubernetes.io/component": "certificate",
        });
        more["metadata"]["name"] = json!(name);
        more["metadata"]["namespace"] = json!(NAMESPACE);
        more["metadata"]["labels"] = labels;
        more
    };
    let first = member_name(cluster, 1);
    let further = member_name(cluster, NUMBER);
    let pod = |member: &str, owners: Value| {
        json!({"metadata": {"ownerReferences": owners}, "spec": {
            "schedulerName": "of-nobody",
            "containers": [{"name": "member", "image": "registry.example/evil:1", "args":
                ["server", format!("--name={member}"), "--listen-peer-urls=http://0.0.0.0:2380"]}]}})
    };
    let forged = json!([{"apiVersion": "apps/v1", "kind": "StatefulSet", "name": further,
        "uid": "of its own set", "controller": true}]);
    let stray = format!("zz-{cluster}");
    let template = json!({"metadata": {"labels": {"app": stray}},
        "spec": {"containers": [{"name": "web", "image": "registry.example/web:1"}]}});
    let pvc = json!({"spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "of-nobody",
        "resources": {"requests": {"storage": "1Gi"}}}});
    vec![
        (
            Kind::StatefulSet,
            stray.clone(),
            of(
                &stray,
                &first,
                json!({"spec": {"replicas": 0, "serviceName": "web",
                "selector": {"matchLabels": {"app": stray}}, "template": template}}),
            ),
        ),
        (
            Kind::Pod,
            stray.clone(),
            of(&stray, &first, pod(&first, json!([]))),
        ),
        (
            Kind::Pod,
            pod_name(&further),
            of(&pod_name(&further), &further, pod(&further, forged)),
        ),
        (
            Kind::Service,
            stray.clone(),
            of(
                &stray,
                &first,
                json!({"spec": {"selector": {"app": stray}, "ports": [{"port": 80}]}}),
            ),
        ),
        (
            Kind::PersistentVolumeClaim,
            stray.clone(),
            of(&stray, &further, pvc),
        ),
        (
            Kind::Secret,
            format!("{stray}-peer-tls"),
            of(
                &format!("{stray}-peer-tls"),
                &first,
                json!({"data": {"ca.crt": "bm9uZQ=="}}),
            ),
        ),
    ]
}

/// The status of a pod that runs, whose server once ended for a damaged disk.
fn running(ip: &str) -> Value {
    json!({"phase": "Running", "podIP": ip,
        "conditions": [{"type": "Ready", "status": "True"}],
        "containerStatuses": [{"name": "member", "image": "i", "imageID": "", "ready": true,
            "restartCount": 1,
            "lastState": {"terminated": {"exitCode": 20, "message": "{\"class\":\"corrupt\"}"}}}]})
}
