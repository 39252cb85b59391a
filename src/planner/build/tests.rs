//! Golden renderings of every kind, in `tests/build/`; `UPDATE_GOLDEN=1` rewrites them. And what
//! must hold for any rendering.

use std::path::Path;

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde::Serialize;

use super::*;
use crate::crd::{EtcdCluster, TlsPort, Until, ValidatedCluster, parse, validate};
use crate::plan::{Owner, PdbLimit, PvcState};

pub(super) fn cluster(yaml: &str) -> ValidatedCluster {
    let head = "apiVersion: quorate.dev/v1alpha1\nkind: EtcdCluster\nmetadata: {name: demo, namespace: prod}\n";
    let mut cluster: EtcdCluster = parse(&format!("{head}{yaml}")).expect("a valid resource");
    cluster.metadata.uid = Some("6f1c2d3e-aaaa-bbbb-cccc-0123456789ab".into());
    cluster.spec.version = "0.1.0".into();
    validate(&cluster).expect("valid")
}

pub(super) fn settings() -> Settings {
    Settings {
        image: OwnImage::of("quorate".parse().expect("a reference")),
        operator_namespace: Some("quorate-system".into()),
        user: Some(super::USER),
    }
}

fn how(one_per_node: bool) -> SetOptions {
    SetOptions {
        one_per_node,
        ..SetOptions::default()
    }
}

const EVERYTHING: &str = "
spec:
  replicas: 5
  image: registry.example/mirror/quorate@sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
  storage: {size: 20Gi, storageClassName: fast, retention: {whenDeleted: Delete}}
  resources: {requests: {cpu: 1, memory: 512Mi}, limits: {memory: 2Gi}}
  service: {type: LoadBalancer, labels: {team: a}, annotations: {lb.example/internal: 'true'}}
  scheduling: {spread: Preferred}
  networkPolicy:
    clients: [{namespaceSelector: {matchLabels: {team: a}}, podSelector: {matchLabels: {app: shop}}}]
    metrics: [{ipBlock: {cidr: 10.0.0.0/8, except: [10.1.0.0/16]}}]
  podTemplate:
    metadata: {labels: {team: a}, annotations: {note: b}}
    spec:
      nodeSelector: {disk: ssd}
      tolerations: [{key: etcd, operator: Exists, effect: NoSchedule}]
      priorityClassName: high
      imagePullSecrets: [{name: pull}]
      serviceAccountName: plain
      terminationGracePeriodSeconds: 120
      topologySpreadConstraints: [{topologyKey: rack, maxSkew: 1, whenUnsatisfiable: ScheduleAnyway}]
      affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: pool, operator: In, values: [etcd]}]}]}}}
";

pub(super) fn golden(name: &str, text: &str) {
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).join("tests/build");
    let path = folder.join(name);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::create_dir_all(&folder).expect("a folder");
        std::fs::write(&path, text).expect("written");
        return;
    }
    let golden = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        golden == text,
        "{} differs; UPDATE_GOLDEN=1 rewrites it\n{text}",
        path.display()
    );
}

pub(super) fn yaml(objects: &[&dyn erased::Yaml]) -> String {
    objects
        .iter()
        .map(|object| format!("---\n{}", object.yaml()))
        .collect()
}

pub(super) mod erased {
    //! Several kinds in one list.
    pub(in super::super) trait Yaml {
        fn yaml(&self) -> String;
    }
    impl<T: super::Serialize> Yaml for T {
        fn yaml(&self) -> String {
            // Through a JSON value, so that keys are sorted and absent fields stay absent.
            let value = serde_json::to_value(self).expect("an object is JSON");
            serde_saphyr::to_string(&value).expect("an object is YAML")
        }
    }
}

#[test]
fn objects_of_a_plain_cluster() {
    let cluster = cluster("spec: {}");
    let asked = cluster.storage_bytes;
    let size = PvcSize {
        bytes: asked,
        asked,
    };
    let objects: [&dyn erased::Yaml; 9] = [
        &identity_secret(&cluster, 1, "demo-1", "n0nce"),
        &operator_secret(&cluster, "k3y"),
        &peers_service(&cluster),
        &client_service(&cluster),
        &slot_service(&cluster, 0, "demo-1"),
        &pdb_without_evictions(&cluster),
        &network_policy(&cluster, &settings()),
        &pvc(&cluster, "demo-1", 1, PvcState::New, size),
        &stateful_set(&cluster, &settings(), "demo-1", how(false)),
    ];
    golden("plain.yaml", &yaml(&objects));
}

/// Its name begins with that of its signer, with colons, or the API server refuses it.
#[test]
fn trust_bundle_of_a_cluster() {
    let cluster = cluster("spec: {tls: {publishCAs: ClusterTrustBundle}}");
    let made = trust_bundle(&cluster, "PEM\n".into());
    golden("trust-bundle.yaml", &yaml(&[&made]));
    let signer = made.spec.signer_name.as_deref().unwrap_or_default();
    let name = made.metadata.name.clone().unwrap_or_default();
    assert!(name.starts_with(&format!("{}:", signer.replace('/', ":"))));
    let of = trust_bundle_of(&made.metadata);
    assert_eq!(of, Some(("prod", "demo", cluster.uid.as_str())));
    let owner = |uid| owner_of_trust_bundle(&made.metadata, uid);
    assert_eq!(owner(cluster.uid.as_str()), Owner::Ours);
    assert_eq!(owner("another"), Owner::EarlierLife);
    let mut theirs = made.metadata.clone();
    theirs.labels = None;
    assert_eq!(owner_of_trust_bundle(&theirs, &cluster.uid), Owner::Unowned);
    let mut renamed = made.metadata.clone();
    renamed.name = Some("quorate.dev:prod.other:client".into());
    assert_eq!(
        owner_of_trust_bundle(&renamed, &cluster.uid),
        Owner::Unowned
    );
}

#[test]
fn objects_of_a_cluster_with_tls() {
    let cluster = cluster("spec: {tls: {client: {extraSANs: [etcd.example.com]}}}");
    let (client, peer) = (TlsPort::Client, TlsPort::Peer);
    let content = AuthorityContent {
        certificate: "certificate".into(),
        key: "key".into(),
        trusted: "certificates".into(),
        next: Some(("next".into(), "next key".into())),
        rotated_for: Some("2026-11-21".into()),
    };
    let objects: [&dyn erased::Yaml; 5] = [
        &authority_secret(&cluster, peer, &content),
        &certificate_secret(&cluster, client, Some("demo-1"), "c", "k", "ca"),
        &certificate_secret(&cluster, client, None, "c", "k", "ca"),
        &client_service(&cluster),
        &stateful_set(&cluster, &settings(), "demo-1", how(false)),
    ];
    let mut text = yaml(&objects);
    for port in TlsPort::ALL {
        let names = certificate_names(&cluster, "demo-1", port);
        text += &format!(
            "---\n# names of the {} port\n{}\n",
            port.as_str(),
            names.join("\n")
        );
    }
    let both = server_arguments(&cluster, "demo-1", true);
    text += &format!("---\n# while TLS is switched on\n{}\n", both.join("\n"));
    text += &format!(
        "---\n{}\n{}\n",
        client_endpoint(&cluster),
        slot_endpoints(&cluster).join("\n")
    );
    golden("tls.yaml", &text);
}

#[test]
fn pods_mount_what_the_user_gives() {
    let user = cluster(
        "spec: {tls: {client: {source: Secret, certificateSecretRef: {name: a}, caSecretRef: {name: b}}, peer: {source: Secret, certificateSecretRef: {name: c}}}}",
    );
    let set = stateful_set(&user, &settings(), "demo-1", how(false));
    golden("tls-given.yaml", &yaml(&[&set]));
    let pod = set.spec.and_then(|spec| spec.template.spec);
    let of = |port| mounted_user_secrets(pod.as_ref(), port);
    let names = |a: &str, b: &str| Some((a.to_owned(), b.to_owned()));
    assert_eq!(of(TlsPort::Client), names("a", "b"));
    assert_eq!(of(TlsPort::Peer), names("c", "c"));
    assert!(wanted_certificates(&user).is_empty());
    // Another name is another input; content is none.
    let other = cluster(
        "spec: {tls: {client: {source: Secret, certificateSecretRef: {name: a}}, peer: {source: Secret, certificateSecretRef: {name: c}}}}",
    );
    assert_ne!(wanted_inputs(&user), wanted_inputs(&other));
    let made = cluster("spec: {tls: {}}");
    let set = stateful_set(&made, &settings(), "demo-1", how(false));
    let pod = set.spec.and_then(|spec| spec.template.spec);
    assert_eq!(mounted_user_secrets(pod.as_ref(), TlsPort::Peer), None);
}

/// What has to be as the operator reads it again: the signer, the port in an annotation, the type of the record, and no key.
#[test]
fn pods_mount_what_kubelets_make() {
    let own = cluster(
        "spec: {tls: {client: {source: PodCertificate}, peer: {source: PodCertificate, extraSANs: [a.example.com]}}}",
    );
    let set = stateful_set(&own, &settings(), "demo-1", how(false));
    let first = pod_key_secret(&own, TlsPort::Peer, "demo-1", None, "ca");
    let next = pod_key_secret(&own, TlsPort::Peer, "demo-1", Some("c"), "ca");
    golden("tls-pod-keys.yaml", &yaml(&[&first, &next, &set]));
    assert_eq!(ports_with_pod_keys(&own), TlsPort::ALL.into());
    assert_eq!(wanted_certificates(&own).len(), 2);
    let pod = set.spec.and_then(|spec| spec.template.spec);
    assert_eq!(mounted_user_secrets(pod.as_ref(), TlsPort::Peer), None);
    let made = cluster("spec: {tls: {}}");
    assert!(ports_with_pod_keys(&made).is_empty());
    assert_ne!(wanted_inputs(&own), wanted_inputs(&made));
}

/// Changes that affect no pod change only certificates: no member is restarted for a name.
#[test]
fn further_names_restart_no_member() {
    let plain = cluster("spec: {}");
    let some = cluster("spec: {tls: {}}");
    let more = cluster("spec: {tls: {client: {extraSANs: [a.example.com]}}}");
    let open = cluster("spec: {tls: {clientAuth: None, plaintext: Accepted}}");
    assert_ne!(wanted_inputs(&plain), wanted_inputs(&some));
    assert_eq!(wanted_inputs(&some), wanted_inputs(&more));
    assert_ne!(wanted_inputs(&some), wanted_inputs(&open));
    let of = |cluster, port| wanted_certificates(cluster).remove(&port);
    assert_ne!(of(&some, TlsPort::Client), of(&more, TlsPort::Client));
    assert_eq!(of(&some, TlsPort::Peer), of(&more, TlsPort::Peer));
    assert!(wanted_certificates(&plain).is_empty());
}

#[test]
fn objects_with_every_field() {
    let cluster = cluster(EVERYTHING);
    let asked = cluster.storage_bytes;
    let size = PvcSize {
        bytes: asked,
        asked,
    };
    let grown = PvcSize {
        bytes: 2 * asked,
        asked,
    };
    let objects: [&dyn erased::Yaml; 5] = [
        &client_service(&cluster),
        &network_policy(&cluster, &settings()),
        &pvc(&cluster, "demo-4", 1, PvcState::Joined, size),
        &pvc(&cluster, "demo-2", 1, PvcState::Retired, grown),
        &stateful_set(&cluster, &settings(), "demo-4", how(false)),
    ];
    golden("everything.yaml", &yaml(&objects));
}

#[test]
fn pods_satisfy_the_restricted_standard() {
    for text in ["spec: {}", EVERYTHING] {
        let set = stateful_set(&cluster(text), &settings(), "demo-1", how(true));
        let pod = set.spec.expect("a spec").template.spec.expect("a pod");
        let security = pod.security_context.expect("a security context");
        assert_eq!(security.run_as_non_root, Some(true));
        assert!(security.run_as_user.is_some_and(|user| user > 0));
        assert_eq!(
            security.seccomp_profile.expect("a profile").type_,
            "RuntimeDefault"
        );
        assert!(pod.host_network.is_none() && pod.host_pid.is_none() && pod.host_ipc.is_none());
        let volumes = pod.volumes.expect("volumes");
        // A drain refuses pods with local data, and restricted allows few kinds of volumes.
        assert!(
            volumes
                .iter()
                .all(|v| v.empty_dir.is_none() && v.host_path.is_none())
        );
        for container in pod.containers {
            let security = container.security_context.expect("a security context");
            assert_eq!(security.allow_privilege_escalation, Some(false));
            assert_eq!(security.read_only_root_filesystem, Some(true));
            let capabilities = security.capabilities.expect("capabilities");
            assert_eq!(capabilities.drop, Some(vec!["ALL".to_owned()]));
            assert!(capabilities.add.is_none());
        }
    }
}

/// What members and their volumes carry is the adopted UID; what is garbage-collected with the resource is owned by its own.
#[test]
fn an_adopting_resource_owns_what_carries_the_adopted_uid() {
    let yaml = "spec: {bootstrap: {adopt: {clusterUID: 0ld1-2222}}, storage: {retention: {whenDeleted: Delete}}}";
    let cluster = cluster(yaml);
    let set = stateful_set(&cluster, &settings(), "demo-1", how(false));
    let size = PvcSize {
        bytes: 8 << 30,
        asked: 8 << 30,
    };
    let claim = pvc(&cluster, "demo-1", 2, PvcState::Joined, size);
    let identity = identity_secret(&cluster, 2, "demo-1", "nonce");
    let service = peers_service(&cluster);
    let key = crate::crd::LABEL_CLUSTER_UID;
    for meta in [
        &set.metadata,
        &claim.metadata,
        &identity.metadata,
        &service.metadata,
    ] {
        let labels = meta.labels.as_ref().expect("labels");
        assert_eq!(labels.get(key).map(String::as_str), Some("0ld1-2222"));
        let owners = meta.owner_references.as_ref().expect("an owner");
        assert_eq!(owners[0].uid, cluster.uid);
    }
    assert_eq!(claim.metadata.name.as_deref(), Some("data-demo-1-0ld12"));
    let read = read_identity_secret(&identity, Owner::Ours).expect("readable");
    assert_eq!(
        (read.cluster_uid.as_str(), read.incarnation),
        ("0ld1-2222", 2)
    );
    let arguments = server_arguments(&cluster, "demo-1", false);
    assert!(arguments.contains(&"--cluster-uid=0ld1-2222".to_owned()));
}

#[test]
fn selectors_name_the_cluster_uid() {
    let cluster = cluster("spec: {}");
    let uid = Some(&cluster.life);
    let key = crate::crd::LABEL_CLUSTER_UID;
    for service in [
        peers_service(&cluster),
        client_service(&cluster),
        slot_service(&cluster, 2, "demo-7"),
    ] {
        let selector = service.spec.expect("a spec").selector.expect("a selector");
        assert_eq!(selector.get(key), uid);
    }
    let spec = pdb_without_evictions(&cluster).spec.expect("a spec");
    let selector = spec.selector.expect("a selector");
    // One object selects the same pods under either policy; only its rule differs.
    let counted = pdb(&cluster, PdbLimit::MinAvailable(2))
        .spec
        .expect("a spec");
    assert_eq!(counted.selector.as_ref(), Some(&selector));
    assert_eq!(
        pdb(&cluster, PdbLimit::MinAvailable(2)).metadata.name,
        pdb_without_evictions(&cluster).metadata.name
    );
    assert_eq!(counted.min_available, Some(IntOrString::Int(2)));
    assert!(counted.max_unavailable.is_none() && spec.min_available.is_none());
    assert_eq!(selector.match_labels.expect("labels").get(key), uid);
    let set = stateful_set(&cluster, &settings(), "demo-1", how(true))
        .spec
        .expect("a spec");
    let selector = set.selector.match_labels.expect("labels");
    let labels = set
        .template
        .metadata
        .and_then(|m| m.labels)
        .expect("labels");
    assert_eq!(selector.get(key), uid);
    assert!(
        selector
            .iter()
            .all(|(key, value)| labels.get(key) == Some(value))
    );
    for spread in set
        .template
        .spec
        .and_then(|s| s.topology_spread_constraints)
        .expect("spread")
    {
        let selector = spread
            .label_selector
            .and_then(|s| s.match_labels)
            .expect("labels");
        assert_eq!(selector.get(key), uid);
    }
}

#[test]
fn input_hash_follows_the_pod_template() {
    let plain = wanted_inputs(&cluster("spec: {}"));
    for same in [
        "spec: {replicas: 5}",
        "spec: {storage: {size: 9Gi}}",
        "spec: {paused: true}",
    ] {
        assert_eq!(plain, wanted_inputs(&cluster(same)), "{same}");
    }
    for other in [
        "spec: {image: a}",
        "spec: {resources: {requests: {cpu: 1}}}",
        "spec: {scheduling: {spread: Preferred}}",
        "spec: {podTemplate: {spec: {priorityClassName: high}}}",
    ] {
        assert_ne!(plain, wanted_inputs(&cluster(other)), "{other}");
    }
    let objects = wanted_objects(&cluster("spec: {service: {type: NodePort}}"), &settings());
    let plain = wanted_objects(&cluster("spec: {}"), &settings());
    let changed: Vec<_> = plain
        .iter()
        .filter(|(key, inputs)| objects.get(key) != Some(inputs))
        .collect();
    assert_eq!(
        changed.len(),
        1,
        "only the client Service is made from spec.service"
    );
}

#[test]
fn identity_secret_round_trips() {
    let cluster = cluster("spec: {}");
    let mut secret = identity_secret(&cluster, 1, "demo-1", "n0nce");
    let identity_secret = read_identity_secret(&secret, Owner::Ours).expect("an identity Secret");
    assert_eq!(
        (identity_secret.cluster_uid, identity_secret.incarnation),
        (cluster.life.clone(), 1)
    );
    assert_eq!(
        (
            identity_secret.seed.as_str(),
            identity_secret.nonce.as_str()
        ),
        ("demo-1", "n0nce")
    );
    secret.data.as_mut().expect("data").remove("nonce");
    assert_eq!(read_identity_secret(&secret, Owner::Ours), None);
    let key = operator_key(&operator_secret(&cluster, "k3y"));
    assert_eq!(key.as_deref(), Some(b"k3y".as_slice()));
}

#[test]
fn slot_service_names_its_member() {
    let cluster = cluster("spec: {service: {type: LoadBalancer}}");
    let service = slot_service(&cluster, 2, "demo-7");
    assert_eq!(service.metadata.name.as_deref(), Some("demo-client-2"));
    assert_eq!(slot_member(&service).as_deref(), Some("demo-7"));
    assert_eq!(slot_member(&client_service(&cluster)), None);
    let set = stateful_set(&cluster, &settings(), "demo-7", how(false));
    let pod = set.spec.and_then(|spec| spec.template.metadata);
    let labels = pod.and_then(|pod| pod.labels).expect("labels");
    let spec = service.spec.expect("a spec");
    for (key, value) in spec.selector.expect("a selector") {
        assert_eq!(labels.get(&key), Some(&value), "{key}");
    }
    assert_eq!(spec.publish_not_ready_addresses, None);
    assert_eq!(spec.type_.as_deref(), Some("ClusterIP"));
    assert_eq!(
        slot_endpoints(&cluster),
        [0, 1, 2].map(|slot| format!("http://demo-client-{slot}.prod.svc:2379"))
    );
}

/// Which hosts a set's pod keeps away from, and over what it is spread.
fn placement(text: &str, one_per_node: bool) -> (usize, Vec<(String, String)>) {
    let set = stateful_set(&cluster(text), &settings(), "demo-4", how(one_per_node));
    let pod = set.spec.and_then(|spec| spec.template.spec);
    let pod = pod.expect("a pod");
    let terms = pod
        .affinity
        .and_then(|affinity| affinity.pod_anti_affinity)
        .and_then(|pods| pods.required_during_scheduling_ignored_during_execution)
        .unwrap_or_default();
    let hosts = terms.iter().filter(|term| {
        let selector = term.label_selector.as_ref();
        let labels = selector.and_then(|selector| selector.match_labels.as_ref());
        let key = crate::crd::LABEL_CLUSTER_UID;
        term.topology_key == "kubernetes.io/hostname"
            && labels.is_some_and(|labels| labels.contains_key(key))
    });
    let spread = pod.topology_spread_constraints.unwrap_or_default();
    let spread = spread
        .into_iter()
        .map(|spread| (spread.topology_key, spread.when_unsatisfiable))
        .collect();
    (hosts.count(), spread)
}

#[test]
fn node_bound_members_get_their_own_nodes() {
    let pair = |key: &str, when: &str| (key.to_owned(), when.to_owned());
    let zone = pair("topology.kubernetes.io/zone", "ScheduleAnyway");
    let host = pair("kubernetes.io/hostname", "DoNotSchedule");
    assert_eq!(placement("spec: {}", false), (0, vec![host, zone.clone()]));
    assert_eq!(placement("spec: {}", true), (1, vec![zone]));
    // The user's own affinity is kept.
    let user = "spec: {podTemplate: {spec: {affinity: {podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: rack, labelSelector: {matchLabels: {app: etcd}}}]}}}}}";
    let set = stateful_set(&cluster(user), &settings(), "demo-4", how(true));
    let affinity = set.spec.and_then(|spec| spec.template.spec?.affinity);
    let terms = affinity
        .and_then(|affinity| affinity.pod_anti_affinity)
        .and_then(|pods| pods.required_during_scheduling_ignored_during_execution)
        .expect("terms");
    let keys: Vec<&str> = terms
        .iter()
        .map(|term| term.topology_key.as_str())
        .collect();
    assert_eq!(keys, ["rack", "kubernetes.io/hostname"]);
}

/// A member that runs must not count as outdated because a newer operator would place it
/// otherwise, or because its volume was bound meanwhile. The number is that of the operators
/// before `scheduling.volumes` existed.
#[test]
fn placement_changes_do_not_roll() {
    let of = |text| wanted_inputs(&cluster(text));
    assert_eq!(of("spec: {}"), "39a193e505a73bd789df2f497846ccb1");
    assert_eq!(of("spec: {}"), of("spec: {scheduling: {volumes: Auto}}"));
    assert_ne!(
        of("spec: {}"),
        of("spec: {scheduling: {volumes: NodeBound}}")
    );
    let inputs = |one_per_node| {
        let set = stateful_set(
            &cluster("spec: {}"),
            &settings(),
            "demo-1",
            how(one_per_node),
        );
        let annotations = set.metadata.annotations.unwrap_or_default();
        annotations.get(crate::crd::ANNOTATION_INPUTS).cloned()
    };
    assert!(inputs(true).is_some());
    assert_eq!(inputs(true), inputs(false));
}

/// A spec with the commonest constraint of all, zones where that is possible, was accepted and
/// then never became a set: Kubernetes refuses two constraints of the same key and mode.
#[test]
fn user_spread_constraint_replaces_ours() {
    let of = |text: &str| {
        let set = stateful_set(&cluster(text), &settings(), "demo-1", how(false));
        let pod = set.spec.and_then(|spec| spec.template.spec).expect("a pod");
        pod.topology_spread_constraints.expect("constraints")
    };
    let text = "spec: {podTemplate: {spec: {topologySpreadConstraints: [{topologyKey: topology.kubernetes.io/zone, maxSkew: 2, whenUnsatisfiable: ScheduleAnyway}, {topologyKey: kubernetes.io/hostname, maxSkew: 1, whenUnsatisfiable: DoNotSchedule}, {topologyKey: rack, maxSkew: 1, whenUnsatisfiable: DoNotSchedule}]}}}";
    let all = of(text);
    let skews: Vec<(&str, i32)> = all
        .iter()
        .map(|one| (one.topology_key.as_str(), one.max_skew))
        .collect();
    assert_eq!(
        skews,
        [
            ("topology.kubernetes.io/zone", 2),
            ("kubernetes.io/hostname", 1),
            ("rack", 1)
        ]
    );
    assert!(all.iter().all(|one| one.label_selector.is_some()));
    let other = "spec: {podTemplate: {spec: {topologySpreadConstraints: [{topologyKey: topology.kubernetes.io/zone, maxSkew: 1, whenUnsatisfiable: DoNotSchedule}]}}}";
    assert_eq!(of(other).len(), 3, "another mode is another constraint");
}

#[test]
fn controller_revision_holds_the_spec() {
    let cluster = cluster("spec: {}");
    let kept = super::revision(&cluster);
    assert_eq!(super::spec_of(&kept).as_ref(), Some(&cluster.spec));
    let name = kept.metadata.name.clone().unwrap_or_default();
    assert_eq!(
        name,
        format!("{}-spec-{}", cluster.name, super::spec_hash(&cluster))
    );
    let mut paused = cluster.clone();
    paused.spec.paused = true;
    assert_eq!(
        super::revision(&paused),
        kept,
        "nothing is made from a pause"
    );
    let mut other = cluster;
    other.spec.replicas += 1;
    assert_ne!(super::spec_hash(&other), super::spec_hash(&paused));
}

/// An operator that was moved to another namespace has to be admitted at once: everything that it does goes through the
/// peer port. The members themselves are not recreated for it.
#[test]
fn network_policy_follows_operator_and_resource() {
    let plain = cluster("spec: {}");
    let named = cluster("spec: {networkPolicy: {clients: [{podSelector: {}}]}}");
    let moved = Settings {
        operator_namespace: Some("elsewhere".into()),
        ..settings()
    };
    let before = wanted_objects(&plain, &settings());
    for after in [
        wanted_objects(&named, &settings()),
        wanted_objects(&plain, &moved),
    ] {
        let changed: Vec<_> = before
            .iter()
            .filter(|(key, inputs)| after.get(key) != Some(inputs))
            .map(|(key, _)| key.kind)
            .collect();
        assert_eq!(changed, [crate::plan::ObjectKind::NetworkPolicy]);
    }
    assert_eq!(
        wanted_inputs(&plain),
        wanted_inputs(&named),
        "no member restarts"
    );
}

fn ports_of(policy: &k8s_openapi::api::networking::v1::NetworkPolicy) -> Vec<(i32, usize)> {
    let spec = policy.spec.as_ref().expect("a specification");
    let rules = spec.ingress.iter().flatten();
    let ports = rules.map(|rule| {
        let port = rule.ports.as_ref().and_then(|ports| ports.first());
        let Some(Some(IntOrString::Int(port))) = port.map(|port| port.port.clone()) else {
            panic!("every rule names its port: {rule:?}");
        };
        (port, rule.from.as_ref().map_or(0, Vec::len))
    });
    ports.collect()
}

/// Port and number of peers that may reach it; none: everyone. A port without a rule is closed.
#[test]
fn network_policy_opens_only_named_ports() {
    let of = |yaml: &str, settings: &Settings| ports_of(&network_policy(&cluster(yaml), settings));
    assert_eq!(of("spec: {}", &settings()), [(2380, 3), (2379, 0)]);
    let named = "spec: {networkPolicy: {clients: [{podSelector: {}}],
        metrics: [{ipBlock: {cidr: 10.0.0.0/8}}, {namespaceSelector: {}}]}}";
    assert_eq!(of(named, &settings()), [(2380, 3), (2379, 1), (2381, 2)]);
    // An operator outside of Kubernetes must not lock itself out.
    let outside = Settings {
        operator_namespace: None,
        ..settings()
    };
    assert_eq!(of("spec: {}", &outside), [(2380, 0), (2379, 0)]);
}

#[test]
fn memory_request_follows_the_quota() {
    let of = |spec: &str| {
        let set = stateful_set(&cluster(spec), &settings(), "demo-1", how(false));
        let pod = set.spec.and_then(|spec| spec.template.spec).expect("a pod");
        let resources = pod.containers[0].resources.clone().expect("resources");
        let text = |map: Option<std::collections::BTreeMap<String, _>>| {
            let map = map.unwrap_or_default().into_iter();
            let pairs = map.map(
                |(key, value): (
                    String,
                    k8s_openapi::apimachinery::pkg::api::resource::Quantity,
                )| { format!("{key}={}", value.0) },
            );
            pairs.collect::<Vec<_>>().join(" ")
        };
        (text(resources.requests), text(resources.limits))
    };
    for (spec, requests, limits) in [
        (
            "spec: {}",
            "cpu=100m ephemeral-storage=64Mi memory=256Mi",
            "",
        ),
        (
            "spec: {server: {quota: 1Gi}}",
            "cpu=100m ephemeral-storage=64Mi memory=2560Mi",
            "",
        ),
        (
            "spec: {server: {quota: 1200k}}",
            "cpu=100m ephemeral-storage=64Mi memory=3Mi",
            "",
        ),
        (
            "spec: {resources: {requests: {cpu: 2}}}",
            "cpu=2 ephemeral-storage=64Mi memory=256Mi",
            "",
        ),
        (
            "spec: {server: {quota: 1Gi}, resources: {requests: {memory: 1Gi}}}",
            "cpu=100m ephemeral-storage=64Mi memory=1Gi",
            "",
        ),
        // Kubernetes makes a request of a limit.
        (
            "spec: {resources: {limits: {memory: 6Gi}}}",
            "cpu=100m ephemeral-storage=64Mi",
            "memory=6Gi",
        ),
        (
            "spec: {resources: {limits: {cpu: 1, memory: 6Gi}}}",
            "ephemeral-storage=64Mi",
            "cpu=1 memory=6Gi",
        ),
        (
            "spec: {resources: {requests: {ephemeral-storage: 1Gi}}}",
            "cpu=100m ephemeral-storage=1Gi memory=256Mi",
            "",
        ),
        (
            "spec: {resources: {limits: {ephemeral-storage: 2Gi}}}",
            "cpu=100m memory=256Mi",
            "ephemeral-storage=2Gi",
        ),
    ] {
        assert_eq!(of(spec), (requests.to_owned(), limits.to_owned()), "{spec}");
    }
    // A newer operator that sets them restarts nothing: the inputs of a member are the same.
    assert_ne!(
        wanted_inputs(&cluster("spec: {server: {quota: 1Gi}}")),
        wanted_inputs(&cluster("spec: {}"))
    );
}

fn file(name: &str) -> String {
    let path = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The operator as installed: only its probes are admitted, and the members' policies select its pods by their labels
/// and namespace.
#[test]
fn install_policies_admit_the_operator() {
    use k8s_openapi::api::apps::v1::Deployment;
    use k8s_openapi::api::networking::v1::NetworkPolicy;
    let text = file("deploy/install.yaml");
    let of = |kind: &str| {
        let line = format!("\nkind: {kind}\n");
        let mut documents = text.split("\n---\n");
        let found = documents.find(|document| format!("\n{document}\n").contains(&line));
        found.unwrap_or_else(|| panic!("no {kind} is installed"))
    };
    let policy: NetworkPolicy = serde_saphyr::from_str(of("NetworkPolicy")).expect("a policy");
    let deployment: Deployment = serde_saphyr::from_str(of("Deployment")).expect("a Deployment");
    let pods = deployment.spec.and_then(|spec| spec.template.metadata);
    let pods = pods
        .and_then(|meta| meta.labels)
        .expect("labels of the pods");
    let spec = policy.spec.expect("a specification");
    let selected = spec.pod_selector.and_then(|selector| selector.match_labels);
    let selected = selected.expect("it selects by labels");
    assert!(!selected.is_empty() && selected.iter().all(|pair| pods.get(pair.0) == Some(pair.1)));
    assert_eq!(spec.ingress, Some(Vec::new()), "no peer");
    assert_eq!(spec.policy_types, Some(vec!["Ingress".to_owned()]));
    let members = network_policy(&cluster("spec: {}"), &settings());
    let peers = members.spec.and_then(|spec| spec.ingress).expect("rules");
    let operator = peers[0].from.as_ref().map(|from| from[1].clone());
    let operator = operator.expect("the operator is named");
    let named = operator
        .pod_selector
        .and_then(|selector| selector.match_labels);
    let named = named.expect("labels");
    assert!(!named.is_empty() && named.iter().all(|pair| pods.get(pair.0) == Some(pair.1)));
    let place = operator
        .namespace_selector
        .and_then(|selector| selector.match_labels);
    let place = place.and_then(|labels| labels.get("kubernetes.io/metadata.name").cloned());
    assert_eq!(policy.metadata.namespace, place);
}

/// The samples are encrypted. Processes on one machine have no TLS.
#[test]
fn the_samples_are_encrypted() {
    let sample = parse(&file("deploy/samples/cluster.yaml")).expect("valid");
    assert!(sample.spec.tls.is_some());
    let local = file("deploy/samples/local-demo.yaml");
    assert!(parse(&local).is_ok() && local.contains("`tls: {}`"));
    let restored = parse(&file("deploy/samples/restore.yaml")).expect("valid");
    assert!(restored.spec.bootstrap.is_some() && restored.spec.tls.is_some());
    for (sample, standby) in [("follow", false), ("standby", true)] {
        let sample = parse(&file(&format!("deploy/samples/{sample}.yaml"))).expect("valid");
        let follow = sample.spec.follow().expect("it follows");
        assert!(sample.spec.tls.is_some() && follow.tls.is_some());
        assert_eq!((follow.standby, follow.until), (standby, Until::Stay));
    }
    assert!(file("charts/quorate/templates/NOTES.txt").contains("\n    tls: {}\n"));
    assert!(!file("deploy/static-pod/quorate.yaml").contains("--listen-client-urls=http://0"));
}
