//! What users put into each field of the specification: values that work, values that are accepted
//! and do not work, and values that the API server refuses. `tests.rs` compares the list with the
//! schema, so that a field without values fails.

use serde_json::{Value, json};

use crate::opsim::user;

/// An image that no registry has.
pub(super) const NO_IMAGE: &str = "registry.example/broken:1";
/// A version of which there is no image.
pub(super) const NO_VERSION: &str = "9.9.9";
/// A priority class that there is.
pub(super) const PRIORITY: &str = "important";
/// Every node is in this zone.
pub(super) const ZONE: &str = "zone-1";

const ZONE_LABEL: &str = "topology.kubernetes.io/zone";
const HOST_LABEL: &str = "kubernetes.io/hostname";

/// A field and its values. `null` leaves the field out.
#[derive(Clone, Debug)]
pub(super) struct Field {
    /// Where it is below `spec`.
    pub(super) path: &'static str,
    /// They work.
    pub(super) good: Vec<Value>,
    /// They are accepted, and something does not work with them, or not for long.
    pub(super) bad: Vec<Value>,
    /// They are refused.
    pub(super) refused: Vec<Value>,
}

fn field(path: &'static str, good: Value, bad: Value, refused: Value) -> Field {
    let list = |value: Value| value.as_array().cloned().unwrap_or_default();
    Field {
        path,
        good: list(good),
        bad: list(bad),
        refused: list(refused),
    }
}

/// Every field.
pub(super) fn all() -> Vec<Field> {
    let mut all = members();
    all.extend(pods());
    all.extend(servers());
    all.extend(scheduling());
    all.extend(the_rest());
    all
}

/// How many members there are, what they run and on which volumes.
fn members() -> Vec<Field> {
    let kept = || json!(["Retain", "Delete"]);
    vec![
        field(
            "replicas",
            json!([1, 2, 3, 4, 5]),
            json!([0]),
            json!([-1, 10, "three"]),
        ),
        field(
            "version",
            json!([user::VERSION, user::later(0, "9"), user::later(1, "0-rc.1")]),
            json!([NO_VERSION]),
            json!(["latest", "", 1]),
        ),
        field(
            "image",
            json!([
                null,
                format!("mirror.example/quorate:{}", user::later(1, "0")),
                format!("mirror.example/quorate:{}", user::later(0, "7"))
            ]),
            json!([NO_IMAGE]),
            json!([
                "",
                "two words",
                "mirror.example/Quorate:0.2.0",
                "mirror.example/quorate@sha256:0"
            ]),
        ),
        field("paused", json!([false]), json!([true]), json!(["yes"])),
        field(
            "deletionProtection",
            json!([false, true]),
            json!([]),
            json!(["yes", 1]),
        ),
        field(
            "backupBeforeDeletion",
            json!([null, {"storeRef": {"name": "store"}}]),
            json!([]),
            json!([{}, "store", {"storeRef": {}}]),
        ),
        // The first data stay what they were.
        field(
            "bootstrap",
            json!([
                null,
                {"restore": {"backupRef": {"name": "nightly"}, "revisionBump": 0}},
                {"restore": {"storeRef": {"name": "store"}, "path": "old/etcd.db"}},
                {"restore": {"backupRef": {"name": "nightly"}, "at": {"time": "2026-01-31T12:00:00Z"}}},
                {"restore": {"backupRef": {"name": "nightly"}, "at": {"revision": 7}}},
                {"restore": {"storeRef": {"name": "store"}, "path": "prod/demo", "at": {"raftIndex": 9}}},
                {"restore": {"storeRef": {"name": "store"}, "path": "prod/demo", "at": {"latest": true}}},
                {"follow": {"endpoints": ["http://etcd-0.etcd:2379", "http://etcd-1.etcd:2379"]}},
                {"follow": {"endpoints": ["https://etcd.other:2379"], "tls": {"secretRef": {"name": "source"}},
                    "user": {"secretRef": {"name": "root"}}, "cutover": "WhenCaughtUp"}},
            ]),
            json!([]),
            json!([
                {"restore": {"backupRef": {"name": "nightly"}, "at": {}}},
                {"restore": {"backupRef": {"name": "nightly"}, "at": {"latest": true, "revision": 7}}},
                {"restore": {"backupRef": {"name": "another"}}},
                {"restore": {"storeRef": {"name": "store"}}},
                {"restore": {}},
                {},
                {"adopt": {}},
                {"adopt": {"clusterUID": "11111111-2222-3333-4444-555555555555"}},
                {"adopt": {"clusterUID": "no uid"}},
                {"restore": {"backupRef": {"name": "nightly"}}, "adopt": {"clusterUID": "1"}},
                {"follow": {"endpoints": ["http://another:2379"]}},
                {"follow": {"endpoints": ["http://etcd-0.etcd:2379", "https://etcd-1.etcd:2379"]}},
                {"follow": {"endpoints": ["https://root@etcd.other:2379"]}},
                {"follow": {"endpoints": ["http://etcd-0.etcd:2379"], "tls": {"secretRef": {"name": "source"}}}},
                {"follow": {"endpoints": ["http://etcd-0.etcd:2379"]}, "adopt": {"clusterUID": "1"}},
            ]),
        ),
        // Set when the cluster is created, or never.
        field(
            "replicaOf",
            json!([
                null,
                {"endpoints": ["http://etcd-0.east:2379", "http://etcd-1.east:2379"]},
                {"endpoints": ["https://etcd.east:2379"], "tls": {"secretRef": {"name": "source"}},
                    "user": {"secretRef": {"name": "root"}}, "promote": {"mode": "Switchover"}},
                {"endpoints": ["http://etcd-0.east:2379"],
                    "promote": {"mode": "Failover", "acceptLoss": true, "revision": 1}},
            ]),
            json!([]),
            json!([
                {"endpoints": []},
                {"endpoints": ["https://root@etcd.east:2379"]},
                {"endpoints": ["http://etcd-0.east:2379", "https://etcd-1.east:2379"]},
                {"endpoints": ["http://etcd-0.east:2379"], "tls": {"secretRef": {"name": "source"}}},
                {"endpoints": ["http://etcd-0.east:2379"], "promote": {}},
                {"endpoints": ["http://etcd-0.east:2379"], "promote": {"mode": "Failover"}},
                {"endpoints": ["http://etcd-0.east:2379"], "promote": {"mode": "Failover", "acceptLoss": false, "revision": 7}},
                {"endpoints": ["http://etcd-0.east:2379"], "promote": {"mode": "Failover", "acceptLoss": true, "revision": 0}},
                {"endpoints": ["http://etcd-0.east:2379"], "promote": {"mode": "Switchover", "acceptLoss": true}},
            ]),
        ),
        field(
            "storage.type",
            json!(["PersistentVolume"]),
            json!([]),
            json!(["Memory", 1]),
        ),
        // The servers hold 100 MiB; a smaller volume comes with another member.
        field(
            "storage.size",
            json!(["1Gi", "1500Mi", "2Gi", "600Mi"]),
            // Less than the data need.
            json!(["430Mi"]),
            json!(["1Mi", "large", ""]),
        ),
        field(
            "storage.storageClassName",
            json!([null, "standard", "local"]),
            // There is none of this name.
            json!(["another"]),
            json!([""]),
        ),
        // Nothing is so full that it would grow.
        field(
            "storage.autogrow",
            json!([null, {"max": "4Gi"}, {"at": 60, "by": "512Mi", "max": "3Gi"}]),
            json!([]),
            json!([{}, {"max": "100Mi"}, {"max": "lots"}, {"at": 40, "max": "4Gi"},
                {"at": 96, "max": "4Gi"}, {"by": "0%", "max": "4Gi"}, {"by": "a lot", "max": "4Gi"}]),
        ),
        field(
            "storage.retention.whenDeleted",
            kept(),
            json!([]),
            json!(["Keep"]),
        ),
        field(
            "storage.retention.whenRemoved",
            kept(),
            json!([]),
            json!(["Keep"]),
        ),
        field(
            "resources.requests",
            json!([null, {"cpu": "100m", "memory": "64Mi"}, {"cpu": 1}]),
            // More than any node has; no quantity.
            json!([{"cpu": "4000"}, {"memory": "9Ti"}, {"cpu": "lots"}]),
            json!([{"cpu": true}, "1"]),
        ),
        field(
            "resources.limits",
            json!([null, {"cpu": "2", "memory": "2Gi"}, {"memory": "1Gi"}]),
            // Less than is asked for; no quantity.
            json!([{"cpu": "1m"}, {"memory": "1 GB"}]),
            json!([{"memory": []}, 1]),
        ),
    ]
}

/// What users add to pods.
fn pods() -> Vec<Field> {
    vec![
        field(
            "podTemplate.metadata.labels",
            json!([null, {"team": "storage"}, {"team": "data", "example.com/tier": "db"}]),
            json!([{"team": "not a label"}, {"/": "x"}]),
            json!([{"quorate.dev/member": "x"}, {"app.kubernetes.io/name": "x"}, {"team": 1}]),
        ),
        field(
            "podTemplate.metadata.annotations",
            json!([null, {"example.com/scrape": "true"}, {"note": "any text, of any kind"}]),
            json!([{"no spaces": "x"}]),
            json!([{"quorate.dev/inputs": "x"}, {"note": false}]),
        ),
        field(
            "podTemplate.spec.priorityClassName",
            json!([null, PRIORITY]),
            json!(["unknown-class"]),
            json!([7]),
        ),
        field(
            "podTemplate.spec.imagePullSecrets",
            json!([null, [{"name": "registry"}], [{"name": "registry"}, {"name": "mirror"}]]),
            json!([]),
            json!([[{}], [{"name": ""}], {"name": "registry"}]),
        ),
        field(
            "podTemplate.spec.serviceAccountName",
            json!([null, "members"]),
            json!([]),
            json!([["members"]]),
        ),
        field(
            "podTemplate.spec.terminationGracePeriodSeconds",
            json!([null, 30, 90]),
            json!([]),
            json!([14, 3601, "30s"]),
        ),
    ]
}

/// What users ask of the servers.
fn servers() -> Vec<Field> {
    vec![
        // A quarter of the smallest volume at most.
        field(
            "server.quota",
            json!([null, "16Mi", "64Mi", "100Mi"]),
            json!([]),
            json!(["lots", "", "1Ki", "-1Gi", "4Gi"]),
        ),
        field(
            "server.autoCompaction",
            json!([null, {"mode": "Periodic", "retention": "1h"},
                {"mode": "Revision", "retention": "10000"}, {"retention": "30m"}, {}]),
            json!([]),
            json!([{"retention": "1"}, {"retention": "soon"}, {"mode": "Revision", "retention": "1h"},
                {"mode": "Sometimes"}, "1h"]),
        ),
        // Beside each other, and beside what a cluster begins with, in any order.
        field(
            "server.heartbeatIntervalMilliseconds",
            json!([null, 100, 50, 200]),
            json!([]),
            json!([0, 9, 1001, "100ms"]),
        ),
        field(
            "server.electionTimeoutMilliseconds",
            json!([null, 1000, 2000]),
            json!([]),
            json!([0, 49, 10_001, "1s"]),
        ),
        field(
            "server.extraArgs",
            json!([null, [{"name": "max-request-bytes", "value": "2097152"}],
                [{"name": "log-level", "value": "debug"}, {"name": "unsafe-no-fsync", "value": "true"}]]),
            // No such flag, no such value, no effect, not supported, and files that no member has.
            json!([[{"name": "no-such-flag", "value": "1"}], [{"name": "max-request-bytes", "value": "many"}],
                [{"name": "backend-batch-limit", "value": "5"}], [{"name": "enable-pprof", "value": "true"}],
                [{"name": "auth-token", "value": "jwt,pub-key=/k,sign-method=RS256"}]]),
            json!([[{"name": "name", "value": "x"}], [{"name": "data-dir", "value": "/"}],
                [{"name": "quota-backend-bytes", "value": "1"}], [{"name": "cert-file", "value": "/c"}],
                [{"name": "--log-level", "value": "debug"}], [{"name": "log-level"}], "log-level"]),
        ),
    ]
}

/// Where members may be.
fn scheduling() -> Vec<Field> {
    let nowhere = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
        {"nodeSelectorTerms": [{"matchExpressions": [{"key": "disk", "operator": "Exists"}]}]}}});
    vec![
        field(
            "podTemplate.spec.nodeSelector",
            json!([null, {ZONE_LABEL: ZONE}]),
            json!([{"disk": "none"}, {"no label": "x"}]),
            json!([{"disk": 1}]),
        ),
        field(
            "podTemplate.spec.tolerations",
            json!([null, [{"key": "dedicated", "operator": "Equal", "value": "etcd", "effect": "NoSchedule"}],
                [{"key": "slow", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 30}]]),
            json!([[{"key": "a", "operator": "Exists", "value": "b"}],
                [{"operator": "Equal", "value": "b"}], [{"key": "a", "tolerationSeconds": 5}]]),
            json!([[{"operator": "In"}], [{"key": "a", "operator": "Gt"}]]),
        ),
        field(
            "podTemplate.spec.affinity",
            json!([null, node_affinity(), pod_affinity()]),
            json!([nowhere]),
            json!([{"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {}}},
                {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{}]}}]),
        ),
        field(
            "podTemplate.spec.topologySpreadConstraints",
            json!([null, [{"topologyKey": ZONE_LABEL, "maxSkew": 2, "whenUnsatisfiable": "ScheduleAnyway",
                "nodeAffinityPolicy": "Honor", "nodeTaintsPolicy": "Ignore"}],
                [{"topologyKey": HOST_LABEL, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", "minDomains": 1}]]),
            json!([[{"topologyKey": "rack", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}]]),
            json!([[{"topologyKey": ZONE_LABEL, "maxSkew": 0, "whenUnsatisfiable": "ScheduleAnyway"}],
                [{"topologyKey": ZONE_LABEL}]]),
        ),
        field(
            "scheduling.spread",
            json!(["Required", "Preferred"]),
            json!([]),
            json!(["Never"]),
        ),
        field(
            "scheduling.volumes",
            json!(["Auto", "NodeBound", "Movable"]),
            json!([]),
            json!(["Sticky"]),
        ),
    ]
}

/// Services, patience and strategy.
fn the_rest() -> Vec<Field> {
    vec![
        field(
            "service.type",
            json!(["ClusterIP", "NodePort", "LoadBalancer"]),
            json!([]),
            json!(["ExternalName"]),
        ),
        field(
            "service.labels",
            json!([null, {"example.com/pool": "a"}]),
            json!([{"no label": "x"}, {"pool": "not a label"}]),
            json!([{"pool": 1}]),
        ),
        field(
            "service.annotations",
            json!([null, {"example.com/idle": "60"}, {"example.com/internal": "true"}]),
            json!([{"no spaces": "x"}]),
            json!([["x"], {"example.com/idle": 60}]),
        ),
        field(
            "service.ipFamilyPolicy",
            json!([null, "SingleStack", "PreferDualStack", "RequireDualStack"]),
            json!([]),
            json!(["DualStack"]),
        ),
        // Two of them need a policy: the scenario dual-stack names both.
        field(
            "service.ipFamilies",
            json!([null, ["IPv4"]]),
            json!([]),
            json!([["IPv4", "IPv4"], ["IPv5"], "IPv4"]),
        ),
        field(
            "networkPolicy.clients",
            json!([
                null,
                [{"podSelector": selects("app", "shop")}, {"namespaceSelector": selects("team", "storage")},
                    {"podSelector": selects("app", "web"), "namespaceSelector": {}}],
                [{"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.1.0.0/16"]}}]
            ]),
            json!([]),
            json!([[], [{}], [{"ipBlock": {"cidr": "10.0.0.1"}}], [{"ipBlock": {}}],
                [{"ipBlock": {"cidr": "10.0.0.0/8"}, "podSelector": {}}], "10.0.0.0/8"]),
        ),
        field(
            "networkPolicy.metrics",
            json!([
                null,
                [{"podSelector": selects("app", "prometheus"), "namespaceSelector": selects("team", "watch")}],
                [{"ipBlock": {"cidr": "fd00::/8", "except": ["fd00:1::/32"]}}]
            ]),
            json!([]),
            json!([[], [{}], {"podSelector": {}}]),
        ),
        // Once on, it stays on.
        field(
            "tls",
            json!([
                null,
                {"client": {"source": "Operator", "extraSANs": ["etcd.example.com", "10.0.0.1"]},
                    "peer": {"source": "Operator", "extraSANs": ["*.example.com"]},
                    "clientAuth": "Required", "plaintext": "Accepted", "publishCAs": "ClusterTrustBundle"},
                {"client": {"extraSANs": ["etcd.example.com"]}, "clientAuth": "None"},
                {},
                {"client": theirs("their-client", "their-authorities"), "peer": theirs("their-peer", "their-peer")},
                {"client": theirs("their-other", "their-other"), "peer": theirs("their-other", "their-authorities")},
                {"client": cert_manager("corp"), "peer": cert_manager("corp")},
                {"client": {"source": "CertManager", "extraSANs": ["etcd.example.com"],
                        "issuerRef": {"name": "world", "kind": "ClusterIssuer"}},
                    "peer": {"source": "CertManager", "caSecretRef": {"name": "their-authorities"},
                        "issuerRef": {"name": "corp", "kind": "Issuer", "group": "cert-manager.io"}}}
            ]),
            json!([]),
            json!([{"clientAuth": "Maybe"}, {"plaintext": "Some"}, {"publishCAs": "ConfigMap"}, {"peer": {"source": "Vault"}},
                {"client": {"extraSANs": ["two words"]}}, {"client": {"source": "Secret"}},
                {"peer": {"caSecretRef": {"name": "their-authorities"}}},
                {"peer": {"source": "CertManager"}}, true]),
        ),
        field(
            "updateStrategy.type",
            json!(["Restart", "Replace"]),
            json!([]),
            json!(["Delete"]),
        ),
        field(
            "updateStrategy.minReadySeconds",
            json!([10, 0, 20]),
            json!([86_400]),
            json!([-1, 86_401, "10s"]),
        ),
        field(
            "updateStrategy.progressDeadlineSeconds",
            json!([600, 60]),
            json!([1]),
            json!([0, 604_801]),
        ),
        field(
            "healing.unhealthySeconds",
            json!([120, 300, 0]),
            json!([]),
            json!([-1, 604_801]),
        ),
        field(
            "healing.learnerDeadlineSeconds",
            json!([180, 600]),
            // No server starts that fast.
            json!([1]),
            json!([0, 604_801]),
        ),
        field(
            "healing.maxRestarts",
            json!([1, 3, 0]),
            json!([]),
            json!([-1, 101]),
        ),
        field(
            "disruption.policy",
            json!(["Auto", "Gate", "Budget"]),
            json!([]),
            json!(["None"]),
        ),
        field(
            "disruption.nodeReplacement",
            json!(["Auto", "Move", "AddFirst", "RemoveFirst"]),
            json!([]),
            json!(["Never"]),
        ),
        field(
            "disruption.drainTaints",
            json!([
                null,
                ["example.com/retiring"],
                ["example.com/retiring", "example.com/old"]
            ]),
            json!([]),
            json!([[""], "example.com/retiring"]),
        ),
        // Names that stay mean nothing; those of members are put in by the walk.
        field(
            "replaceMembers",
            json!([null, ["demo-99"]]),
            json!([]),
            json!([[""], "demo-1"]),
        ),
    ]
}

/// A selector with every part that it can have.
fn selects(key: &str, value: &str) -> Value {
    json!({"matchLabels": {key: value},
        "matchExpressions": [{"key": key, "operator": "In", "values": [value]}]})
}

/// User certificates: the world has these Secrets.
fn theirs(certificate: &str, trusted: &str) -> Value {
    json!({"source": "Secret", "certificateSecretRef": {"name": certificate},
        "caSecretRef": {"name": trusted}})
}

/// Certificates from cert-manager, which keeps its Secrets in this world.
fn cert_manager(issuer: &str) -> Value {
    json!({"source": "CertManager", "issuerRef": {"name": issuer, "kind": "Issuer", "group": "cert-manager.io"}})
}

/// Every part of an affinity to nodes, of which all nodes have their share.
fn node_affinity() -> Value {
    let zone = json!([{"key": ZONE_LABEL, "operator": "In", "values": [ZONE]}]);
    let name = json!([{"key": "metadata.name", "operator": "NotIn", "values": ["node-z"]}]);
    let term = json!({"matchExpressions": zone, "matchFields": name});
    json!({"nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]},
        "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 5, "preference": term}],
    }})
}

/// Every part of an affinity to pods: together in the zone, away from pods that do not exist.
fn pod_affinity() -> Value {
    let term = |label: &str, key: &str| {
        json!({
            "topologyKey": key,
            "labelSelector": {
                "matchLabels": {"app.kubernetes.io/name": label},
                "matchExpressions": [{"key": "app.kubernetes.io/name", "operator": "In", "values": [label]}],
            },
            "namespaceSelector": {
                "matchLabels": {"team": "storage"},
                "matchExpressions": [{"key": "team", "operator": "In", "values": ["storage"]}],
            },
            "namespaces": ["default"],
        })
    };
    let wanted = |label: &str, key: &str| {
        json!({
            "requiredDuringSchedulingIgnoredDuringExecution": [term(label, key)],
            "preferredDuringSchedulingIgnoredDuringExecution":
                [{"weight": 1, "podAffinityTerm": term(label, key)}],
        })
    };
    json!({
        "podAffinity": wanted("quorate", ZONE_LABEL),
        "podAntiAffinity": wanted("noisy", HOST_LABEL),
    })
}
