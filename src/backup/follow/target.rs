//! The cluster that follows, by the peer ports of its members: any of them takes a step.

use std::time::Duration;

use prost::Message as _;
use tonic::{Code, Status};

use super::Failed;
use crate::backup::Error;
use crate::backup::source::{Members, text};
use crate::server::operator_api::follow_client::{FollowClient, STEP};
use crate::store::{Follow as Step, Revision};
use crate::wire::member::{AdvanceRequest, Following, PositionResponse};

/// A member answers within this, or another one is asked.
const ANSWER: Duration = Duration::from_secs(15);
/// It reads all its keys for a hash.
const HASH: Duration = Duration::from_secs(300);

/// The cluster.
pub(super) struct Target<'a> {
    members: &'a Members,
    /// The member that answered last.
    client: Option<FollowClient>,
}

impl Target<'_> {
    pub(super) fn new(members: &Members) -> Target<'_> {
        Target {
            members,
            client: None,
        }
    }

    /// How far it is, from the first member that can say it.
    pub(super) async fn connect(&mut self) -> Result<PositionResponse, Failed> {
        self.client = None;
        let mut failures = Vec::new();
        for (host, address) in self.members.addresses().await {
            let place = address.clone().unwrap_or_else(|_| host.clone());
            match self.ask(&host, address).await {
                Ok(position) => return Ok(position),
                Err(why) => failures.push(format!("{place}: {why}")),
            }
        }
        let why = failures.join("; ");
        Err(Failed::Passing(format!("the cluster that follows: {why}")))
    }

    async fn ask(
        &mut self,
        host: &str,
        address: Result<String, String>,
    ) -> Result<PositionResponse, String> {
        let client = self.members.follow_client(host, &address?, HASH);
        let mut client = client.map_err(|error| error.to_string())?;
        let position = tokio::time::timeout(ANSWER, client.position(0)).await;
        let position = position.map_err(|_| silent())?;
        let position = position.map_err(|status| text(&status))?;
        self.client = Some(client);
        Ok(position)
    }

    /// Its hash at a revision, and the revision that it was compacted at.
    pub(super) async fn hash(&mut self, revision: Revision) -> Result<(u32, Revision), Failed> {
        let client = self.client.as_mut().ok_or_else(unconnected)?;
        let position = client.position(revision).await;
        let position = position.map_err(|status| failed(&status))?;
        Ok((position.hash, position.compact_revision))
    }

    /// Takes a step, and what is told. Returns the revision afterwards.
    pub(super) async fn advance(
        &mut self,
        step: Option<&Step>,
        told: Following,
    ) -> Result<Revision, Failed> {
        let step = step.map(Step::encode_to_vec).unwrap_or_default();
        if step.len() > STEP {
            return Err(Failed::Final(Error::Follow(format!(
                "the followed cluster wrote a key of {} bytes, and {STEP} are the most: a cluster with so large values cannot be followed",
                step.len()
            ))));
        }
        let client = self.client.as_mut().ok_or_else(unconnected)?;
        let request = AdvanceRequest {
            step: step.into(),
            told: Some(told),
        };
        match tokio::time::timeout(ANSWER, client.advance(request)).await {
            Ok(Ok(revision)) => Ok(revision),
            Ok(Err(status)) => Err(failed(&status)),
            Err(_) => Err(Failed::Passing(format!(
                "the cluster that follows: {}",
                silent()
            ))),
        }
    }
}

/// What a member's refusal means.
fn failed(status: &Status) -> Failed {
    let why = text(status);
    match status.code() {
        Code::DataLoss => Failed::Final(Error::Follow(why)),
        _ => Failed::Passing(format!("the cluster that follows: {why}")),
    }
}

fn unconnected() -> Failed {
    Failed::Passing("the cluster that follows: no member was asked yet".to_owned())
}

fn silent() -> String {
    format!("no answer in {} s", ANSWER.as_secs())
}
