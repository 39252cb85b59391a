//! What is refused when a command is applied, by a naive account of users, roles, permissions and
//! alarms: no user does what is forbidden, none is refused what is permitted, and while NOSPACE is on
//! nothing that adds is carried out. Knows no errors beside those two, and of leases only that
//! root may end them.

use std::collections::{BTreeMap, BTreeSet};

use super::{Verdict, Violation};
use crate::mutants::mutant;
use crate::store::{
    Actor, AlarmKind, AuthError, AuthOperation, Command, DeleteRange, Error, Op, Operation,
    Permission, PermissionKind, Put, ROOT_ROLE, RequestOp, Response, Txn,
};

/// The account.
#[derive(Debug)]
pub(in crate::sim) struct Rights {
    enabled: bool,
    revision: u64,
    users: BTreeMap<String, BTreeSet<String>>,
    roles: BTreeMap<String, Vec<Permission>>,
    alarms: BTreeSet<(i32, u64)>,
}

/// What is to become of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expected {
    NoSpace,
    Denied,
    Passed,
}

type Asked<'a> = (&'a [u8], &'a [u8], bool);

impl Default for Rights {
    fn default() -> Self {
        Self {
            enabled: false,
            revision: 1,
            users: BTreeMap::new(),
            roles: BTreeMap::new(),
            alarms: BTreeSet::new(),
        }
    }
}

impl Rights {
    /// Whether NOSPACE is on.
    pub(in crate::sim) fn no_space(&self) -> bool {
        self.alarms
            .iter()
            .any(|(kind, _)| *kind == AlarmKind::NoSpace as i32)
    }

    /// A command was applied for the first time.
    pub(in crate::sim) fn applied(
        &mut self,
        command: &Command,
        outcome: &Result<Response, Error>,
    ) -> Verdict {
        let Some(operation) = &command.operation else {
            return Ok(());
        };
        let Some(fate) = self.fate(operation, command.actor.as_ref()) else {
            return Ok(());
        };
        let other_refusal = matches!(operation, Operation::Auth(_));
        let held = match (fate, outcome) {
            (Expected::NoSpace, outcome) => matches!(outcome, Err(Error::NoSpace)),
            (Expected::Denied, outcome) => matches!(outcome, Err(Error::Auth(_))),
            (Expected::Passed, Err(Error::NoSpace)) => false,
            (Expected::Passed, Err(Error::Auth(error))) => other_refusal && !about_rights(error),
            (Expected::Passed, _) => true,
        };
        if !held && !mutant!(BlindRights) {
            return Err(violation(format!(
                "{command:?} was to be {fate:?} and gave {outcome:?}; {self:?}"
            )));
        }
        match (operation, outcome) {
            (Operation::SetAlarm(change), Ok(_)) => {
                let alarm = (change.kind, change.member);
                match change.on {
                    true => self.alarms.insert(alarm),
                    false => self.alarms.remove(&alarm),
                };
                Ok(())
            }
            (Operation::Auth(command), Ok(Response::Auth(answer))) => {
                if let Some(operation) = &command.operation {
                    self.change(operation);
                }
                let moved = answer.auth_revision == self.revision;
                if moved || mutant!(BlindAuthRevision) {
                    return Ok(());
                }
                Err(violation(format!(
                    "{command:?} gave auth revision {} and not {}",
                    answer.auth_revision, self.revision
                )))
            }
            _ => Ok(()),
        }
    }

    fn fate(&self, operation: &Operation, actor: Option<&Actor>) -> Option<Expected> {
        if self.no_space() && adds(operation) {
            return Some(Expected::NoSpace);
        }
        if matches!(operation, Operation::Auth(command)
            if matches!(command.operation, Some(AuthOperation::Authenticate(_))))
        {
            return None; // whoever asks for a token has none yet
        }
        let may = match operation {
            _ if !self.enabled => true,
            Operation::LeaseRevoke(_) => {
                return self.administers(actor).then_some(Expected::Passed);
            }
            Operation::Put(Put { lease: 1.., .. }) if !self.administers(actor) => return None,
            Operation::Put(put) => asked_by_put(put).iter().all(|one| self.may(actor, *one)),
            Operation::DeleteRange(delete) => asked_by_delete(delete)
                .iter()
                .all(|one| self.may(actor, *one)),
            Operation::Txn(txn) => asked_by_txn(txn).iter().all(|one| self.may(actor, *one)),
            Operation::Auth(_) => self.administers(actor),
            _ => true,
        };
        Some(if may {
            Expected::Passed
        } else {
            Expected::Denied
        })
    }

    fn administers(&self, actor: Option<&Actor>) -> bool {
        let roles = actor.and_then(|actor| self.users.get(&actor.user));
        !self.enabled || roles.is_some_and(|roles| roles.contains(ROOT_ROLE))
    }

    fn may(&self, actor: Option<&Actor>, (key, end, writes): Asked<'_>) -> bool {
        let Some(actor) = actor.filter(|actor| actor.revision >= self.revision) else {
            return false;
        };
        let Some(roles) = self.users.get(&actor.user) else {
            return false;
        };
        if roles.contains(ROOT_ROLE) {
            return true;
        }
        let kinds = match writes {
            true => [
                PermissionKind::Write as i32,
                PermissionKind::ReadWrite as i32,
            ],
            false => [
                PermissionKind::Read as i32,
                PermissionKind::ReadWrite as i32,
            ],
        };
        let granted = roles.iter().filter_map(|role| self.roles.get(role));
        let spans = granted.flatten().filter(|one| kinds.contains(&one.kind));
        let spans: Vec<_> = spans
            .map(|one| (&one.key, last(&one.key, &one.range_end)))
            .collect();
        // Walks from span to span up to the end of what was asked for.
        let (mut at, end) = (key.to_vec(), last(key, end));
        while at < end {
            let here = spans
                .iter()
                .filter(|(from, to)| from[..] <= at[..] && *to > at);
            match here.map(|(_, to)| to).max() {
                Some(to) => at.clone_from(to),
                None => return false,
            }
        }
        true
    }

    fn change(&mut self, operation: &AuthOperation) {
        let users = &mut self.users;
        let roles = &mut self.roles;
        let changed = match operation {
            AuthOperation::Authenticate(_) => false,
            AuthOperation::Enable(_) => {
                self.enabled = true;
                false
            }
            AuthOperation::Disable(_) => std::mem::take(&mut self.enabled),
            AuthOperation::UserAdd(user) => {
                users.insert(user.name.clone(), BTreeSet::new());
                true
            }
            AuthOperation::UserDelete(user) => users.remove(&user.name).is_some(),
            AuthOperation::UserChangePassword(_) => true,
            AuthOperation::UserGrantRole(to) => users
                .get_mut(&to.user)
                .is_some_and(|roles| roles.insert(to.role.clone())),
            AuthOperation::UserRevokeRole(of) => users
                .get_mut(&of.user)
                .is_some_and(|roles| roles.remove(&of.role)),
            AuthOperation::RoleAdd(role) => {
                roles.insert(role.name.clone(), Vec::new());
                true
            }
            AuthOperation::RoleDelete(role) => {
                for of in users.values_mut() {
                    of.remove(&role.name);
                }
                roles.remove(&role.name).is_some()
            }
            AuthOperation::RoleGrantPermission(to) => {
                if let (Some(all), Some(one)) = (roles.get_mut(&to.role), &to.permission) {
                    grant(all, one);
                }
                true
            }
            AuthOperation::RoleRevokePermission(of) => {
                if let Some(all) = roles.get_mut(&of.role) {
                    all.retain(|old| (&old.key, &old.range_end) != (&of.key, &of.range_end));
                }
                true
            }
        };
        self.revision += u64::from(changed);
    }
}

/// In order of keys. A kind is changed only in the first permission of a key, as in etcd: behind
/// another end of the same key, a second one of the same span is added and the first one stays.
fn grant(all: &mut Vec<Permission>, one: &Permission) {
    let first = all.iter_mut().find(|old| old.key == one.key);
    match first.filter(|first| first.range_end == one.range_end) {
        Some(same) => same.kind = one.kind,
        None => all.push(one.clone()),
    }
    all.sort_by(|a, b| a.key.cmp(&b.key));
}

fn about_rights(error: &AuthError) -> bool {
    matches!(
        error,
        AuthError::PermissionDenied | AuthError::UserEmpty | AuthError::OldRevision
    )
}

fn adds(operation: &Operation) -> bool {
    let puts = |RequestOp { op }: &RequestOp| matches!(op, Some(Op::Put(_)));
    match operation {
        Operation::Put(_) | Operation::LeaseGrant(_) => true,
        Operation::Txn(txn) => txn.success.iter().chain(&txn.failure).any(puts),
        _ => false,
    }
}

const NO_END: &[u8] = &[];

fn asked_by_put(put: &Put) -> Vec<Asked<'_>> {
    let mut asked = vec![(&put.key[..], NO_END, true)];
    asked.extend(put.prev_kv.then_some((&put.key[..], NO_END, false)));
    asked
}

fn asked_by_delete(delete: &DeleteRange) -> Vec<Asked<'_>> {
    let mut asked = vec![(&delete.key[..], &delete.range_end[..], true)];
    asked.extend(
        delete
            .prev_kv
            .then_some((&delete.key[..], &delete.range_end[..], false)),
    );
    asked
}

fn asked_by_txn(txn: &Txn) -> Vec<Asked<'_>> {
    let compares = txn.compare.iter();
    let mut asked: Vec<Asked<'_>> = compares
        .map(|one| (&one.key[..], &one.range_end[..], false))
        .collect();
    for RequestOp { op } in txn.success.iter().chain(&txn.failure) {
        match op {
            Some(Op::Put(put)) => asked.extend(asked_by_put(put)),
            Some(Op::DeleteRange(delete)) => asked.extend(asked_by_delete(delete)),
            Some(Op::Range(range)) => asked.push((&range.key[..], &range.range_end[..], false)),
            Some(Op::Txn(nested)) => asked.extend(asked_by_txn(nested)),
            None => {}
        }
    }
    asked
}

/// The first key after a span.
fn last(key: &[u8], end: &[u8]) -> Vec<u8> {
    match end {
        [] => [key, &[0]].concat(),
        [0] => vec![0xff; 64],
        end => end.to_vec(),
    }
}

fn violation(text: String) -> Violation {
    Violation::new("rights and alarms", text)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::store::{
        AuthEnable, AuthResponse, PutResponse, RoleGrantPermission, RoleName, SetAlarm,
        SetAlarmResponse, UserAdd, UserRole,
    };

    fn auth(rights: &mut Rights, operation: AuthOperation, revision: u64) -> Verdict {
        let answer = AuthResponse {
            auth_revision: revision,
            ..AuthResponse::default()
        };
        let command = Command {
            operation: Some(Operation::Auth(operation.into())),
            actor: None,
        };
        rights.applied(&command, &Ok(Response::Auth(answer)))
    }

    /// `ann` may write from `b` up to `d`, in two spans that touch.
    fn enabled() -> Rights {
        let mut rights = Rights::default();
        let (user, role) = ("ann".to_owned(), "r".to_owned());
        let name = |name: &str| UserAdd {
            name: name.to_owned(),
            ..UserAdd::default()
        };
        let span = |from: &'static str, to: &'static str| {
            AuthOperation::RoleGrantPermission(RoleGrantPermission {
                role: "r".to_owned(),
                permission: Some(Permission {
                    kind: PermissionKind::Write as i32,
                    key: Bytes::from_static(from.as_bytes()),
                    range_end: Bytes::from_static(to.as_bytes()),
                }),
            })
        };
        let steps = [
            AuthOperation::UserAdd(name("ann")),
            AuthOperation::RoleAdd(RoleName { name: role.clone() }),
            AuthOperation::UserGrantRole(UserRole { user, role }),
            span("b", "c"),
            span("c", "d"),
        ];
        for (revision, step) in (2..).zip(steps) {
            assert_eq!(auth(&mut rights, step, revision), Ok(()));
        }
        assert_eq!(
            auth(&mut rights, AuthOperation::Enable(AuthEnable {}), 6),
            Ok(())
        );
        rights
    }

    fn put(key: &'static str, actor: Option<(&str, u64)>) -> Command {
        let key = Bytes::from_static(key.as_bytes());
        Command {
            operation: Some(Operation::Put(Put {
                key,
                ..Put::default()
            })),
            actor: actor.map(|(user, revision)| Actor {
                user: user.to_owned(),
                revision,
            }),
        }
    }

    fn done() -> Result<Response, Error> {
        Ok(Response::Put(PutResponse::default()))
    }

    #[test]
    fn detects_wrong_permission_decisions() {
        let denied = || Err(Error::Auth(AuthError::PermissionDenied));
        let applied = |command, outcome| enabled().applied(&command, &outcome);
        assert_eq!(applied(put("c", Some(("ann", 6))), done()), Ok(()));
        assert!(applied(put("c", Some(("ann", 6))), denied()).is_err());
        assert!(applied(put("d", Some(("ann", 6))), done()).is_err());
        assert_eq!(applied(put("d", Some(("ann", 6))), denied()), Ok(()));
        assert!(applied(put("c", Some(("ann", 5))), done()).is_err());
        assert!(applied(put("c", None), done()).is_err());
    }

    #[test]
    fn permissions_cover_a_joined_range() {
        let rights = enabled();
        let ann = Actor {
            user: "ann".to_owned(),
            revision: 6,
        };
        let may = |from: &'static str, to: &'static str| {
            let bytes = |text: &'static str| Bytes::from_static(text.as_bytes());
            rights.may(Some(&ann), (&bytes(from), &bytes(to), true))
        };
        assert!(may("b", "d") && may("bb", "cc") && !may("b", "dd") && !may("a", "c"));
    }

    #[test]
    fn detects_an_unchanged_auth_revision() {
        let user = UserAdd {
            name: "bob".to_owned(),
            ..UserAdd::default()
        };
        let mut rights = Rights::default();
        assert!(auth(&mut rights, AuthOperation::UserAdd(user), 1).is_err());
    }

    #[test]
    fn detects_puts_beyond_the_quota() {
        let mut rights = Rights::default();
        let alarm = SetAlarm {
            kind: AlarmKind::NoSpace as i32,
            member: 1,
            on: true,
        };
        let raised = Ok(Response::SetAlarm(SetAlarmResponse::default()));
        let command = Command::from(Operation::SetAlarm(alarm));
        assert!(
            rights
                .applied(&put("a", None), &Err(Error::NoSpace))
                .is_err(),
            "refused for no reason"
        );
        assert_eq!(rights.applied(&command, &raised), Ok(()));
        assert!(rights.no_space());
        assert!(rights.applied(&put("a", None), &done()).is_err());
        assert_eq!(
            rights.applied(&put("a", None), &Err(Error::NoSpace)),
            Ok(())
        );
    }
}
