//! Situations of user certificates: followed when they change, and not used while
//! they are not fit.

use crate::crd::TlsPort;
use crate::plan::tests::script::{Script, rested as plain, wait};
use crate::plan::tests::world::World;
use crate::plan::{Action, Plan, Unfit, plan};

fn rested(replicas: i32) -> World {
    let mut world = World::new(replicas).with_user_certificates();
    world.settle(1000);
    assert_eq!(world.voters(), world.cluster.target());
    world
}

fn uids(world: &World) -> Vec<String> {
    world.api.pods.values().map(|pod| pod.uid.clone()).collect()
}

fn reason(plan: &Plan) -> &'static str {
    let conditions = plan.conditions.iter();
    let mut of_tls = conditions.filter(|c| c.type_ == crate::crd::ConditionType::TlsReady);
    of_tls.next().expect("TLSReady").reason
}

#[test]
fn user_certificates_are_renewed() {
    let mut script = Script::new(
        "tls-given",
        "Certificates in the user's own Secrets: the operator makes none, follows their renewal and restarts no member.",
    );
    let mut world = World::new(3).with_user_certificates();
    script.settle("The cluster is made", &mut world);
    script.observe("At rest", &world);
    let pods = uids(&world);
    world.skip_days(77);
    script.observe("They end in a fortnight", &world);
    world.put_user_certificate(TlsPort::Peer, "theirs-1", &["theirs-1"], 90);
    world.put_user_certificate(TlsPort::Client, "theirs-1", &["theirs-1"], 90);
    script.settle("The user renews them", &mut world);
    world.trust(TlsPort::Peer, &["theirs-1", "theirs-2"]);
    script.settle("Another authority is trusted beside the one", &mut world);
    world.put_user_certificate(TlsPort::Peer, "theirs-2", &["theirs-1", "theirs-2"], 90);
    script.settle("It has signed", &mut world);
    world.trust(TlsPort::Peer, &["theirs-2"]);
    script.settle("The one before is forgotten", &mut world);
    assert_eq!(uids(&world), pods, "no member was restarted");
    world.cluster.spec.replicas = 1;
    script.settle(
        "Members leave: nothing of the user's is touched",
        &mut world,
    );
    script.compare();
}

#[test]
fn unfit_user_certificates_are_reported() {
    let mut script = Script::new(
        "tls-given-unfit",
        "A certificate of the user's that no member could use: nothing is made or restarted onto it, and what is missing is reported.",
    );
    let mut world = World::new(3).with_user_certificates();
    let missing = Unfit {
        reason: "SecretMissing",
        text: "Secret their-peer does not exist: create it".into(),
    };
    let good = world.api.tls.user_certificates[&TlsPort::Peer].clone();
    let replace = |world: &mut World, change: &dyn Fn(&mut crate::plan::UserCertificate)| {
        let mut now = good.clone();
        change(&mut now);
        world.api.tls.user_certificates.insert(TlsPort::Peer, now);
    };
    replace(&mut world, &|now| {
        (now.unfit, now.certificate) = (Some(missing.clone()), None);
    });
    script.observe("It is not there: nothing is begun", &world);
    replace(&mut world, &|_| {});
    script.settle("It is there", &mut world);
    world.api.wanted_inputs = "spec-2".into();
    replace(&mut world, &|now| {
        now.names = ["demo-peers.default.svc", "demo-1-0.demo-peers.default.svc"]
            .map(str::to_owned)
            .into();
    });
    script.observe(
        "The next one has not all names, as the spec changes",
        &world,
    );
    let over = world.api.now_ms - 1;
    replace(&mut world, &|now| {
        let certificate = now.certificate.as_mut().expect("one");
        certificate.not_after_ms = over;
    });
    script.observe("It has ended", &world);
    replace(&mut world, &|_| {});
    script.settle("It is good again", &mut world);
    world.api.tls.rotate.insert(TlsPort::Peer, "1".into());
    script.observe(
        "The annotation asks for what the operator cannot do",
        &world,
    );
    script.compare();
}

#[test]
fn issued_by_cert_manager() {
    let mut script = Script::new(
        "tls-issued",
        "Certificates of peers from cert-manager: it is asked before anything else, waited for without a call for help, and asked again when the issuer changes; no member is restarted.",
    );
    let mut world = World::new(3).with_cert_manager();
    script.observe("It has not been asked", &world);
    script.settle("It is asked", &mut world);
    script.observe("It has not answered", &world);
    let user_certificate = world
        .api
        .tls
        .user_certificates
        .get_mut(&TlsPort::Peer)
        .expect("user certificate");
    let failed = Unfit {
        reason: "IssueFailed",
        text: "cert-manager could not issue Certificate demo-peer-certificate and will retry: Failed: the issuer denied it".into(),
    };
    let waits = user_certificate.unfit.replace(failed);
    script.observe("It was refused", &world);
    let user_certificate = world
        .api
        .tls
        .user_certificates
        .get_mut(&TlsPort::Peer)
        .expect("user certificate");
    user_certificate.unfit = waits;
    let secret = user_certificate.secret.clone();
    world.put_user_certificate(TlsPort::Peer, "theirs-1", &["theirs-1"], 90);
    let user_certificate = world
        .api
        .tls
        .user_certificates
        .get_mut(&TlsPort::Peer)
        .expect("user certificate");
    (user_certificate.trusted_secret, user_certificate.secret) = (secret.clone(), secret);
    script.settle("It has issued", &mut world);
    let pods = uids(&world);
    world.set_issuer("other");
    script.settle("Another issuer is to sign", &mut world);
    assert_eq!(uids(&world), pods, "no member was restarted");
    script.compare();
}

/// The user cannot be prevented from replacing the CA at once: it is reported, no member is restarted meanwhile, and it
/// heals by itself when the last member has loaded it.
#[test]
fn authority_replaced_without_overlap() {
    let mut script = Script::new(
        "tls-given-overlap",
        "Another authority without an overlap: no member is restarted or made while members refuse each other.",
    );
    let mut world = rested(3);
    let pods = uids(&world);
    world.put_user_certificate(TlsPort::Peer, "theirs-2", &["theirs-2"], 90);
    world.cluster.spec.replicas = 5;
    script.observe(
        "It is exchanged at once, and the cluster is to grow",
        &world,
    );
    world.tick();
    assert_eq!(reason(&plan(&world.observe())), "TrustDoesNotOverlap");
    assert!(plan(&world.observe()).steps.is_empty());
    wait(&mut world, 60);
    script.settle("Every member has it: the cluster grows", &mut world);
    let now = uids(&world);
    assert!(
        pods.iter().all(|pod| now.contains(pod)),
        "no member was restarted"
    );
    // Other Secret names are an input: members with the old ones are restarted, if their trust overlaps.
    world.api.wanted_inputs = "spec-2".into();
    world.put_user_certificate(TlsPort::Peer, "theirs-3", &["theirs-3"], 90);
    script.observe("Other Secrets are named, of an unknown authority", &world);
    world.put_user_certificate(TlsPort::Peer, "theirs-2", &["theirs-2", "theirs-3"], 90);
    world.forgotten = true;
    script.observe("The old ones are deleted: their signer is unknown", &world);
    world.forgotten = false;
    script.settle("They are there", &mut world);
    script.compare();
}

/// An operator that was just started and meets a renewal under way waits until it is over.
#[test]
fn renewal_by_an_unknown_issuer_is_waited_for() {
    let mut world = rested(3);
    world.put_user_certificate(TlsPort::Peer, "theirs-1", &["theirs-1"], 90);
    world.forgotten = true;
    world.api.wanted_inputs = "spec-1".into();
    let found = plan(&world.observe());
    assert!(found.steps.is_empty(), "{found}");
    assert_eq!(reason(&found), "Renewing");
    wait(&mut world, 60);
    let found = plan(&world.observe());
    assert_eq!(reason(&found), "AsWanted", "{found}");
}

#[test]
fn tls_enabled_with_user_certificates() {
    let mut script = Script::new(
        "tls-given-switched-on",
        "TLS with the user's certificates is switched on for a cluster that lives.",
    );
    let mut world = plain(3).with_user_certificates();
    world.api.wanted_inputs = "spec-2".into();
    script.settle("The cluster changes over", &mut world);
    let secure = world
        .raft
        .members
        .iter()
        .flat_map(|member| &member.peer_urls);
    assert!(secure.into_iter().all(|url| url.starts_with("https://")));
    let certificates = plan(&world.observe());
    let made = |action: &Action| matches!(action, Action::Certificate(_));
    assert!(!certificates.steps.iter().any(|step| made(&step.action)));
    script.compare();
}
