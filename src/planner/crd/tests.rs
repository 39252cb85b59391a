//! Tests of the schema, its rules and its defaults: what is refused, and with which message.

use kube_core::CustomResourceExt;

use super::*;

fn text(name: &str, spec: &str) -> String {
    format!(
        "apiVersion: quorate.dev/v1alpha1\nkind: EtcdCluster\nmetadata: {{name: {name}, namespace: d}}\nspec: {spec}\n"
    )
}

fn refused(name: &str, spec: &str) -> String {
    match parse(&text(name, spec)) {
        Ok(_) => panic!("{name} {spec} is accepted"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn an_empty_spec_gets_every_default() {
    let cluster = parse(&text("demo", "{}")).expect("valid");
    assert_eq!(cluster.spec, EtcdClusterSpec::default());
    assert_eq!(cluster.spec.replicas, 3);
    assert_eq!(cluster.spec.version, env!("CARGO_PKG_VERSION"));
    assert_eq!(cluster.spec.storage.size, "8Gi");
    assert_eq!(
        cluster.spec.storage.retention.when_deleted,
        RetentionPolicy::Retain
    );
    assert_eq!(cluster.spec.healing.unhealthy_seconds, 600);
}

#[test]
fn even_replicas_are_allowed() {
    let spec = "{replicas: 4, resources: {requests: {cpu: 1, memory: 64Mi}, limits: {cpu: 1.5}}}";
    let cluster = parse(&text("demo", spec)).expect("valid");
    assert_eq!(cluster.spec.resources.requests["cpu"], Quantity("1".into()));
    assert_eq!(cluster.spec.resources.limits["cpu"], Quantity("1.5".into()));
}

#[test]
fn each_mistake_is_named_with_its_remedy() {
    for (name, spec, words) in [
        (
            "demo",
            "{replicas: 10}",
            "replicas must be 0 (hibernation) to 9",
        ),
        (
            "demo",
            "{replicas: -1}",
            "replicas must be 0 (hibernation) to 9",
        ),
        (
            "demo",
            "{replicas: three}",
            "spec.replicas: expected integer, found \"three\"",
        ),
        (
            "demo",
            "{networkPolicy: {clients: [{}]}}",
            "each entry of networkPolicy has either ipBlock, or podSelector, namespaceSelector or both",
        ),
        (
            "demo",
            "{networkPolicy: {metrics: [{ipBlock: {cidr: 10.0.0.0/8}, podSelector: {}}]}}",
            "each entry of networkPolicy has either ipBlock",
        ),
        (
            "demo",
            "{networkPolicy: {clients: [{ipBlock: {cidr: 10.0.0.1}}]}}",
            "ipBlock.cidr must be a block of addresses such as 10.0.0.0/8",
        ),
        (
            "demo",
            "{networkPolicy: {peers: []}}",
            "spec.networkPolicy.peers: unknown field",
        ),
        ("1demo", "{}", "the name must start with a letter"),
        ("de.mo", "{}", "the name must start with a letter"),
        ("demo-", "{}", "the name must start with a letter"),
        (
            "a2345678901234567890123456789012345678901",
            "{}",
            "at most 40 characters",
        ),
        ("demo", "{version: latest}", "version must look like 0.1.0"),
        ("demo", "{image: 'a b'}", "image must be a reference"),
        (
            "demo",
            "{bootstrap: {restore: {}}}",
            "give either bootstrap.restore.backupRef, or storeRef and path",
        ),
        (
            "demo",
            "{bootstrap: {restore: {backupRef: {name: a}, storeRef: {name: b}, path: c}}}",
            "give either bootstrap.restore.backupRef, or storeRef and path",
        ),
        (
            "demo",
            "{bootstrap: {restore: {storeRef: {name: b}}}}",
            "bootstrap.restore.storeRef and path go together",
        ),
        (
            "demo",
            "{bootstrap: {restore: {storeRef: {name: b}, path: a/../b}}}",
            "path is a path such as",
        ),
        (
            "demo",
            "{bootstrap: {restore: {backupRef: {name: a}, at: {latest: true, revision: 7}}}}",
            "give one of restore.at.time, revision, raftIndex and latest",
        ),
        (
            "demo",
            "{bootstrap: {restore: {backupRef: {name: a}, at: {}}}}",
            "give one of restore.at.time, revision, raftIndex and latest",
        ),
        (
            "demo",
            "{bootstrap: {restore: {backupRef: {name: a}, at: {latest: false}}}}",
            "restore.at.latest is true, or left out",
        ),
        (
            "demo",
            "{bootstrap: {restore: {backupRef: {name: a}, revisionBump: -1}}}",
            "bootstrap.restore.revisionBump must be 0 to",
        ),
        (
            "demo",
            "{bootstrap: {}}",
            "give one of bootstrap.restore, bootstrap.adopt and bootstrap.follow",
        ),
        (
            "demo",
            "{bootstrap: {restore: {backupRef: {name: a}}, adopt: {clusterUID: b}}}",
            "give one of bootstrap.restore, bootstrap.adopt and bootstrap.follow",
        ),
        (
            "demo",
            "{bootstrap: {adopt: {clusterUID: 'a b'}}}",
            "clusterUID is the value of the label",
        ),
        (
            "demo",
            "{bootstrap: {restore: {backupRef: {name: a}}, follow: {endpoints: ['http://a:2379']}}}",
            "give one of bootstrap.restore, bootstrap.adopt and bootstrap.follow",
        ),
        (
            "demo",
            "{bootstrap: {follow: {endpoints: ['a:2379']}}}",
            "bootstrap.follow.endpoints are URLs such as",
        ),
        (
            "demo",
            "{bootstrap: {follow: {endpoints: ['https://root:secret@a:2379']}}}",
            "a user goes into follow.user",
        ),
        (
            "demo",
            "{bootstrap: {follow: {endpoints: ['https://a:2379/v3']}}}",
            "without a user and without a path",
        ),
        (
            "demo",
            "{bootstrap: {follow: {endpoints: ['https://a:2379', 'http://b:2379']}}}",
            "are all https:// or all http://",
        ),
        (
            "demo",
            "{bootstrap: {follow: {endpoints: ['http://a:2379'], tls: {secretRef: {name: b}}}}}",
            "bootstrap.follow.tls is for endpoints with https://",
        ),
        (
            "demo",
            "{bootstrap: {follow: {endpoints: ['http://a:2379'], cutover: Now}}}",
            "\"Now\" is not one of \"Manual\"",
        ),
        (
            "demo",
            "{bootstrap: {follow: {endpoints: ['http://a:2379'], user: {name: root}}}}",
            "spec.bootstrap.follow.user.name: unknown field",
        ),
        (
            "demo",
            "{tls: {client: {source: Vault}}}",
            "\"Vault\" is not one of \"Operator\", \"Secret\"",
        ),
        (
            "demo",
            "{tls: {publishCAs: ClusterTrustBundle, client: {source: Secret, certificateSecretRef: {name: a}}}}",
            "publishCAs: ClusterTrustBundle is for client.source Operator",
        ),
        (
            "demo",
            "{tls: {publishCAs: ConfigMap}}",
            "\"ConfigMap\" is not one of \"Secret\", \"ClusterTrustBundle\"",
        ),
        (
            "demo",
            "{tls: {peer: {extraSANs: ['a b']}}}",
            "extraSANs are host names such as",
        ),
        (
            "demo",
            "{tls: {client: {source: Secret}}}",
            "source Secret needs certificateSecretRef",
        ),
        (
            "demo",
            "{tls: {peer: {caSecretRef: {name: a}}}}",
            "not for source Operator",
        ),
        (
            "demo",
            "{tls: {peer: {source: Secret, certificateSecretRef: {name: a}, extraSANs: [b.c]}}}",
            "extraSANs are not for source Secret",
        ),
        (
            "demo",
            "{tls: {peer: {source: Secret, certificateSecretRef: {name: A_b}}}}",
            "the name of a Secret holds only",
        ),
        (
            "demo",
            "{podTemplate: {spec: {hostNetwork: true}}}",
            "spec.podTemplate.spec.hostNetwork: unknown field",
        ),
        (
            "demo",
            "{podTemplate: {metadata: {labels: {quorate.dev/x: a}}}}",
            "choose other keys",
        ),
        (
            "demo",
            "{podTemplate: {spec: {terminationGracePeriodSeconds: 1}}}",
            "must be 15 to 3600",
        ),
        (
            "demo",
            "{podTemplate: {spec: {tolerations: [{operatr: Exists}]}}}",
            "tolerations[0].operatr: unknown field",
        ),
        (
            "demo",
            "{storage: {type: Memory}}",
            "\"Memory\" is not one of \"PersistentVolume\"",
        ),
        (
            "demo",
            "{storage: {size: lots}}",
            "storage.size must be a quantity",
        ),
        (
            "demo",
            "{storage: {size: 1Mi}}",
            "storage.size must be a quantity of more than 16Mi",
        ),
        (
            "demo",
            "{storage: {storageClassName: ''}}",
            "storageClassName must not be empty",
        ),
        (
            "demo",
            "{healing: {unhealthySeconds: -1}}",
            "healing.unhealthySeconds must be 0",
        ),
        (
            "demo",
            "{healing: {learnerDeadlineSeconds: 0}}",
            "healing.learnerDeadlineSeconds must be 1",
        ),
        (
            "demo",
            "{healing: {maxRestarts: 101}}",
            "healing.maxRestarts must be 0 to 100",
        ),
        (
            "demo",
            "{scheduling: {spread: Never}}",
            "\"Never\" is not one of",
        ),
    ] {
        let error = refused(name, spec);
        assert!(error.contains(words), "{name} {spec}: {error}");
    }
    let two = refused("demo", "{backup: {}, auth: {}}");
    assert!(
        two.contains("spec.backup") && two.contains("spec.auth"),
        "all at once: {two}"
    );
}

#[test]
fn another_kind_is_refused_by_name() {
    let error = parse("apiVersion: v1\nkind: Pod\n")
        .expect_err("another kind")
        .to_string();
    assert!(error.contains("found v1 Pod"), "{error}");
    assert!(matches!(parse("{"), Err(ParseError::Yaml(_))));
}

/// Members are replaced for these.
#[test]
fn volumes_may_become_smaller_and_change_their_class() {
    let cluster = |spec: &str| parse(&text("demo", spec)).expect("valid");
    let old = cluster("{storage: {size: 8Gi}}");
    let fast = "{storage: {size: 8Gi, storageClassName: fast}}";
    for spec in ["{storage: {size: 9Gi}}", "{storage: {size: 7Gi}}", fast] {
        let changed = cluster(spec).validate_cel_update(&old);
        changed.unwrap_or_else(|errors| panic!("{spec}: {errors}"));
    }
    old.validate_cel_update(&cluster(fast))
        .expect("the class may be left out again");
    let errors = parse(&text(
        "demo",
        "{storage: {size: 7Gi}, server: {quota: 2Gi}}",
    ));
    let errors = errors.expect_err("too small for the quota").to_string();
    assert!(errors.contains("at most a quarter"), "{errors}");
}

/// Where the first data come from stays what it was; the place of a followed cluster is taken once, by an edit.
#[test]
fn only_the_cutover_may_be_asked_for_later() {
    let cluster = |bootstrap: &str| {
        let spec = format!("{{bootstrap: {bootstrap}}}");
        parse(&text("demo", &spec)).expect("valid")
    };
    let plain = parse(&text("demo", "{}")).expect("valid");
    let manual = cluster("{follow: {endpoints: ['https://a:2379', 'https://[fd00::1]:2379']}}");
    let asked = cluster(
        "{follow: {endpoints: ['https://a:2379', 'https://[fd00::1]:2379'], cutover: WhenCaughtUp}}",
    );
    let elsewhere = cluster("{follow: {endpoints: ['https://b:2379'], cutover: WhenCaughtUp}}");
    let with_tls = cluster(
        "{follow: {endpoints: ['https://a:2379', 'https://[fd00::1]:2379'], cutover: WhenCaughtUp, tls: {secretRef: {name: a}}}}",
    );
    let with_user = cluster(
        "{follow: {endpoints: ['https://a:2379', 'https://[fd00::1]:2379'], cutover: WhenCaughtUp, user: {secretRef: {name: a}}}}",
    );
    let restored = cluster("{restore: {backupRef: {name: a}}}");
    for (old, new, fits) in [
        (&manual, &manual, true),
        (&manual, &asked, true),
        (&asked, &manual, false),
        (&manual, &elsewhere, false),
        (&manual, &with_tls, false),
        (&manual, &with_user, false),
        (&manual, &restored, false),
        (&restored, &manual, false),
        (&restored, &restored, true),
        (&plain, &manual, false),
        (&manual, &plain, false),
    ] {
        let changed = new.validate_cel_update(old);
        assert_eq!(changed.is_ok(), fits, "{changed:?}");
        if let Err(errors) = changed {
            assert!(
                errors.to_string().contains("only follow.cutover"),
                "{errors}"
            );
        }
    }
    let follow = manual.spec.follow().expect("it follows");
    assert_eq!(follow.until, Until::Stay, "the default");
}

/// A standby stays one of its source, wherever that is found, until it is promoted; and what was carried out is not taken
/// back.
#[test]
fn a_standby_is_promoted_once() {
    let cluster = |rest: &str| {
        let spec = format!("{{replicaOf: {{endpoints: ['https://a:2379']{rest}}}}}");
        parse(&text("demo", &spec)).expect("valid")
    };
    let plain = parse(&text("demo", "{}")).expect("valid");
    let stays = cluster("");
    let moved = parse(&text(
        "demo",
        "{replicaOf: {endpoints: ['http://b:2379'], user: {secretRef: {name: a}}}}",
    ));
    let moved = moved.expect("valid");
    let switched = cluster(", promote: {mode: Switchover}");
    let failed = cluster(", promote: {mode: Failover, acceptLoss: true, revision: 7}");
    let reviewed = cluster(", promote: {mode: Failover, acceptLoss: true, revision: 6}");
    let only = "replicaOf is set when an EtcdCluster is created";
    let done = "stays as it was carried out";
    for (old, new, words) in [
        (&stays, &moved, ""),
        (&stays, &switched, ""),
        (&stays, &failed, ""),
        (&switched, &failed, ""),
        (&switched, &stays, ""),
        (&failed, &reviewed, ""),
        (&failed, &stays, ""),
        (&failed, &switched, ""),
        (&plain, &stays, only),
        (&stays, &plain, only),
    ] {
        let errors = new.validate_cel_update(old).err();
        let errors = errors.map(|it| it.to_string()).unwrap_or_default();
        assert_eq!(errors.is_empty(), words.is_empty(), "{errors}");
        assert!(errors.contains(words), "{errors}");
    }
    let mut over = switched.clone();
    let follow = FollowStatus {
        phase: FollowPhase::CutOver,
        ..FollowStatus::default()
    };
    over.status = Some(EtcdClusterStatus {
        follow: Some(follow),
        ..EtcdClusterStatus::default()
    });
    for (new, fits) in [(&switched, true), (&stays, false), (&failed, false)] {
        let changed = new.validate_cel_update(&over);
        assert_eq!(changed.is_ok(), fits, "{changed:?}");
        if let Err(errors) = changed {
            assert!(errors.to_string().contains(done), "{errors}");
        }
    }
    let follow = failed.spec.follow().expect("a source");
    assert_eq!(follow.until, Until::SourceLost { revision: 7 });
    assert!(follow.standby && follow.in_words().contains("the source at"));
}

#[test]
fn each_mode_of_a_promotion_has_its_fields() {
    for (rest, words) in [
        ("promote: {mode: Failover}", "needs acceptLoss: true"),
        (
            "promote: {mode: Failover, acceptLoss: true}",
            "needs acceptLoss: true",
        ),
        (
            "promote: {mode: Failover, acceptLoss: false, revision: 7}",
            "needs acceptLoss: true",
        ),
        (
            "promote: {mode: Switchover, revision: 7}",
            "are for mode Failover",
        ),
        (
            "promote: {mode: Switchover, acceptLoss: true}",
            "are for mode Failover",
        ),
        ("promote: {mode: Never}", "is not one of"),
        (
            "tls: {secretRef: {name: a}}, endpoints: ['http://a:2379']",
            "replicaOf.tls is for endpoints with https://",
        ),
        (
            "endpoints: ['http://a:2379', 'https://a:2379']",
            "all https:// or all http://",
        ),
        (
            "endpoints: ['https://root@a:2379']",
            "replicaOf.endpoints are URLs such as",
        ),
    ] {
        let endpoints = match rest.contains("endpoints") {
            true => "",
            false => "endpoints: ['https://a:2379'], ",
        };
        let message = refused("demo", &format!("{{replicaOf: {{{endpoints}{rest}}}}}"));
        assert!(message.contains(words), "{rest}: {message}");
    }
    let both = "{replicaOf: {endpoints: ['https://a:2379']}, bootstrap: {restore: {backupRef: {name: a}}}}";
    let message = refused("demo", both);
    assert!(message.contains("give bootstrap or replicaOf"), "{message}");
}

/// Trust would have to overlap between CAs that the operator cannot compare.
#[test]
fn the_source_of_certificates_stays() {
    let cluster = |spec: &str| parse(&text("demo", spec)).expect("valid");
    let plain = cluster("{}");
    let made = cluster("{tls: {}}");
    let user = "{tls: {peer: {source: Secret, certificateSecretRef: {name: a}}}}";
    let user = cluster(user);
    let other = cluster(
        "{tls: {peer: {source: Secret, certificateSecretRef: {name: b}, caSecretRef: {name: c}}}}",
    );
    for (old, new, fits) in [
        (&plain, &made, true),
        (&plain, &user, true),
        (&user, &other, true),
        (&made, &user, false),
        (&user, &made, false),
    ] {
        let changed = new.validate_cel_update(old);
        assert_eq!(changed.is_ok(), fits, "{changed:?}");
    }
    let tls = other.spec.tls.expect("tls");
    let names = |certificate: &str, trusted: &str| Some((certificate.into(), trusted.into()));
    assert_eq!(tls.user_secrets("demo", TlsPort::Peer), names("b", "c"));
    assert_eq!(tls.user_secrets("demo", TlsPort::Client), None);
    let cert_manager = cluster(
        "{tls: {client: {source: CertManager, issuerRef: {name: corp}}, peer: {source: CertManager, issuerRef: {name: corp, kind: ClusterIssuer}, caSecretRef: {name: roots}}}}",
    );
    let tls = cert_manager.spec.tls.expect("tls");
    let own = "demo-client-certificate";
    assert_eq!(tls.user_secrets("demo", TlsPort::Client), names(own, own));
    let own = "demo-peer-certificate";
    assert_eq!(tls.user_secrets("demo", TlsPort::Peer), names(own, "roots"));
    let by = tls.client.issuer_ref.as_ref().expect("an issuer");
    assert_eq!(
        (by.kind.as_str(), by.group.as_str()),
        ("Issuer", "cert-manager.io")
    );
}

/// cert-manager writes a certificate and its `ca.crt` at once.
#[test]
fn new_peer_issuer_needs_overlapping_trust() {
    let cluster = |client: &str, peer: &str| {
        let port = |of: &str| format!("{{source: CertManager, issuerRef: {{name: {of}}}");
        let tls = format!(
            "{{tls: {{client: {}}}, peer: {}}}}}}}",
            port(client),
            port(peer)
        );
        parse(&text("demo", &tls)).expect("valid")
    };
    let old = cluster("a", "a");
    let trusting = cluster("a", "a}, caSecretRef: {name: both");
    for (from, to, fits) in [
        (&old, cluster("b", "a"), true),
        (&old, cluster("a", "b"), false),
        (&old, cluster("a", "b}, caSecretRef: {name: both"), false),
        (&old, trusting.clone(), true),
        (
            &trusting,
            cluster("a", "b}, caSecretRef: {name: both"),
            true,
        ),
        (&trusting, cluster("a", "b"), false),
    ] {
        let changed = to.validate_cel_update(from);
        assert_eq!(changed.is_ok(), fits, "{changed:?}");
    }
}

#[test]
fn each_source_of_certificates_has_its_fields() {
    for (port, word) in [
        ("{source: Secret}", "needs certificateSecretRef"),
        (
            "{certificateSecretRef: {name: a}}",
            "of source Secret alone",
        ),
        (
            "{source: CertManager, issuerRef: {name: a}, certificateSecretRef: {name: a}}",
            "of source Secret alone",
        ),
        ("{caSecretRef: {name: a}}", "not for source Operator"),
        ("{source: CertManager}", "needs issuerRef"),
        ("{issuerRef: {name: a}}", "no other source takes it"),
        (
            "{source: Secret, certificateSecretRef: {name: a}, issuerRef: {name: a}}",
            "no other source takes it",
        ),
        (
            "{source: Secret, certificateSecretRef: {name: a}, extraSANs: [a]}",
            "not for source Secret",
        ),
    ] {
        let message = refused("demo", &format!("{{tls: {{peer: {port}}}}}"));
        assert!(message.contains(word), "{port}: {message}");
    }
}

#[test]
fn a_wildcard_is_for_the_first_label() {
    let names = ["*.demo-peers.prod.svc", "Etcd.example.com"].map(str::to_owned);
    let names = std::collections::BTreeSet::from(names);
    for (host, is) in [
        ("demo-1-0.demo-peers.prod.svc", true),
        ("etcd.example.com", true),
        ("demo-peers.prod.svc", false),
        ("a.demo-1-0.demo-peers.prod.svc", false),
        ("other.example.com", false),
    ] {
        assert_eq!(is_named(&names, host), is, "{host}");
    }
}

#[test]
fn spec_is_validated_without_cel() {
    let mut cluster = parse(&text("demo", "{}")).expect("valid");
    cluster.metadata.uid = Some("u".into());
    let valid = validate(&cluster).expect("valid");
    assert_eq!((valid.target(), valid.storage_bytes), (3, 8 << 30));
    cluster.spec.replicas = 10;
    cluster.spec.storage.size = "lots".into();
    cluster.metadata.uid = None;
    let invalid = validate(&cluster).expect_err("three problems");
    for words in ["hibernation", "storage.size", "metadata.uid"] {
        assert!(invalid.to_string().contains(words), "{invalid}");
    }
}

#[test]
fn quantities_are_bytes() {
    for (text, bytes) in [
        ("1", 1),
        ("1k", 1000),
        ("1Ki", 1024),
        ("1.5Gi", 3 << 29),
        ("0.5", 1),
        ("100m", 1),
        ("2e3", 2000),
        ("8Gi", 8 << 30),
    ] {
        assert_eq!(bytes_of(text), Ok(bytes), "{text}");
    }
    for text in ["", "Gi", "1.2.3", "-1", "1 Gi", "1Zi", "99999999999999Ei"] {
        assert!(bytes_of(text).is_err(), "{text}");
    }
}

#[test]
fn names_of_members_are_distinguished() {
    assert_eq!(member_number("demo", "demo-12"), Some(12));
    for other in [
        "demo", "demo-", "demo-01", "demo-x", "demo-1-2", "other-1", "-1",
    ] {
        assert_eq!(member_number("demo", other), None, "{other}");
    }
    assert_eq!(pvc_name("demo-1", "6f1c2d3e-aaaa"), "data-demo-1-6f1c2");
    assert_eq!(pvc_name("demo-1", "A-1b2c3"), "data-demo-1-a1b2c");
}

#[test]
fn the_definition_has_what_kubectl_shows() {
    let crd = EtcdCluster::crd();
    assert_eq!(crd.spec.names.short_names, Some(vec!["qec".to_owned()]));
    assert_eq!(crd.spec.names.categories, Some(vec!["quorate".to_owned()]));
    let version = &crd.spec.versions[0];
    let columns = version
        .additional_printer_columns
        .as_ref()
        .expect("columns");
    let names: Vec<&str> = columns.iter().map(|column| column.name.as_str()).collect();
    assert_eq!(
        names,
        [
            "Ready",
            "Version",
            "Leader",
            "Status",
            "Age",
            "Updated",
            "Cluster ID"
        ]
    );
    let scale = version
        .subresources
        .as_ref()
        .and_then(|s| s.scale.as_ref())
        .expect("scale");
    assert_eq!(
        scale.label_selector_path.as_deref(),
        Some(".status.selector")
    );
    for definition in definitions() {
        let written = definition_yaml(&definition).expect("YAML");
        let plural = &definition.spec.names.plural;
        let file = format!(
            "{}/../../crds/quorate.dev_{plural}.yaml",
            env!("CARGO_MANIFEST_DIR")
        );
        let kept = std::fs::read_to_string(file).expect("the definition in crds/");
        assert!(
            kept.ends_with(&written),
            "crds/ differs from the code: run `make generate`"
        );
    }
}
