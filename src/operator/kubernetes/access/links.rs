//! The way to one member of each cluster, for calls about users and roles: kept while it answers, and found again by an
//! observation of the cluster. One reconcile of a cluster's users and roles at a time has it, so that no two change them
//! at once; the others come back.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::OwnedMutexGuard;

use super::Accesses;
use crate::crd::ValidatedCluster;
use crate::operator::clock::Moment;
use crate::operator::kubernetes::workers::Key;
use crate::operator::members::Members;
use crate::operator::platform::{Failure, Freshness, Specification};
use crate::plan::{Description, Phase};
use crate::server::operator_api::access_client::AccessClient;
use crate::wire::member as proto;

/// How long a cluster of which no member answers is not asked again.
const SILENT: Duration = Duration::from_secs(9);
/// Why members of version 0.1.0 are of no use here.
const OLD: &str =
    "members run a version that knows no users and roles of an operator: upgrade the cluster";

/// What is kept of a cluster. Losing it costs an observation.
#[derive(Default)]
pub(super) struct Link {
    /// The key of the cluster's Secret and the connections made with it.
    members: Option<(Vec<u8>, Members)>,
    /// The cluster as it was admitted, and a member that has answered.
    found: Option<(ValidatedCluster, AccessClient)>,
    /// When no member was found that answers, and why: each resource of the cluster would find out the same.
    silent: Option<(Moment, String)>,
}

/// Those of all clusters.
#[derive(Default)]
pub(super) struct Links(Mutex<BTreeMap<Key, Arc<tokio::sync::Mutex<Link>>>>);

impl Links {
    /// That of one cluster, unless another reconcile has it.
    pub(super) fn of(&self, namespace: &str, cluster: &str) -> Option<OwnedMutexGuard<Link>> {
        let link = {
            let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            // Nobody has one that only this map knows.
            if all.len() > 1000 {
                all.retain(|_, link| Arc::strong_count(link) > 1);
            }
            let key = (namespace.to_owned(), cluster.to_owned());
            all.entry(key).or_default().clone()
        };
        link.try_lock_owned().ok()
    }
}

impl Link {
    /// The member that has answered.
    pub(super) fn client(&mut self) -> Result<&mut AccessClient, Failure> {
        let found = self.found.as_mut().map(|(_, client)| client);
        found.ok_or_else(|| Failure::Changed("no member has answered".into()))
    }

    /// It does not answer any more, or it is not known whether it has carried something out.
    pub(super) fn forget(&mut self) {
        self.found = None;
    }
}

/// What a member is asked, in one reconcile.
#[derive(Default)]
pub(super) struct Question {
    /// Users to show.
    pub(super) users: Vec<String>,
    /// Roles to show.
    pub(super) roles: Vec<String>,
    /// Whether the first of the users has this password.
    pub(super) password: Option<String>,
}

/// What it says.
pub(super) struct Answer {
    pub(super) shown: proto::ShowAccessResponse,
    /// Whether the password is right. To find out takes long where hashes are expensive, and says nothing of the member.
    pub(super) password: Result<bool, tonic::Status>,
}

impl Question {
    async fn put_to(&self, client: &mut AccessClient) -> Result<Answer, tonic::Status> {
        let shown = client.show(self.users.clone(), self.roles.clone()).await?;
        let user = shown.users.first().filter(|user| !user.no_password);
        let password = match (user, &self.password) {
            (Some(user), Some(password)) => client.has_password(&user.name, password).await,
            _ => Ok(false),
        };
        Ok(Answer { shown, password })
    }
}

/// Why no member of a cluster answers: for people.
pub(super) struct Unreachable(pub(super) String);

impl Accesses {
    /// Asks a member of a cluster: the one that answered last, or another one by a new observation.
    pub(super) async fn ask(
        &self,
        key: &Key,
        link: &mut Link,
        question: &Question,
    ) -> Result<Result<(ValidatedCluster, Answer), Unreachable>, Failure> {
        if let Some((cluster, client)) = &mut link.found {
            // As it is specified now: its endpoints are in the Secrets.
            let same = self.admitted(key).is_none_or(|now| now == *cluster);
            if same && let Ok(answer) = question.put_to(client).await {
                return Ok(Ok((cluster.clone(), answer)));
            }
            link.forget();
        }
        if let Some((at, why)) = &link.silent
            && at.elapsed() < SILENT
        {
            return Ok(Err(Unreachable(why.clone())));
        }
        let found = Box::pin(self.find(key, link, question)).await?;
        link.silent = match &found {
            Ok(_) => None,
            Err(Unreachable(why)) => Some((self.shared.outside.clock.now(), why.clone())),
        };
        Ok(found)
    }

    /// A member that answers, by an observation of the cluster.
    async fn find(
        &self,
        key: &Key,
        link: &mut Link,
        question: &Question,
    ) -> Result<Result<(ValidatedCluster, Answer), Unreachable>, Failure> {
        let mut one = self.shared.cluster_aside(key);
        // Connections of its own: those of the cluster's reconcile are bound to what it observed.
        one.memory.members = link.members.take();
        let seen = one.facts(Freshness::Cached, "", Specification::Wanted);
        let seen = Box::pin(seen).await?;
        link.members = one.memory.members.clone();
        let (Some(seen), Some(view)) = (seen, &one.seen) else {
            return Ok(Err(Unreachable("there is no such EtcdCluster".into())));
        };
        let cluster = match seen.observed.cluster {
            Ok(cluster) => cluster,
            Err(invalid) => return Ok(Err(Unreachable(invalid.problems))),
        };
        let Some((_, members)) = &link.members else {
            let why = "the cluster has no key for its operator yet";
            return Ok(Err(Unreachable(why.into())));
        };
        let descriptions = &seen.observed.descriptions;
        let mut why = match descriptions.values().any(|one| one.unsigned) {
            true => OLD.to_owned(),
            false => "no member of the cluster answers".to_owned(),
        };
        for member in in_order(descriptions) {
            let Some(address) = view.addresses.get(member) else {
                continue;
            };
            let mut client = members.access(address)?;
            match question.put_to(&mut client).await {
                Ok(answer) => {
                    link.found = Some((cluster.clone(), client));
                    return Ok(Ok((cluster, answer)));
                }
                Err(status) => why = in_words(member, &status),
            }
        }
        Ok(Err(Unreachable(why)))
    }

    /// The cluster as its resource is specified, if that can be carried out.
    fn admitted(&self, key: &Key) -> Option<ValidatedCluster> {
        let cached = self.shared.caches.clusters.get(&key.0, &key.1)?;
        let cluster = cached.0.as_ref().ok()?;
        crate::operator::admission::admit(cluster).ok()
    }
}

/// Members, the leader first, then whoever is ready.
fn in_order(descriptions: &BTreeMap<String, Description>) -> Vec<&String> {
    let members = descriptions
        .iter()
        .filter(|(_, one)| one.phase == Phase::Member && !one.unsigned);
    let mut members: Vec<_> = members.collect();
    members.sort_by_key(|(_, one)| (!one.leads, !one.ready));
    members.into_iter().map(|(name, _)| name).collect()
}

fn in_words(member: &str, status: &tonic::Status) -> String {
    match status.code() {
        tonic::Code::Unimplemented => OLD.to_owned(),
        code if status.message().is_empty() => format!("{member}: {code:?}"),
        _ => format!("{member}: {}", status.message()),
    }
}
