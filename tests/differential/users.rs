//! Users, roles and permissions: which requests they allow, and which users may change them.

use std::collections::BTreeMap;

use bytes::Bytes;
use quorate::wire::authpb::{Permission, UserAddOptions};
use quorate::wire::etcd::auth_client::AuthClient;
use quorate::wire::etcd::watch_client::WatchClient;
use quorate::wire::etcd::watch_request::RequestUnion;
use quorate::wire::etcd::{
    AuthDisableRequest, AuthEnableRequest, AuthRoleAddRequest, AuthRoleDeleteRequest,
    AuthRoleGetRequest, AuthRoleGrantPermissionRequest, AuthRoleListRequest,
    AuthRoleRevokePermissionRequest, AuthStatusRequest, AuthUserAddRequest,
    AuthUserChangePasswordRequest, AuthUserDeleteRequest, AuthUserGetRequest,
    AuthUserGrantRoleRequest, AuthUserListRequest, AuthUserRevokeRoleRequest, AuthenticateRequest,
    MemberAddRequest, ResponseHeader, WatchCreateRequest, WatchRequest,
};
use tonic::Status;
use tonic::metadata::AsciiMetadataValue;

use crate::generator::Generator;
use crate::question::{Facts, OWN_PEER, Question, compact, question, watcher};
use crate::server::{Reply, Wire};

/// User names in requests; the last two are never created.
const USERS: &[&str] = &["root", "ann", "bob", "cy", "", "nobody"];
const ROLES: &[&str] = &["root", "low", "mid", "all", "", "none"];

/// A request to the Auth service.
#[derive(Clone, Debug)]
pub(crate) enum Auth {
    Enable,
    Disable,
    Status,
    /// Stores the token for the user's later requests.
    Authenticate(AuthenticateRequest),
    UserAdd(AuthUserAddRequest),
    UserGet(AuthUserGetRequest),
    UserList,
    UserDelete(AuthUserDeleteRequest),
    Password(AuthUserChangePasswordRequest),
    UserGrant(AuthUserGrantRoleRequest),
    UserRevoke(AuthUserRevokeRoleRequest),
    RoleAdd(AuthRoleAddRequest),
    RoleGet(AuthRoleGetRequest),
    RoleList,
    RoleDelete(AuthRoleDeleteRequest),
    RoleGrant(AuthRoleGrantPermissionRequest),
    RoleRevoke(AuthRoleRevokePermissionRequest),
}

/// Sends a request to a member; tokens differ, so they are stored and not compared.
pub(crate) async fn ask(
    client: &mut AuthClient<Wire>,
    tokens: &mut BTreeMap<String, AsciiMetadataValue>,
    question: &Auth,
) -> Result<Reply, Status> {
    macro_rules! plain {
        ($reply:expr) => {{
            let mut reply = $reply.await?.into_inner();
            let revision = revision(&mut reply.header);
            Ok((None, format!("at {revision} {reply:?}")))
        }};
    }
    match question.clone() {
        Auth::Enable => plain!(client.auth_enable(AuthEnableRequest {})),
        Auth::Disable => plain!(client.auth_disable(AuthDisableRequest {})),
        Auth::Status => plain!(client.auth_status(AuthStatusRequest {})),
        Auth::Authenticate(who) => {
            let name = who.name.clone();
            let mut reply = client.authenticate(who).await?.into_inner();
            let token = reply.token.parse().expect("a header");
            tokens.insert(name, token);
            let revision = revision(&mut reply.header);
            Ok((None, format!("at {revision} a token")))
        }
        Auth::UserAdd(request) => plain!(client.user_add(request)),
        Auth::UserGet(request) => plain!(client.user_get(request)),
        Auth::UserList => plain!(client.user_list(AuthUserListRequest {})),
        Auth::UserDelete(request) => plain!(client.user_delete(request)),
        Auth::Password(request) => plain!(client.user_change_password(request)),
        Auth::UserGrant(request) => plain!(client.user_grant_role(request)),
        Auth::UserRevoke(request) => plain!(client.user_revoke_role(request)),
        Auth::RoleAdd(request) => plain!(client.role_add(request)),
        Auth::RoleGet(request) => {
            let mut reply = client.role_get(request).await?.into_inner();
            // etcd's sort by the key alone is stable for so many.
            if reply.perm.len() > 12 {
                reply.perm.sort_by(|a, b| {
                    let order = |it: &Permission| (it.key.clone(), it.range_end.clone());
                    order(a).cmp(&order(b))
                });
            }
            let revision = revision(&mut reply.header);
            Ok((None, format!("at {revision} {reply:?}")))
        }
        Auth::RoleList => plain!(client.role_list(AuthRoleListRequest {})),
        Auth::RoleDelete(request) => plain!(client.role_delete(request)),
        Auth::RoleGrant(request) => plain!(client.role_grant_permission(request)),
        Auth::RoleRevoke(request) => plain!(client.role_revoke_permission(request)),
    }
}

fn revision(header: &mut Option<ResponseHeader>) -> i64 {
    header.take().map_or(-1, |header| header.revision)
}

/// The first response on a new stream: the watcher was created or refused.
pub(crate) async fn watch_once(
    client: &mut WatchClient<Wire>,
    create: WatchCreateRequest,
) -> Result<Reply, Status> {
    let request = WatchRequest {
        request_union: Some(RequestUnion::CreateRequest(create)),
    };
    let requests =
        futures::StreamExt::chain(futures::stream::iter([request]), futures::stream::pending());
    let first = client.watch(requests).await?.into_inner().message().await?;
    let text = first.map(|mut answer| {
        let revision = revision(&mut answer.header);
        format!("at {revision} {answer:?}")
    });
    Ok((None, format!("{text:?}")))
}

fn user(generator: &mut Generator) -> String {
    // Mostly the first four, which exist.
    let among = if generator.one_in(8) { 6 } else { 4 };
    USERS[generator.below(among) as usize].to_owned()
}

fn role(generator: &mut Generator) -> String {
    let among = if generator.one_in(8) { 6 } else { 4 };
    ROLES[generator.below(among) as usize].to_owned()
}

fn password(generator: &mut Generator) -> String {
    match generator.below(20) {
        0 => String::new(),
        1..=4 => "q".to_owned(),
        _ => "p".to_owned(),
    }
}

/// A request that changes or returns users and roles.
fn management(generator: &mut Generator) -> Auth {
    match generator.below(100) {
        0..=9 => Auth::UserAdd(AuthUserAddRequest {
            name: user(generator),
            password: password(generator),
            options: generator.one_in(2).then(|| UserAddOptions {
                no_password: generator.one_in(3),
            }),
            hashed_password: String::new(),
        }),
        10..=15 => Auth::UserGet(AuthUserGetRequest {
            name: user(generator),
        }),
        16..=18 => Auth::UserList,
        19..=22 => Auth::UserDelete(AuthUserDeleteRequest {
            name: user(generator),
        }),
        23..=28 => Auth::Password(AuthUserChangePasswordRequest {
            name: user(generator),
            password: password(generator),
            hashed_password: String::new(),
        }),
        29..=42 => Auth::UserGrant(AuthUserGrantRoleRequest {
            user: user(generator),
            role: role(generator),
        }),
        43..=48 => Auth::UserRevoke(AuthUserRevokeRoleRequest {
            name: user(generator),
            role: role(generator),
        }),
        49..=56 => Auth::RoleAdd(AuthRoleAddRequest {
            name: role(generator),
        }),
        57..=62 => Auth::RoleGet(AuthRoleGetRequest {
            role: role(generator),
        }),
        63..=65 => Auth::RoleList,
        66..=68 => Auth::RoleDelete(AuthRoleDeleteRequest {
            role: role(generator),
        }),
        69..=86 => Auth::RoleGrant(AuthRoleGrantPermissionRequest {
            name: role(generator),
            perm: (!generator.one_in(30)).then(|| permission(generator)),
        }),
        87..=94 => {
            let Permission { key, range_end, .. } = permission(generator);
            Auth::RoleRevoke(AuthRoleRevokePermissionRequest {
                role: role(generator),
                key,
                range_end,
            })
        }
        95 => Auth::Disable,
        96 | 97 => Auth::Enable,
        _ => Auth::Status,
    }
}

fn permission(generator: &mut Generator) -> Permission {
    let (key, range_end) = generator.span();
    Permission {
        perm_type: generator.below(3) as i32,
        key: if generator.one_in(20) {
            Bytes::new()
        } else {
            key
        },
        range_end,
    }
}

fn authenticate(name: &str, password: &str) -> Question {
    Question::Auth(Auth::Authenticate(AuthenticateRequest {
        name: name.to_owned(),
        password: password.to_owned(),
    }))
}

/// Restores a defined state: authentication is enabled, root may do everything, and every user with a password has a
/// token.
pub(crate) fn order() -> Vec<Question> {
    let root = |auth| Question::As("root", Box::new(Question::Auth(auth)));
    let (user, role) = (|| "root".to_owned(), || "root".to_owned());
    let mut all = vec![
        authenticate("root", "q"),
        authenticate("root", "p"),
        root(Auth::Disable),
        root(Auth::UserDelete(AuthUserDeleteRequest { name: user() })),
        root(Auth::UserAdd(AuthUserAddRequest {
            name: user(),
            password: "p".to_owned(),
            ..AuthUserAddRequest::default()
        })),
        root(Auth::RoleAdd(AuthRoleAddRequest { name: role() })),
        root(Auth::UserGrant(AuthUserGrantRoleRequest {
            user: user(),
            role: role(),
        })),
        root(Auth::Enable),
        root(Auth::Status),
    ];
    for name in &USERS[..4] {
        all.extend([authenticate(name, "q"), authenticate(name, "p")]);
    }
    all
}

/// The next request of a run about users, or several that belong together.
pub(crate) fn questions(generator: &mut Generator, facts: &mut Facts) -> Vec<Question> {
    // Sometimes without a user, and root more often than others.
    let who = match generator.below(10) {
        0 => "",
        1..=4 => "root",
        other => ["ann", "bob", "cy"][(other % 3) as usize],
    };
    let one = match generator.below(100) {
        0..=29 => Question::Auth(management(generator)),
        30..=37 => {
            let (name, password) = (user(generator), password(generator));
            authenticate(&name, &password)
        }
        38..=91 => match question(generator, facts) {
            // A lease whose ID the server chooses must be revoked again, which not every user may do.
            Question::Grant(grant) if grant.id == 0 => Question::Leases,
            // etcd validates addresses before it checks permissions.
            Question::MemberAdd(add) => Question::MemberAdd(MemberAddRequest {
                peer_ur_ls: vec![OWN_PEER.to_owned()],
                ..add
            }),
            other => other,
        },
        92..=96 => Question::WatchOnce(watcher(generator, facts)),
        97 => compact(generator, facts),
        98 => Question::Snapshot,
        _ => return order(),
    };
    vec![Question::As(who, Box::new(one))]
}
