//! Somebody who looks after users and alarms: adds and deletes users and roles, grants and takes
//! away, switches authentication on and off; and makes room when NOSPACE is on.

use bytes::Bytes;
use rand::RngExt as _;

use crate::store::{
    AlarmKind, AuthDisable, AuthEnable, AuthOperation, Authenticate, Compact, Operation,
    Permission, PermissionKind, ROOT_ROLE, ROOT_USER, RoleGrantPermission, RoleName,
    RoleRevokePermission, SetAlarm, UserAdd, UserChangePassword, UserDelete, UserRole,
};

use super::client::any_key;
use super::clock::MILLISECOND;
use super::network::HostId;
use super::world::{Event, Step, World};

impl World {
    /// The turn of the auth workload.
    pub(super) fn auth_workload_acts(&mut self) -> Step {
        let pause = self
            .random
            .random_range(100 * MILLISECOND..900 * MILLISECOND);
        self.agenda.after(pause, Event::Warden);
        let Some(host) = self.any_running() else {
            return Ok(());
        };
        let Some(process) = &self.hosts[host].process else {
            return Ok(());
        };
        let view = process.machine.view();
        if let Some(alarm) = view.alarms().first() {
            let (kind, member) = (alarm.kind as i32, alarm.member);
            let revision = view.revision();
            self.propose(host, Operation::Compact(Compact { revision }));
            let on = false;
            self.propose(host, Operation::SetAlarm(SetAlarm { kind, member, on }));
            return Ok(());
        }
        // No user is left who may, or there is none yet: root is made first.
        let rooted = view
            .auth()
            .user(ROOT_USER)
            .is_some_and(|user| user.is_root());
        let operation = match rooted {
            true => self.any_auth(view.auth().revision()),
            false => self.make_root(view.auth().user(ROOT_USER).is_some()),
        };
        self.propose(host, Operation::Auth(operation.into()));
        Ok(())
    }

    /// A server without space raises the alarm with its own identity.
    pub(super) fn raise_no_space(&mut self, host: HostId) {
        let kind = AlarmKind::NoSpace as i32;
        let member = self.hosts[host].member.unwrap_or_default();
        let on = true;
        self.propose(host, Operation::SetAlarm(SetAlarm { kind, member, on }));
    }

    fn make_root(&self, there: bool) -> AuthOperation {
        match there {
            false => AuthOperation::UserAdd(UserAdd {
                name: ROOT_USER.to_owned(),
                ..UserAdd::default()
            }),
            true => AuthOperation::UserGrantRole(UserRole {
                user: ROOT_USER.to_owned(),
                role: ROOT_ROLE.to_owned(),
            }),
        }
    }

    fn any_auth(&mut self, revision: u64) -> AuthOperation {
        let random = &mut self.random;
        let user = format!("user {}", random.random_range(0..3));
        let role = format!("role {}", random.random_range(0..3));
        let key = any_key(random);
        let range_end = match random.random_range(0..3) {
            0 => Bytes::new(),
            1 => Bytes::from_static(b"key!"),
            _ => Bytes::from([&key[..], b"~"].concat()),
        };
        let kind = [
            PermissionKind::Read,
            PermissionKind::Write,
            PermissionKind::ReadWrite,
            PermissionKind::ReadWrite,
        ];
        match random.random_range(0..22) {
            0..=2 => AuthOperation::Enable(AuthEnable {}),
            3 => AuthOperation::Disable(AuthDisable {}),
            4 | 5 => AuthOperation::UserAdd(UserAdd {
                name: user,
                ..UserAdd::default()
            }),
            6 => AuthOperation::UserDelete(UserDelete { name: user }),
            7 => AuthOperation::UserChangePassword(UserChangePassword {
                name: user,
                password: Bytes::from_static(b"hash"),
            }),
            8..=10 => AuthOperation::UserGrantRole(UserRole { user, role }),
            11 => AuthOperation::UserRevokeRole(UserRole { user, role }),
            12 | 13 => AuthOperation::RoleAdd(RoleName { name: role }),
            14 => AuthOperation::RoleDelete(RoleName { name: role }),
            15..=19 => AuthOperation::RoleGrantPermission(RoleGrantPermission {
                role,
                permission: Some(Permission {
                    kind: kind[random.random_range(0..4)] as i32,
                    key,
                    range_end,
                }),
            }),
            20 => AuthOperation::RoleRevokePermission(RoleRevokePermission {
                role,
                key,
                range_end,
            }),
            _ => AuthOperation::Authenticate(Authenticate {
                user,
                revision,
                token_prefix: "token".to_owned(),
                issued_ms: 1,
            }),
        }
    }
}
