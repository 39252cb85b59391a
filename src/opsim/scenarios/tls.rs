//! Stories of certificates: made before anybody needs them, renewed while members run.

use serde_json::{Value, json};

use crate::opsim::api::Kind;
use crate::opsim::harness::request_faults::lock;
use crate::opsim::harness::world::{Failure, World};
use crate::opsim::run::Scenario;
use crate::opsim::user::{self, SOON_MS};

pub(super) const SCENARIOS: [Scenario; 4] = [
    Scenario {
        name: "tls-made",
        story: "a cluster of three with TLS is made, grows, shrinks and replaces a member: each has certificates before its pod, and none stays behind",
        script: |world| Box::pin(made(world)),
    },
    Scenario {
        name: "tls-names",
        story: "further names are asked for: every certificate is made anew, one member after the other, and none is restarted",
        script: |world| Box::pin(names(world)),
    },
    Scenario {
        name: "tls-switched-on",
        story: "TLS is switched on for a cluster that lives, which grows to five on the way: it is led all the time, and in the end no member takes connections without TLS",
        script: |world| Box::pin(switched_on(world)),
    },
    Scenario {
        name: "tls-rotated",
        story: "both authorities are exchanged while a member is replaced: members accept each other all the time, and in the end no member trusts the old ones",
        script: |world| Box::pin(rotated(world)),
    },
];

fn with_tls(replicas: u32) -> Value {
    let mut spec = user::spec(replicas);
    spec["tls"] = json!({});
    spec
}

async fn create(world: &mut World, replicas: u32) -> Result<(), Failure> {
    world.start_operator("operator-1");
    user::create(world, "demo", &with_tls(replicas));
    world.links_hold = true;
    world.settle(SOON_MS).await
}

async fn made(world: &mut World) -> Result<(), Failure> {
    create(world, 3).await?;
    user::change_members(world, "demo").await
}

async fn names(world: &mut World) -> Result<(), Failure> {
    create(world, 3).await?;
    let pods = user::uids(world, Kind::Pod);
    let asked = json!({"tls": {"client": {"extraSANs": ["etcd.example.com"]},
        "peer": {"extraSANs": ["10.0.0.1"]}}});
    user::edit(world, "demo", &asked);
    world.settle(SOON_MS).await?;
    match user::uids(world, Kind::Pod) == pods {
        true => Ok(()),
        false => Err(world.unexpected("a pod was made anew for a name")),
    }
}

async fn switched_on(world: &mut World) -> Result<(), Failure> {
    world.start_operator("operator-1");
    user::create(world, "demo", &user::spec(3));
    world.settle(SOON_MS).await?;
    for node in ["node-d", "node-e"] {
        world.containers.kube.add_node(node, "zone-1");
    }
    user::edit(world, "demo", &json!({"tls": {"plaintext": "Accepted"}}));
    world.links_hold = true;
    world.pass_ms(20_000).await?;
    user::edit(world, "demo", &json!({"replicas": 5}));
    world.settle(SOON_MS).await?;
    user::edit(world, "demo", &json!({"tls": {"plaintext": "Refused"}}));
    user::roll(world, "demo").await?;
    let servers = lock(&world.servers);
    let mut members = servers
        .groups
        .values()
        .flat_map(|group| group.membership.members.values());
    let plain = members.find(|member| {
        !member
            .peer_urls
            .iter()
            .all(|url| url.starts_with("https://"))
    });
    let plain = plain.map(|member| member.name.clone());
    drop(servers);
    match plain {
        None => Ok(()),
        Some(name) => Err(world.unexpected(format!("{name} is dialled without TLS"))),
    }
}

async fn rotated(world: &mut World) -> Result<(), Failure> {
    create(world, 3).await?;
    let before = authorities(world);
    user::annotate(world, "demo", crate::crd::ANNOTATION_ROTATE_PEER, "1");
    user::annotate(world, "demo", crate::crd::ANNOTATION_ROTATE_CLIENT, "1 now");
    world.pass_ms(8_000).await?;
    let old = user::follower(world);
    user::edit(world, "demo", &json!({"replaceMembers": [old]}));
    world.settle(SOON_MS).await?;
    let now = authorities(world);
    let one = |text: &String| text.matches("BEGIN CERTIFICATE").count() == 1;
    match now.len() == 2 && now.iter().all(one) && now.iter().all(|text| !before.contains(text)) {
        true => Ok(()),
        false => Err(world.unexpected("the authorities are not two others")),
    }
}

/// What is trusted on the two ports.
fn authorities(world: &World) -> Vec<String> {
    let api = world.api.lock();
    let all = api
        .all(Kind::Secret)
        .filter(|secret| secret["data"]["ca.key"].is_string());
    all.map(|secret| crate::opsim::harness::containers::text(secret, "ca.crt"))
        .collect()
}
