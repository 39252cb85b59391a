//! gRPC clients of one server, and its answers as text.

use quorate::wire::etcd::kv_client::KvClient;
use quorate::wire::etcd::lease_client::LeaseClient;
use quorate::wire::etcd::maintenance_client::MaintenanceClient;
use quorate::wire::etcd::watch_client::WatchClient;
use quorate::wire::etcd::{HashKvRequest, ResponseHeader, TxnResponse, response_op};
use tonic::transport::{Channel, Endpoint};

use crate::cluster::Cluster;
use crate::dice::Question;

/// Clients of one server.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) kv: KvClient<Channel>,
    pub(crate) lease: LeaseClient<Channel>,
    pub(crate) maintenance: MaintenanceClient<Channel>,
    pub(crate) watch: WatchClient<Channel>,
}

impl Server {
    pub(crate) fn new(cluster: &Cluster, member: usize) -> Server {
        let endpoint = Endpoint::from_shared(format!("http://{}", cluster.members[member].client));
        let channel = endpoint.expect("an address").connect_lazy();
        Server {
            kv: KvClient::new(channel.clone()),
            lease: LeaseClient::new(channel.clone()),
            maintenance: MaintenanceClient::new(channel.clone()),
            watch: WatchClient::new(channel),
        }
    }

    /// Waits until the member has applied a revision; hashes are of what it has.
    pub(crate) async fn reach(&mut self, revision: i64) {
        let request = HashKvRequest { revision: 0 };
        for _ in 0..1000 {
            let reply = self
                .maintenance
                .hash_kv(request)
                .await
                .map(tonic::Response::into_inner);
            let own = reply.ok().and_then(|reply| reply.header);
            if own.is_some_and(|header| header.revision >= revision) {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        panic!("a member does not reach revision {revision}");
    }

    /// Asks, and gives the answer as text without what names the cluster.
    pub(crate) async fn ask(&mut self, question: &Question) -> (Option<i64>, String) {
        macro_rules! answer {
            ($reply:expr) => {
                match $reply.await {
                    Ok(reply) => {
                        let mut reply = reply.into_inner();
                        let revision = reply.header.as_mut().map(anonymous);
                        (revision, format!("{reply:?}"))
                    }
                    Err(status) => (None, format!("{:?} {}", status.code(), status.message())),
                }
            };
        }
        match question.clone() {
            Question::Put(put) => answer!(self.kv.put(put)),
            Question::Delete(delete) => answer!(self.kv.delete_range(delete)),
            Question::Range(range) => answer!(self.kv.range(range)),
            Question::Compact(compact) => answer!(self.kv.compact(compact)),
            Question::Grant(grant) => answer!(self.lease.lease_grant(grant)),
            Question::Revoke(revoke) => answer!(self.lease.lease_revoke(revoke)),
            Question::Hash(hash) => answer!(self.maintenance.hash_kv(hash)),
            Question::Txn(txn) => match self.kv.txn(txn).await {
                Ok(reply) => {
                    let mut reply = reply.into_inner();
                    let revision = reply.header.as_ref().map(|header| header.revision);
                    anonymous_txn(&mut reply);
                    (revision, format!("{reply:?}"))
                }
                Err(status) => (None, format!("{:?} {}", status.code(), status.message())),
            },
            Question::TimeToLive(lease) => match self.lease.lease_time_to_live(lease).await {
                Ok(reply) => {
                    let mut reply = reply.into_inner();
                    // etcd gives the keys in no order, and time passes.
                    reply.keys.sort();
                    let known = reply.ttl > 0;
                    (
                        None,
                        format!("{known} {} {:?}", reply.granted_ttl, reply.keys),
                    )
                }
                Err(status) => (None, format!("{:?} {}", status.code(), status.message())),
            },
        }
    }
}

/// Leaves the revision alone in a header.
fn anonymous(header: &mut ResponseHeader) -> i64 {
    *header = ResponseHeader {
        revision: header.revision,
        ..ResponseHeader::default()
    };
    header.revision
}

fn anonymous_txn(reply: &mut TxnResponse) {
    reply.header.as_mut().map(anonymous);
    for response in &mut reply.responses {
        if let Some(response_op::Response::ResponseTxn(nested)) = &mut response.response {
            anonymous_txn(nested);
        }
    }
}
