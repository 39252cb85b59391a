//! Situations of certificates: issued before they are needed, replaced one after another, and reported when they are
//! bad.

use crate::crd::TlsPort;
use crate::plan::plan;
use crate::plan::tests::script::{Script, wait};
use crate::plan::tests::world::World;

fn rested(replicas: i32) -> World {
    let mut world = World::new(replicas).with_tls();
    world.settle(1000);
    assert_eq!(world.voters(), world.cluster.target());
    world
}

#[test]
fn certificates_precede_members() {
    let mut script = Script::new(
        "tls",
        "TLS from the first member on: authorities, then what each member needs before its set.",
    );
    let mut world = World::new(3).with_tls();
    script.observe("Nothing exists", &world);
    script.settle("The cluster is made", &mut world);
    script.observe("At rest", &world);
    world.cluster.spec.replicas = 1;
    script.settle("Members leave, and their certificates go", &mut world);
    world.ask_no_client();
    script.settle("Clients need no certificate any more", &mut world);
    script.compare();
}

#[test]
fn certificates_renew_one_at_a_time() {
    let mut script = Script::new(
        "tls-renewal",
        "After two thirds of their lives certificates are made anew, one member after the other, and no member is restarted.",
    );
    let mut world = rested(3);
    let pods: Vec<String> = world.api.pods.values().map(|pod| pod.uid.clone()).collect();
    world.skip_days(61);
    script.observe("Two thirds of the life are over", &world);
    script.settle("They are renewed", &mut world);
    world.names = "names-2".into();
    script.settle("Names are added", &mut world);
    let now: Vec<String> = world.api.pods.values().map(|pod| pod.uid.clone()).collect();
    assert_eq!(pods, now, "no member was restarted");
    world.cluster.spec.paused = true;
    world.skip_days(61);
    script.settle("Paused: certificates are renewed all the same", &mut world);
    script.compare();
}

#[test]
fn expired_and_stuck_certificates() {
    let mut script = Script::new(
        "tls-ended",
        "Certificates that were not renewed in time, and one that does not reach its server.",
    );
    let mut world = rested(3);
    world.skip_days(91);
    world.tick();
    script.observe(
        "No operator was there to renew: members refuse each other",
        &world,
    );
    script.settle("All are made anew at once", &mut world);
    let mut world = rested(3);
    world.faults.uncarried = ["demo-1".into()].into();
    world.skip_days(61);
    for _ in 0..5 {
        world.reconcile();
    }
    wait(&mut world, 600);
    script.observe(
        "The first one's kubelet does not carry its certificate",
        &world,
    );
    world.skip_days(21);
    script.observe("Time is running out: the others do not wait for it", &world);
    script.compare();
}

#[test]
fn authority_deleted() {
    let mut script = Script::new(
        "tls-authority",
        "Somebody deletes an authority: a new one is trusted beside the old one first, then certificates are made anew.",
    );
    let mut world = rested(3);
    world.api.tls.secrets.remove("demo-peer-ca");
    script.observe("It is gone", &world);
    script.settle("A new one takes its place", &mut world);
    assert!(world.raft.leader.is_some());
    let damaged = world.api.tls.secrets.get_mut("demo-client-ca");
    damaged.expect("there").certificate = None;
    script.observe("Somebody overwrites the other one", &world);
    script.compare();
}

/// A member that does not report its certificates is an older server: it blocks no other.
#[test]
fn a_silent_member_is_not_waited_for() {
    let mut world = rested(3);
    world.skip_days(61);
    let mut observed = world.observe();
    for description in observed.descriptions.values_mut() {
        description.security.clear();
    }
    let wanted = plan(&observed);
    let ports: Vec<TlsPort> = (wanted.steps.iter())
        .filter_map(|step| match &step.action {
            crate::plan::Action::Certificate(
                crate::plan::CertificateAction::IssueCertificate { port, .. },
            ) => Some(*port),
            _ => None,
        })
        .collect();
    assert!(ports.contains(&TlsPort::Client) && ports.contains(&TlsPort::Peer));
}

#[test]
fn tls_enabled_on_a_running_cluster() {
    let mut script = Script::new(
        "tls-switched-on",
        "TLS is switched on for a cluster that lives: certificates, a roll in which the peer ports take both kinds of connections, then the members' URLs.",
    );
    for replicas in [3, 1] {
        let mut world = crate::plan::tests::script::rested(replicas).with_tls();
        world.api.wanted_inputs = "spec-2".into();
        script.observe("It is asked for", &world);
        script.settle("The cluster changes over", &mut world);
        let secure = |member: &crate::plan::MemberView| {
            member
                .peer_urls
                .iter()
                .all(|url| url.starts_with("https://"))
        };
        assert!(
            world.raft.members.iter().all(secure),
            "{:?}",
            world.raft.members
        );
        script.observe("At rest", &world);
    }
    let mut world = crate::plan::tests::script::rested(1).with_tls();
    world.api.wanted_inputs = "spec-2".into();
    world.cluster.spec.replicas = 3;
    script.settle("Switched on and grown at once", &mut world);
    let mut world = crate::plan::tests::script::rested(3);
    world.cluster.spec.replicas = 0;
    world.settle(1000);
    let mut world = world.with_tls();
    world.api.wanted_inputs = "spec-2".into();
    world.settle(1000);
    world.cluster.spec.replicas = 3;
    script.settle("Switched on while it slept: it wakes", &mut world);
    script.compare();
}

#[test]
fn authority_rotated() {
    let mut script = Script::new(
        "tls-rotation",
        "Another authority is asked for: trusted everywhere, then it signs, then the one before is forgotten.",
    );
    let mut world = rested(3);
    world.api.tls.rotate.insert(TlsPort::Peer, "1".into());
    script.settle("Another authority for peers", &mut world);
    world.api.tls.rotate.insert(TlsPort::Client, "1".into());
    script.settle(
        "Another authority for clients, who have to trust it in time",
        &mut world,
    );
    script.observe("They have some time", &world);
    world.api.now_ms += 2 * 3_600_000;
    script.settle("Their time is over", &mut world);
    assert_eq!(world.api.tls.secrets["demo-client-ca"].trusted.len(), 2);
    world.skip_days(60);
    world.settle(1000);
    world.skip_days(32);
    script.settle(
        "Nothing that the earlier one signed holds any more",
        &mut world,
    );
    assert_eq!(world.api.tls.secrets["demo-client-ca"].trusted.len(), 1);
    world.api.tls.rotate.insert(TlsPort::Client, "2 now".into());
    script.settle("At once", &mut world);
    assert_eq!(world.api.tls.secrets["demo-client-ca"].trusted.len(), 1);
    let before = world.api.tls.secrets["demo-peer-ca"].trusted.clone();
    for _ in 0..49 {
        world.skip_days(60);
        world.settle(1000);
    }
    let now = &world.api.tls.secrets["demo-peer-ca"].trusted;
    assert!(now.len() == 1 && *now != before, "after eight years");
    script.compare();
}
