//! Users, roles and permissions: etcd's rules one by one, and each of its published advisories
//! as a request that must be refused.

use super::helpers::*;
use crate::store::*;

fn auth(store: &mut Store, operation: AuthOperation) -> Result<AuthResponse, Error> {
    auth_as(store, None, operation)
}

fn auth_as(
    store: &mut Store,
    actor: Option<Actor>,
    operation: AuthOperation,
) -> Result<AuthResponse, Error> {
    let operation = Operation::Auth(operation.into());
    match run_as(store, actor, operation)? {
        Response::Auth(response) => Ok(response),
        other => panic!("{other:?}"),
    }
}

fn run_as(
    store: &mut Store,
    actor: Option<Actor>,
    operation: Operation,
) -> Result<Response, Error> {
    let command = Command {
        operation: Some(operation),
        actor,
    };
    store.apply(&command, Position { index: 1, term: 3 })
}

/// A user at the present auth revision.
fn user(store: &Store, name: &str) -> Option<Actor> {
    Some(Actor {
        user: name.to_owned(),
        revision: store.publish().auth().revision(),
    })
}

fn run_named(store: &mut Store, name: &str, operation: Operation) -> Result<Response, Error> {
    let actor = user(store, name);
    run_as(store, actor, operation)
}

fn user_add(name: &str) -> AuthOperation {
    AuthOperation::UserAdd(UserAdd {
        name: name.to_owned(),
        password: bytes("hash"),
        no_password: false,
    })
}

fn user_role(user: &str, role: &str) -> UserRole {
    UserRole {
        user: user.to_owned(),
        role: role.to_owned(),
    }
}

fn role_name(name: &str) -> RoleName {
    RoleName {
        name: name.to_owned(),
    }
}

fn grant(role: &str, kind: PermissionKind, key: &str, end: &str) -> AuthOperation {
    AuthOperation::RoleGrantPermission(RoleGrantPermission {
        role: role.to_owned(),
        permission: Some(Permission {
            kind: kind.into(),
            key: bytes(key),
            range_end: bytes(end),
        }),
    })
}

/// Root; alice, who may read and write [a, c) and read [x, z); bob, who may only write `b`.
/// Authentication is enabled.
fn guarded() -> Store {
    use PermissionKind::{Read, ReadWrite, Write};
    let mut store = Store::new();
    let steps = [
        user_add("root"),
        AuthOperation::RoleAdd(role_name("root")),
        AuthOperation::UserGrantRole(user_role("root", "root")),
        user_add("alice"),
        user_add("bob"),
        AuthOperation::RoleAdd(role_name("reader")),
        AuthOperation::RoleAdd(role_name("writer")),
        grant("reader", ReadWrite, "a", "b"),
        grant("reader", ReadWrite, "b", "c"),
        grant("reader", Read, "x", "z"),
        grant("writer", Write, "b", ""),
        AuthOperation::UserGrantRole(user_role("alice", "reader")),
        AuthOperation::UserGrantRole(user_role("bob", "writer")),
        AuthOperation::Enable(AuthEnable {}),
    ];
    for step in steps {
        auth(&mut store, step).expect("a step");
    }
    store
}

const DENIED: Error = Error::Auth(AuthError::PermissionDenied);

#[test]
fn enabling_needs_root() {
    let mut store = Store::new();
    let enable = || AuthOperation::Enable(AuthEnable {});
    let refused = auth(&mut store, enable());
    assert_eq!(refused, Err(Error::Auth(AuthError::RootUserNotExist)));
    auth(&mut store, user_add("root")).expect("root");
    let refused = auth(&mut store, enable());
    assert_eq!(refused, Err(Error::Auth(AuthError::RootRoleNotExist)));
    let grant = AuthOperation::UserGrantRole(user_role("root", "root"));
    auth(&mut store, grant).expect("granted without a role of this name");
    let before = store.publish().auth().revision();
    let enabled = auth(&mut store, enable()).expect("enabled");
    assert_eq!(enabled.auth_revision, before, "enabling is no change");
    assert!(store.publish().auth().is_enabled());
}

#[test]
fn refused_change_changes_nothing() {
    use AuthError::*;
    let mut store = Store::new();
    let revision = |store: &Store| store.publish().auth().revision();
    assert_eq!(revision(&store), 1);
    let revoke = |key: &str| {
        AuthOperation::RoleRevokePermission(RoleRevokePermission {
            role: "r".to_owned(),
            key: bytes(key),
            range_end: bytes(""),
        })
    };
    let read = PermissionKind::Read;
    let steps: Vec<(AuthOperation, Result<(), AuthError>)> = vec![
        (user_add(""), Err(UserEmpty)),
        (user_add("u"), Ok(())),
        (user_add("u"), Err(UserExists)),
        (AuthOperation::RoleAdd(role_name("")), Err(RoleEmpty)),
        (AuthOperation::RoleAdd(role_name("r")), Ok(())),
        (AuthOperation::RoleAdd(role_name("r")), Err(RoleExists)),
        (
            AuthOperation::UserGrantRole(user_role("v", "s")),
            Err(UserNotFound),
        ),
        (
            AuthOperation::UserGrantRole(user_role("u", "s")),
            Err(RoleNotFound),
        ),
        (AuthOperation::UserGrantRole(user_role("u", "r")), Ok(())),
        (grant("s", read, "k", ""), Err(RoleNotFound)),
        (grant("r", read, "", "\0"), Err(InvalidManagement)),
        (grant("r", read, "b", "a"), Err(InvalidManagement)),
        (grant("r", read, "b", "b"), Err(InvalidManagement)),
        (
            AuthOperation::RoleGrantPermission(RoleGrantPermission::default()),
            Err(PermissionNotGiven),
        ),
        (grant("r", read, "k", ""), Ok(())),
        (revoke("j"), Err(PermissionNotGranted)),
        (revoke("k"), Ok(())),
        (
            AuthOperation::UserRevokeRole(user_role("u", "s")),
            Err(RoleNotGranted),
        ),
        (AuthOperation::UserRevokeRole(user_role("u", "r")), Ok(())),
        (AuthOperation::RoleDelete(role_name("s")), Err(RoleNotFound)),
        (AuthOperation::RoleDelete(role_name("r")), Ok(())),
        (
            AuthOperation::UserDelete(UserDelete {
                name: "v".to_owned(),
            }),
            Err(UserNotFound),
        ),
        (
            AuthOperation::Authenticate(Authenticate::default()),
            Err(NotEnabled),
        ),
    ];
    for (step, expected) in steps {
        let before = revision(&store);
        let outcome = auth(&mut store, step.clone()).map(|_| ());
        assert_eq!(outcome, expected.map_err(Error::Auth), "{step:?}");
        let change = u64::from(expected.is_ok());
        assert_eq!(revision(&store), before + change, "{step:?}");
    }
    let again = AuthOperation::UserGrantRole(user_role("u", "root"));
    auth(&mut store, again.clone()).expect("granted");
    let before = revision(&store);
    auth(&mut store, again).expect("granted again");
    assert_eq!(revision(&store), before, "it was there already");
}

#[test]
fn root_cannot_be_locked_out() {
    let mut store = guarded();
    let root = user(&store, "root");
    let refused = Err(Error::Auth(AuthError::InvalidManagement));
    let attempts = [
        AuthOperation::UserDelete(UserDelete {
            name: "root".to_owned(),
        }),
        AuthOperation::UserRevokeRole(user_role("root", "root")),
        AuthOperation::RoleDelete(role_name("root")),
    ];
    for attempt in attempts {
        assert_eq!(auth_as(&mut store, root.clone(), attempt), refused);
    }
}

#[test]
fn only_root_manages_users_and_roles() {
    let mut store = guarded();
    for (actor, error) in [
        (None, AuthError::UserEmpty),
        (user(&store, ""), AuthError::UserEmpty),
        (user(&store, "eve"), AuthError::UserNotFound),
        (user(&store, "alice"), AuthError::PermissionDenied),
    ] {
        for operation in [
            AuthOperation::Disable(AuthDisable {}),
            user_add("mallory"),
            grant("reader", PermissionKind::ReadWrite, "\0", "\0"),
            AuthOperation::UserGrantRole(user_role("alice", "root")),
        ] {
            let refused = auth_as(&mut store, actor.clone(), operation);
            assert_eq!(refused, Err(Error::Auth(error)));
        }
        let view = store.publish();
        let (own, other) = ("alice", "bob");
        let shown = view.auth().show_user(actor.as_ref(), own).is_ok();
        assert_eq!(shown, actor.as_ref().is_some_and(|a| a.user == own));
        assert!(view.auth().show_user(actor.as_ref(), other).is_err());
        let shown = view.auth().show_role(actor.as_ref(), "reader").is_ok();
        assert_eq!(shown, actor.as_ref().is_some_and(|a| a.user == own));
        assert!(view.auth().show_role(actor.as_ref(), "writer").is_err());
    }
    let root = user(&store, "root");
    auth_as(&mut store, root, user_add("mallory")).expect("root may");
}

/// Found by the comparison with etcd, SEED=20782000018: without a token, etcd takes the user without a name for one's own,
/// and does not find it.
#[test]
fn nobody_is_the_user_without_a_name() {
    let store = guarded();
    let view = store.publish();
    let auth = view.auth();
    assert_eq!(
        auth.show_user(None, "").err(),
        Some(AuthError::UserNotFound)
    );
    assert_eq!(
        auth.show_user(None, "bob").err(),
        Some(AuthError::UserEmpty)
    );
}

#[test]
fn writes_are_checked_when_they_are_applied() {
    let mut store = guarded();
    let alice = user(&store, "alice");
    let write = |key| Operation::Put(put(key, "v"));
    assert!(run_as(&mut store, alice.clone(), write("a")).is_ok());
    assert_eq!(run_as(&mut store, alice.clone(), write("x")), Err(DENIED));
    assert_eq!(run_named(&mut store, "eve", write("a")), Err(DENIED));
    let anonymous = run_as(&mut store, None, write("a"));
    assert_eq!(anonymous, Err(Error::Auth(AuthError::UserEmpty)));
    let delete = |from, to| Operation::DeleteRange(delete(from, to));
    assert!(run_as(&mut store, alice.clone(), delete("a", "c")).is_ok());
    assert_eq!(
        run_as(&mut store, alice.clone(), delete("a", "d")),
        Err(DENIED)
    );
    // The log may hold a write behind a change that took its right away.
    let change = AuthOperation::UserRevokeRole(user_role("alice", "reader"));
    let root = user(&store, "root");
    auth_as(&mut store, root.clone(), change).expect("revoked");
    let late = run_as(&mut store, alice, write("a"));
    assert_eq!(late, Err(Error::Auth(AuthError::OldRevision)));
    assert_eq!(run_named(&mut store, "alice", write("a")), Err(DENIED));
    let root_s = run_as(&mut store, root, write("a"));
    assert_eq!(
        root_s,
        Err(Error::Auth(AuthError::OldRevision)),
        "root's tokens age too"
    );
    assert!(run_named(&mut store, "root", write("a")).is_ok());
}

#[test]
fn previous_values_need_the_right_to_read() {
    let mut store = guarded();
    let bob = user(&store, "bob");
    let with_prev = |prev_kv| {
        Operation::Put(Put {
            prev_kv,
            ..put("b", "v")
        })
    };
    assert!(run_as(&mut store, bob.clone(), with_prev(false)).is_ok());
    assert_eq!(
        run_as(&mut store, bob.clone(), with_prev(true)),
        Err(DENIED)
    );
    let deletes = |prev_kv| {
        Operation::DeleteRange(DeleteRange {
            prev_kv,
            ..delete("b", "")
        })
    };
    assert_eq!(run_as(&mut store, bob.clone(), deletes(true)), Err(DENIED));
    assert!(run_as(&mut store, bob, deletes(false)).is_ok());
}

/// CVE-2026-33343: a transaction inside a transaction was not looked into; CVE-2026-44283: nor
/// was what a put inside one reads or which lease it uses.
#[test]
fn nested_transactions_are_authorized() {
    let mut store = guarded();
    let root = user(&store, "root");
    let lease = Operation::LeaseGrant(LeaseGrant { id: 9, ttl: 60 });
    run_as(&mut store, root.clone(), lease).expect("a lease");
    let secret = Put {
        lease: 9,
        ..put("secret", "v")
    };
    run_as(&mut store, root, Operation::Put(secret)).expect("a secret");
    let (alice, bob) = (user(&store, "alice"), user(&store, "bob"));
    let refused = [
        (&alice, Op::Range(read("secret", ""))),
        (&alice, Op::Put(put("secret", "w"))),
        (&alice, Op::DeleteRange(delete("secret", ""))),
        (
            &alice,
            Op::Put(Put {
                lease: 9,
                ..put("a", "v")
            }),
        ),
        (
            &bob,
            Op::Put(Put {
                prev_kv: true,
                ..put("b", "v")
            }),
        ),
        (
            &bob,
            Op::DeleteRange(DeleteRange {
                prev_kv: true,
                ..delete("b", "")
            }),
        ),
        (
            &alice,
            Op::Txn(Txn {
                compare: vec![compare("secret", CompareTarget::Version, 1)],
                ..Default::default()
            }),
        ),
    ];
    for (actor, op) in refused {
        let mut op = op;
        for depth in 0..4 {
            // The branch that is not taken counts as well: otherwise the answer would reveal which one it is.
            for taken in [true, false] {
                let list = ops([op.clone()]);
                let txn = match taken {
                    true => Txn {
                        success: list,
                        ..Default::default()
                    },
                    false => Txn {
                        failure: list,
                        ..Default::default()
                    },
                };
                let at = format!("{op:?} at depth {depth}, taken: {taken}");
                let view = store.publish();
                let read_only = view.permit_txn(actor.as_ref(), &txn);
                assert_eq!(read_only, Err(AuthError::PermissionDenied), "{at}");
                let outcome = run_as(&mut store, actor.clone(), Operation::Txn(txn));
                assert_eq!(outcome, Err(DENIED), "{at}");
            }
            op = Op::Txn(Txn {
                success: ops([op]),
                ..Default::default()
            });
        }
    }
    let allowed = Txn {
        compare: vec![compare("a", CompareTarget::Version, 0)],
        success: ops([Op::Put(put("a", "v")), Op::Range(read("x", "z"))]),
        failure: ops([Op::DeleteRange(delete("a", "c"))]),
    };
    assert!(run_as(&mut store, alice, Operation::Txn(allowed)).is_ok());
}

/// GHSA-xg4h-6gfc-h4m8: an open-ended span was taken for a small one.
#[test]
fn open_range_needs_an_open_permission() {
    let mut store = guarded();
    let alice = user(&store, "alice");
    let view = store.publish();
    let reads = |actor: &Option<Actor>, key: &str, end: &str| {
        let auth = view.auth();
        auth.require_read(actor.as_ref(), key.as_bytes(), end.as_bytes())
    };
    let denied = Err(AuthError::PermissionDenied);
    assert_eq!(reads(&alice, "a", "c"), Ok(()), "two grants that touch");
    assert_eq!(reads(&alice, "x", "z"), Ok(()));
    assert_eq!(reads(&alice, "a", "\0"), denied);
    assert_eq!(reads(&alice, "x", "\0"), denied);
    assert_eq!(reads(&alice, "\0", "\0"), denied);
    assert_eq!(reads(&alice, "a", "z"), denied, "over a gap");
    assert_eq!(reads(&user(&store, "root"), "\0", "\0"), Ok(()));
    let open = grant("reader", PermissionKind::Read, "m", "\0");
    let root = user(&store, "root");
    auth_as(&mut store, root, open).expect("granted");
    let (view, alice) = (store.publish(), user(&store, "alice"));
    let reads = |key: &str| {
        view.auth()
            .require_read(alice.as_ref(), key.as_bytes(), b"\0")
    };
    assert_eq!(reads("m"), Ok(()));
    assert_eq!(reads("zzz"), Ok(()));
    assert_eq!(reads("l"), denied);
}

#[test]
fn lease_calls_respect_key_permissions() {
    let mut store = guarded();
    let root = user(&store, "root");
    for id in [1, 2, 3] {
        let lease = Operation::LeaseGrant(LeaseGrant { id, ttl: 60 });
        run_as(&mut store, None, lease).expect("a lease");
    }
    for (key, lease) in [("a", 1), ("secret", 2)] {
        let attached = Operation::Put(Put {
            lease,
            ..put(key, "v")
        });
        run_as(&mut store, root.clone(), attached).expect("attached");
    }
    let (alice, bob) = (user(&store, "alice"), user(&store, "bob"));
    let view = store.publish();
    let denied = Err(AuthError::PermissionDenied);
    let keys = |actor: &Option<Actor>, id| view.permit_lease_keys(actor.as_ref(), id);
    assert_eq!(keys(&alice, 1), Ok(()));
    assert_eq!(keys(&alice, 2), denied);
    assert_eq!(keys(&alice, 3), Ok(()), "no keys");
    assert_eq!(keys(&bob, 1), denied);
    assert_eq!(keys(&None, 3), Err(AuthError::UserEmpty));
    assert_eq!(view.permit_leases(alice.as_ref()), denied);
    assert_eq!(view.permit_leases(root.as_ref()), Ok(()));
    let renewal = |actor: &Option<Actor>, id| view.permit_renewal(actor.as_ref(), id);
    assert_eq!(renewal(&alice, 1), Ok(()));
    assert_eq!(renewal(&alice, 2), denied);
    assert_eq!(renewal(&None, 1), Err(AuthError::UserEmpty));
    let revoke = |id| Operation::LeaseRevoke(LeaseRevoke { id });
    assert_eq!(run_as(&mut store, alice.clone(), revoke(2)), Err(DENIED));
    assert_eq!(run_as(&mut store, bob, revoke(1)), Err(DENIED));
    assert!(run_as(&mut store, alice, revoke(1)).is_ok());
    // The leader's own request needs no permission.
    let expire = LeaseExpire {
        ids: vec![2],
        term: 3,
    };
    let expired = run_as(&mut store, None, Operation::LeaseExpire(expire));
    assert!(matches!(expired, Ok(Response::LeaseExpire(done)) if done.expired == [2]));
}

#[test]
fn token_needs_the_current_password() {
    let mut store = guarded();
    let revision = store.publish().auth().revision();
    let ask = |user: &str, revision| {
        AuthOperation::Authenticate(Authenticate {
            user: user.to_owned(),
            revision,
            token_prefix: "letters".to_owned(),
            issued_ms: 5,
        })
    };
    let given = auth(&mut store, ask("alice", revision)).expect("a token");
    let issued = TokenChange::Issued {
        user: "alice".to_owned(),
        prefix: "letters".to_owned(),
        issued_ms: 5,
    };
    assert_eq!((given.auth_revision, given.tokens), (revision, issued));
    let unknown = auth(&mut store, ask("eve", revision));
    assert_eq!(unknown, Err(Error::Auth(AuthError::AuthFailed)));
    let change = AuthOperation::UserChangePassword(UserChangePassword {
        name: "alice".to_owned(),
        password: bytes("other"),
    });
    let root = user(&store, "root");
    let changed = auth_as(&mut store, root.clone(), change).expect("changed");
    let revoked = TokenChange::Revoked {
        user: "alice".to_owned(),
    };
    assert_eq!(changed.tokens, revoked);
    let late = auth(&mut store, ask("alice", revision));
    assert_eq!(late, Err(Error::Auth(AuthError::OldRevision)));
    let disabled = auth_as(&mut store, root, AuthOperation::Disable(AuthDisable {}));
    let disabled = disabled.expect("disabled");
    assert_eq!(disabled.tokens, TokenChange::AllRevoked);
    assert_eq!(disabled.auth_revision, revision + 2);
    assert!(run_as(&mut store, None, Operation::Put(put("a", "v"))).is_ok());
}

#[test]
fn checkpoint_holds_users_and_roles() {
    let empty = Store::new().publish();
    let rebuilt = Store::import(empty.export()).expect("rebuilt");
    assert_eq!(rebuilt.publish().auth(), &AuthState::default());
    let mut store = guarded();
    let root = user(&store, "root");
    run_as(&mut store, root, Operation::Put(put("a", "v"))).expect("a key");
    let chunks: Vec<_> = store.publish().export().collect();
    let rebuilt = Store::import(&chunks).expect("rebuilt");
    assert_eq!(rebuilt.publish().auth(), store.publish().auth());
    let again: Vec<_> = rebuilt.publish().export().collect();
    assert_eq!(again, chunks);
}

/// Byte for byte what etcd keeps in its buckets `authUsers` and `authRoles`.
#[test]
fn users_and_roles_are_encoded_as_in_etcd() {
    use prost::Message as _;
    let store = guarded();
    let view = store.publish();
    let user = view.auth().user("bob").expect("bob").encode_to_vec();
    assert_eq!(user, b"\x0a\x03bob\x12\x04hash\x1a\x06writer\x22\x00");
    let role = view.auth().role("writer").expect("a role").encode_to_vec();
    assert_eq!(role, b"\x0a\x06writer\x12\x05\x08\x01\x12\x01b");
}
