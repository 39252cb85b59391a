//! Alarms of the cluster show in its conditions, and stop no plan.

use super::world::World;
use crate::crd::{ConditionStatus, ConditionType};
use crate::plan::plan;

fn degraded(world: &World) -> (ConditionStatus, String, String) {
    let plan = plan(&world.observe());
    let mut conditions = plan.conditions.into_iter();
    let degraded = conditions.find(|c| c.type_ == ConditionType::Degraded);
    let degraded = degraded.expect("always there");
    (
        degraded.status,
        degraded.reason.to_owned(),
        degraded.message,
    )
}

#[test]
fn alarm_degrades_and_names_the_member() {
    let mut world = World::new(3);
    world.settle(1000);
    assert_eq!(degraded(&world).1, "AsWanted");
    let member = world.raft.members[1].clone();
    let alarms = [format!("CORRUPT {:x}", member.id), "NOSPACE fff".to_owned()];
    world.health.alarms = alarms.to_vec();
    let (status, reason, message) = degraded(&world);
    assert_eq!(
        (status, reason.as_str()),
        (ConditionStatus::True, "AlarmRaised")
    );
    assert!(
        message.contains(&format!("alarm CORRUPT of {}", member.name)),
        "{message}"
    );
    assert!(message.contains("alarm NOSPACE of member fff"), "{message}");
    assert!(plan(&world.observe()).steps.is_empty(), "people act on it");
}
