//! What the model refuses, and what it makes of an action that is repeated: as Kubernetes documents it
//! and as the members' server does it. Each case is written down from those, not from the model.

use super::{Model, Refused};
use crate::crd::pvc_name;
use crate::plan::status_memory;
use crate::plan::testing::observed_at;
use crate::plan::{
    Action, AlarmKind, Fence, MemberAction, ObjectAction, ObjectKey, ObjectKind, Owner, PdbLimit,
    PvcState, plan,
};

/// Three members at rest, behind a PDB that is a gate.
fn three() -> Model {
    let mut seen = observed_at(1_000_000);
    let key = |kind, name: &str| ObjectKey {
        kind,
        name: name.into(),
    };
    let pdb = key(ObjectKind::PodDisruptionBudget, "demo");
    let service = key(ObjectKind::Service, "demo-client");
    seen.wanted_objects = [(pdb, "gate".into()), (service, "service".into())].into();
    if let Ok(cluster) = &mut seen.cluster {
        cluster.spec.replicas = 3;
    }
    let mut model = Model::of(&seen);
    for _ in 0..60 {
        let plan = plan(&model.observe());
        if let Some(step) = plan.first() {
            assert_eq!(model.act(&step.action), Ok(()), "{}", step.action);
        }
        let memory = status_memory::of_status(&plan.status);
        model.remember(plan.status.cluster_id.clone(), memory);
        model.advance(1000);
    }
    assert_eq!(model.raft.voters().count(), 3);
    model
}

fn object(model: &mut Model, action: ObjectAction) -> Result<(), Refused> {
    model.act(&Action::Object(action))
}

fn call(model: &mut Model, action: MemberAction) -> Result<(), Refused> {
    model.act(&Action::Member(action))
}

fn fence(model: &Model) -> Fence {
    Fence {
        configuration_index: model.raft.configuration_index,
        epoch: 1,
    }
}

fn add(fence: Fence) -> MemberAction {
    MemberAction::AddLearner {
        member: "demo-4".into(),
        secure: false,
        disk_uuid: "new".into(),
        fence,
    }
}

fn is_changed(done: Result<(), Refused>) -> bool {
    matches!(done, Err(Refused::Changed(_)))
}

fn pod(model: &Model, member: &str) -> String {
    model.api.pods[member].uid.clone()
}

#[test]
fn calls_with_an_old_fence_are_refused() {
    let mut model = three();
    let old = fence(&model);
    assert_eq!(call(&mut model, add(old)), Ok(()));
    assert!(is_changed(call(&mut model, add(old))), "another change");
    let newer = Fence {
        epoch: 2,
        ..fence(&model)
    };
    let id = model.raft.members[3].id;
    let remove = |fence| MemberAction::Remove {
        member: "demo-4".into(),
        id,
        fence,
    };
    let disarm = MemberAction::Disarm {
        kind: AlarmKind::NoSpace,
        member: "demo-4".into(),
        id,
        fence: newer,
    };
    assert_eq!(call(&mut model, disarm), Ok(()));
    let older = fence(&model);
    assert!(
        is_changed(call(&mut model, remove(older))),
        "an older epoch"
    );
    assert_eq!(call(&mut model, remove(newer)), Ok(()));
    assert_eq!(model.raft.members.len(), 3);
}

#[test]
fn without_a_quorum_the_configuration_stays() {
    let mut model = three();
    let leader = model.raft.leader.clone().expect("a leader");
    model.api.pods.retain(|name, _| *name == leader);
    let fence = fence(&model);
    assert_eq!(call(&mut model, add(fence)), Err(Refused::NoQuorum));
    assert_eq!(model.raft.members.len(), 3);
}

#[test]
fn a_learner_that_is_behind_is_not_promoted() {
    let mut model = three();
    let now = fence(&model);
    assert_eq!(call(&mut model, add(now)), Ok(()));
    model.raft.commit += 1_000;
    let promote = MemberAction::Promote {
        member: "demo-4".into(),
        id: model.raft.members[3].id,
        fence: fence(&model),
    };
    assert!(is_changed(call(&mut model, promote)));
    assert!(model.raft.members[3].learner);
}

#[test]
fn a_leader_that_retires_hands_over() {
    let mut model = three();
    let leader = model.raft.leader.clone().expect("a leader");
    let retire = |pod_uid: &str| MemberAction::Retire {
        member: leader.clone(),
        pod_uid: pod_uid.into(),
    };
    assert!(is_changed(call(&mut model, retire("another"))));
    let uid = pod(&model, &leader);
    assert_eq!(call(&mut model, retire(&uid)), Ok(()));
    assert_ne!(model.raft.leader.as_ref(), Some(&leader));
    model.advance(1000);
    let seen = model.observe();
    assert!(!seen.descriptions[&leader].ready);
    assert_eq!(
        seen.descriptions
            .values()
            .filter(|description| description.leads)
            .count(),
        1
    );
}

#[test]
fn an_object_with_another_uid_is_left_alone() {
    let mut model = three();
    let pvc = pvc_name("demo-1", model.uid());
    let mark = ObjectAction::MarkPvc {
        pvc: pvc.clone(),
        uid: "another".into(),
        state: PvcState::Retired,
    };
    assert!(is_changed(object(&mut model, mark)));
    let delete = |uid: &str| ObjectAction::DeletePvc {
        pvc: pvc.clone(),
        uid: uid.into(),
    };
    assert!(is_changed(object(&mut model, delete("another"))));
    let set = ObjectAction::DeleteSet {
        member: "demo-1".into(),
        uid: "another".into(),
    };
    assert!(is_changed(object(&mut model, set)));
    // Only the UID identifies a pod: a missing one is the wanted result.
    let before = pod(&model, "demo-1");
    let pod_of = ObjectAction::DeletePod {
        member: "demo-1".into(),
        uid: "another".into(),
    };
    assert_eq!(object(&mut model, pod_of), Ok(()));
    assert_eq!(pod(&model, "demo-1"), before);
}

#[test]
fn pvc_in_use_is_deleted_after_its_pod() {
    let mut model = three();
    let pvc = pvc_name("demo-3", model.uid());
    let uid = model.api.pvcs[&pvc].uid.clone();
    let delete = ObjectAction::DeletePvc {
        pvc: pvc.clone(),
        uid,
    };
    assert_eq!(object(&mut model, delete.clone()), Ok(()));
    model.advance(1000);
    assert!(model.api.pvcs[&pvc].terminating, "its pod uses it");
    let create = ObjectAction::CreatePvc {
        incarnation: 1,
        member: "demo-3".into(),
        pvc: pvc.clone(),
        bytes: 1 << 30,
        asked: 1 << 30,
    };
    let terminating = Err(Refused::Terminating(pvc.clone()));
    assert_eq!(object(&mut model, create), terminating);
    model.api.sets.remove("demo-3");
    model.advance(1000);
    assert!(!model.api.pvcs.contains_key(&pvc) && !model.disks.contains_key(&pvc));
    assert_eq!(object(&mut model, delete), Ok(()), "it is gone already");
}

#[test]
fn existing_objects_are_not_created_again() {
    let mut model = three();
    let pvc = pvc_name("demo-1", model.uid());
    let before = (model.api.pvcs.clone(), model.api.identity_secret.clone());
    let create = ObjectAction::CreatePvc {
        incarnation: 1,
        member: "demo-1".into(),
        pvc: pvc.clone(),
        bytes: 1 << 30,
        asked: 1 << 30,
    };
    assert_eq!(object(&mut model, create.clone()), Ok(()));
    let identity = ObjectAction::CreateIdentitySecret {
        seed: "demo-9".into(),
        nonce: "another".into(),
        incarnation: 9,
    };
    assert_eq!(object(&mut model, identity), Ok(()));
    let after = (model.api.pvcs.clone(), model.api.identity_secret.clone());
    assert_eq!(after, before);
    model.api.pvcs.get_mut(&pvc).expect("there").cluster_uid = Some("another".into());
    assert_eq!(object(&mut model, create), Err(Refused::Taken(pvc)));
}

#[test]
fn objects_of_others_are_not_written_over() {
    let mut model = three();
    let set = model.api.sets.get_mut("demo-1").expect("a set");
    set.owner = Owner::Other("StatefulSet web".into());
    let before = model.api.sets.clone();
    let apply = ObjectAction::ApplySet {
        member: "demo-1".into(),
        pvc: pvc_name("demo-1", model.uid()),
        one_per_node: false,
        hibernated: true,
        plaintext_peers: false,
    };
    let taken = Err(Refused::Taken("demo-1".into()));
    assert_eq!(object(&mut model, apply), taken);
    assert_eq!(model.api.sets, before);
}

#[test]
fn the_pdb_decides_about_evictions() {
    let mut model = three();
    let evict = |model: &mut Model, member: &str| {
        let uid = pod(model, member);
        let member = member.into();
        object(model, ObjectAction::EvictPod { member, uid })
    };
    let refused = |member: &str| Err(Refused::Disruption(member.into()));
    assert_eq!(evict(&mut model, "demo-1"), refused("demo-1"), "a gate");
    let keeps = PdbLimit::MinAvailable;
    let set = |least, before| ObjectAction::SetPdb {
        limit: keeps(least),
        before: Some(before),
    };
    assert!(
        is_changed(object(&mut model, set(2, keeps(3)))),
        "it is none"
    );
    assert_eq!(object(&mut model, set(2, PdbLimit::CLOSED)), Ok(()));
    assert_eq!(evict(&mut model, "demo-1"), Ok(()), "two others stay");
    assert_eq!(evict(&mut model, "demo-2"), refused("demo-2"));
    let release = ObjectAction::ReleasePod {
        member: "demo-2".into(),
        uid: pod(&model, "demo-2"),
    };
    assert_eq!(object(&mut model, release), Ok(()));
    assert_eq!(evict(&mut model, "demo-2"), Ok(()), "it is not counted");
}

#[test]
fn a_new_pod_finds_the_old_disk() {
    let mut model = three();
    let before = model.observe().descriptions["demo-2"].clone();
    let delete = ObjectAction::DeletePod {
        member: "demo-2".into(),
        uid: pod(&model, "demo-2"),
    };
    assert_eq!(object(&mut model, delete), Ok(()));
    assert!(!model.observe().descriptions.contains_key("demo-2"));
    model.advance(1000);
    let after = model.observe().descriptions["demo-2"].clone();
    assert_ne!(after.pod_uid, before.pod_uid);
    let disk = |description: &crate::plan::Description| {
        (description.disk_uuid.clone(), description.member_id)
    };
    assert_eq!(disk(&after), disk(&before));
}
