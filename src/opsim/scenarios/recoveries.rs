//! Quorums that are lost for good, and clusters that go on as their next incarnation.

use serde_json::{Value, json};

use crate::opsim::api::{Kind, object};
use crate::opsim::faults;
use crate::opsim::harness::containers::NAMESPACE;
use crate::opsim::harness::request_faults::lock;
use crate::opsim::harness::world::{Failure, World};
use crate::opsim::run::Scenario;
use crate::opsim::user::{self, SOON_MS};

pub(super) const SCENARIOS: [Scenario; 13] = [
    Scenario {
        name: "quorum-recovered",
        story: "two of three volumes are gone: the cluster goes on with the third one's data under its name",
        script: |world| Box::pin(quorum_lost(world)),
    },
    Scenario {
        name: "quorum-recovered-five",
        story: "three of five volumes are gone: of the two that are left one is stopped, and the other one's data are kept",
        script: |world| Box::pin(quorum_lost_of(world, 5, Left::Followers(2))),
    },
    Scenario {
        name: "quorum-recovered-leader",
        story: "the volumes of both followers are gone: the cluster goes on with the leader's data",
        script: |world| Box::pin(quorum_lost_of(world, 3, Left::LeaderAnd(0))),
    },
    Scenario {
        name: "quorum-recovered-five-leader",
        story: "three of five volumes are gone: the leader's data are kept, and the follower that is left is stopped",
        script: |world| Box::pin(quorum_lost_of(world, 5, Left::LeaderAnd(1))),
    },
    Scenario {
        name: "quorum-recovered-five-leader-alone",
        story: "the volumes of all four followers are gone: the cluster goes on with the leader's data",
        script: |world| Box::pin(quorum_lost_of(world, 5, Left::LeaderAnd(0))),
    },
    Scenario {
        name: "quorum-recovered-five-one",
        story: "four of five volumes are gone: the cluster goes on with the only one that is left",
        script: |world| Box::pin(quorum_lost_of(world, 5, Left::Followers(1))),
    },
    Scenario {
        name: "quorum-recovered-five-all",
        story: "all of five volumes are gone: the cluster goes on with a backup",
        script: |world| Box::pin(quorum_lost_of(world, 5, Left::Followers(0))),
    },
    Scenario {
        name: "quorum-recovered-single",
        story: "the volume of the only member is gone: the cluster goes on with a backup",
        script: |world| Box::pin(quorum_lost_of(world, 1, Left::Followers(0))),
    },
    Scenario {
        name: "quorum-recovered-all",
        story: "all volumes are gone: the cluster goes on with a backup under its name",
        script: |world| Box::pin(quorum_lost_of(world, 3, Left::Followers(0))),
    },
    Scenario {
        name: "quorum-recovered-node",
        story: "one volume is gone and a node is cut off with a member that runs: nothing is formed before the node reports that it has stopped",
        script: |world| Box::pin(quorum_lost_node(world)),
    },
    Scenario {
        name: "quorum-recovered-twice",
        story: "every PVC of the recovered cluster is deleted as well: it goes on with a backup, by another recovery",
        script: |world| Box::pin(quorum_lost_twice(world)),
    },
    Scenario {
        name: "recovery-unseen",
        story: "the operator reaches no member of a cluster that serves, and a recovery is asked for: nobody is stopped, and it is refused once a leader is seen",
        script: |world| Box::pin(recovery_unseen(world)),
    },
    Scenario {
        name: "recovery-refused",
        story: "a recovery of a cluster with a quorum is refused for good: it is not carried out when the quorum is lost later",
        script: |world| Box::pin(recovery_refused(world)),
    },
];

async fn members(world: &mut World, replicas: u32) -> Result<(), Failure> {
    world.start_operator("operator-1");
    user::create(world, "demo", &user::spec(replicas));
    world.settle(SOON_MS).await
}

/// What the status says of the disk of a member, as `kubectl quorate recover --plan` reads it.
fn disk(world: &World, member: &str) -> Option<Value> {
    let found = world.api.lock().get(Kind::EtcdCluster, NAMESPACE, "demo")?;
    let rows = found["status"]["members"].as_array()?;
    let row = rows.iter().find(|row| row["name"] == member)?;
    row.get("disk").cloned()
}

/// Asks for a recovery, once the status says what there is; a Job of the story's sends the data.
pub(super) async fn recover(
    world: &mut World,
    survivor: Option<&str>,
    incarnation: u64,
) -> Result<(), Failure> {
    ask(world, survivor, "nightly", incarnation).await?;
    let (uid, member) = (uid(world), survivor.map(str::to_owned));
    lock(&world.servers).send(uid, &format!("data-{incarnation}"), member);
    Ok(())
}

/// Asks for a recovery with the data of a survivor, or of a backup.
pub(super) async fn ask(
    world: &mut World,
    survivor: Option<&str>,
    backup: &str,
    incarnation: u64,
) -> Result<(), Failure> {
    let mut spec = json!({
        "clusterRef": {"name": "demo"},
        "clusterUID": uid(world),
        "incarnation": incarnation,
        "acceptLoss": true,
    });
    match survivor {
        None => spec["restore"] = json!({"backupRef": {"name": backup}}),
        Some(member) => {
            let seen = |world: &World, _: &_| disk(world, member).is_some();
            world
                .until("the survivor's disk in the status", 120_000, seen)
                .await?;
            let disk = disk(world, member).unwrap_or_default();
            let expect =
                json!({"diskUUID": disk["diskUUID"], "term": disk["term"], "index": disk["index"]});
            spec["survivor"] = json!({"member": member, "expect": expect});
        }
    }
    user::recover(world, &format!("demo-{incarnation}"), &spec);
    Ok(())
}

fn uid(world: &World) -> String {
    let found = world.api.lock().get(Kind::EtcdCluster, NAMESPACE, "demo");
    found.map_or(String::new(), |found| object::life(&found).to_owned())
}

fn phase(world: &World, incarnation: u64) -> String {
    let name = format!("demo-{incarnation}");
    let found = world.api.lock().get(Kind::EtcdRecovery, NAMESPACE, &name);
    found.map_or(String::new(), |found| {
        object::text(&found, &["status", "phase"]).to_owned()
    })
}

/// The cluster is whole, and says so.
pub(super) async fn recovered(world: &mut World, incarnation: u64) -> Result<(), Failure> {
    let formed = |world: &World, _: &_| phase(world, incarnation) == "Recovered";
    world.until("the recovery", SOON_MS, formed).await?;
    world.settle(SOON_MS).await
}

async fn quorum_lost(world: &mut World) -> Result<(), Failure> {
    quorum_lost_of(world, 3, Left::Followers(1)).await
}

/// Whose volumes are left. Followers are alike: the scenarios above have every set of lost volumes that leaves no quorum of
/// one, three or five members.
enum Left {
    /// So many followers'; the first of them is kept.
    Followers(usize),
    /// The leader's, which is kept, and so many followers'.
    LeaderAnd(usize),
}

async fn quorum_lost_of(world: &mut World, replicas: u32, left: Left) -> Result<(), Failure> {
    members(world, replicas).await?;
    let followers = user::followers(world);
    let kept: Vec<String> = match left {
        Left::Followers(some) => followers.into_iter().take(some).collect(),
        Left::LeaderAnd(some) => {
            let leader = user::leader(world).into_iter();
            leader.chain(followers.into_iter().take(some)).collect()
        }
    };
    let kept: Vec<&str> = kept.iter().map(String::as_str).collect();
    lose_others(world, &kept);
    if kept.is_empty() {
        world.pass_ms(20_000).await?;
    }
    recover(world, kept.first().copied(), 1).await?;
    recovered(world, 1).await
}

/// The volumes of all voters but these are gone.
pub(super) fn lose_others(world: &mut World, kept: &[&str]) {
    for member in user::voters(world) {
        if !kept.contains(&member.as_str()) {
            faults::volume_goes(world, &member);
        }
    }
}

async fn quorum_lost_node(world: &mut World) -> Result<(), Failure> {
    members(world, 3).await?;
    let left = user::followers(world);
    let node = user::node_of(world, &left[1]);
    lose_others(world, &[&left[0], &left[1]]);
    world.containers.kube.node_cut(&node);
    world.pass_ms(20_000).await?;
    recover(world, Some(&left[0]), 1).await?;
    world.pass_ms(120_000).await?;
    if phase(world, 1) != "Fencing" {
        return Err(world.unexpected(format!(
            "the recovery is {:?} while a pod may run on a node that does not report",
            phase(world, 1)
        )));
    }
    world.containers.kube.node_up(&node);
    recovered(world, 1).await
}

async fn quorum_lost_twice(world: &mut World) -> Result<(), Failure> {
    quorum_lost(world).await?;
    for member in user::voters(world) {
        faults::pvc_is_deleted(world, &member);
        user::delete(world, Kind::Pod, &crate::crd::pod_name(&member));
    }
    world.pass_ms(30_000).await?;
    recover(world, None, 2).await?;
    recovered(world, 2).await
}

async fn recovery_unseen(world: &mut World) -> Result<(), Failure> {
    members(world, 3).await?;
    let nodes: Vec<String> = (user::voters(world).iter())
        .map(|voter| user::node_of(world, voter))
        .collect();
    lock(&world.servers).unseen.extend(nodes);
    world.pass_ms(30_000).await?;
    recover(world, None, 1).await?;
    world.pass_ms(120_000).await?;
    lock(&world.servers).unseen.clear();
    let refused = |world: &World, _: &_| phase(world, 1) == "Refused";
    world.until("the refusal", 120_000, refused).await?;
    world.settle(SOON_MS).await
}

async fn recovery_refused(world: &mut World) -> Result<(), Failure> {
    members(world, 3).await?;
    recover(world, None, 1).await?;
    let refused = |world: &World, _: &_| phase(world, 1) == "Refused";
    world.until("the refusal", 120_000, refused).await?;
    let survivor = user::follower(world);
    lose_others(world, &[&survivor]);
    world.pass_ms(180_000).await?;
    let founded = lock(&world.servers)
        .founded
        .values()
        .map(Vec::len)
        .sum::<usize>();
    if founded != 1 {
        return Err(world.unexpected("a refused recovery was carried out"));
    }
    user::delete(world, Kind::EtcdRecovery, "demo-1");
    recover(world, Some(&survivor), 1).await?;
    recovered(world, 1).await
}
