//! The plans of users and roles over the store itself, from random states and with other hands in between: they end, the
//! cluster is as specified then, and root can always undo what was done.

use std::collections::BTreeMap;

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use serde_json::json;

use crate::access_plan::{
    AccessChange, AccessStep, ClusterView, ConnectionFacts, HeldRole, HeldUser, ObservedRole,
    ObservedUser, PasswordFacts, ResourceFacts, plan_role, plan_user,
};
use crate::crd::access::{EtcdRoleStatus, EtcdUserStatus, KeyAccess, KeySpan, ROOT};
use crate::store::{
    Actor, AuthDisable, AuthEnable, AuthOperation, AuthState, Command, Operation, Permission,
    Position, RoleGrantPermission, RoleName, RoleRevokePermission, Store, UserAdd,
    UserChangePassword, UserDelete, UserRole,
};

const SEEDS: u64 = 300;

struct World {
    store: Store,
    index: u64,
}

impl World {
    fn auth(&self) -> AuthState {
        self.store.publish().auth().clone()
    }

    /// As the server carries out what an operator asks for: as root, where requests need a user.
    fn apply(&mut self, operation: AuthOperation) -> bool {
        let auth = self.auth();
        let mut command = Command::from(Operation::Auth(operation.into()));
        command.actor = auth.is_enabled().then(|| Actor {
            user: ROOT.to_owned(),
            revision: auth.revision(),
        });
        self.index += 1;
        let position = Position {
            index: self.index,
            ..Position::default()
        };
        self.store.apply(&command, position).is_ok()
    }

    fn change(&mut self, change: &AccessChange, name: &str) {
        let user = |role: &String| UserRole {
            user: name.to_owned(),
            role: role.clone(),
        };
        let role = |span: &KeySpan, access: KeyAccess| Permission {
            kind: access as i32,
            key: span.key.clone().into(),
            range_end: span.end.clone().into(),
        };
        let name = name.to_owned();
        let operation = match change {
            AccessChange::AddUser { no_password } => AuthOperation::UserAdd(UserAdd {
                name,
                password: if *no_password {
                    "".into()
                } else {
                    "right".into()
                },
                no_password: *no_password,
            }),
            AccessChange::SetPassword => AuthOperation::UserChangePassword(UserChangePassword {
                name,
                password: "right".into(),
            }),
            AccessChange::DeleteUser => AuthOperation::UserDelete(UserDelete { name }),
            AccessChange::GrantRole(role) => AuthOperation::UserGrantRole(user(role)),
            AccessChange::RevokeRole(role) => AuthOperation::UserRevokeRole(user(role)),
            AccessChange::Enable => AuthOperation::Enable(AuthEnable {}),
            AccessChange::Disable => AuthOperation::Disable(AuthDisable {}),
            AccessChange::AddRole => AuthOperation::RoleAdd(RoleName { name }),
            AccessChange::DeleteRole => AuthOperation::RoleDelete(RoleName { name }),
            AccessChange::GrantPermission(span, access) => {
                AuthOperation::RoleGrantPermission(RoleGrantPermission {
                    role: name,
                    permission: Some(role(span, *access)),
                })
            }
            AccessChange::RevokePermission(span) => {
                AuthOperation::RoleRevokePermission(RoleRevokePermission {
                    role: name,
                    key: span.key.clone().into(),
                    range_end: span.end.clone().into(),
                })
            }
        };
        assert!(self.apply(operation), "{change} is refused");
    }

    /// What somebody else does with etcdctl.
    fn other_hands(&mut self, random: &mut Xoshiro256PlusPlus) {
        let pick = |random: &mut Xoshiro256PlusPlus, of: &[&str]| {
            of[usize::try_from(random.next_u64()).unwrap_or(usize::MAX) % of.len()].to_owned()
        };
        let users = [ROOT, "app", "other"];
        let roles = [ROOT, "reader", "other"];
        let keys = ["a", "b"];
        let ends = ["", "b", "c", "\0"];
        let user = UserRole {
            user: pick(random, &users),
            role: pick(random, &roles),
        };
        let operation = match random.next_u64() % 9 {
            0 => AuthOperation::UserAdd(UserAdd {
                name: user.user,
                password: "wrong".into(),
                no_password: false,
            }),
            1 => AuthOperation::UserDelete(UserDelete { name: user.user }),
            2 => AuthOperation::UserGrantRole(user),
            3 => AuthOperation::UserRevokeRole(user),
            4 => AuthOperation::RoleAdd(RoleName { name: user.role }),
            5 => AuthOperation::RoleDelete(RoleName { name: user.role }),
            6 => AuthOperation::UserChangePassword(UserChangePassword {
                name: user.user,
                password: "wrong".into(),
            }),
            7 => AuthOperation::RoleRevokePermission(RoleRevokePermission {
                role: user.role,
                key: pick(random, &keys).into(),
                range_end: pick(random, &ends).into(),
            }),
            _ => AuthOperation::RoleGrantPermission(RoleGrantPermission {
                role: user.role,
                permission: Some(Permission {
                    kind: i32::try_from(random.next_u64() % 3).expect("small"),
                    key: pick(random, &keys).into(),
                    range_end: pick(random, &ends).into(),
                }),
            }),
        };
        // Much of it is refused.
        let _ = self.apply(operation);
    }

    /// Requests need a user only while root has the role root.
    fn is_safe(&self) {
        let auth = self.auth();
        if auth.is_enabled() {
            assert!(auth.user(ROOT).expect("root").is_root());
        }
    }
}

fn about() -> ResourceFacts {
    ResourceFacts {
        generation: Some(1),
        deleting: false,
        held: true,
        retain: false,
        rival: None,
        now: "2026-03-01T00:00:00Z".parse().expect("a time"),
    }
}

fn wanted_role() -> BTreeMap<KeySpan, KeyAccess> {
    let role = observed_role(&World::new().auth());
    role.spec.spans().expect("spans")
}

fn observed_role(auth: &AuthState) -> ObservedRole {
    let spec = json!({"clusterRef": {"name": "demo"}, "permissions": [
        {"access": "Read", "key": "a", "rangeEnd": "b"},
        {"access": "ReadWrite", "key": "a", "rangeEnd": "c"},
        {"access": "Write", "key": "b"},
    ]});
    ObservedRole {
        about: about(),
        spec: serde_json::from_value(spec).expect("a spec"),
        status: EtcdRoleStatus::default(),
        name: "reader".to_owned(),
        cluster: ClusterView::Reached(HeldRole {
            auth_revision: auth.revision(),
            permissions: auth.role("reader").map(permissions),
        }),
    }
}

fn permissions(role: &crate::store::Role) -> Vec<(KeySpan, KeyAccess)> {
    let access = |kind| match kind {
        0 => KeyAccess::Read,
        1 => KeyAccess::Write,
        _ => KeyAccess::ReadWrite,
    };
    let span = |one: &Permission| KeySpan {
        key: one.key.to_vec(),
        end: one.range_end.to_vec(),
    };
    let all = role.permissions.iter();
    all.map(|one| (span(one), access(one.kind))).collect()
}

fn observed_user(auth: &AuthState, name: &str) -> ObservedUser {
    let mut spec = json!({"clusterRef": {"name": "demo"}, "password": {}, "roles": ["reader"]});
    if name == ROOT {
        spec["authentication"] = json!("Enabled");
        spec["roles"] = json!([]);
    }
    let user = auth.user(name);
    ObservedUser {
        about: about(),
        spec: serde_json::from_value(spec).expect("a spec"),
        status: EtcdUserStatus::default(),
        name: name.to_owned(),
        secret: "s".to_owned(),
        issues: Ok(()),
        password: PasswordFacts::There { made_ms: None },
        connection: ConnectionFacts {
            exists: true,
            is_current: true,
            certificate: None,
        },
        cluster: ClusterView::Reached(HeldUser {
            auth_revision: auth.revision(),
            enabled: auth.is_enabled(),
            user: user.map(|user| (user.has_no_password(), user.roles.iter().cloned().collect())),
            known_roles: auth.roles().map(|role| role.name.clone()).collect(),
            password_is_right: user.is_some_and(|user| user.password == "right"),
        }),
    }
}

impl World {
    fn new() -> World {
        World {
            store: Store::new(),
            index: 0,
        }
    }

    /// One step of each resource; false when there was none.
    fn step(&mut self) -> bool {
        let mut acted = false;
        for name in [ROOT, "app"] {
            let step = plan_user(&observed_user(&self.auth(), name)).step;
            acted |= self.act(step, name);
        }
        let step = plan_role(&observed_role(&self.auth())).step;
        acted | self.act(step, "reader")
    }

    fn act(&mut self, step: Option<AccessStep>, name: &str) -> bool {
        match step {
            Some(AccessStep::Change(change)) => self.change(&change, name),
            None => return false,
            Some(other) => panic!("{other:?}"),
        }
        self.is_safe();
        true
    }
}

#[test]
fn plans_end_as_specified_and_never_lock_root_out() {
    for seed in 0..SEEDS {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut world = World::new();
        for _ in 0..random.next_u64() % 40 {
            world.other_hands(&mut random);
        }
        for _ in 0..5 {
            world.step();
            world.other_hands(&mut random);
            world.is_safe();
        }
        let mut steps = 0;
        while world.step() {
            steps += 1;
            assert!(steps < 40, "seed {seed}: it does not end");
        }
        let auth = world.auth();
        assert!(auth.is_enabled(), "seed {seed}");
        let app = auth.user("app").expect("a user");
        assert_eq!(app.roles, ["reader"], "seed {seed}");
        assert_eq!(app.password, "right", "seed {seed}");
        let held: BTreeMap<_, _> = permissions(auth.role("reader").expect("a role"))
            .into_iter()
            .collect();
        assert_eq!(held, wanted_role(), "seed {seed}");
    }
}
