//! The volumes of a deleted resource are adopted by another one of its name.

use super::recovery::asks;
use crate::crd::{Tls, pvc_name};
use crate::plan::tests::script::{Script, rested, wait};
use crate::plan::tests::world::{CLUSTER_UID, World};
use crate::plan::{Action, Exit, MemberAction, ObjectAction, Owner, PvcState, plan};

/// What must be so once an adopted cluster rests: it was formed once, and nothing of its data is another.
fn goes_on(world: &World, voters: usize) {
    assert_eq!((world.voters(), world.raft.formed), (voters, 1));
    let identity = world.api.identity_secret.as_ref().expect("an identity");
    assert_eq!(identity.cluster_uid, CLUSTER_UID);
    assert_ne!(world.cluster.uid, CLUSTER_UID);
}

/// No plan makes a volume for the cluster's first member, or forms the cluster.
fn forms_nothing(world: &mut World, passes: u32) {
    for _ in 0..passes {
        let plan = world.reconcile();
        let forms = plan.steps.iter().any(|step| {
            matches!(
                step.action,
                Action::Object(ObjectAction::CreatePvc { .. })
                    | Action::Member(MemberAction::Bootstrap { .. })
            )
        });
        assert!(!forms, "{plan}");
    }
}

#[test]
fn volumes_adopted() {
    let mut script = Script::new(
        "adopt",
        "A resource is deleted and its volumes stay; another one of its name adopts them: the identity names the adopted UID, every member starts on its volume, and the cluster is the same.",
    );
    let mut world = rested(3);
    let members = world.raft.members.clone();
    world.adopt();
    script.observe("Another resource, and the volumes", &world);
    script.settle("Until rest", &mut world);
    script.observe("In the end", &world);
    goes_on(&world, 3);
    let before: Vec<&String> = members.iter().map(|member| &member.disk_uuid).collect();
    let after = world.raft.members.iter();
    let after: Vec<&String> = after.map(|member| &member.disk_uuid).collect();
    assert_eq!(after, before, "no member is another");
    script.compare();
}

#[test]
fn adopted_more_than_once() {
    let mut world = rested(3);
    for _ in 0..3 {
        world.adopt();
        world.settle(200);
        goes_on(&world, 3);
    }
}

#[test]
fn adopted_with_certificates_of_another_authority() {
    let mut world = World::new(3).with_tls();
    world.settle(1000);
    world.adopt();
    world.settle(1000);
    goes_on(&world, 3);
    assert_eq!(world.cluster.spec.tls, Some(Tls::default()));
}

/// A member that starts with a certificate of the deleted cluster would lose it to the garbage collection.
#[test]
fn certificates_of_the_deleted_cluster_go_first() {
    let mut world = World::new(3).with_tls();
    world.settle(1000);
    let mut secrets = world.api.tls.secrets.clone();
    world.adopt();
    for facts in secrets.values_mut() {
        facts.owner = Owner::EarlierLife;
    }
    world.api.tls.secrets = secrets;
    for _ in 0..5 {
        let plan = world.reconcile();
        assert!(plan.steps.is_empty(), "{plan}");
        assert!(plan.summary.contains("garbage collection"), "{plan}");
    }
    world.api.tls.secrets.clear();
    world.settle(1000);
    goes_on(&world, 3);
}

/// Without certificates before, and with them from the adoption on: the members' URLs are of before.
#[test]
fn adopted_with_tls_for_the_first_time() {
    let mut world = rested(3);
    world.adopt();
    world = world.with_tls();
    world.api.wanted_inputs = "spec-tls".into();
    world.settle(1000);
    goes_on(&world, 3);
    let mut urls = world.raft.members.iter().flat_map(|it| &it.peer_urls);
    assert!(urls.all(|url| url.starts_with("https://")));
}

#[test]
fn adopted_without_the_tls_that_was() {
    let mut world = World::new(3).with_tls();
    world.settle(1000);
    world.adopt();
    world.cluster.spec.tls = None;
    world.api.wanted_inputs = "spec-plain".into();
    forms_nothing(&mut world, 30);
    let summary = plan(&world.observe()).summary;
    assert!(summary.starts_with("TLSNeeded"), "{summary}");
}

#[test]
fn one_volume_is_missing() {
    let mut script = Script::new(
        "adopt-one-missing",
        "One of three volumes is gone when they are adopted: the others have a quorum, and it is replaced.",
    );
    let mut world = rested(3);
    world.adopt();
    world.lose_pvc("demo-1");
    script.settle("Until rest", &mut world);
    goes_on(&world, 3);
    script.compare();
}

#[test]
fn too_few_volumes() {
    let mut script = Script::new(
        "adopt-too-few",
        "One of three volumes is left when they are adopted: its member starts and has no quorum, which is reported; nothing is formed until an EtcdRecovery names it.",
    );
    let mut world = rested(3);
    world.adopt();
    world.lose_pvc("demo-1");
    world.lose_pvc("demo-3");
    forms_nothing(&mut world, 30);
    let plan = script.observe("Its member answers, and has no quorum", &world);
    // kubectl quorate recover reads what there is from the status.
    let rows = plan.status.members.iter();
    let disks = rows.map(|row| (row.name.as_str(), row.disk.is_some()));
    let expected = [("demo-1", false), ("demo-2", true), ("demo-3", false)];
    assert_eq!(disks.collect::<Vec<_>>(), expected);
    world.api.recoveries = vec![asks(&world, Some("demo-2"))];
    script.settle("An EtcdRecovery names demo-2", &mut world);
    assert_eq!((world.voters(), world.raft.incarnation), (3, 2));
    // The next life is that of the second incarnation; what was before it is left alone.
    world.adopt();
    script.settle("Deleted and adopted again", &mut world);
    assert_eq!((world.voters(), world.raft.incarnation), (3, 2));
    let identity = world.api.identity_secret.as_ref().expect("an identity");
    assert_eq!(
        (identity.seed.as_str(), identity.incarnation),
        ("demo-4", 2)
    );
    // So it is without the EtcdRecovery.
    world.adopt();
    world.api.recoveries.clear();
    world.settle(300);
    assert_eq!((world.voters(), world.raft.incarnation), (3, 2));
    script.compare();
}

#[test]
fn nothing_is_formed_in_the_place_of_what_is_gone() {
    let mut script = Script::new(
        "adopt-nothing",
        "What was to be adopted is not there, was kept of removed members, or goes before a member has started: it is reported, and no cluster is formed.",
    );
    let mut world = rested(3);
    world.adopt();
    let all = world.api.pvcs.clone();
    for pvc in world.api.pvcs.values_mut() {
        pvc.state = PvcState::Retired;
    }
    script.observe("All were kept of removed members", &world);
    forms_nothing(&mut world, 3);
    world.api.pvcs = all.clone();
    for pvc in world.api.pvcs.values_mut() {
        pvc.cluster_uid = Some("c0de-0000".into());
    }
    script.observe("They have another UID", &world);
    forms_nothing(&mut world, 3);
    world.api.pvcs.clear();
    script.observe("There is none", &world);
    forms_nothing(&mut world, 3);
    world.api.pvcs = all;
    world.reconcile();
    assert!(world.api.identity_secret.is_some());
    world.api.pvcs.clear();
    world.disks.clear();
    forms_nothing(&mut world, 30);
    script.observe("Gone once the identity was there", &world);
    script.compare();
}

#[test]
fn adopted_while_it_sleeps() {
    let mut script = Script::new(
        "adopt-hibernated",
        "Adopted with replicas 0: nothing starts and nothing is written down before it is to run.",
    );
    let mut world = rested(3);
    world.adopt();
    world.cluster.spec.replicas = 0;
    world.settle(20);
    script.observe("Nothing runs", &world);
    assert!(world.api.identity_secret.is_none() && world.api.sets.is_empty());
    world.cluster.spec.replicas = 3;
    script.settle("Woken", &mut world);
    goes_on(&world, 3);
    script.compare();
}

/// The server of a member refuses its disk, as that of another cluster.
fn refuses_its_disk(world: &mut World, member: &str) {
    while !world.api.pods.contains_key(member) {
        world.reconcile();
    }
    let pod = world.api.pods.get_mut(member).expect("a pod");
    (pod.started_ms, pod.last_exit) = (None, Some(Exit::ForeignDisk));
    let uid = pod.uid.clone();
    world.faults.stuck.insert(uid);
}

#[test]
fn disks_of_another_life() {
    let mut script = Script::new(
        "adopt-foreign",
        "An adopted volume holds the data of another cluster: its member is replaced and the volume is kept; two of them leave no quorum, which is reported by name.",
    );
    let mut world = rested(3);
    world.adopt();
    refuses_its_disk(&mut world, "demo-3");
    script.settle("One of three", &mut world);
    goes_on(&world, 3);
    let pvc = &world.api.pvcs[&pvc_name("demo-3", CLUSTER_UID)];
    assert_eq!(pvc.state, PvcState::Retired);
    let mut world = rested(3);
    world.adopt();
    refuses_its_disk(&mut world, "demo-2");
    refuses_its_disk(&mut world, "demo-3");
    wait(&mut world, 15);
    forms_nothing(&mut world, 10);
    script.observe("Two of three", &world);
    assert!(plan(&world.observe()).summary.starts_with("ForeignDisk"));
    script.compare();
}
