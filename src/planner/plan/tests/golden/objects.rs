//! Situations of objects that are not a member's: which ones belong to the cluster, and which are not touched.

use std::fmt::Write as _;

use crate::crd::{MemberRole, pvc_name};
use crate::plan::tests::script::{Script, rested};
use crate::plan::tests::world::{CLUSTER_UID, World};
use crate::plan::{
    ObjectFacts, ObjectKey, ObjectKind, Owner, PvcFacts, PvcState, SetFacts, StorageFacts,
};

#[test]
fn paused() {
    let mut script = Script::new("paused", "Paused: the status and the PDB only.");
    let mut world = rested(3);
    world.cluster.spec.paused = true;
    world.cluster.spec.replicas = 5;
    world.lose_objects();
    script.observe(
        "Paused, a size that is not reached, all objects gone",
        &world,
    );
    script.compare();
}

#[test]
fn conflicts_and_earlier_lives() {
    let mut script = Script::new(
        "names",
        "Names that belong to somebody else, and the objects of a deleted cluster of the same name.",
    );
    let foreign = |owner| SetFacts {
        plain_peers: false,
        uid: "x".into(),
        owner,
        terminating: false,
        inputs: None,
        created_ms: 0,
        hibernated: false,
        edited: false,
    };
    let mut world = World::new(3);
    world.api.sets.insert(
        "demo-2".into(),
        foreign(Owner::Other("StatefulSet web".into())),
    );
    script.observe("A set of somebody else has our name", &world);
    world
        .api
        .sets
        .insert("demo-2".into(), foreign(Owner::EarlierLife));
    script.observe("A set of an earlier life of this name", &world);
    world.api.sets.clear();
    let key = ObjectKey {
        kind: ObjectKind::Service,
        name: "demo-client".into(),
    };
    let service = ObjectFacts {
        owner: Owner::Unowned,
        terminating: false,
        inputs: None,
    };
    world.api.objects.insert(key.clone(), service);
    script.observe("A Service without an owner has our name", &world);
    world.lose_objects();
    let old = PvcFacts {
        incarnation: 1,
        uid: "old".into(),
        cluster_uid: Some("0ld-life".into()),
        member: Some("demo-1".into()),
        state: PvcState::Joined,
        terminating: false,
        bound: true,
        volume_gone: None,
        no_node: None,
        nodes: None,
        node_bound: None,
        requested_bytes: 1 << 30,
        storage: StorageFacts::default(),
        owned: false,
    };
    world
        .api
        .pvcs
        .insert("data-demo-1-0ldli".into(), old.clone());
    script.settle("Disks of an earlier life are never adopted", &mut world);
    let plan = script.observe("They are reported", &world);
    assert_eq!(plan.status.leftovers.len(), 1);
    let leftover = &plan.status.leftovers[0];
    let _ = writeln!(
        script.text,
        "leftover {} {}: {}",
        leftover.kind, leftover.name, leftover.reason
    );
    assert_eq!(plan.status.leftovers_omitted, None);
    // Many kept objects of earlier clusters do not fill the status.
    for number in 0..99 {
        let name = format!("data-demo-{number}-0lder");
        world.api.pvcs.insert(name, old.clone());
    }
    let status = crate::plan::plan(&world.observe()).status;
    assert_eq!(status.leftovers.len(), 32);
    assert_eq!(status.leftovers_omitted, Some(68));
    // PVCs labelled as of this incarnation are rows of members, of which the schema allows 64.
    for number in 100..200 {
        let of_now = PvcFacts {
            cluster_uid: Some(CLUSTER_UID.into()),
            member: Some(format!("demo-{number}")),
            state: PvcState::New,
            ..old.clone()
        };
        let name = pvc_name(&format!("demo-{number}"), CLUSTER_UID);
        world.api.pvcs.insert(name, of_now);
    }
    let rows = crate::plan::plan(&world.observe()).status.members;
    assert_eq!(rows.len(), 64);
    let voters = rows.iter().filter(|row| row.role == MemberRole::Voter);
    assert_eq!(voters.count(), world.voters(), "voters are listed first");
    script.compare();
}
