//! Stories of members whose keys kubelets make: no Secret has one, each pod starts with a certificate that was signed for it, and
//! members accept each other all the time.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::opsim::api::{Kind, object};
use crate::opsim::harness::containers::text;
use crate::opsim::harness::world::{Failure, World};
use crate::opsim::run::Scenario;
use crate::opsim::user::{self, SOON_MS};

pub(super) const SCENARIOS: [Scenario; 4] = [
    Scenario {
        name: "pod-certificates",
        story: "a cluster whose keys kubelets make is created, grows, shrinks, replaces a member and is rolled: no Secret has a key of a member, and each pod waits for nothing but its certificate",
        script: |world| Box::pin(made(world)),
    },
    Scenario {
        name: "pod-certificates-rotated",
        story: "both CAs are exchanged where kubelets make the keys: members trust the new ones first, and get certificates of them when their kubelets ask, which all of them do at once after they were restarted; no pod is",
        script: |world| Box::pin(rotated(world)),
    },
    Scenario {
        name: "pod-certificates-lost",
        story: "kubelets are restarted, and forget the keys that they made, twice before anybody answers; the CA of peers is deleted meanwhile, and a member with its pod: all of them get certificates of the next CA",
        script: |world| Box::pin(lost(world)),
    },
    Scenario {
        name: "pod-certificates-unserved",
        story: "a cluster asks for keys of kubelets where the API server has no PodCertificateRequests: no pod is made that would never start, until the kind is served",
        script: |world| Box::pin(unserved(world)),
    },
];

const NODES: [&str; 3] = ["node-a", "node-b", "node-c"];

fn asking() -> Value {
    let mut spec = user::spec(3);
    let port = json!({"source": "PodCertificate"});
    spec["tls"] = json!({"client": port, "peer": port});
    spec
}

async fn create(world: &mut World) -> Result<(), Failure> {
    world.start_operator("operator-1");
    user::create(world, "demo", &asking());
    world.links_hold = true;
    world.settle(SOON_MS).await?;
    without_keys(world)
}

/// No Secret of a member has a key.
fn without_keys(world: &World) -> Result<(), Failure> {
    let records = records(world);
    let kept = user::objects(world, Kind::Secret)
        .into_iter()
        .find(|secret| is_record(secret) && secret["data"]["tls.key"].is_string());
    match kept {
        Some(secret) => Err(world.unexpected(format!("{} has a key", object::name(&secret)))),
        None if records.len() < 2 * user::voters(world).len() => {
            Err(world.unexpected(format!("only {} certificates are recorded", records.len())))
        }
        None => Ok(()),
    }
}

fn is_record(secret: &Value) -> bool {
    secret["type"] == "quorate.dev/pod-key"
}

/// What was signed last, by the names of the members' Secrets.
fn records(world: &World) -> BTreeMap<String, String> {
    let all = user::objects(world, Kind::Secret).into_iter();
    let all = all.filter(|secret| is_record(secret));
    all.map(|secret| (object::name(&secret).to_owned(), text(&secret, "tls.crt")))
        .filter(|(_, certificate)| !certificate.is_empty())
        .collect()
}

async fn made(world: &mut World) -> Result<(), Failure> {
    create(world).await?;
    user::change_members(world, "demo").await?;
    let before = records(world);
    if !user::change_template(world, "demo") {
        return Err(world.unexpected("the template was refused"));
    }
    user::roll(world, "demo").await?;
    without_keys(world)?;
    let now = records(world);
    let same = now
        .iter()
        .find(|(name, text)| before.get(*name) == Some(text));
    match same {
        Some((name, _)) => Err(world.unexpected(format!("the next pod has {name} of the last"))),
        None => Ok(()),
    }
}

async fn rotated(world: &mut World) -> Result<(), Failure> {
    create(world).await?;
    let (before, pods) = (records(world), user::uids(world, Kind::Pod));
    user::annotate(world, "demo", crate::crd::ANNOTATION_ROTATE_PEER, "1");
    user::annotate(world, "demo", crate::crd::ANNOTATION_ROTATE_CLIENT, "1 now");
    world.pass_ms(120_000).await?;
    let all = user::objects(world, Kind::Secret).into_iter();
    let mut authorities = all.filter(|secret| secret["data"]["ca.key"].is_string());
    if authorities.any(|secret| secret["data"]["next.crt"].is_string()) {
        return Err(world.unexpected("the next CA does not sign"));
    }
    if records(world) != before {
        return Err(world.unexpected("a certificate was signed that nobody asked for"));
    }
    for node in NODES {
        world.containers.kube.restart_kubelet(node);
    }
    world.settle(SOON_MS).await?;
    without_keys(world)?;
    let now = records(world);
    let same = now
        .iter()
        .find(|(name, text)| before.get(*name) == Some(text));
    if let Some((name, _)) = same {
        return Err(world.unexpected(format!("{name} is of the CA before")));
    }
    let authorities = user::objects(world, Kind::Secret).into_iter();
    let mut authorities = authorities.filter(|secret| secret["data"]["ca.key"].is_string());
    let one = |secret: &Value| text(secret, "ca.crt").matches("BEGIN CERTIFICATE").count() == 1;
    if !authorities.all(|secret| one(&secret)) {
        return Err(world.unexpected("the CA before is still trusted"));
    }
    match user::uids(world, Kind::Pod) == pods {
        true => Ok(()),
        false => Err(world.unexpected("a pod was made anew for a certificate")),
    }
}

async fn lost(world: &mut World) -> Result<(), Failure> {
    create(world).await?;
    // The volume of a kubelet that waits for an answer has the CAs of before: members part for a moment.
    world.links_hold = false;
    world.stop_operators();
    for _ in 0..2 {
        for node in NODES {
            world.containers.kube.restart_kubelet(node);
        }
        world.pass_ms(2_000).await?;
    }
    user::delete(world, Kind::Secret, "demo-peer-ca");
    let member = user::follower(world);
    user::delete(world, Kind::Pod, &crate::crd::pod_name(&member));
    world.start_operator("operator-2");
    world.settle(SOON_MS).await?;
    world.links_hold = true;
    world.pass_ms(10_000).await?;
    without_keys(world)
}

async fn unserved(world: &mut World) -> Result<(), Failure> {
    world.unserve(&[Kind::PodCertificateRequest]);
    world.start_operator("operator-1");
    user::create(world, "demo", &asking());
    let reported = |world: &World, _: &_| {
        let reason = user::reason(world, "demo", "Stalled");
        reason.as_deref() == Some("PodCertificatesUnavailable")
    };
    world.until("what is missing", SOON_MS, reported).await?;
    world.pass_ms(60_000).await?;
    if !user::objects(world, Kind::Pod).is_empty() {
        return Err(world.unexpected("there is a pod that cannot start"));
    }
    world.unserve(&[]);
    world.settle(SOON_MS).await?;
    without_keys(world)
}
