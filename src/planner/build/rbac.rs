//! The operator's permissions: one list, from which the chart and the one-file install are generated. Only what the
//! operator really uses.

use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::crd::{GROUP, MEMBER_SIGNER};

/// Read and follow.
const WATCH: &[&str] = &["get", "list", "watch"];
/// Read, follow, make, change and delete.
const MANAGE: &[&str] = &["get", "list", "watch", "create", "patch", "delete"];

/// What the operator may do in the namespaces that it serves.
pub fn rules() -> Vec<PolicyRule> {
    vec![
        // To change: only the finalizer of `spec.backupBeforeDeletion`.
        rule(
            "quorate.dev",
            &["etcdclusters"],
            &["get", "list", "watch", "patch"],
        ),
        rule("quorate.dev", &["etcdclusters/status"], &["get", "patch"]),
        // Schedules create backups and delete those that their retention has deleted.
        rule("quorate.dev", &["etcdbackups"], MANAGE),
        rule(
            "quorate.dev",
            &["etcdbackupstores", "etcdbackupschedules", "etcdrecoveries"],
            WATCH,
        ),
        rule(
            "quorate.dev",
            &[
                "etcdbackups/status",
                "etcdbackupstores/status",
                "etcdbackupschedules/status",
                "etcdrecoveries/status",
            ],
            &["get", "patch"],
        ),
        // Of users and roles, to change: only the finalizer.
        rule(
            "quorate.dev",
            &["etcdusers", "etcdroles"],
            &["get", "list", "watch", "patch"],
        ),
        rule(
            "quorate.dev",
            &["etcdusers/status", "etcdroles/status"],
            &["get", "patch"],
        ),
        rule(
            "batch",
            &["jobs"],
            &["get", "list", "watch", "create", "delete"],
        ),
        rule("apps", &["statefulsets"], MANAGE),
        // The specification that was last admitted.
        rule(
            "apps",
            &["controllerrevisions"],
            &["get", "list", "create", "patch", "delete"],
        ),
        rule("", &["services", "persistentvolumeclaims"], MANAGE),
        rule("", &["secrets"], MANAGE),
        rule(
            "policy",
            &["poddisruptionbudgets"],
            &["get", "list", "watch", "create", "patch"],
        ),
        rule(
            "networking.k8s.io",
            &["networkpolicies"],
            &["get", "list", "watch", "create", "patch"],
        ),
        rule("", &["pods"], &["get", "list", "watch", "patch", "delete"]),
        // Whether clients are still sent to a member that leaves.
        rule("discovery.k8s.io", &["endpointslices"], &["list", "watch"]),
        // Other resources of a member that runs.
        rule("", &["pods/resize"], &["patch"]),
        // Under `disruption.policy: Budget` pods that serve are evicted, not deleted.
        rule("", &["pods/eviction"], &["create"]),
        // For TLS with source CertManager. Permission for a kind that is not installed does no harm.
        rule(
            "cert-manager.io",
            &["certificates"],
            &["get", "create", "patch"],
        ),
        rule("events.k8s.io", &["events"], &["create", "patch"]),
    ]
}

/// What it may do with its Lease, only in its own namespace: writing the Lease decides which operator is active. Create
/// permissions cannot be restricted by name.
pub fn lease_rules(name: &str) -> Vec<PolicyRule> {
    let mut known = rule("coordination.k8s.io", &["leases"], &["get", "update"]);
    known.resource_names = Some(vec![name.to_owned()]);
    vec![rule("coordination.k8s.io", &["leases"], &["create"]), known]
}

/// Cluster-scoped read permissions: evidence that a disk or a node is gone, and whether a volume can leave its node;
/// the policy that refuses deletions; and authentication of callers of metrics and forecasts. Without these it keeps working and reports what is missing.
fn cluster_rules() -> Vec<PolicyRule> {
    vec![
        rule("", &["nodes", "persistentvolumes"], WATCH),
        rule("storage.k8s.io", &["storageclasses"], WATCH),
        // Whether `spec.deletionProtection` is enforced.
        rule(
            "admissionregistration.k8s.io",
            &[
                "validatingadmissionpolicies",
                "validatingadmissionpolicybindings",
            ],
            &["list"],
        ),
        rule("authentication.k8s.io", &["tokenreviews"], &["create"]),
        rule(
            "authorization.k8s.io",
            &["subjectaccessreviews"],
            &["create"],
        ),
    ]
}

/// What `tls.publishCAs: ClusterTrustBundle` needs: ClusterTrustBundles belong to no namespace, and only those may write
/// one of a signer who may attest for it. The rights to them cannot be limited to the signer's; to attest is.
pub fn trust_bundle_rules() -> Vec<PolicyRule> {
    let group = "certificates.k8s.io";
    let mut attest = rule(group, &["signers"], &["attest"]);
    attest.resource_names = Some(vec![format!("{GROUP}/*")]);
    vec![
        rule(
            group,
            &["clustertrustbundles"],
            &["get", "list", "create", "patch", "delete"],
        ),
        attest,
    ]
}

/// What `tls.source: PodCertificate` needs in the namespaces that are served: to see what kubelets request, and to answer it.
/// The API server takes answers only from who may sign for the signer: [`signer_rules`].
pub fn pod_certificate_rules() -> Vec<PolicyRule> {
    let group = "certificates.k8s.io";
    vec![
        rule(group, &["podcertificaterequests"], &["get", "list"]),
        rule(group, &["podcertificaterequests/status"], &["patch"]),
    ]
}

/// And what it needs of the cluster, since signers belong to no namespace: to sign for our signer, and for no other one.
pub fn signer_rules() -> Vec<PolicyRule> {
    let mut sign = rule("certificates.k8s.io", &["signers"], &["sign"]);
    sign.resource_names = Some(vec![MEMBER_SIGNER.to_owned()]);
    vec![sign]
}

/// All that an operator of every namespace may do, but for its Lease.
pub fn every_rule() -> Vec<PolicyRule> {
    rules().into_iter().chain(cluster_rules()).collect()
}

fn rule(group: &str, resources: &[&str], verbs: &[&str]) -> PolicyRule {
    let owned = |list: &[&str]| {
        list.iter()
            .map(|text| (*text).to_owned())
            .collect::<Vec<_>>()
    };
    PolicyRule {
        api_groups: Some(vec![group.to_owned()]),
        resources: Some(owned(resources)),
        verbs: owned(verbs),
        ..PolicyRule::default()
    }
}

/// The ClusterRole of an operator that serves every namespace, as YAML.
///
/// # Errors
/// A text when it cannot be written as YAML.
pub fn cluster_role_yaml() -> Result<String, String> {
    let role = ClusterRole {
        metadata: ObjectMeta {
            name: Some("quorate-operator".to_owned()),
            ..ObjectMeta::default()
        },
        rules: Some(every_rule()),
        aggregation_rule: None,
    };
    serde_saphyr::to_string(&role).map_err(|error| error.to_string())
}

/// The rules alone, as YAML lists for a chart: those of a namespace, those of the cluster, those of the Lease by this
/// name, those of ClusterTrustBundles, and those of certificates that kubelets request: in a namespace, and of the cluster.
///
/// # Errors
/// A text when they cannot be written as YAML.
pub fn rules_yaml(lease: &str) -> Result<[String; 6], String> {
    let yaml =
        |rules: Vec<PolicyRule>| serde_saphyr::to_string(&rules).map_err(|error| error.to_string());
    Ok([
        yaml(rules())?,
        yaml(cluster_rules())?,
        yaml(lease_rules(lease))?,
        yaml(trust_bundle_rules())?,
        yaml(pod_certificate_rules())?,
        yaml(signer_rules())?,
    ])
}
