//! A resource that is deleted, and what it was promised.

use crate::plan::tests::script::{Script, rested};
use crate::plan::{DeletionPolicy, LastBackupFacts, lint, plan};

#[test]
fn saved_before_it_is_deleted() {
    let mut script = Script::new(
        "delete-held",
        "A resource with backupBeforeDeletion is deleted: until its last backup is stored it goes on as ever, and a lost disk is replaced; when the backup fails it says why; then it is let go.",
    );
    let mut world = rested(3);
    (world.api.deleting, world.api.held) = (true, true);
    world.api.last_backup = Some(LastBackupFacts {
        message: "EtcdBackup demo-last-0a1b2c3d to be stored".into(),
        needs_user: false,
        of_source: false,
    });
    script.observe("It waits for its backup", &world);
    world.lose_pvc("demo-2");
    for _ in 0..60 {
        world.reconcile();
    }
    assert_eq!(world.voters(), 3, "it is healed");
    world.api.last_backup = Some(LastBackupFacts {
        message: "EtcdBackup demo-last-0a1b2c3d has failed".into(),
        needs_user: true,
        of_source: false,
    });
    let plan = script.observe("The backup has failed", &world);
    assert!(plan.summary.starts_with("LastBackupFails"), "{plan}");
    world.api.held = false;
    let plan = script.observe("Let go", &world);
    assert!(plan.steps.is_empty(), "{plan}");
    script.compare();
}

/// What is not held is left to the garbage collection, whatever a plan would want.
#[test]
fn what_is_not_held_gets_no_steps() {
    let mut world = rested(3);
    world.lose_pvc("demo-2");
    world.tick();
    let wanted = plan(&world.observe());
    let mut gone = world.observe();
    gone.deleting = true;
    assert!(plan(&gone).steps.is_empty());
    assert!(wanted.steps.is_empty() || !lint(&gone, &wanted).is_empty());
    gone.held = true;
    assert!(lint(&gone, &wanted).is_empty());
}

#[test]
fn a_protection_that_nothing_enforces_says_so() {
    let mut world = rested(1);
    let note = |world: &_| {
        let world: &crate::plan::tests::world::World = world;
        let notes = plan(&world.observe()).notes;
        notes.first().map(|note| note.reason)
    };
    world.api.deletion_policy = DeletionPolicy::Missing;
    assert_eq!(note(&world), None, "nothing was promised");
    world.cluster.spec.deletion_protection = true;
    assert_eq!(note(&world), Some("NotProtected"));
    world.api.deletion_policy = DeletionPolicy::Unknown;
    assert_eq!(note(&world), Some("ProtectionUnknown"));
    world.api.deletion_policy = DeletionPolicy::Enforced;
    assert_eq!(note(&world), None);
}
