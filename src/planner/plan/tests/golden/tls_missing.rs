//! Situations in which a certificate is missing that a pod is to mount. Without it the pod would hang in
//! ContainerCreating, so its set waits; and what holds the certificate back ends by itself.

use crate::crd::{TlsPort, member_certificate_name};
use crate::plan::tests::script::Script;
use crate::plan::tests::world::World;
use crate::plan::{Action, CertificateAction, ObjectAction, Plan, plan};

fn rested(replicas: i32) -> World {
    let mut world = World::new(replicas).with_tls();
    world.settle(1000);
    assert_eq!(world.voters(), world.cluster.target());
    world
}

/// The Secret of a CA is deleted.
fn lose_authority(world: &mut World, port: TlsPort) {
    let name = format!("demo-{}-ca", port.as_str());
    let lost = world.api.tls.secrets.remove(&name);
    assert!(lost.is_some(), "{name}");
}

/// Every member has a certificate for each port, of the authority that signs.
fn assert_whole(world: &World) {
    let secrets = &world.api.tls.secrets;
    for member in world.raft.members.iter().map(|member| &member.name) {
        for port in TlsPort::ALL {
            let secret = secrets.get(&member_certificate_name(member, port));
            let authority = &secrets[&format!("demo-{}-ca", port.as_str())];
            let signer = authority.certificate.as_ref().map(|one| &one.fingerprint);
            let held = secret.and_then(|facts| facts.certificate.as_ref());
            let issuer = held.and_then(|one| one.issuer.as_ref());
            assert!(signer.is_some() && issuer == signer, "{member} {port:?}");
        }
    }
    assert_eq!(world.voters(), world.cluster.target());
}

fn makes(plan: &Plan, wanted: &str) -> bool {
    (plan.steps.iter()).any(|step| match &step.action {
        Action::Certificate(CertificateAction::IssueCertificate { secret, .. }) => secret == wanted,
        _ => false,
    })
}

/// Two members are being added when the peer CA's Secret is deleted. The new CA signs nothing until the running members
/// trust it, which takes their kubelets a minute; before that the new members' StatefulSets are not created.
#[test]
fn newcomers_wait_for_a_new_authority() {
    let mut script = Script::new(
        "tls-newcomers",
        "An authority is deleted while members are to come: their sets wait for their certificates, and those until whoever runs trusts the new authority.",
    );
    let mut world = rested(3);
    world.cluster.spec.replicas = 5;
    lose_authority(&mut world, TlsPort::Peer);
    while !matches!(
        world.reconcile().first().map(|step| &step.action),
        Some(Action::Object(ObjectAction::CreatePvc { .. }))
    ) {}
    world.reconcile();
    script.observe("The volume of the first one is there", &world);
    script.settle("They come", &mut world);
    assert_whole(&world);
    world.lose_pvc("demo-2");
    lose_authority(&mut world, TlsPort::Peer);
    script.settle(
        "A member is lost with its disk, and the authority",
        &mut world,
    );
    assert_whole(&world);
    script.compare();
}

/// A CA's Secret exists but cannot be read: nothing can be signed until it is repaired. This is reported, and a new
/// member's StatefulSet waits; running members keep serving and are not restarted.
#[test]
fn no_member_starts_without_a_readable_ca() {
    let mut script = Script::new(
        "tls-unsigned",
        "An authority cannot be read while a member is to come, and the spec changes: no set is applied whose certificates are missing, and no member is restarted whose Secret is gone.",
    );
    let mut world = rested(3);
    let good = world.api.tls.secrets["demo-client-ca"].clone();
    let facts = world.api.tls.secrets.get_mut("demo-client-ca");
    facts.expect("there").certificate = None;
    world.cluster.spec.replicas = 4;
    for _ in 0..60 {
        world.reconcile();
    }
    script.observe("A member is to come", &world);
    assert!(!world.api.sets.contains_key("demo-4"));
    world.cluster.spec.replicas = 3;
    world.settle(1000);
    world.api.tls.secrets.remove("demo-3-client-tls");
    world.api.wanted_inputs = "spec-2".into();
    let pods: Vec<String> = world.api.pods.values().map(|pod| pod.uid.clone()).collect();
    for _ in 0..60 {
        world.reconcile();
    }
    script.observe(
        "A Secret of demo-3 is deleted, and the spec changes",
        &world,
    );
    let now: Vec<String> = world.api.pods.values().map(|pod| pod.uid.clone()).collect();
    assert_eq!(pods, now, "no member was restarted");
    (world.api.tls.secrets).insert("demo-client-ca".into(), good);
    script.settle("Its content is back", &mut world);
    assert_whole(&world);
    script.compare();
}

/// All Secrets are deleted at once. Running members trust only the CA that is gone, and can learn the new one only with
/// a certificate of their own: so that is issued, one after another.
#[test]
fn all_secrets_deleted() {
    let mut script = Script::new(
        "tls-secrets-deleted",
        "Every Secret with a certificate is deleted: all are made anew, one member after the other, and no member is restarted.",
    );
    for replicas in [3, 1] {
        let mut world = rested(replicas);
        let pods: Vec<String> = world.api.pods.values().map(|pod| pod.uid.clone()).collect();
        world.api.tls.secrets.clear();
        script.settle(&format!("Those of {replicas}"), &mut world);
        let now: Vec<String> = world.api.pods.values().map(|pod| pod.uid.clone()).collect();
        assert_eq!(pods, now, "no member was restarted");
        assert_whole(&world);
    }
    let mut world = rested(3);
    lose_authority(&mut world, TlsPort::Peer);
    world.api.tls.secrets.remove("demo-2-peer-tls");
    script.settle("The peer authority, and what demo-2 has of it", &mut world);
    assert_whole(&world);
    script.compare();
}

/// The cluster sleeps while its authority and a certificate are deleted; it wakes with new ones.
#[test]
fn resumed_members_wait_for_certificates() {
    let mut script = Script::new(
        "tls-wake",
        "An authority and certificates are deleted while the cluster sleeps: all are made before any member resumes. Those of one who has not woken yet: it waits until those who run trust the new authority.",
    );
    let mut world = rested(3);
    world.cluster.spec.replicas = 0;
    world.settle(1000);
    lose_authority(&mut world, TlsPort::Peer);
    world.api.tls.secrets.remove("demo-1-peer-tls");
    world.cluster.spec.replicas = 3;
    script.settle("It wakes", &mut world);
    assert_whole(&world);
    world.cluster.spec.replicas = 0;
    world.settle(1000);
    world.cluster.spec.replicas = 3;
    while world.api.sets["demo-1"].hibernated {
        world.reconcile();
    }
    (0..20).for_each(|_| world.tick());
    lose_authority(&mut world, TlsPort::Peer);
    world.api.tls.secrets.remove("demo-2-peer-tls");
    script.settle("Half of it was awake", &mut world);
    assert_whole(&world);
    script.compare();
}

/// A kubelet that does not report carries no Secret. Its member, which still answers, holds up neither a
/// newcomer nor the successor of a lost one; only the leader has to be reached.
#[test]
fn a_node_that_does_not_report_is_not_waited_for() {
    let (mut world, secret) = (rested(3), "demo-4-peer-tls");
    world.cluster.spec.replicas = 4;
    lose_authority(&mut world, TlsPort::Peer);
    world.faults.uncarried = ["demo-1", "demo-2"].map(str::to_owned).into();
    for _ in 0..120 {
        world.reconcile();
    }
    let mut observed = world.observe();
    assert!(!makes(&plan(&observed), secret), "demo-1 and demo-2 doubt");
    let mut stop = |member: &str, ready: bool| {
        let node = world.node_of(member);
        observed.nodes.get_mut(&node).expect("a node").ready = ready;
        makes(&plan(&observed), secret)
    };
    assert!(!stop("demo-2", false), "demo-1 doubts");
    assert!(!stop("demo-1", false), "it leads");
    world.faults.uncarried = ["demo-2"].map(str::to_owned).into();
    (0..60).for_each(|_| drop(world.reconcile()));
    let mut observed = world.observe();
    assert!(!makes(&plan(&observed), secret), "demo-2 doubts");
    let node = world.node_of("demo-2");
    observed.nodes.get_mut(&node).expect("a node").ready = false;
    assert!(makes(&plan(&observed), secret), "{}", plan(&observed));
}

/// A removed member whose pod still runs because its node does not report no longer learns a new CA, and does not need
/// to reach the others.
#[test]
fn removed_members_are_not_waited_for() {
    let mut world = rested(3);
    lose_authority(&mut world, TlsPort::Peer);
    world.faults.uncarried = ["demo-3".to_owned()].into();
    (0..60).for_each(|_| drop(world.reconcile()));
    let mut observed = world.observe();
    let note = |plan: &Plan| {
        plan.notes
            .iter()
            .any(|one| one.reason == "RotatingAuthority")
    };
    assert!(note(&plan(&observed)), "demo-3 doubts");
    for description in observed.descriptions.values_mut() {
        let gone = description.members.iter().find(|one| one.name == "demo-3");
        let gone = gone.map(|one| (one.id, one.name.clone()));
        description.members.retain(|one| one.name != "demo-3");
        description.tombstones.extend(gone);
    }
    assert!(!note(&plan(&observed)), "{}", plan(&observed));
}
