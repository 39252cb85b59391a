//! What goes wrong with disks and servers.

use super::api::{Kind, object};
use super::harness::containers::NAMESPACE;
use super::harness::request_faults::lock;
use super::harness::world::World;
use super::kube::Running;

/// The container of a member that runs now.
fn container_of(world: &World, member: &str) -> Option<Running> {
    let pod = crate::crd::pod_name(member);
    let running = world.containers.kube.running();
    running.into_iter().find(|one| one.pod == pod)
}

/// The volume that a member's pod has mounted.
pub(crate) fn volume_of(world: &World, member: &str) -> String {
    container_of(world, member).map_or(String::new(), |one| one.volume)
}

/// A member's volume does not exist any more.
pub(crate) fn volume_goes(world: &mut World, member: &str) {
    let volume = volume_of(world, member);
    lock(&world.servers).forget_volume(&volume);
    world.containers.kube.lose_volume(&volume);
}

/// A member's disk comes back empty: a new file system under the same name.
pub(crate) fn disk_is_emptied(world: &mut World, member: &str) {
    let volume = volume_of(world, member);
    lock(&world.servers).empty(&volume);
}

/// A member's disk is damaged: its server ends with this code and class.
pub(crate) fn disk_is_damaged(world: &mut World, member: &str, code: i32, class: &'static str) {
    let volume = volume_of(world, member);
    lock(&world.servers).damage(&volume, code, class);
}

/// A member's data becomes this behind its back; 0 is what all others have.
pub(crate) fn data_differs(world: &mut World, member: &str, data: u32) {
    let volume = volume_of(world, member);
    lock(&world.servers).change_data(&volume, data);
}

/// A member's disk will be gone before long by somebody else's doing than the operator's.
pub(crate) fn disk_is_doomed(world: &mut World, member: &str) {
    let volume = volume_of(world, member);
    lock(&world.servers).excuse(&volume);
}

/// A user deletes a member's PVC by hand.
pub(crate) fn pvc_is_deleted(world: &mut World, member: &str) {
    disk_is_doomed(world, member);
    if let Some(container) = container_of(world, member) {
        super::user::delete(world, Kind::PersistentVolumeClaim, &container.pvc);
    }
}

/// A user deletes the PVC of a member that sleeps, and with it its volume.
pub(crate) fn sleepers_pvc_is_deleted(world: &mut World, member: &str) {
    let found = world
        .api
        .lock()
        .all(Kind::PersistentVolumeClaim)
        .find(|pvc| object::label(pvc, crate::crd::LABEL_MEMBER) == Some(member))
        .cloned();
    if let Some(pvc) = found {
        lock(&world.servers).excuse(object::text(&pvc, &["spec", "volumeName"]));
        super::user::delete(world, Kind::PersistentVolumeClaim, object::name(&pvc));
    }
}

/// A member's server does nothing any more, and does not end.
pub(crate) fn server_hangs(world: &mut World, member: &str) {
    let pod = crate::crd::pod_name(member);
    let found = world.api.lock().get(Kind::Pod, NAMESPACE, &pod);
    if let Some(pod) = found {
        let uid = object::uid(&pod).to_owned();
        lock(&world.servers).hung.insert(uid);
    }
}
