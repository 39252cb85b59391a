//! Scenarios of certificates that the user creates and renews.

use serde_json::{Value, json};

use crate::opsim::api::{Kind, object};
use crate::opsim::harness::world::{Failure, World};
use crate::opsim::run::Scenario;
use crate::opsim::user::{self, SOON_MS};
use crate::opsim::user_certificates::{UserAuthority, put_certificate, put_trusted};

pub(super) const SCENARIOS: [Scenario; 3] = [
    Scenario {
        name: "tls-own-secrets",
        story: "certificates in the user's own Secrets are renewed in place, and their authority is exchanged with an overlap, while the cluster grows and replaces a member: no member is restarted for it; then Secrets of other names reach every member by a roll",
        script: |world| Box::pin(own_secrets(world)),
    },
    Scenario {
        name: "tls-secret-bad-then-good",
        story: "the user's Secret is missing, of another authority, without the names and with another's key, each reported and each corrected, before the cluster is made and while it runs: nothing is made or restarted onto a bad one",
        script: |world| Box::pin(bad_then_good(world)),
    },
    Scenario {
        name: "tls-cert-manager",
        story: "certificates that cert-manager is asked for: the cluster waits for them, follows their renewal and other names without a restart, asks again when a Certificate was deleted, grows and replaces a member with what there is",
        script: |world| Box::pin(cert_manager(world)),
    },
];

fn spec(replicas: u32, peer: &str) -> Value {
    let port = |secret: &str, trusted: &str| {
        json!({"source": "Secret", "certificateSecretRef": {"name": secret},
            "caSecretRef": {"name": trusted}})
    };
    let mut spec = user::spec(replicas);
    spec["tls"] = json!({"client": port("theirs-client", "theirs-roots"),
        "peer": port(peer, peer)});
    spec
}

async fn own_secrets(world: &mut World) -> Result<(), Failure> {
    let first = UserAuthority::new(world, "demo");
    put_certificate(world, "theirs", &first.signed(world, 90), &first.root);
    put_certificate(world, "theirs-client", &first.signed(world, 90), "");
    put_trusted(world, "theirs-roots", &first.root);
    world.start_operator("operator-1");
    user::create(world, "demo", &spec(3, "theirs"));
    world.links_hold = true;
    world.settle(SOON_MS).await?;
    let pods = pods(world);
    // Renewed in place.
    put_certificate(world, "theirs", &first.signed(world, 91), &first.root);
    put_certificate(world, "theirs-client", &first.signed(world, 91), "");
    followed(world).await?;
    // Another authority: trusted first, then it signs, while a member is replaced.
    let second = UserAuthority::new(world, "demo");
    let both = format!("{}{}", first.root, second.root);
    put_certificate(world, "theirs", &first.signed(world, 92), &both);
    put_trusted(world, "theirs-roots", &both);
    followed(world).await?;
    put_certificate(world, "theirs", &second.signed(world, 93), &both);
    put_certificate(world, "theirs-client", &second.signed(world, 93), "");
    let old = user::follower(world);
    world.containers.kube.add_node("node-d", "zone-1");
    user::edit(world, "demo", &json!({"replaceMembers": [old]}));
    followed(world).await?;
    put_certificate(world, "theirs", &second.signed(world, 94), &second.root);
    put_trusted(world, "theirs-roots", &second.root);
    followed(world).await?;
    let now = self::pods(world);
    let stayed = pods.iter().filter(|uid| now.contains(uid)).count();
    if stayed != 2 {
        return Err(world.unexpected(format!("{stayed} of 2 pods were never restarted")));
    }
    // Secrets of other names reach the members by a roll, where the trust overlaps.
    let third = UserAuthority::new(world, "demo");
    put_certificate(world, "theirs-next", &third.signed(world, 90), &third.root);
    user::edit(
        world,
        "demo",
        &json!({"tls": {"peer": {
        "certificateSecretRef": {"name": "theirs-next"}, "caSecretRef": {"name": "theirs-next"}}}}),
    );
    reports_reason(world, "TrustDoesNotOverlap").await?;
    if self::pods(world) != now {
        return Err(world.unexpected("a pod was made anew for a certificate that no member trusts"));
    }
    let all = format!("{}{}", second.root, third.root);
    put_certificate(world, "theirs-next", &second.signed(world, 90), &all);
    user::roll(world, "demo").await
}

async fn bad_then_good(world: &mut World) -> Result<(), Failure> {
    let ours = UserAuthority::new(world, "demo");
    let other = UserAuthority::new(world, "demo");
    put_trusted(world, "theirs-roots", &ours.root);
    put_certificate(world, "theirs-client", &ours.signed(world, 90), "");
    world.start_operator("operator-1");
    user::create(world, "demo", &spec(3, "theirs"));
    reports_reason(world, "SecretMissing").await?;
    put_certificate(world, "theirs", &other.signed(world, 90), &ours.root);
    reports_reason(world, "NotTrusted").await?;
    let narrow = ours.signed_for(world, 90, &["demo-1-0.demo-peers".to_owned()]);
    put_certificate(world, "theirs", &narrow, &ours.root);
    reports_reason(world, "NamesMissing").await?;
    if !user::objects(world, Kind::StatefulSet).is_empty() {
        return Err(world.unexpected("a member was made of a certificate that does not fit"));
    }
    let good = ours.signed(world, 90);
    put_certificate(world, "theirs", &good, &ours.root);
    world.settle(SOON_MS).await?;
    // In the middle of a roll the key is another's, and then the Secret is gone.
    user::edit(
        world,
        "demo",
        &json!({"resources": {"requests": {"cpu": "100m"}}}),
    );
    world.pass_ms(3_000).await?;
    let mut wrong = good.clone();
    wrong.key = other.signed(world, 90).key;
    put_certificate(world, "theirs", &wrong, &ours.root);
    reports_reason(world, "KeyMismatch").await?;
    user::delete(world, Kind::Secret, "theirs");
    reports_reason(world, "SecretMissing").await?;
    put_certificate(world, "theirs", &good, &ours.root);
    user::roll(world, "demo").await?;
    // One that expires soon is reported, and its successor ends the report.
    put_certificate(world, "theirs", &ours.signed(world, 0), &ours.root);
    reports_reason(world, "CertificateExpired").await?;
    put_certificate(world, "theirs", &ours.signed(world, 60), &ours.root);
    world.settle(SOON_MS).await
}

async fn cert_manager(world: &mut World) -> Result<(), Failure> {
    let corp = UserAuthority::new(world, "demo");
    world.start_operator("operator-1");
    let asked = json!({"source": "CertManager", "issuerRef": {"name": "corp"}});
    let mut spec = user::spec(3);
    spec["tls"] = json!({"client": asked, "peer": asked});
    user::create(world, "demo", &spec);
    reports_reason(world, "CertificateNotIssued").await?;
    until(world, "both are asked for", |world| {
        asked_for(world).len() == 2
    })
    .await?;
    if !user::objects(world, Kind::StatefulSet).is_empty() {
        return Err(world.unexpected("a member was made before its certificates"));
    }
    corp.issue(world, 90);
    world.links_hold = true;
    world.settle(SOON_MS).await?;
    let pods = pods(world);
    // It renews by its own clock.
    corp.issue(world, 91);
    followed(world).await?;
    // Another name is asked for, and comes.
    let edit = json!({"tls": {"client": {"extraSANs": ["etcd.example.com", "10.1.2.3"]}}});
    user::edit(world, "demo", &edit);
    until(world, "the names are asked for", |world| {
        let all = asked_for(world);
        let client = all
            .iter()
            .find(|one| object::name(one) == "demo-client-certificate");
        let has = |list: &str, name: &str| {
            let names = client.and_then(|one| one["spec"][list].as_array());
            names.is_some_and(|names| names.iter().any(|one| one == name))
        };
        has("dnsNames", "etcd.example.com") && has("ipAddresses", "10.1.2.3")
    })
    .await?;
    corp.issue(world, 92);
    followed(world).await?;
    // Somebody deletes one: it is requested again, and the Secret stays in the meantime.
    user::delete(world, Kind::Certificate, "demo-peer-certificate");
    followed(world).await?;
    if self::pods(world) != pods {
        return Err(world.unexpected("a pod was restarted for a certificate"));
    }
    // It covers who comes.
    world.containers.kube.add_node("node-d", "zone-1");
    let old = user::follower(world);
    user::edit(world, "demo", &json!({"replaceMembers": [old]}));
    world.settle(SOON_MS).await
}

fn asked_for(world: &World) -> Vec<Value> {
    let api = world.api.lock();
    let all = api.all(Kind::Certificate);
    all.map(|one| (**one).clone()).collect()
}

/// Time for the operator to read what the user changed, and then everything is at rest.
async fn followed(world: &mut World) -> Result<(), Failure> {
    world.pass_ms(45_000).await?;
    world.settle(SOON_MS).await
}

/// Waits until the condition TLSReady is false for this reason.
async fn reports_reason(world: &mut World, reason: &str) -> Result<(), Failure> {
    let holds = |world: &World| {
        let status = user::status(world, "demo");
        let conditions = status["conditions"].as_array().cloned().unwrap_or_default();
        let mut conditions = conditions.iter();
        conditions.any(|one| {
            one["type"] == "TLSReady" && one["reason"] == reason && one["status"] == "False"
        })
    };
    until(world, &format!("TLSReady is False for {reason}"), holds).await?;
    // It lasts.
    world.pass_ms(5_000).await
}

async fn until(
    world: &mut World,
    what: &str,
    holds: impl Fn(&World) -> bool,
) -> Result<(), Failure> {
    let end_ms = world.now_ms() + SOON_MS;
    while !holds(world) {
        if world.now_ms() > end_ms {
            return Err(world.unexpected(format!("it was waited in vain until {what}")));
        }
        world.pass_ms(1_000).await?;
    }
    Ok(())
}

fn pods(world: &World) -> Vec<String> {
    let all = user::objects(world, Kind::Pod);
    all.iter().map(|pod| object::uid(pod).to_owned()).collect()
}
