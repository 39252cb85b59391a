//! IP families of a cluster's Services: they change while everybody runs, and what Kubernetes refuses stops nothing else.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::opsim::api::{Kind, object};
use crate::opsim::faults;
use crate::opsim::harness::containers::NAMESPACE;
use crate::opsim::harness::world::{Failure, World};
use crate::opsim::run::Scenario;
use crate::opsim::user::{self, SOON_MS};

pub(super) const SCENARIOS: [Scenario; 2] = [
    Scenario {
        name: "dual-stack",
        story: "a cluster's Services get a second IP family, name the first one, are edited by hand and go back to one: all of them do, nobody is restarted, and the operator and Kubernetes never disagree for long",
        script: |world| Box::pin(dual_stack(world)),
    },
    Scenario {
        name: "families-refused",
        story: "a second IP family is required where Kubernetes has one: it is told, a lost disk of seven is replaced all the same, and what is asked for after that is done",
        script: |world| Box::pin(families_refused(world)),
    },
];

async fn made(world: &mut World, replicas: u32) -> Result<BTreeMap<String, String>, Failure> {
    world.start_operator("operator-1");
    user::create(world, "demo", &user::spec(replicas));
    world.settle(SOON_MS).await?;
    Ok(pods(world))
}

/// UIDs of the members' pods.
fn pods(world: &World) -> BTreeMap<String, String> {
    let pods = user::objects(world, Kind::Pod);
    let pods = pods.iter();
    pods.map(|pod| (object::name(pod).to_owned(), object::uid(pod).to_owned()))
        .collect()
}

/// Every Service of the cluster has this policy and these families.
fn all_have(world: &World, policy: &str, families: &[&str]) -> Result<(), Failure> {
    let services = user::objects(world, Kind::Service);
    if services.len() < 5 {
        return Err(world.unexpected(format!("{} Services", services.len())));
    }
    for service in services {
        let spec = &service["spec"];
        let headless = spec["clusterIP"] == "None";
        let addresses = if headless { 1 } else { families.len() };
        let is = spec["ipFamilyPolicy"] == policy
            && spec["ipFamilies"] == json!(families)
            && object::items(&service, &["spec", "clusterIPs"]).len() == addresses;
        if !is {
            return Err(world.unexpected(format!("{} has {spec}", object::name(&service))));
        }
    }
    let shown = user::status(world, "demo")["endpoints"]["ipFamilies"].clone();
    if shown != json!(families) {
        return Err(world.unexpected(format!("the status has {shown}")));
    }
    Ok(())
}

async fn asks(world: &mut World, service: Value) -> Result<(), Failure> {
    user::edit(world, "demo", &json!({ "service": service }));
    world.settle(SOON_MS).await?;
    match user::reason(world, "demo", "Stalled") {
        Some(reason) => Err(world.unexpected(format!("Stalled: {reason}"))),
        None => Ok(()),
    }
}

async fn dual_stack(world: &mut World) -> Result<(), Failure> {
    let (one, both) = (["IPv4"], ["IPv4", "IPv6"]);
    let before = made(world, 3).await?;
    all_have(world, "SingleStack", &one)?;
    asks(world, json!({"ipFamilyPolicy": "PreferDualStack"})).await?;
    all_have(world, "PreferDualStack", &both)?;
    asks(world, json!({"ipFamilyPolicy": "SingleStack"})).await?;
    all_have(world, "SingleStack", &one)?;
    // The API server adds the family that is not named, and takes none back.
    asks(
        world,
        json!({"ipFamilyPolicy": "PreferDualStack", "ipFamilies": one}),
    )
    .await?;
    all_have(world, "PreferDualStack", &both)?;
    asks(world, json!({"labels": {"example.com/pool": "a"}})).await?;
    world.stop_operators();
    world.start_operator("operator-2");
    world.settle(SOON_MS).await?;
    for name in ["demo-client", "demo-peers", "demo-client-0"] {
        let id = (NAMESPACE, name);
        world
            .api
            .lock()
            .edit("somebody", Kind::Service, id, |service| {
                service["spec"]["ports"][0]["targetPort"] = json!("metrics");
            });
    }
    asks(world, json!({"labels": {"example.com/pool": "b"}})).await?;
    all_have(world, "PreferDualStack", &both)?;
    if user::edit(
        world,
        "demo",
        &json!({"service": {"ipFamilies": ["IPv6", "IPv4"]}}),
    ) {
        return Err(world.unexpected("another first family was admitted"));
    }
    asks(
        world,
        json!({"ipFamilyPolicy": "RequireDualStack", "ipFamilies": both}),
    )
    .await?;
    all_have(world, "RequireDualStack", &both)?;
    // What is taken out leaves the Services as they are.
    asks(world, json!({"ipFamilyPolicy": null, "ipFamilies": null})).await?;
    all_have(world, "RequireDualStack", &both)?;
    asks(
        world,
        json!({"ipFamilyPolicy": "SingleStack", "ipFamilies": one}),
    )
    .await?;
    all_have(world, "SingleStack", &one)?;
    if pods(world) != before {
        return Err(world.unexpected("a pod was made anew"));
    }
    Ok(())
}

async fn families_refused(world: &mut World) -> Result<(), Failure> {
    // So many that a reconcile would give up if each of their Services were refused.
    for node in [
        "node-d", "node-e", "node-f", "node-g", "node-h", "node-i", "node-j",
    ] {
        world.containers.kube.add_node(node, "zone-1");
    }
    world.api.lock().set_ip_families(&["IPv4"]);
    made(world, 9).await?;
    user::edit(
        world,
        "demo",
        &json!({"service": {"ipFamilyPolicy": "RequireDualStack"}}),
    );
    world.pass_ms(20_000).await?;
    let victim = user::follower(world);
    faults::disk_is_emptied(world, &victim);
    world
        .until("a replacement", 300_000, |world, _| {
            let voters = user::voters(world);
            voters.len() == 9 && !voters.contains(&victim)
        })
        .await?;
    world
        .until("the refusal in the status", 30_000, |world, _| {
            user::reason(world, "demo", "Stalled").as_deref() == Some("Refused")
        })
        .await?;
    let summary = user::status(world, "demo")["summary"].to_string();
    if !summary.contains("correct spec.service.ipFamilyPolicy") {
        return Err(world.unexpected(format!("the status does not tell what to do: {summary}")));
    }
    asks(world, json!({"ipFamilyPolicy": "PreferDualStack"})).await?;
    all_have(world, "PreferDualStack", &["IPv4"])
}
