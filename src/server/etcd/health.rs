//! The gRPC health service, used by kube-apiserver and load balancers.

use std::pin::Pin;
use std::time::Duration;

use futures::Stream;
use tonic::{Request, Response, Status};

use super::call::{Learner, Services};
use crate::server::core::handle::Health as MemberHealth;
use crate::server::metrics::client::Method;
use crate::wire::health::health_check_response::ServingStatus;
use crate::wire::health::health_server::Health;
use crate::wire::health::{HealthCheckRequest, HealthCheckResponse};

/// How often a watched status is checked.
const CHECK_EVERY: Duration = Duration::from_millis(500);

#[tonic::async_trait]
impl Health for Services {
    async fn check(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<HealthCheckResponse>, Status> {
        self.unary(
            Method::HealthCheck,
            Learner::Refused,
            request,
            |request| async move {
                match self.serving(&request.service) {
                    ServingStatus::ServiceUnknown => Err(Status::not_found("unknown service")),
                    status => Ok(HealthCheckResponse {
                        status: status.into(),
                    }),
                }
            },
        )
        .await
    }

    type WatchStream = Pin<Box<dyn Stream<Item = Result<HealthCheckResponse, Status>> + Send>>;

    async fn watch(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let call = self.stream(Method::HealthWatch);
        self.admit_now(Learner::Refused, request.metadata())
            .map_err(|error| call.refuse(error))?;
        let service = request.into_inner().service;
        let state = (self.clone(), service, None, call);
        let stream = futures::stream::unfold(state, |(services, service, last, call)| async move {
            let mut status = services.serving(&service);
            while last == Some(status) {
                tokio::time::sleep(CHECK_EVERY).await;
                status = services.serving(&service);
            }
            let answer = HealthCheckResponse {
                status: status.into(),
            };
            call.sent();
            Some((Ok(answer), (services, service, Some(status), call)))
        });
        Ok(Response::new(Box::pin(stream)))
    }
}

impl Services {
    fn serving(&self, service: &str) -> ServingStatus {
        if !service.is_empty() && !service.starts_with("etcdserverpb.") {
            return ServingStatus::ServiceUnknown;
        }
        match self.shared.member.ready() {
            MemberHealth::Ok => ServingStatus::Serving,
            MemberHealth::Not(_) => ServingStatus::NotServing,
        }
    }
}
