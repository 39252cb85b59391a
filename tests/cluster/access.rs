//! Users and roles as an operator keeps them, by `quorate.v1.Access` of real servers: what it changes etcd's own calls
//! show, it works while authentication is enabled and without a user of its own, and an operator that decided on an older
//! state, or was replaced, changes nothing.

use quorate::server::operator_api::access_client::AccessClient;
use quorate::wire::etcd::auth_client::AuthClient;
use quorate::wire::etcd::{AuthRoleGetRequest, AuthenticateRequest};
use quorate::wire::member::change_access_request::Change;
use quorate::wire::member::{
    AccessKind, AccessPermission, AddUser, PermissionOfRole, Phase, RoleOfUser, SetPassword,
    ShowAccessResponse,
};
use tonic::Code;

use super::fixture::Server;
use super::operated::{call, standbys};

async fn founded(home: &std::path::Path) -> Vec<Server> {
    let mut servers = standbys(home, &["a"]);
    servers[0].start();
    let standby = |description: &quorate::wire::member::DescribeResponse| {
        description.phase() == Phase::Standby
    };
    let description = servers[0].describes("it stands by", standby).await;
    let founded = servers[0].operator().bootstrap(call(&description)).await;
    founded.unwrap();
    servers[0].serves("key").await;
    servers
}

/// A client for the server that describes itself now.
async fn access(server: &Server) -> AccessClient {
    let mut operator = server.operator();
    let (_, author) = operator.describe_by(false, 1).await.unwrap();
    operator.only(author).access()
}

async fn show(client: &mut AccessClient) -> ShowAccessResponse {
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    client
        .show(names(&["root", "app"]), names(&["reader"]))
        .await
        .unwrap()
}

async fn change(client: &mut AccessClient, change: Change) {
    let revision = show(client).await.auth_revision;
    client.change(1, revision, change).await.unwrap();
}

fn user(name: &str, password: &str) -> Change {
    Change::AddUser(AddUser {
        name: name.to_owned(),
        password: password.to_owned(),
        no_password: password.is_empty(),
    })
}

fn granted(user: &str, role: &str) -> Change {
    Change::GrantRole(RoleOfUser {
        user: user.to_owned(),
        role: role.to_owned(),
    })
}

fn read(key: &str, end: &str) -> PermissionOfRole {
    PermissionOfRole {
        role: "reader".to_owned(),
        permission: Some(AccessPermission {
            kind: AccessKind::Read.into(),
            key: key.as_bytes().to_vec().into(),
            range_end: end.as_bytes().to_vec().into(),
        }),
    }
}

async fn token(server: &Server, name: &str, password: &str) -> Result<String, tonic::Status> {
    let who = AuthenticateRequest {
        name: name.to_owned(),
        password: password.to_owned(),
    };
    let answer = AuthClient::new(server.channel()).authenticate(who).await;
    answer.map(|answer| answer.into_inner().token)
}

#[tokio::test]
async fn operator_keeps_users_while_requests_need_one() {
    let home = tempfile::tempdir().unwrap();
    let servers = founded(home.path()).await;
    let server = &servers[0];
    let mut client = access(server).await;
    assert!(show(&mut client).await.users.is_empty());
    change(&mut client, Change::AddRole("reader".to_owned())).await;
    change(&mut client, Change::GrantPermission(read("a", "b"))).await;
    change(&mut client, user("root", "")).await;
    change(&mut client, granted("root", "root")).await;
    change(&mut client, user("app", "first")).await;
    change(&mut client, granted("app", "reader")).await;
    change(&mut client, Change::Enabled(true)).await;

    let shown = show(&mut client).await;
    assert!(shown.enabled);
    let users: Vec<_> = shown
        .users
        .iter()
        .map(|user| (&*user.name, user.no_password))
        .collect();
    assert_eq!(users, [("root", true), ("app", false)]);
    assert_eq!(shown.roles[0].permissions.len(), 1);
    // Without a user, a client is refused now; the operator has none and is not.
    let anonymous = server.put("b", "1").await.unwrap_err();
    assert!(
        anonymous.message().contains("user name is empty"),
        "{anonymous}"
    );
    assert!(client.has_password("app", "first").await.unwrap());
    for (user, password) in [("app", "First"), ("root", ""), ("nobody", "first")] {
        assert!(
            !client.has_password(user, password).await.unwrap(),
            "{user}"
        );
    }
    let first = token(server, "app", "first").await.unwrap();
    let set = SetPassword {
        name: "app".to_owned(),
        password: "second".to_owned(),
    };
    change(&mut client, Change::SetPassword(set)).await;
    assert!(token(server, "app", "first").await.is_err());
    token(server, "app", "second").await.unwrap();

    // etcd's own call shows the same; the token of the old password is worth nothing.
    let mut request = tonic::Request::new(AuthRoleGetRequest {
        role: "reader".to_owned(),
    });
    let second = token(server, "app", "second").await.unwrap();
    request
        .metadata_mut()
        .insert("authorization", second.parse().unwrap());
    let role = AuthClient::new(server.channel()).role_get(request).await;
    assert_eq!(role.unwrap().into_inner().perm[0].key, "a");
    let mut request = tonic::Request::new(AuthRoleGetRequest {
        role: "reader".to_owned(),
    });
    request
        .metadata_mut()
        .insert("authorization", first.parse().unwrap());
    let role = AuthClient::new(server.channel()).role_get(request).await;
    assert!(role.is_err(), "{role:?}");

    change(&mut client, Change::RevokePermission(read("a", "b"))).await;
    change(&mut client, Change::Enabled(false)).await;
    change(&mut client, Change::DeleteUser("app".to_owned())).await;
    change(&mut client, Change::DeleteRole("reader".to_owned())).await;
    server.put("b", "1").await.unwrap();
}

/// What would lock everybody out, what was decided on an older state, and whoever was replaced.
#[tokio::test]
async fn refused_changes_of_users_change_nothing() {
    let home = tempfile::tempdir().unwrap();
    let servers = founded(home.path()).await;
    let mut client = access(&servers[0]).await;
    let refused = async |client: &mut AccessClient, epoch, back: u64, change| {
        let revision = show(client).await.auth_revision;
        let status = client
            .change(epoch, revision - back, change)
            .await
            .unwrap_err();
        assert_eq!(show(client).await.auth_revision, revision, "{status}");
        status
    };
    let without_root = refused(&mut client, 1, 0, Change::Enabled(true)).await;
    assert_eq!(without_root.code(), Code::InvalidArgument, "{without_root}");
    let long = refused(&mut client, 1, 0, user("app", &"x".repeat(73))).await;
    assert!(long.message().contains("1 to 72 bytes"), "{long}");
    change(&mut client, user("root", "")).await;
    let old = refused(&mut client, 1, 1, user("app", "")).await;
    assert_eq!(old.code(), Code::Aborted, "{old}");
    assert!(old.message().contains("have changed since"), "{old}");
    change(&mut client, granted("root", "root")).await;
    change(&mut client, Change::Enabled(true)).await;
    let root = refused(&mut client, 1, 0, Change::DeleteUser("root".to_owned())).await;
    assert_eq!(root.code(), Code::InvalidArgument, "{root}");
    let revoked = Change::RevokeRole(RoleOfUser {
        user: "root".to_owned(),
        role: "root".to_owned(),
    });
    let root = refused(&mut client, 1, 0, revoked).await;
    assert_eq!(root.code(), Code::InvalidArgument, "{root}");
    let twice = refused(&mut client, 1, 0, user("root", "")).await;
    assert_eq!(twice.code(), Code::Aborted, "{twice}");

    // A newer operator has called: from then on the older one only looks.
    let mut newer = servers[0].operator();
    newer.describe_for(false, 2).await.unwrap();
    let replaced = refused(&mut client, 1, 0, user("app", "")).await;
    assert_eq!(replaced.code(), Code::Aborted, "{replaced}");
    let revision = show(&mut client).await.auth_revision;
    client.change(2, revision, user("app", "")).await.unwrap();
}
