//! What a cluster holds, as its clients see it and as a snapshot has it, for comparisons.

use std::collections::BTreeMap;

use quorate::snapshot;
use quorate::wire::etcd::auth_client::AuthClient;
use quorate::wire::etcd::lease_client::LeaseClient;
use quorate::wire::etcd::maintenance_client::MaintenanceClient;
use quorate::wire::etcd::watch_client::WatchClient;
use quorate::wire::etcd::*;

use super::fixture::Server;

/// What a cluster holds.
#[derive(Debug, PartialEq)]
pub(super) struct Truth {
    pub(super) revision: i64,
    pub(super) hash: u32,
    pub(super) compacted: i64,
    /// With the granted time and the keys.
    pub(super) leases: BTreeMap<i64, (i64, Vec<Vec<u8>>)>,
    pub(super) users: Vec<String>,
    pub(super) roles: Vec<String>,
    pub(super) authenticates: bool,
}

impl Truth {
    pub(super) fn in_file(bytes: &[u8]) -> Truth {
        let (database, digest) = bytes.split_at(bytes.len() - 32);
        let digest: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(super::restores::sha256(database), digest);
        let imported = snapshot::import(database, 0).expect("a database");
        let view = imported.store.publish();
        let lease = |id| {
            let keys = view.lease_keys(id).into_iter();
            keys.map(|key| key.to_vec()).collect()
        };
        let leases = view.leases().into_iter();
        Truth {
            revision: view.revision(),
            hash: view.hash_kv(0).expect("the current one").hash,
            compacted: view.compacted(),
            leases: leases.map(|it| (it.id, (it.ttl, lease(it.id)))).collect(),
            users: view.auth().users().map(|it| it.name.clone()).collect(),
            roles: view.auth().roles().map(|it| it.name.clone()).collect(),
            authenticates: view.auth().is_enabled(),
        }
    }
}

/// Calls of a client, with a token once there is one.
pub(super) struct Client<'a> {
    pub(super) server: &'a Server,
    pub(super) token: Option<String>,
}

impl Client<'_> {
    pub(super) fn call<T>(&self, message: T) -> tonic::Request<T> {
        let mut request = tonic::Request::new(message);
        if let Some(token) = &self.token {
            let token = token.parse().expect("a header");
            request.metadata_mut().insert("token", token);
        }
        request
    }

    pub(super) async fn put(&self, key: &str, value: &str, lease: i64) -> i64 {
        let put = PutRequest {
            key: key.as_bytes().to_vec().into(),
            value: value.as_bytes().to_vec().into(),
            lease,
            ..PutRequest::default()
        };
        let done = self.server.kv().put(self.call(put)).await.expect("a write");
        done.into_inner().header.expect("a header").revision
    }

    pub(super) async fn grant(&self, id: i64, ttl: i64) {
        let grant = self.call(LeaseGrantRequest { id, ttl });
        let mut leases = LeaseClient::new(self.server.channel());
        leases.lease_grant(grant).await.expect("a lease");
    }

    pub(super) async fn revoke(&self, id: i64) {
        let revoke = self.call(LeaseRevokeRequest { id });
        let mut leases = LeaseClient::new(self.server.channel());
        leases.lease_revoke(revoke).await.expect("revoked");
    }

    pub(super) async fn keep_alive(&self, id: i64) {
        let mut leases = LeaseClient::new(self.server.channel());
        let kept = self.call(futures::stream::iter([LeaseKeepAliveRequest { id }]));
        let kept = leases.lease_keep_alive(kept).await.expect("a stream");
        let kept = kept.into_inner().message().await.expect("an answer");
        assert!(kept.expect("one").ttl > 0);
    }

    pub(super) async fn hash(&self, revision: i64) -> HashKvResponse {
        let mut maintenance = MaintenanceClient::new(self.server.channel());
        let hash = self.call(HashKvRequest { revision });
        maintenance
            .hash_kv(hash)
            .await
            .expect("a hash")
            .into_inner()
    }

    /// What the cluster holds now, as its clients see it.
    pub(super) async fn truth(&self) -> Truth {
        let linearizable = RangeRequest {
            key: b"nothing".to_vec().into(),
            ..RangeRequest::default()
        };
        let read = self.server.kv().range(self.call(linearizable)).await;
        read.expect("a read");
        let hash = self.hash(0).await;
        let mut client = LeaseClient::new(self.server.channel());
        let listed = client.lease_leases(self.call(LeaseLeasesRequest {})).await;
        let mut leases = BTreeMap::new();
        for lease in listed.expect("leases").into_inner().leases {
            let ask = self.call(LeaseTimeToLiveRequest {
                id: lease.id,
                keys: true,
            });
            let it = client.lease_time_to_live(ask).await.expect("a lease");
            let it = it.into_inner();
            let mut keys: Vec<Vec<u8>> = it.keys.into_iter().map(|key| key.to_vec()).collect();
            keys.sort();
            leases.insert(lease.id, (it.granted_ttl, keys));
        }
        let mut auth = AuthClient::new(self.server.channel());
        let users = auth.user_list(self.call(AuthUserListRequest {})).await;
        let roles = auth.role_list(self.call(AuthRoleListRequest {})).await;
        let status = auth.auth_status(self.call(AuthStatusRequest {})).await;
        Truth {
            revision: hash.hash_revision,
            hash: hash.hash,
            compacted: hash.compact_revision,
            leases,
            users: users.expect("users").into_inner().users,
            roles: roles.expect("roles").into_inner().roles,
            authenticates: status.expect("a status").into_inner().enabled,
        }
    }

    /// Every event from one revision to another.
    pub(super) async fn events(&self, from: i64, to: i64) -> Vec<(i32, Vec<u8>, Vec<u8>, i64)> {
        let create = WatchCreateRequest {
            key: b"\0".to_vec().into(),
            range_end: b"\0".to_vec().into(),
            start_revision: from,
            ..WatchCreateRequest::default()
        };
        let request = WatchRequest {
            request_union: Some(watch_request::RequestUnion::CreateRequest(create)),
        };
        let requests =
            futures::StreamExt::chain(futures::stream::iter([request]), futures::stream::pending());
        let mut client = WatchClient::new(self.server.channel());
        let watch = client.watch(self.call(requests)).await.expect("a watch");
        let mut watch = watch.into_inner();
        let mut events = Vec::new();
        loop {
            let answer = watch.message().await.expect("an answer").expect("one");
            assert!(!answer.canceled, "{answer:?}");
            for event in answer.events {
                let kv = event.kv.expect("a key");
                if kv.mod_revision > to {
                    return events;
                }
                let (key, value) = (kv.key.to_vec(), kv.value.to_vec());
                events.push((event.r#type, key, value, kv.mod_revision));
                if kv.mod_revision == to {
                    return events;
                }
            }
        }
    }
}
