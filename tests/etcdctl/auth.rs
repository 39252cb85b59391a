//! Users, roles and permissions with etcdctl: the transcript must be equal to etcd's.

use crate::cluster::{Cluster, Kind};
use crate::process::{eventually, peers};
use crate::snapshots::{etcd_from, save};
use crate::story::{Recorder, compare_with};

/// A low bcrypt cost, because the tests set many passwords. At the usual one a comparison takes a tenth of a second of
/// a thread of low priority, which gets a tenth of a core beside busy neighbours: `authentication_can_be_turned_off_again`
/// lacked this flag, and its login took longer than etcdctl waits beside the build of an image.
const CHEAP: &str = "--bcrypt-cost=4";

const ROOT: &str = "--user=root:rootpw";
const ALICE: &str = "--user=alice:pw";

/// Creates root, and alice with a role that reads and writes [a, c), reads a prefix and writes everything from `m` on;
/// then enables authentication.
fn guard(recorder: &mut Recorder, at: usize) {
    for arguments in [
        &["user", "add", "root:rootpw"][..],
        &["user", "grant-role", "root", "root"],
        &["user", "add", "alice:pw"],
        &["role", "add", "some"],
        &["role", "grant-permission", "some", "readwrite", "a", "c"],
        &["role", "grant-permission", "some", "read", "x/", "--prefix"],
        &[
            "role",
            "grant-permission",
            "some",
            "write",
            "m",
            "--from-key",
        ],
        &["user", "grant-role", "alice", "some"],
        &["put", "b", "1"],
        &["put", "x/1", "1"],
        &["put", "secret", "s"],
        &["auth", "enable"],
    ] {
        recorder.at(at, arguments);
    }
}

// Shows Auth.UserAdd, Auth.UserGet, Auth.UserList, Auth.UserDelete, Auth.UserChangePassword, Auth.UserGrantRole, Auth.UserRevokeRole, Auth.RoleAdd, Auth.RoleGet, Auth.RoleList, Auth.RoleDelete, Auth.RoleGrantPermission, Auth.RoleRevokePermission: etcdctl's user and role commands and their errors.
#[test]
fn users_and_roles_are_managed_as_in_etcd() {
    compare_with(
        "users_and_roles_are_managed_as_in_etcd",
        1,
        &[CHEAP],
        |recorder| {
            for arguments in [
                &["auth", "status"][..],
                &["auth", "enable"],
                &["auth", "disable"],
                &["user", "add", "root:rootpw"],
                &["user", "add", "root:again"],
                &["auth", "enable"],
                &["role", "add", "root"],
                &["role", "add", "r"],
                &["role", "add", "r"],
                &["role", "add", ""],
                &["user", "grant-role", "root", "root"],
                &["user", "grant-role", "root", "root"],
                &["user", "grant-role", "root", "none"],
                &["user", "grant-role", "nobody", "r"],
                &["role", "grant-permission", "r", "readwrite", "b", "d"],
                &["role", "grant-permission", "r", "read", "b"],
                &["role", "grant-permission", "r", "write", "b", "d"],
                &["role", "grant-permission", "r", "read", "a", "a"],
                &["role", "grant-permission", "r", "read", "b", "a"],
                &["role", "grant-permission", "none", "read", "b"],
                &["role", "grant-permission", "r", "read", "x/", "--prefix"],
                &["role", "grant-permission", "r", "read", "", "--prefix"],
                &["role", "grant-permission", "r", "write", "m", "--from-key"],
                &["role", "get", "r"],
                &["role", "get", "r", "-w", "json"],
                &["role", "get", "root"],
                &["role", "get", "none"],
                &["role", "list"],
                &["role", "list", "-w", "json"],
                &["role", "revoke-permission", "r", "b"],
                &["role", "revoke-permission", "r", "b"],
                &["role", "revoke-permission", "r", "x/", "--prefix"],
                &["role", "revoke-permission", "none", "b"],
                &["role", "get", "r"],
                &["user", "add", "alice", "--new-user-password=pw"],
                &["user", "add", "badge", "--no-password"],
                &["user", "grant-role", "alice", "r"],
                &["user", "get", "alice"],
                &["user", "get", "alice", "--detail"],
                &["user", "get", "none"],
                &["user", "list"],
                &["user", "list", "-w", "json"],
                &["user", "revoke-role", "alice", "none"],
                &["user", "revoke-role", "none", "r"],
                &["user", "delete", "none"],
                &["user", "delete", "badge"],
                &["role", "delete", "none"],
                &["role", "delete", "r"],
                &["user", "get", "alice"],
                &["auth", "enable"],
                &["auth", "enable"],
                &["auth", "status"],
                &[ROOT, "auth", "status", "-w", "json"],
                &[ROOT, "auth", "enable"],
                &[ROOT, "user", "delete", "root"],
                &[ROOT, "user", "revoke-role", "root", "root"],
                &[ROOT, "role", "delete", "root"],
                &[ROOT, "user", "delete", "alice"],
                &[ALICE, "get", "a"],
                &[ROOT, "auth", "disable"],
                &["auth", "status", "-w", "json"],
                &["get", "a"],
            ] {
                recorder.at(0, arguments);
            }
            let password = ["user", "passwd", "--interactive=false", "root"];
            recorder.with_input(0, &password, "newpw\n");
            recorder.at(0, &["auth", "enable"]);
            recorder.at(0, &[ROOT, "get", "a"]);
            recorder.at(0, &["--user=root:newpw", "get", "a"]);
        },
    );
}

// Shows KV.Put, KV.Range, KV.DeleteRange, KV.Txn, Watch.Watch: what a user's permissions allow.
#[test]
fn permissions_are_those_of_etcd() {
    compare_with("permissions_are_those_of_etcd", 1, &[CHEAP], |recorder| {
        guard(recorder, 0);
        for arguments in [
            &["get", "b"][..],
            &["put", "b", "2"],
            &["del", "b"],
            &["--user=alice:wrong", "get", "b"],
            &["--user=nobody:pw", "get", "b"],
            &[ROOT, "user", "add", "badge", "--no-password"],
            &["--user=badge:pw", "get", "b"],
            &[ALICE, "get", "b"],
            &[ALICE, "get", "b", "--consistency=s"],
            &[ALICE, "get", "a", "c"],
            &[ALICE, "get", "a", "d"],
            &[ALICE, "get", "secret"],
            &[ALICE, "get", "secret", "--consistency=s"],
            &[ALICE, "get", "--prefix", "x/"],
            &[ALICE, "get", "--from-key", "a"],
            &[ALICE, "get", "--from-key", "m"],
            &[ALICE, "get", "--prefix", ""],
            &[ALICE, "put", "b", "3", "--prev-kv"],
            &[ALICE, "put", "x/1", "2"],
            &[ALICE, "put", "n", "1"],
            &[ALICE, "put", "n", "1", "--prev-kv"],
            &[ALICE, "del", "n"],
            &[ALICE, "del", "n", "--prev-kv"],
            &[ALICE, "del", "a", "d"],
            &[ALICE, "del", "--from-key", "m"],
            &[ALICE, "compaction", "2"],
            &[ALICE, "user", "list"],
            &[ALICE, "user", "get", "alice"],
            &[ALICE, "user", "get", "root"],
            &[ALICE, "role", "get", "some"],
            &[ALICE, "role", "get", "root"],
            &[ALICE, "role", "list"],
            &[ALICE, "user", "add", "mallory:pw"],
            &[ALICE, "role", "grant-permission", "some", "read", "secret"],
            &[ALICE, "auth", "disable"],
            &[
                ALICE,
                "member",
                "add",
                "m9",
                "--peer-urls=http://127.0.0.1:1",
            ],
            &["member", "list"],
            &["alarm", "list"],
            &[ALICE, "alarm", "list"],
            &[ALICE, "alarm", "disarm"],
            &["endpoint", "hashkv"],
            &[ROOT, "get", "secret"],
            &[ROOT, "get", "--prefix", ""],
            &[ROOT, "compaction", "2"],
            &[ROOT, "user", "list"],
        ] {
            recorder.at(0, arguments);
        }
        for input in [
            "value(\"secret\") = \"s\"\n\nget b\n\nget b\n\n",
            "value(\"b\") = \"3\"\n\nget secret\n\nget b\n\n",
            "value(\"b\") = \"3\"\n\nget b\n\nput secret 1\n\n",
            "value(\"b\") = \"3\"\n\nput b 4\n\nget b\n\n",
            "\n\nget b\n\n",
        ] {
            recorder.with_input(0, &[ALICE, "txn"], input);
            recorder.with_input(0, &["txn"], input);
        }
        for arguments in [
            &["watch", "b"][..],
            &[ALICE, "watch", "secret"],
            &[ALICE, "watch", "a", "d"],
            &[ALICE, "watch", "", "--prefix"],
        ] {
            // Wait until etcdctl exits: the error has more than one line.
            let mut watch = recorder.cluster.follow(0, arguments);
            let ended = eventually(|| watch.has_ended());
            let printed = watch.output();
            assert!(ended, "{arguments:?} is not refused: {printed}");
            let lines = printed.lines().filter(|line| !line.starts_with('{'));
            recorder.note(&format!("{arguments:?} {:?}", lines.collect::<Vec<_>>()));
        }
        let watch = recorder
            .cluster
            .follow(0, &[ALICE, "watch", "a", "c", "--rev=2"]);
        let seen = watch.wait_for("what alice may see", |printed| printed.contains("PUT"));
        recorder.note(seen.lines().next().unwrap_or_default());
    });
}

// Shows Lease.LeaseRevoke, Lease.LeaseTimeToLive: leases with keys that the user may not access are protected.
#[test]
fn leases_are_guarded_as_in_etcd() {
    compare_with("leases_are_guarded_as_in_etcd", 1, &[CHEAP], |recorder| {
        guard(recorder, 0);
        let mut leases = Vec::new();
        for (at, key) in ["b", "secret"].into_iter().enumerate() {
            let granted = recorder.cluster.must(0, &[ROOT, "lease", "grant", "600"]);
            let id = granted.split(' ').nth(1).unwrap_or_default().to_owned();
            recorder
                .cluster
                .must(0, &[ROOT, "put", key, "v", "--lease", &id]);
            recorder.name(id.clone(), &format!("LEASE{at}"));
            leases.push(id);
        }
        recorder.at(0, &["lease", "grant", "600"]);
        recorder.at(0, &["lease", "list"]);
        recorder.at(0, &[ALICE, "lease", "list"]);
        for id in &leases {
            for user in ["--user=", ALICE] {
                recorder.at(0, &[user, "lease", "keep-alive", "--once", id]);
                recorder.at(0, &[user, "put", "a", "v", "--lease", id]);
                let keys = [user, "lease", "timetolive", id, "--keys", "-w", "json"];
                let answer = recorder.cluster.ctl(0, &keys, "");
                let shown = answer.stdout.contains("granted-ttl");
                let last = answer.stderr.lines().last().unwrap_or_default();
                recorder.note(&format!("{} {shown} {last}", answer.status));
            }
        }
        recorder.at(0, &["lease", "revoke", &leases[0]]);
        recorder.at(0, &[ALICE, "lease", "revoke", &leases[1]]);
        recorder.at(0, &[ALICE, "lease", "revoke", &leases[0]]);
        recorder.at(0, &[ROOT, "lease", "revoke", &leases[1]]);
        recorder.at(0, &[ROOT, "get", "secret"]);
    });
}

/// Each member checks permissions by itself, and a token of one member is valid at every other.
#[test]
fn users_are_known_to_all_members() {
    let test = "users_are_known_to_all_members";
    compare_with(test, 3, &[CHEAP], |recorder| {
        guard(recorder, 1);
        for at in 0..3 {
            for arguments in [
                &["get", "b"][..],
                &[ALICE, "put", "b", "9"],
                &[ALICE, "get", "b"],
                &[ALICE, "put", "secret", "9"],
                &[ALICE, "get", "secret"],
                &[ROOT, "user", "get", "alice"],
            ] {
                recorder.at(at, arguments);
            }
        }
        recorder.at(2, &[ROOT, "user", "revoke-role", "alice", "some"]);
        recorder.at(0, &[ALICE, "get", "b"]);
        recorder.at(1, &[ROOT, "user", "grant-role", "alice", "some"]);
        for at in 0..3 {
            recorder.cluster.stop(at);
        }
        for at in 0..3 {
            recorder.cluster.run(at, "new");
        }
        let back = eventually(|| {
            (0..3).all(|at| recorder.cluster.ctl(at, &[ROOT, "get", "b"], "").status == 0)
        });
        assert!(back, "not back:\n{}", recorder.cluster.logs());
        for at in 0..3 {
            recorder.at(at, &["get", "b"]);
            recorder.at(at, &[ALICE, "get", "b"]);
            recorder.at(at, &[ALICE, "get", "secret"]);
        }
    });
}

/// A learner that starts from the leader's snapshot instead of its log has the users too.
#[test]
fn a_new_learner_gets_users_from_a_snapshot() {
    let Some(peers) = peers("a_new_learner_gets_users_from_a_snapshot") else {
        return;
    };
    let mut cluster = Cluster::start_with(Kind::Quorate, &peers, 1, &[CHEAP.to_owned()]);
    for arguments in [
        &["user", "add", "root:rootpw"][..],
        &["user", "grant-role", "root", "root"],
        &["user", "add", "alice:pw"],
        &["role", "add", "some"],
        &["role", "grant-permission", "some", "read", "a"],
        &["user", "grant-role", "alice", "some"],
        &["put", "a", "1"],
        &["put", "b", "1"],
        &["auth", "enable"],
    ] {
        cluster.must(0, arguments);
    }
    let learner = cluster.prepare();
    let peer = format!("--peer-urls=http://{}", cluster.members[learner].peer);
    let name = cluster.members[learner].name.clone();
    cluster.must(0, &[ROOT, "member", "add", &name, "--learner", &peer]);
    cluster.run(learner, "existing");
    let read =
        |who: &str, key: &str| cluster.ctl(learner, &[who, "get", key, "--consistency=s"], "");
    // A learner issues no token to etcdctl, so the test checks that it requires one.
    let knows = eventually(|| {
        let answer = cluster.ctl(learner, &["get", "a", "--consistency=s"], "");
        answer.stderr.contains("user name is empty")
    });
    assert!(knows, "{:?}\n{}", read("--user=", "a"), cluster.logs());
    let id = cluster.must(0, &[ROOT, "member", "list"]);
    let id = id
        .lines()
        .find(|line| line.contains(&name))
        .unwrap_or_default();
    let id = id.split(',').next().unwrap_or_default().to_owned();
    let promoted = eventually(|| cluster.ctl(0, &[ROOT, "member", "promote", &id], "").status == 0);
    assert!(promoted, "not promoted:\n{}", cluster.logs());
    let reads = eventually(|| read(ALICE, "a").stdout == "a\n1\n");
    assert!(reads, "{:?}", read(ALICE, "a"));
    assert!(read(ALICE, "b").stderr.contains("permission denied"));
}

/// HS256 needs no key pair; the other methods are tested in `auth_requests.rs`.
// Shows Auth.Authenticate: signed tokens.
#[test]
fn signed_tokens_work_as_in_etcd() {
    let directory = tempfile::tempdir().expect("a directory");
    let key = directory.path().join("hmac.key");
    std::fs::write(&key, "an odd secret of the test").expect("written");
    let token = format!(
        "--auth-token=jwt,sign-method=HS256,priv-key={},ttl=5m",
        key.display()
    );
    compare_with(
        "signed_tokens_work_as_in_etcd",
        3,
        &[CHEAP, &token],
        |recorder| {
            guard(recorder, 0);
            for at in 0..3 {
                for arguments in [
                    &["get", "b"][..],
                    &[ALICE, "get", "b"],
                    &[ALICE, "get", "secret"],
                    &["--user=alice:wrong", "get", "b"],
                    &["--auth-jwt-token=x.y.z", "get", "b"],
                ] {
                    recorder.at(at, arguments);
                }
            }
        },
    );
}

#[test]
fn token_settings_are_validated_at_start() {
    let Some(_) = peers("token_settings_are_validated_at_start") else {
        return;
    };
    let directory = tempfile::tempdir().expect("a directory");
    for (token, expected) in [
        ("jwt", "sign-method"),
        ("jwt,sign-method=RS256,priv-key=/nowhere/key", "cannot read"),
        ("paseto", "not known"),
    ] {
        let arguments = [
            "server".to_owned(),
            format!("--data-dir={}", directory.path().join("data").display()),
            format!("--auth-token={token}"),
        ];
        let program = std::path::Path::new(env!("CARGO_BIN_EXE_quorate"));
        let output = crate::process::finish(program, &arguments, "");
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            !output.status.success() && stderr.contains(expected),
            "{token}: {stderr}"
        );
    }
}

/// A story without additional flags, so that the default bcrypt cost is used once.
// Shows Auth.AuthEnable, Auth.AuthDisable, Auth.AuthStatus: enabled and disabled again.
#[test]
fn authentication_can_be_turned_off_again() {
    compare_with(
        "authentication_can_be_turned_off_again",
        1,
        &[CHEAP],
        |recorder| {
            guard(recorder, 0);
            recorder.at(0, &[ALICE, "auth", "disable"]);
            recorder.at(0, &[ROOT, "auth", "disable"]);
            recorder.at(0, &["get", "secret"]);
            recorder.at(0, &[ALICE, "get", "secret"]);
        },
    );
}

/// Real etcd started from our snapshot has the users and roles, with their passwords and permissions.
#[test]
fn etcd_starts_with_the_users_of_our_snapshot() {
    let Some(peers) = peers("etcd_starts_with_the_users_of_our_snapshot") else {
        return;
    };
    let cluster = Cluster::start_with(Kind::Quorate, &peers, 1, &[CHEAP.to_owned()]);
    for arguments in [
        &["user", "add", "root:rootpw"][..],
        &["user", "grant-role", "root", "root"],
        &["user", "add", "alice:pw"],
        &["user", "add", "badge", "--no-password"],
        &["role", "add", "some"],
        &["role", "grant-permission", "some", "readwrite", "a", "c"],
        &[
            "role",
            "grant-permission",
            "some",
            "write",
            "m",
            "--from-key",
        ],
        &["user", "grant-role", "alice", "some"],
        &["put", "b", "1"],
        &["put", "secret", "s"],
    ] {
        cluster.must(0, arguments);
    }
    let file = save(&cluster, 0, "users.db");
    let theirs = etcd_from(&peers, &file, 1, &[]);
    for arguments in [
        &["user", "list"][..],
        &["user", "get", "alice"],
        &["role", "get", "some"],
        &["auth", "status"],
    ] {
        let (ours, theirs) = (cluster.must(0, arguments), theirs.must(0, arguments));
        assert_eq!(ours, theirs, "{arguments:?}");
    }
    for cluster in [&cluster, &theirs] {
        cluster.must(0, &["auth", "enable"]);
        assert_eq!(cluster.must(0, &[ALICE, "get", "b"]), "b\n1\n");
        let denied = cluster.ctl(0, &[ALICE, "get", "secret"], "").stderr;
        assert!(denied.contains("permission denied"), "{denied}");
        let wrong = cluster.ctl(0, &["--user=badge:pw", "get", "b"], "").stderr;
        assert!(wrong.contains("no password user"), "{wrong}");
        assert_eq!(cluster.must(0, &[ROOT, "get", "secret"]), "secret\ns\n");
    }
}
