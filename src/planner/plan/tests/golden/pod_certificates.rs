//! Situations of members whose keys kubelets make: certificates are signed when kubelets request them, at once for pods that start and
//! for one running server after the other.

use crate::crd::TlsPort;
use crate::plan::plan;
use crate::plan::tests::script::{Script, wait};
use crate::plan::tests::world::World;

fn rested(replicas: i32) -> World {
    let mut world = World::new(replicas).with_pod_keys();
    world.settle(1000);
    assert_eq!(world.voters(), world.cluster.target());
    world
}

/// Fingerprints of what is recorded, by the names of the members' Secrets.
fn recorded(world: &World) -> Vec<(String, Option<String>)> {
    let secrets = world.api.tls.secrets.iter();
    let of_members = secrets.filter(|(_, facts)| facts.member.is_some());
    of_members
        .map(|(name, facts)| {
            let certificate = facts.certificate.as_ref();
            (name.clone(), certificate.map(|it| it.fingerprint.clone()))
        })
        .collect()
}

#[test]
fn keys_of_kubelets() {
    let mut script = Script::new(
        "pod-certificates",
        "Keys that kubelets make: each member's Secret has the CAs before its pod is created, and its certificate is signed when the pod's kubelet requests it.",
    );
    let mut world = World::new(3).with_pod_keys();
    script.settle("The cluster is made", &mut world);
    script.observe("At rest", &world);
    let before = recorded(&world);
    assert!(before.len() == 6 && before.iter().all(|(_, it)| it.is_some()));
    world.api.wanted_inputs = "spec-2".into();
    script.settle("A roll: each next pod has keys of its own", &mut world);
    let now = recorded(&world);
    assert!(now.iter().all(|one| !before.contains(one)), "{now:?}");
    world.cluster.spec.replicas = 1;
    script.settle("Members leave, and their records go", &mut world);
    script.compare();
}

#[test]
fn kubelets_request_the_next_ones() {
    let mut script = Script::new(
        "pod-certificates-renewal",
        "After two thirds of their lives kubelets request the next certificates: one member after the other, and a kubelet that was restarted in between is not waited for.",
    );
    let mut world = rested(3);
    let before = recorded(&world);
    world.skip_days(61);
    script.settle("Two thirds of the life are over", &mut world);
    assert!(recorded(&world).iter().all(|one| !before.contains(one)));
    world.faults.uncarried = ["demo-1".into()].into();
    world.restart_kubelet_of("demo-1");
    world.reconcile();
    world.reconcile();
    wait(&mut world, 60);
    world.restart_kubelet_of("demo-2");
    script.observe(
        "One does not get what was signed for it: another one waits",
        &world,
    );
    world.restart_kubelet_of("demo-1");
    world.faults.uncarried.clear();
    script.settle("Its kubelet lost the key: it requests anew", &mut world);
    world.skip_days(91);
    script.settle("All have expired, and are signed at once", &mut world);
    script.compare();
}

/// A CA is rotated: nobody can make a kubelet ask for a certificate of the next one, so the rotation waits for them.
#[test]
fn a_rotation_waits_for_kubelets() {
    let mut script = Script::new(
        "pod-certificates-rotation",
        "The peers' CA is exchanged: the next one signs once all trust it, and the one before is forgotten when no kubelet has a certificate of it any more.",
    );
    let mut world = rested(3);
    world.api.tls.rotate.insert(TlsPort::Peer, "1".into());
    script.settle("It is asked for", &mut world);
    let trusted = |world: &World| world.api.tls.secrets["demo-peer-ca"].trusted.len();
    assert_eq!(trusted(&world), 2, "members have certificates of the first");
    script.observe("It signs, and nobody asks", &world);
    world.skip_days(61);
    script.settle("Kubelets ask", &mut world);
    assert_eq!(trusted(&world), 1);
    script.compare();
}

#[test]
fn nothing_is_made_that_would_not_start() {
    let mut script = Script::new(
        "pod-certificates-unavailable",
        "The API server shows no PodCertificateRequests: no member is created, until it does; and where it stops to, those that run go on.",
    );
    let mut world = World::new(3).with_pod_keys();
    world.show_requests(false);
    script.settle("It does not", &mut world);
    assert!(world.api.pods.is_empty());
    script.observe("What is missing is said", &world);
    world.show_requests(true);
    script.settle("It does", &mut world);
    world.show_requests(false);
    script.settle("It does no more: members run, and that is said", &mut world);
    assert_eq!(world.voters(), 3);
    script.compare();
}

/// What was read of requests is some seconds old: a request of a pod that is gone, or that ends, is left alone. The plan was refused as a
/// whole, and with it what would have healed the member.
#[test]
fn requests_of_earlier_pods_are_left_alone() {
    let mut world = rested(3);
    world.restart_kubelet_of("demo-2");
    let signs = |observed: &crate::plan::Observed| {
        let steps = plan(observed).steps;
        let of = |step: &crate::plan::Step| step.action.to_string().starts_with("sign");
        steps.iter().filter(|step| of(step)).count()
    };
    let observed = world.observe();
    // One port, then the other: one at a time.
    assert_eq!(signs(&observed), 2);
    let mut gone = observed.clone();
    gone.pods.remove("demo-2");
    assert_eq!(signs(&gone), 0);
    let mut another = observed.clone();
    another.pods.get_mut("demo-2").expect("its pod").uid = "another".into();
    assert_eq!(signs(&another), 0);
    let mut ends = observed;
    ends.pods.get_mut("demo-2").expect("its pod").terminating = true;
    assert_eq!(signs(&ends), 0);
}

/// The names of what is done to a member's pod or place, of the plan's steps.
fn done_to(member: &str, observed: &crate::plan::Observed) -> Vec<String> {
    let steps = plan(observed).steps;
    let texts = steps.iter().map(|step| step.action.to_string());
    texts
        .filter(|text| text.contains(member) && !text.starts_with("sign"))
        .collect()
}

/// A member whose next pod has waited for its certificate for so long, as while no operator ran.
fn waits_for_its_certificate(world: &mut World, ms: u64) -> crate::plan::Observed {
    world.restart_kubelet_of("demo-2");
    let mut observed = world.observe();
    observed.descriptions.remove("demo-2");
    for description in observed.descriptions.values_mut() {
        for member in &mut description.members {
            if member.name == "demo-2" {
                member.last_contact_ms = Some(ms);
            }
        }
    }
    let pod = observed.pods.get_mut("demo-2").expect("its pod");
    (pod.started_ms, pod.ready_since_ms, pod.last_exit) = (None, None, None);
    pod.created_ms = observed.now_ms.saturating_sub(ms);
    observed
}

/// An operator that had been away for longer than unhealthySeconds removed the member whose pod waited for its signature, or deleted
/// that pod right after it had signed.
#[test]
fn a_pod_that_waits_for_a_certificate_is_no_evidence() {
    const AWAY_MS: u64 = 700_000;
    let mut world = rested(3);
    world.skip_days(1);
    for most in [3, 0] {
        world.cluster.spec.healing.max_restarts = most;
        let waits = waits_for_its_certificate(&mut world, AWAY_MS);
        assert_eq!(done_to("demo-2", &waits), [] as [String; 0]);
        let signs = |step: &crate::plan::Step| step.action.to_string().starts_with("sign");
        assert!(plan(&waits).steps.iter().any(signs));
        // It has its answers now.
        let mut signed = waits.clone();
        signed.tls.requests = Some([].into());
        let now_ms = signed.now_ms;
        for (name, facts) in &mut signed.tls.secrets {
            let of_member = facts.member.as_deref() == Some("demo-2");
            if let Some(certificate) = facts.certificate.as_mut().filter(|_| of_member) {
                certificate.not_before_ms = now_ms - crate::plan::POD_CERTIFICATE_SKEW_MS;
                assert!(name.starts_with("demo-2-"));
            }
        }
        assert_eq!(done_to("demo-2", &signed), [] as [String; 0]);
        // A minute later it has had its time.
        let mut late = signed;
        for facts in late.tls.secrets.values_mut() {
            if let Some(certificate) = facts.certificate.as_mut() {
                certificate.not_before_ms = certificate.not_before_ms.saturating_sub(61_000);
            }
        }
        let done = done_to("demo-2", &late);
        assert!(!done.is_empty(), "with {most} restarts: {done:?}");
        // Whether it waits is not known, where requests are not shown.
        let mut unknown = waits;
        unknown.tls.requests = None;
        assert_eq!(done_to("demo-2", &unknown), [] as [String; 0]);
    }
}

/// A CA that cannot be read signs nothing: a voter was restarted all the same, by a roll or a drain, and its next pod waited until the
/// member was removed.
#[test]
fn no_voter_is_restarted_without_a_ca() {
    let mut world = rested(3);
    world.api.wanted_inputs = "spec-2".into();
    let restarts = |observed: &crate::plan::Observed| {
        let steps = plan(observed).steps;
        let texts = steps.iter().map(|step| step.action.to_string());
        texts.filter(|text| text.contains("pod")).count()
    };
    for _ in 0..20 {
        let observed = world.observe();
        if restarts(&observed) > 0 {
            let mut unreadable = observed;
            let authority = unreadable.tls.secrets.get_mut("demo-peer-ca");
            authority.expect("the CA").certificate = None;
            assert_eq!(restarts(&unreadable), 0);
            return;
        }
        world.reconcile();
    }
    panic!("the roll restarts nobody");
}

/// A kubelet that waits for an answer exchanges nothing in the pod's volume, so that its member learns of a new CA only with its next
/// certificate. It was not signed for, because it did not trust the CA, and no first certificate was signed before it did.
#[test]
fn who_waits_for_an_answer_learns_of_a_ca_with_it() {
    let mut script = Script::new(
        "pod-certificates-frozen",
        "The peers' CA is deleted while the kubelets of two members wait for answers: both learn of the next one with their certificates, one after the other.",
    );
    let mut world = rested(3);
    world.faults.uncarried = ["demo-2".into(), "demo-3".into()].into();
    for member in ["demo-2", "demo-3"] {
        world.restart_kubelet_of(member);
    }
    world.api.tls.secrets.remove("demo-peer-ca");
    for _ in 0..30 {
        world.reconcile();
    }
    script.observe("The first one was signed for", &world);
    world.faults.uncarried.remove("demo-2");
    for _ in 0..30 {
        world.reconcile();
    }
    script.observe("It has what was signed: so was the second", &world);
    world.faults.uncarried.clear();
    script.settle("All trust it", &mut world);
    script.compare();
}
