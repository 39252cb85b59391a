//! Situations of the ClusterTrustBundle: published with the first CA, before another one signs, and deleted when it is asked
//! for no more; and what is reported where it cannot be.

use crate::crd::TlsPort;
use crate::plan::tests::script::{Script, rested};
use crate::plan::tests::world::World;
use crate::plan::{
    Action, CertificateAction, Owner, Rotation, TrustBundle, TrustBundleFacts, plan,
};

fn published() -> World {
    let mut world = World::new(3).with_tls();
    world.publish(true);
    world.settle(1000);
    world
}

#[test]
fn follows_the_authorities() {
    let mut script = Script::new(
        "trust-bundle",
        "The CAs of the client port in a ClusterTrustBundle: with the first one, with both in a rotation, and until it is asked for no more.",
    );
    let mut world = World::new(1).with_tls();
    world.publish(true);
    script.settle("The cluster is made", &mut world);
    let bundle = crate::crd::trust_bundle_name("default", "demo");
    assert_eq!(
        world
            .status
            .endpoints
            .as_ref()
            .and_then(|it| it.cluster_trust_bundle.clone()),
        Some(bundle)
    );
    world.api.tls.rotate.insert(TlsPort::Client, "1".into());
    script.settle("Another authority for clients", &mut world);
    assert_eq!(world.published().map(<[String]>::len), Some(2));
    world.api.now_ms += 2 * 3_600_000;
    script.settle("Their time is over: it signs", &mut world);
    for _ in 0..2 {
        world.skip_days(46);
        world.settle(1000);
    }
    let only = &world.api.tls.secrets["demo-client-ca"].trusted;
    assert_eq!(only.len(), 1);
    assert_eq!(world.published(), Some(&only[..]));
    if let TrustBundle::There(facts) = &mut world.api.tls.bundle {
        facts.trusted.clear();
    }
    script.settle("Somebody overwrites it", &mut world);
    world.api.tls.bundle = TrustBundle::Missing;
    script.settle("Somebody deletes it", &mut world);
    // What happens to it is seen by reading it alone.
    assert!(!plan(&world.observe()).calm);
    world.publish(false);
    script.settle("It is asked for no more", &mut world);
    assert_eq!(world.published(), None);
    assert!(plan(&world.observe()).calm);
    world.publish(true);
    world.cluster.spec.paused = true;
    script.settle("And again, while the cluster is paused", &mut world);
    script.compare();
}

/// Clients that have the ClusterTrustBundle and nothing else refuse members with certificates of a CA that it lacks.
#[test]
fn published_before_it_signs() {
    let mut world = published();
    world.api.tls.rotate.insert(TlsPort::Client, "1 now".into());
    let switches = |world: &World| {
        let steps = plan(&world.observe()).steps;
        steps.iter().any(|step| {
            matches!(
                &step.action,
                Action::Certificate(CertificateAction::RotateAuthority {
                    stage: Rotation::Switch { .. },
                    ..
                })
            )
        })
    };
    let mut switched = false;
    for _ in 0..400 {
        if switches(&world) {
            switched = true;
            let next = world.api.tls.secrets["demo-client-ca"]
                .next
                .clone()
                .expect("it is to sign");
            assert!(
                world
                    .published()
                    .is_some_and(|all| all.contains(&next.fingerprint))
            );
            // As it was before, and as long as it cannot be read, nothing changes.
            for other in [TrustBundle::Missing, TrustBundle::Denied] {
                let mut seen = world.observe();
                seen.tls.bundle = other;
                let steps = plan(&seen).steps;
                assert!(!steps.iter().any(|step| matches!(
                    &step.action,
                    Action::Certificate(CertificateAction::RotateAuthority { .. })
                )));
            }
        }
        world.reconcile();
    }
    assert!(switched, "the other CA signs in the end");
}

#[test]
fn what_cannot_be_published_is_reported() {
    let mut script = Script::new(
        "trust-bundle-refused",
        "A ClusterTrustBundle that cannot be written: the user is told what to do, and the cluster is kept as any other.",
    );
    let foreign = |owner| {
        TrustBundle::There(TrustBundleFacts {
            uid: "b".into(),
            owner,
            trusted: vec!["theirs".into()],
        })
    };
    for (title, bundle) in [
        ("The kind is not served", TrustBundle::NotServed),
        ("The operator has no rights to it", TrustBundle::Denied),
        ("One of its name is there already", foreign(Owner::Unowned)),
    ] {
        let mut world = World::new(1).with_tls();
        world.publish(true);
        world.api.tls.bundle = bundle.clone();
        script.settle(title, &mut world);
        script.observe(title, &world);
        assert_eq!(world.voters(), 1);
        assert_eq!(world.api.tls.bundle, bundle, "nothing was written");
    }
    let mut world = World::new(1).with_tls();
    world.publish(true);
    world.api.tls.bundle = foreign(Owner::EarlierLife);
    script.settle("It is of a deleted cluster of this name", &mut world);
    assert_eq!(
        world.published(),
        Some(&world.api.tls.secrets["demo-client-ca"].trusted[..])
    );
    script.compare();
}

/// One that was never asked for is not looked for, and none is written for a cluster without TLS.
#[test]
fn nothing_is_published_unasked() {
    for world in [rested(1), rested(1).with_tls()] {
        let mut world = world;
        world.settle(1000);
        assert_eq!(world.api.tls.bundle, TrustBundle::Unseen);
        let endpoints = world.status.endpoints.as_ref();
        assert_eq!(
            endpoints.and_then(|it| it.cluster_trust_bundle.as_ref()),
            None
        );
    }
}
