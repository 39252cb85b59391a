//! The lints alone: each step that would violate an invariant is refused, whichever rule wants it.

use super::world::{CLUSTER_UID, World};
use crate::crd::{
    Bootstrap, DisruptionPolicy, Follow, Restore, TlsPort, member_certificate_name,
    operator_secret_name, pvc_name,
};
use crate::plan::{
    Action, AlarmKind, Fence, MemberView, Owner, PdbLimit, PvcState, Step, TrustBundle,
    TrustBundleFacts, Unfit, lint, plan,
};
use crate::plan::{
    CertificateAction, FirstData, MemberAction, ObjectAction, ObjectKey, ObjectKind, Staged,
};

fn rested(replicas: i32) -> World {
    let mut world = World::new(replicas);
    world.settle(1000);
    world
}

/// The findings of the lints for these steps in this world.
fn refused(world: &World, actions: &[Action]) -> String {
    let observed = world.observe();
    let mut plan = plan(&observed);
    let step = |action: &Action| Step {
        rule: crate::plan::Rule::Objects,
        action: action.clone(),
        reason: String::new(),
    };
    plan.steps = actions.iter().map(step).collect();
    lint(&observed, &plan).join("; ")
}

const FENCE: Fence = Fence {
    configuration_index: 0,
    epoch: 0,
};

fn id(world: &World, member: &str) -> u64 {
    world
        .raft
        .members
        .iter()
        .find(|m| m.name == member)
        .map_or(0, |m| m.id)
}

fn remove(world: &World, member: &str) -> Action {
    Action::Member(MemberAction::Remove {
        member: member.into(),
        id: id(world, member),
        fence: FENCE,
    })
}

fn promote(world: &World, member: &str) -> Action {
    Action::Member(MemberAction::Promote {
        member: member.into(),
        id: id(world, member),
        fence: FENCE,
    })
}

fn add(member: &str, disk: &str) -> Action {
    Action::Member(MemberAction::AddLearner {
        secure: false,
        member: member.into(),
        disk_uuid: disk.into(),
        fence: FENCE,
    })
}

fn assert_refused(world: &World, action: Action, words: &str) {
    let refusal = refused(world, std::slice::from_ref(&action));
    assert!(
        refusal.contains(words),
        "{action}: {refusal:?} does not contain {words:?}"
    );
}

/// A ClusterTrustBundle is written where it is asked for and nobody else's, and deleted where it is not.
#[test]
fn trust_bundles_are_asked_for() {
    let publish = || {
        Action::Certificate(CertificateAction::PublishAuthorities {
            bundle: "b".into(),
            trusted: Vec::new(),
        })
    };
    let withdraw = |uid: &str| {
        Action::Certificate(CertificateAction::WithdrawAuthorities {
            bundle: "b".into(),
            uid: uid.into(),
        })
    };
    let mut world = World::new(1).with_tls();
    world.settle(1000);
    assert_refused(&world, publish(), "no ClusterTrustBundle is asked for");
    assert_refused(&world, withdraw("1"), "another ClusterTrustBundle");
    world.publish(true);
    assert_eq!(refused(&world, &[publish()]), "");
    let mut there = TrustBundleFacts {
        uid: "1".into(),
        owner: Owner::Unowned,
        trusted: Vec::new(),
    };
    world.api.tls.bundle = TrustBundle::There(there.clone());
    assert_refused(&world, publish(), "another owner");
    there.owner = Owner::Ours;
    world.api.tls.bundle = TrustBundle::There(there);
    assert_refused(&world, withdraw("1"), "is asked for");
    world.publish(false);
    assert_eq!(refused(&world, &[withdraw("1")]), "");
    assert_refused(&world, withdraw("2"), "another ClusterTrustBundle");
}

#[test]
fn only_dead_or_surplus_voters_are_removed() {
    let mut world = rested(3);
    assert_refused(
        &world,
        remove(&world, "demo-2"),
        "I4: the leader reaches it",
    );
    assert_refused(
        &rested(1),
        remove(&rested(1), "demo-1"),
        "I3: it is the last voter",
    );
    world.cluster.spec.replicas = 1;
    assert_eq!(
        refused(&world, &[remove(&world, "demo-2")]),
        "",
        "a surplus one may go"
    );
    let mut two = rested(2);
    two.cluster.spec.replicas = 1;
    two.faults.unseen.insert("demo-1".into());
    assert_refused(
        &two,
        remove(&two, "demo-2"),
        "no leader with a quorum was seen",
    );
    world.faults.unseen.insert("demo-3".into());
    world.faults.unseen.insert("demo-2".into());
    assert_refused(
        &world,
        remove(&world, "demo-1"),
        "I3: the rest would have no quorum",
    );
}

#[test]
fn learners_join_one_at_a_time() {
    let mut world = rested(3);
    assert_eq!(refused(&world, &[add("demo-4", "new")]), "");
    let disk = world.raft.members[0].disk_uuid.clone();
    assert_refused(&world, add("demo-4", &disk), "its disk is a member's");
    assert_refused(&world, add("demo-3", "new"), "it is a member already");
    let both = [add("demo-4", "new"), add("demo-5", "newer")];
    assert!(refused(&world, &both).contains("I2: more than one membership change"));
    world.faults.unseen.insert("demo-2".into());
    assert_refused(&world, add("demo-4", "new"), "I5: a voter is not healthy");
    world.faults.unseen.clear();
    let other = MemberView {
        id: 9,
        name: "x".into(),
        learner: true,
        ..MemberView::default()
    };
    world.raft.members.push(other);
    assert_refused(
        &world,
        add("demo-4", "new"),
        "I2: there is a learner already",
    );
    assert_refused(&world, promote(&world, "x"), "I3: it has not caught up");
    assert_refused(&world, promote(&world, "demo-1"), "it is no learner");
}

#[test]
fn identity_and_bootstrap_happen_once() {
    let identity_secret = Action::Object(ObjectAction::CreateIdentitySecret {
        seed: "demo-1".into(),
        nonce: "n".into(),
        incarnation: 1,
    });
    let bootstrap = |member: &str, disk: &str| {
        Action::Member(MemberAction::Bootstrap {
            member: member.into(),
            pod_uid: String::new(),
            cluster_uid: CLUSTER_UID.into(),
            incarnation: 1,
            nonce: "n0".into(),
            pvc_uid: String::new(),
            disk_uuid: disk.into(),
            snapshot: None,
        })
    };
    let mut world = rested(1);
    assert_refused(
        &world,
        identity_secret.clone(),
        "I7: there is an identity already",
    );
    assert_refused(
        &world,
        bootstrap("demo-1", "x"),
        "I6: the cluster was formed before",
    );
    world.api.identity_secret = None;
    assert_eq!(
        refused(&world, std::slice::from_ref(&identity_secret)),
        "",
        "a quorum reports which it is"
    );
    let mut second = identity_secret.clone();
    if let Action::Object(ObjectAction::CreateIdentitySecret { incarnation, .. }) = &mut second {
        *incarnation = 2;
    }
    assert_refused(&world, second, "I7: it is another life of the cluster");
    world.faults.unseen.insert("demo-1".into());
    assert_refused(&world, identity_secret, "I7: the cluster was formed before");
    world.faults.unseen.clear();

    let mut world = World::new(1);
    while world.disks.is_empty() {
        world.reconcile();
    }
    let disk = world.disks.values().next().expect("a disk").uuid.clone();
    assert_eq!(refused(&world, &[bootstrap("demo-1", &disk)]), "");
    assert_refused(
        &world,
        bootstrap("demo-1", "another"),
        "I6: its disk is not the empty one",
    );
    assert_refused(&world, bootstrap("demo-2", &disk), "I7: it is not the seed");
    let mut second = world.api.pvcs.values().next().expect("a PVC").clone();
    second.member = Some("demo-2".into());
    world
        .api
        .pvcs
        .insert(pvc_name("demo-2", CLUSTER_UID), second);
    assert_refused(
        &world,
        bootstrap("demo-1", &disk),
        "I6: there are other volumes",
    );
}

#[test]
fn restored_cluster_starts_with_its_data() {
    let mut world = World::new(1);
    world.cluster.spec.bootstrap = Some(Bootstrap {
        restore: Some(Restore::default()),
        ..Bootstrap::default()
    });
    world.faults.staged = Some(Staged::default());
    while world.disks.is_empty() {
        world.reconcile();
    }
    let disk = world.disks.values().next().expect("a disk").uuid.clone();
    let bootstrap = |snapshot: Option<(&str, u64)>| {
        Action::Member(MemberAction::Bootstrap {
            member: "demo-1".into(),
            pod_uid: String::new(),
            cluster_uid: CLUSTER_UID.into(),
            incarnation: 1,
            nonce: "n0".into(),
            pvc_uid: String::new(),
            disk_uuid: disk.clone(),
            snapshot: snapshot.map(|(sha256, revision_bump)| FirstData {
                sha256: sha256.into(),
                revision_bump,
                follow: false,
            }),
        })
    };
    let named = bootstrap(Some(("snapshot", 1_000_000_000)));
    assert_refused(&world, named.clone(), "I15: the seed does not have this");
    world.faults.staged = None;
    assert_eq!(refused(&world, std::slice::from_ref(&named)), "");
    assert_refused(&world, bootstrap(None), "I15: a cluster starts with");
    let other = bootstrap(Some(("other", 1_000_000_000)));
    assert_refused(&world, other, "I15: the seed does not have this");
    let lower = bootstrap(Some(("snapshot", 0)));
    assert_refused(&world, lower, "I15: the revision is raised by another");
    world.cluster.spec.bootstrap = None;
    world.tick();
    assert_refused(&world, named, "I15: a cluster starts with");
}

#[test]
fn follower_starts_with_the_data_of_what_it_follows() {
    let mut world = World::new(1);
    world.cluster.spec.bootstrap = Some(Bootstrap {
        follow: Some(Follow::default()),
        ..Bootstrap::default()
    });
    world.faults.staged = Some(Staged::default());
    while world.disks.is_empty() {
        world.reconcile();
    }
    let disk = world.disks.values().next().expect("a disk").uuid.clone();
    let bootstrap = |revision_bump: u64, follow: bool| {
        Action::Member(MemberAction::Bootstrap {
            member: "demo-1".into(),
            pod_uid: String::new(),
            cluster_uid: CLUSTER_UID.into(),
            incarnation: 1,
            nonce: "n0".into(),
            pvc_uid: String::new(),
            disk_uuid: disk.clone(),
            snapshot: Some(FirstData {
                sha256: "snapshot".into(),
                revision_bump,
                follow,
            }),
        })
    };
    assert_refused(&world, bootstrap(0, true), "I15: the seed does not have");
    world.faults.staged = None;
    assert_eq!(refused(&world, &[bootstrap(0, true)]), "");
    let raised = "I15: the revision is raised by another number";
    assert_refused(&world, bootstrap(1, true), raised);
    assert_refused(&world, bootstrap(0, false), "I15: it follows another");
    let staged = world.observe().descriptions["demo-1"].staged.clone();
    world.faults.staged = staged.map(|staged| Staged {
        source_cluster: 0,
        ..staged
    });
    let living = "I15: who follows starts with a snapshot of a living cluster";
    assert_refused(&world, bootstrap(0, true), living);
    // And a cluster that is restored with none.
    world.cluster.spec.bootstrap = Some(Bootstrap {
        restore: Some(Restore {
            revision_bump: 0,
            ..Restore::default()
        }),
        ..Bootstrap::default()
    });
    world.tick();
    assert_eq!(refused(&world, &[bootstrap(0, false)]), "");
    assert_refused(&world, bootstrap(0, true), "I15: it follows another");
    world.faults.staged = world.faults.staged.take().map(|staged| Staged {
        source_cluster: 7,
        ..staged
    });
    assert_refused(&world, bootstrap(0, false), living);
}

#[test]
fn paused_deletes_and_restarts_nothing() {
    let world = rested(3);
    let uid = String::new();
    let pvc = pvc_name("demo-2", CLUSTER_UID);
    let set = Action::Object(ObjectAction::DeleteSet {
        member: "demo-2".into(),
        uid: uid.clone(),
    });
    assert_refused(&world, set, "I4: it is a member");
    let pvc = Action::Object(ObjectAction::DeletePvc {
        pvc,
        uid: uid.clone(),
    });
    assert_refused(&world, pvc, "I1: a member lives on it");
    let pod = Action::Object(ObjectAction::DeletePod {
        member: "demo-2".into(),
        uid,
    });
    assert_refused(&world, pod.clone(), "it serves clients: it retires first");
    let mut world = world;
    world.execute(&Action::Member(MemberAction::Retire {
        member: "demo-2".into(),
        pod_uid: world.api.pods["demo-2"].uid.clone(),
    }));
    assert_eq!(refused(&world, std::slice::from_ref(&pod)), "");
    world.faults.unseen.insert("demo-3".into());
    assert_refused(&world, pod, "I3: the rest has no quorum");
    world.faults.unseen.clear();
    let pvc = Action::Object(ObjectAction::CreatePvc {
        incarnation: 1,
        member: "demo-2".into(),
        pvc: "c".into(),
        bytes: 1 << 30,
        asked: 1 << 30,
    });
    assert_refused(&world, pvc, "I6: a member has this name");
    let to_id = id(&world, "demo-2");
    let from = "demo-3".to_owned();
    let transfer = Action::Member(MemberAction::Transfer {
        from,
        to: "demo-2".into(),
        to_id,
        fence: FENCE,
    });
    assert_refused(&world, transfer, "it does not lead");
}

/// The exception of I4 is as narrow as the proof: each part of it alone is not enough.
#[test]
fn corrupt_voter_is_removed_only_with_proof() {
    let proven = |change: &dyn Fn(&mut World)| {
        let mut world = rested(3);
        let leader = world.raft.leader.clone();
        let names = ["demo-1", "demo-2", "demo-3"];
        let corrupt = names
            .into_iter()
            .find(|name| Some(*name) != leader.as_deref());
        let corrupt = corrupt.expect("a follower");
        world.alarm("CORRUPT", corrupt);
        world.health.differing.insert(corrupt.into());
        (0..12).for_each(|_| world.tick());
        retire(&mut world, corrupt);
        change(&mut world);
        refused(&world, &[remove(&world, corrupt)])
    };
    assert_eq!(proven(&|_| {}), "", "the control");
    let held = |change: &dyn Fn(&mut World)| {
        let refusal = proven(change);
        assert!(refusal.contains("I4: the leader reaches it"), "{refusal:?}");
    };
    held(&|world| world.health.alarms.clear());
    held(&|world| world.health.compared.truncate(1));
    // Of other members than those that are there; too soon after the other one.
    held(&|world| {
        world.health.compared.truncate(2);
        world.health.compared[1].1.differ.clear();
    });
    held(&|world| {
        world.health.compared.truncate(2);
        world.health.compared[1].0 = world.health.compared[0].0 - 1_000;
    });
    held(&|world| {
        let own = world.leading().member_id;
        let both = world.health.compared.iter_mut();
        both.for_each(|(_, compared)| {
            compared.agree.remove(&own);
        });
    });
    // Another healthy voter has left: two are no majority against one, whatever was compared.
    held(&|world| {
        let (leader, corrupt) = (world.raft.leader.clone(), world.health.differing.clone());
        let stays = |name: &String| Some(name) == leader.as_ref() || corrupt.contains(name);
        world.raft.members.retain(|view| stays(&view.name));
        let ids: Vec<u64> = world.raft.members.iter().map(|view| view.id).collect();
        let compared = world.health.compared.iter_mut();
        compared.for_each(|(_, compared)| compared.agree.retain(|id| ids.contains(id)));
    });
    let growing = proven(&|world| world.cluster.spec.replicas = 5);
    assert_eq!(growing, "", "there may be no nodes for five");
    held(&|world| {
        let leader = world.raft.leader.clone().expect("a leader");
        world.faults.unsigned.insert(leader);
    });
    let unmarked = proven(&|world| {
        let pvcs = world.api.pvcs.values_mut();
        pvcs.for_each(|pvc| pvc.state = PvcState::Joined);
    });
    assert!(
        unmarked.contains("I14: its volume is not marked"),
        "{unmarked}"
    );
}

/// If the alarm names no member, a quorum of the voters has to agree, or the user has to decide.
#[test]
fn corrupt_without_proof_changes_no_member() {
    let unclear = |change: &dyn Fn(&mut World)| {
        let mut world = rested(3);
        let leader = world.raft.leader.clone().expect("a leader");
        world.health.differing.insert(leader.clone());
        world.health.alarms = vec!["CORRUPT 0".into()];
        let names = ["demo-1", "demo-2", "demo-3"];
        let lost = names.into_iter().find(|name| **name != leader);
        let lost = lost.expect("a follower");
        world.lose_disk(lost);
        retire(&mut world, lost);
        change(&mut world);
        (0..60).for_each(|_| world.tick());
        refused(&world, &[remove(&world, lost)])
    };
    let held = unclear(&|_| {});
    assert!(
        held.contains("I14: the alarm CORRUPT names nobody"),
        "{held}"
    );
    assert_eq!(
        unclear(&|world| world.health.differing.clear()),
        "",
        "two agree"
    );
    let decided = |world: &mut World| {
        world.cluster.spec.replace_members = world.raft.leader.iter().cloned().collect();
    };
    assert_eq!(unclear(&decided), "");
}

fn retire(world: &mut World, member: &str) {
    let mut pvcs = world.api.pvcs.values_mut();
    let pvc = pvcs.find(|pvc| pvc.member.as_deref() == Some(member));
    pvc.expect("a PVC").state = PvcState::Retired;
}

#[test]
fn alarm_is_disarmed_only_when_its_cause_ends() {
    let mut world = rested(3);
    let off = |world: &World, kind, member: &str| {
        let id = id(world, member);
        let id = if id == 0 { 0xdead } else { id };
        let action = Action::Member(MemberAction::Disarm {
            kind,
            member: member.into(),
            id,
            fence: FENCE,
        });
        refused(world, &[action])
    };
    let not_on = off(&world, AlarmKind::NoSpace, "demo-2");
    assert!(not_on.contains("is not on"), "{not_on}");
    world.alarm("NOSPACE", "demo-2");
    assert_eq!(off(&world, AlarmKind::NoSpace, "demo-2"), "");
    world.health.spaces.insert("demo-1".into(), None);
    let full = off(&world, AlarmKind::NoSpace, "demo-2");
    assert!(full.contains("I14: a member has no space"), "{full}");
    world.alarm("CORRUPT", "demo-2");
    let member = off(&world, AlarmKind::Corrupt, "demo-2");
    assert!(
        member.contains("I14: whom it names is a member"),
        "{member}"
    );
    world.health.alarms = vec!["CORRUPT dead".into()];
    let unequal = off(&world, AlarmKind::Corrupt, "gone");
    assert!(
        unequal.contains("I14: the members' data was not equal"),
        "{unequal}"
    );
    (0..12).for_each(|_| world.tick());
    assert_eq!(off(&world, AlarmKind::Corrupt, "gone"), "");
}

#[test]
fn slot_points_to_one_voter_of_its_own() {
    let mut world = rested(3);
    let map = |slot: u32, member: &str| {
        Action::Object(ObjectAction::MapSlot {
            slot,
            service: format!("demo-client-{slot}"),
            member: member.into(),
        })
    };
    let drop = |slot: u32, uid: &str| {
        Action::Object(ObjectAction::DropSlot {
            slot,
            service: format!("demo-client-{slot}"),
            uid: uid.into(),
        })
    };
    assert_eq!(
        refused(&world, &[map(0, "demo-1")]),
        "",
        "it has it already"
    );
    assert_refused(&world, map(0, "demo-2"), "it has another slot");
    assert_refused(&world, map(0, "demo-9"), "it is no voter");
    assert_refused(&world, map(3, "demo-1"), "no such slot is wanted");
    let uid = world.api.slots[&2].uid.clone();
    assert_refused(&world, drop(2, &uid), "the slot is wanted");
    world.cluster.spec.replicas = 2;
    assert_refused(&world, drop(2, "another"), "it is another Service");
    assert_eq!(refused(&world, &[drop(2, &uid)]), "");
    world.api.slots.get_mut(&2).expect("a slot").owner = crate::plan::Owner::Unowned;
    assert_refused(&world, drop(2, &uid), "it belongs to another owner");
    for view in world.raft.members.iter_mut().filter(|m| m.name == "demo-2") {
        view.learner = true;
    }
    assert_refused(&world, map(1, "demo-2"), "it is no voter");
    world
        .faults
        .unseen
        .extend(["demo-1", "demo-2", "demo-3"].map(str::to_owned));
    assert_refused(&world, map(0, "demo-1"), "no leader with a quorum was seen");
}

#[test]
fn a_deleted_resource_gets_no_steps() {
    let mut world = rested(3);
    world.api.deleting = true;
    assert!(plan(&world.observe()).steps.is_empty());
    let refusal = refused(&world, &[add("demo-4", "new")]);
    assert!(refusal.contains("gets no steps"), "{refusal}");
}

#[test]
fn unfit_certificates_start_no_member() {
    let mut world = World::new(3).with_user_certificates();
    world.settle(1000);
    let pvc = Action::Object(ObjectAction::CreatePvc {
        incarnation: 1,
        member: "demo-4".into(),
        pvc: pvc_name("demo-4", CLUSTER_UID),
        bytes: 1 << 30,
        asked: 1 << 30,
    });
    assert_eq!(refused(&world, std::slice::from_ref(&pvc)), "");
    world.skip_days(91);
    assert_refused(&world, pvc.clone(), "is not fit for use");
    world.put_user_certificate(TlsPort::Client, "theirs-1", &["theirs-1"], 90);
    world.put_user_certificate(TlsPort::Peer, "theirs-1", &["theirs-1"], 90);
    assert_eq!(refused(&world, std::slice::from_ref(&pvc)), "");
    let user_certificate = world
        .api
        .tls
        .user_certificates
        .get_mut(&TlsPort::Peer)
        .expect("user certificate");
    user_certificate.unfit = Some(Unfit {
        reason: "SecretMissing",
        text: "Secret their-peer does not exist: create it".into(),
    });
    assert_refused(&world, pvc, "is not fit for use");
}

#[test]
fn budget_policy_evicts_serving_pods() {
    let uid = |world: &World, member: &str| world.api.pods[member].uid.clone();
    let (member, of) = ("demo-2".to_owned(), "demo-2");
    let held = rested(3);
    let evict = |world: &World| {
        Action::Object(ObjectAction::EvictPod {
            member: member.clone(),
            uid: uid(world, of),
        })
    };
    let set = |least, before: Option<u32>| {
        Action::Object(ObjectAction::SetPdb {
            limit: PdbLimit::MinAvailable(least),
            before: before.map(PdbLimit::MinAvailable),
        })
    };
    assert_refused(&held, evict(&held), "disruption.policy is not Budget");
    assert_refused(&held, set(2, None), "disruption.policy is Gate");
    let mut world = World::new(3);
    world.cluster.spec.disruption.policy = DisruptionPolicy::Budget;
    world.settle(1000);
    assert_eq!(refused(&world, &[set(3, Some(2))]), "");
    assert_refused(&world, set(1, Some(2)), "I11: it is less than a quorum");
    assert_refused(&world, evict(&world), "it retires first");
    let uid = uid(&world, of);
    world.execute(&Action::Member(MemberAction::Retire {
        member: member.clone(),
        pod_uid: uid.clone(),
    }));
    assert_eq!(refused(&world, &[evict(&world)]), "");
    let delete = Action::Object(ObjectAction::DeletePod {
        member: member.clone(),
        uid: uid.clone(),
    });
    assert_refused(&world, delete, "it is evicted, not deleted");
    let release = Action::Object(ObjectAction::ReleasePod { member, uid });
    assert_refused(&world, release, "disruption.policy is Budget");
    world.raft.tombstones.push((9, of.into()));
    world.set_min_available(3);
    let early = "I11: the pod of a removed member is still there";
    assert_refused(&world, set(2, Some(3)), early);
}

#[test]
fn auto_policy_opens_only_at_rest() {
    let mut world = World::new(3);
    world.cluster.spec.disruption.policy = DisruptionPolicy::Auto;
    world.settle(1000);
    let set = |limit| {
        Action::Object(ObjectAction::SetPdb {
            limit,
            before: Some(PdbLimit::CLOSED),
        })
    };
    let open = || set(PdbLimit::MinAvailable(2));
    assert_eq!(refused(&world, &[open()]), "");
    assert_eq!(refused(&world, &[set(PdbLimit::CLOSED)]), "");
    let depends = "I11: it depends on which pods are there";
    assert_refused(&world, set(PdbLimit::MaxUnavailable(1)), depends);
    assert_refused(
        &world,
        set(PdbLimit::MinAvailable(1)),
        "I11: it is less than a quorum",
    );
    let five = set(PdbLimit::MinAvailable(4));
    assert_refused(&world, five, "I11: not all but one");
    let mut drained = world.clone();
    let node = drained.node_of("demo-2");
    drained.cordon(&node, true);
    let node = "I11: the node of a member is drained, not ready or unknown";
    assert_refused(&drained, open(), node);
    drained.api.nodes.clear();
    assert_refused(&drained, open(), node);
    let mut left = world.clone();
    left.raft.tombstones.push((9, "demo-3".into()));
    let early = "I11: the pod of a removed member is still there";
    assert_refused(&left, open(), early);
    let mut unseen = world.clone();
    unseen.faults.unseen.insert("demo-3".into());
    assert_refused(&unseen, open(), "I11: a member is missing, or joining");
    // While it is open, nothing else takes a pod.
    world.execute(&open());
    let uid = world.api.pods["demo-2"].uid.clone();
    world.execute(&Action::Member(MemberAction::Retire {
        member: "demo-2".into(),
        pod_uid: uid.clone(),
    }));
    let member = "demo-2".to_owned();
    let taken = "I11: an eviction may take another pod: the PDB is closed first";
    for action in [
        ObjectAction::DeletePod {
            member: member.clone(),
            uid: uid.clone(),
        },
        ObjectAction::ReleasePod { member, uid },
    ] {
        assert_refused(&world, Action::Object(action.clone()), taken);
        let mut closed = world.clone();
        closed.execute(&Action::Object(ObjectAction::SetPdb {
            limit: PdbLimit::CLOSED,
            before: Some(PdbLimit::MinAvailable(2)),
        }));
        assert_eq!(refused(&closed, &[Action::Object(action)]), "");
    }
}

#[test]
fn promotion_waits_for_the_pdb() {
    let mut world = World::new(3);
    world.cluster.spec.disruption.policy = DisruptionPolicy::Budget;
    world.settle(1000);
    world.cluster.spec.replace_members = vec!["demo-1".into()];
    while !world
        .raft
        .members
        .iter()
        .any(|m| m.learner && m.match_index > 0)
    {
        world.reconcile();
    }
    let learner = world
        .raft
        .members
        .iter()
        .find(|m| m.learner)
        .expect("there");
    let action = promote(&world, &learner.name.clone());
    world.set_min_available(2);
    let few = "I11: evictions could leave no quorum of the voters to be";
    assert_refused(&world, action.clone(), few);
    world.set_min_available(3);
    assert_eq!(refused(&world, &[action]), "");
}

#[test]
fn no_member_starts_without_its_secrets() {
    let mut world = World::new(3).with_tls();
    world.settle(1000);
    let apply = |member: &str, hibernated: bool| {
        Action::Object(ObjectAction::ApplySet {
            member: member.into(),
            pvc: pvc_name(member, CLUSTER_UID),
            one_per_node: false,
            hibernated,
            plaintext_peers: false,
        })
    };
    let make = |port: TlsPort| {
        Action::Certificate(CertificateAction::IssueCertificate {
            port,
            member: Some("demo-4".into()),
            secret: member_certificate_name("demo-4", port),
            authority: String::new(),
            replaces: None,
        })
    };
    let missing = "Secret demo-4-client-tls, which does not exist";
    assert_refused(&world, apply("demo-4", false), missing);
    let all = [
        make(TlsPort::Client),
        make(TlsPort::Peer),
        apply("demo-4", false),
    ];
    assert_eq!(refused(&world, &all), "", "they are made before");
    assert!(refused(&world, &all[1..]).contains(missing));
    assert_eq!(refused(&world, &[apply("demo-3", false)]), "");
    world.api.tls.secrets.remove("demo-3-peer-tls");
    assert_refused(&world, apply("demo-3", false), "Secret demo-3-peer-tls");
    let uid = world.api.pods["demo-3"].uid.clone();
    let restart = Action::Object(ObjectAction::DeletePod {
        member: "demo-3".into(),
        uid,
    });
    world.faults.unseen.insert("demo-3".into());
    assert_refused(&world, restart, "its next pod mounts a Secret");
    world.cluster.spec.replicas = 0;
    assert_eq!(refused(&world, &[apply("demo-3", true)]), "", "it sleeps");
}

#[test]
fn no_member_starts_without_the_operators_key() {
    let world = rested(3);
    let apply = Action::Object(ObjectAction::ApplySet {
        member: "demo-3".into(),
        pvc: pvc_name("demo-3", CLUSTER_UID),
        one_per_node: false,
        hibernated: false,
        plaintext_peers: false,
    });
    let mut observed = world.observe();
    let mut plan = plan(&observed);
    let step = |action: Action| Step {
        rule: crate::plan::Rule::Objects,
        action,
        reason: String::new(),
    };
    plan.steps = vec![step(apply.clone())];
    assert!(lint(&observed, &plan).is_empty());
    let key = ObjectKey {
        kind: ObjectKind::Secret,
        name: operator_secret_name("demo"),
    };
    observed.wanted_objects.insert(key.clone(), "1".into());
    assert!(lint(&observed, &plan).concat().contains(&key.name));
    let made = Action::Object(ObjectAction::ApplyObject(key));
    plan.steps = vec![step(made), step(apply)];
    assert!(lint(&observed, &plan).is_empty());
}
