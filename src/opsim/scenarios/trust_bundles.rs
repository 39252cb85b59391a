//! Stories of ClusterTrustBundles: they have what members' certificates are verified with, at every moment, and go with
//! their cluster, which cannot own them.

use serde_json::{Value, json};

use crate::opsim::api::Kind;
use crate::opsim::harness::containers::text;
use crate::opsim::harness::world::{Failure, World};
use crate::opsim::run::Scenario;
use crate::opsim::user::{self, SOON_MS};

pub(super) const SCENARIOS: [Scenario; 3] = [
    Scenario {
        name: "trust-bundle",
        story: "the CAs for clients are published in a ClusterTrustBundle: with the first one, with both while they are exchanged, no more when that is asked for no more, again, and not after the resource is deleted",
        script: |world| Box::pin(published(world)),
    },
    Scenario {
        name: "trust-bundle-unserved",
        story: "a ClusterTrustBundle is asked for where the API server does not serve the kind: the cluster is made, grows and says what is missing, until the kind is served",
        script: |world| Box::pin(unserved(world)),
    },
    Scenario {
        name: "trust-bundle-left",
        story: "a resource is deleted while no operator runs, and one of its name is made that asks for no ClusterTrustBundle: the next operator deletes what is left of the first",
        script: |world| Box::pin(left(world)),
    },
];

fn asking() -> Value {
    let mut spec = user::spec(3);
    spec["tls"] = json!({"publishCAs": "ClusterTrustBundle"});
    spec
}

fn ask(world: &mut World, publishes: &str) {
    user::edit(world, "demo", &json!({"tls": {"publishCAs": publishes}}));
}

/// What is published.
fn bundle(world: &World) -> Option<String> {
    let all = user::objects(world, Kind::ClusterTrustBundle);
    let text = all.first()?["spec"]["trustBundle"].as_str();
    text.map(str::to_owned)
}

/// What verifies the members' certificates for clients.
fn authorities(world: &World) -> Option<String> {
    let api = world.api.lock();
    let mut secrets = api.all(Kind::Secret);
    let secret = secrets.find(|secret| secret["metadata"]["name"] == "demo-client-ca")?;
    Some(text(secret, "ca.crt"))
}

fn as_trusted(world: &World) -> Result<(), Failure> {
    match bundle(world) {
        Some(published) if Some(&published) == authorities(world).as_ref() => Ok(()),
        other => Err(world.unexpected(format!("{other:?} is published"))),
    }
}

fn nothing(world: &World) -> Result<(), Failure> {
    match bundle(world) {
        None => Ok(()),
        Some(_) => Err(world.unexpected("a ClusterTrustBundle is left")),
    }
}

async fn published(world: &mut World) -> Result<(), Failure> {
    world.start_operator("operator-1");
    user::create(world, "demo", &asking());
    world.links_hold = true;
    world.settle(SOON_MS).await?;
    as_trusted(world)?;
    let first = bundle(world);
    user::annotate(world, "demo", crate::crd::ANNOTATION_ROTATE_CLIENT, "1 now");
    let both = |text: &str| text.matches("BEGIN CERTIFICATE").count() == 2;
    let has_both = |world: &World, _: &_| bundle(world).is_some_and(|text| both(&text));
    world.until("both CAs published", SOON_MS, has_both).await?;
    world.settle(SOON_MS).await?;
    as_trusted(world)?;
    if bundle(world) == first || bundle(world).is_some_and(|text| both(&text)) {
        return Err(world.unexpected("the CA before is still published"));
    }
    ask(world, "Secret");
    world.settle(SOON_MS).await?;
    nothing(world)?;
    ask(world, "ClusterTrustBundle");
    world.settle(SOON_MS).await?;
    as_trusted(world)?;
    user::delete(world, Kind::EtcdCluster, "demo");
    world.settle(SOON_MS).await?;
    nothing(world)
}

async fn unserved(world: &mut World) -> Result<(), Failure> {
    world.unserve(&[Kind::ClusterTrustBundle]);
    world.start_operator("operator-1");
    user::create(world, "demo", &asking());
    let reported = |world: &World, _: &_| {
        let reason = user::reason(world, "demo", "Stalled");
        reason.as_deref() == Some("ClusterTrustBundleNotServed") && user::voters(world).len() == 3
    };
    world.until("what is missing", SOON_MS, reported).await?;
    world.unserve(&[]);
    world.settle(SOON_MS).await?;
    as_trusted(world)
}

async fn left(world: &mut World) -> Result<(), Failure> {
    world.start_operator("operator-1");
    user::create(world, "demo", &asking());
    world.settle(SOON_MS).await?;
    as_trusted(world)?;
    world.stop_operators();
    user::delete(world, Kind::EtcdCluster, "demo");
    world.pass_ms(60_000).await?;
    let mut spec = asking();
    spec["tls"] = json!({});
    user::create(world, "demo", &spec);
    world.start_operator("operator-2");
    world.settle(SOON_MS).await?;
    nothing(world)
}
