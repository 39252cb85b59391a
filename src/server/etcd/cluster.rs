//! The Cluster service: the membership as every member knows it, and its changes through the
//! leader. Responses contain no revision, as in etcd.

use tonic::{Request, Response, Status};

use super::call::{Learner, Services, failed};
use crate::node::Membership;
use crate::server::core::handle::{Fence, MembershipRequest};
use crate::server::flags::url::Endpoint;
use crate::server::metrics::client::Method;
use crate::wire::error::EtcdError;
use crate::wire::etcd::{self, cluster_server::Cluster};

#[tonic::async_trait]
impl Cluster for Services {
    async fn member_add(
        &self,
        request: Request<etcd::MemberAddRequest>,
    ) -> Result<Response<etcd::MemberAddResponse>, Status> {
        self.unary(
            Method::MemberAdd,
            Learner::Refused,
            request,
            |request| async move {
                let add = MembershipRequest::Add {
                    name: String::new(),
                    peer_urls: peer_urls(&request.peer_ur_ls)?,
                    learner: request.is_learner,
                    disk_uuid: None,
                };
                let (id, membership) = self.change(add).await?;
                let members = members(&membership);
                Ok(etcd::MemberAddResponse {
                    header: self.header(0),
                    member: members.iter().find(|member| member.id == id).cloned(),
                    members,
                })
            },
        )
        .await
    }

    async fn member_remove(
        &self,
        request: Request<etcd::MemberRemoveRequest>,
    ) -> Result<Response<etcd::MemberRemoveResponse>, Status> {
        self.unary(
            Method::MemberRemove,
            Learner::Refused,
            request,
            |request| async move {
                let (_, membership) = self
                    .change(MembershipRequest::Remove { id: request.id })
                    .await?;
                Ok(etcd::MemberRemoveResponse {
                    header: self.header(0),
                    members: members(&membership),
                })
            },
        )
        .await
    }

    async fn member_update(
        &self,
        request: Request<etcd::MemberUpdateRequest>,
    ) -> Result<Response<etcd::MemberUpdateResponse>, Status> {
        self.unary(
            Method::MemberUpdate,
            Learner::Refused,
            request,
            |request| async move {
                let peer_urls = peer_urls(&request.peer_ur_ls).map_err(|refusal| {
                    let latest = self.shared.member.latest();
                    match latest.membership.member(request.id) {
                        Some(_) => refusal,
                        // etcd looks for the member first.
                        None => EtcdError::MemberNotFound.into(),
                    }
                })?;
                let update = MembershipRequest::Update {
                    id: request.id,
                    peer_urls,
                };
                let (_, membership) = self.change(update).await?;
                Ok(etcd::MemberUpdateResponse {
                    header: self.header(0),
                    members: members(&membership),
                })
            },
        )
        .await
    }

    async fn member_list(
        &self,
        request: Request<etcd::MemberListRequest>,
    ) -> Result<Response<etcd::MemberListResponse>, Status> {
        self.unary(
            Method::MemberList,
            Learner::Refused,
            request,
            |request| async move {
                let state = match request.linearizable {
                    true => self.shared.member.settled().await.map_err(failed)?,
                    false => self.state(true).await?,
                };
                Ok(etcd::MemberListResponse {
                    header: self.header(0),
                    members: members(&state.membership),
                })
            },
        )
        .await
    }

    async fn member_promote(
        &self,
        request: Request<etcd::MemberPromoteRequest>,
    ) -> Result<Response<etcd::MemberPromoteResponse>, Status> {
        self.unary(
            Method::MemberPromote,
            Learner::Refused,
            request,
            |request| async move {
                let (_, membership) = self
                    .change(MembershipRequest::Promote { id: request.id })
                    .await?;
                Ok(etcd::MemberPromoteResponse {
                    header: self.header(0),
                    members: members(&membership),
                })
            },
        )
        .await
    }
}

impl Services {
    /// etcd's calls have no precondition on the membership: nothing is fenced.
    async fn change(
        &self,
        request: MembershipRequest,
    ) -> Result<(u64, std::sync::Arc<Membership>), Status> {
        let changed = self
            .shared
            .member
            .change_membership(request, Fence::default())
            .await;
        changed.map_err(failed)
    }
}

/// Every URL parsed and sorted, as etcd stores them.
fn peer_urls(urls: &[String]) -> Result<Vec<String>, Status> {
    let parsed: Result<Vec<Endpoint>, _> = urls.iter().map(|url| Endpoint::parse(url)).collect();
    match parsed {
        Ok(mut parsed) if !parsed.is_empty() => {
            parsed.sort();
            parsed.dedup();
            Ok(parsed.iter().map(Endpoint::to_string).collect())
        }
        _ => Err(EtcdError::BadMemberUrls.into()),
    }
}

/// Members by ID. One that has not started has no name, by which clients recognise it.
fn members(membership: &Membership) -> Vec<etcd::Member> {
    membership
        .members
        .values()
        .map(|member| etcd::Member {
            id: member.id,
            name: if member.started {
                member.name.clone()
            } else {
                String::new()
            },
            peer_ur_ls: member.peer_urls.clone(),
            client_ur_ls: member.client_urls.clone(),
            is_learner: member.learner,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::peer_urls;

    #[test]
    fn peer_urls_are_sorted_or_refused() {
        let urls = |texts: &[&str]| {
            let texts: Vec<String> = texts.iter().map(|text| (*text).to_owned()).collect();
            peer_urls(&texts).map_err(|error| error.message().to_owned())
        };
        assert_eq!(
            urls(&["http://b:2", "http://a:1"]),
            Ok(vec!["http://a:1".to_owned(), "http://b:2".to_owned()])
        );
        let refused = Err("etcdserver: given member URLs are invalid".to_owned());
        assert_eq!(urls(&[]), refused);
        assert_eq!(urls(&["a:1"]), refused);
    }
}
