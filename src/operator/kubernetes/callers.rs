//! Authenticates and authorises HTTP callers of the operator by the API server's TokenReview and SubjectAccessReview.
//! Cached results are bounded in number and time, and so are the reviews; a token is never kept, only its hash.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, UserInfo};
use k8s_openapi::api::authorization::v1::{
    NonResourceAttributes, ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use kube::api::PostParams;
use kube::{Api, Client};
use sha2::{Digest, Sha256};

use crate::operator::clock::{Clock, Moment};

/// So long an answer holds.
const HOLDS: Duration = Duration::from_secs(30);
/// Answers that are remembered.
const REMEMBERED: usize = 256;
/// Questions to the API server in a span of time: a stranger does not make this operator flood it.
const QUESTIONS: u32 = 20;
const SPAN: Duration = Duration::from_secs(1);
/// So long a token that was accepted is not a stranger's.
const ACCEPTED: Duration = Duration::from_secs(120);
/// Maximum length of a token in bytes.
const LONGEST: usize = 16 << 10;
/// How long the API server may take.
const BOUND: Duration = Duration::from_secs(5);

/// The requested permission.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Wish {
    /// To read this path.
    Path(&'static str),
    /// To read objects of a kind, by their group and plural, in a namespace.
    Read {
        group: &'static str,
        plural: &'static str,
        namespace: String,
        /// `None`: any.
        name: Option<String>,
    },
    /// To list objects of a kind, by their group and plural.
    List {
        group: &'static str,
        plural: &'static str,
        /// `None`: of all namespaces.
        namespace: Option<String>,
    },
}

/// Why a caller is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refusal {
    /// The caller is not authenticated.
    #[error("the token is none that the API server knows: {0}")]
    Unknown(String),
    /// He may not.
    #[error("{0}")]
    Forbidden(String),
    /// The API server does not answer, or is not asked.
    #[error("{0}")]
    Unclear(String),
}

/// Asks the API server.
pub(super) struct Callers {
    client: Client,
    clock: Clock,
    inner: Mutex<Inner>,
}

/// The hash of a token, and what was asked for.
type Asking = ([u8; 32], Wish);
/// Since when it holds, and why not.
type Answered = (Moment, Result<(), Refusal>);

#[derive(Default)]
struct Inner {
    known: BTreeMap<Asking, Answered>,
    /// Tokens whose subject was let in a while ago: strangers do not keep them from being asked for again.
    accepted: BTreeMap<[u8; 32], Moment>,
    /// Since when questions are counted, and how many there were: of strangers, and of those.
    asked: [Option<(Moment, u32)>; 2],
}

impl Callers {
    pub(super) fn new(client: Client, clock: Clock) -> Self {
        Self {
            client,
            clock,
            inner: Mutex::default(),
        }
    }

    /// Whether the subject of this token may do this. `audience`: the required audience of the token; otherwise the API
    /// server itself.
    pub(super) async fn may(
        &self,
        token: &str,
        audience: Option<&str>,
        wish: &Wish,
    ) -> Result<(), Refusal> {
        let key = (Sha256::digest(token.as_bytes()).into(), wish.clone());
        if token.is_empty() || token.len() > LONGEST {
            return Err(Refusal::Unknown("it is empty, or too long".to_owned()));
        }
        {
            let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
            let known = inner.known.get(&key);
            if let Some((_, answer)) = known.filter(|(at, _)| at.elapsed() < HOLDS) {
                return answer.clone();
            }
            let accepted = inner.accepted.get(&key.0);
            let accepted = accepted.is_some_and(|at| at.elapsed() < ACCEPTED);
            inner.count(&self.clock, accepted)?;
        }
        let answer = tokio::time::timeout(BOUND, self.ask(token, audience, wish)).await;
        let answer = answer.unwrap_or_else(|_| {
            Err(Refusal::Unclear(
                "the API server does not answer".to_owned(),
            ))
        });
        if !matches!(answer, Err(Refusal::Unclear(_))) {
            let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
            inner.known.retain(|_, (at, _)| at.elapsed() < HOLDS);
            inner.remember(key, &self.clock, answer.clone());
        }
        answer
    }

    async fn ask(&self, token: &str, audience: Option<&str>, wish: &Wish) -> Result<(), Refusal> {
        let user = self.user(token, audience).await?;
        let name = user.username.clone().unwrap_or_default();
        let review = SubjectAccessReview {
            spec: asked(user, wish),
            ..SubjectAccessReview::default()
        };
        let api: Api<SubjectAccessReview> = Api::all(self.client.clone());
        let review = api.create(&PostParams::default(), &review).await;
        let review = review.map_err(|error| unclear("SubjectAccessReviews", &error))?;
        if review.status.is_some_and(|status| status.allowed) {
            return Ok(());
        }
        Err(Refusal::Forbidden(match wish {
            Wish::Path(path) => {
                format!("{name} may not get {path}: give it a ClusterRole with this nonResourceURL")
            }
            Wish::Read {
                plural, namespace, ..
            } => format!("{name} may not get {plural} in namespace {namespace}"),
            Wish::List {
                plural,
                namespace: Some(namespace),
                ..
            } => format!("{name} may not list {plural} in namespace {namespace}"),
            Wish::List { plural, .. } => format!(
                "{name} may not list {plural} in all namespaces: give it a ClusterRole that lets it, or ask for one namespace"
            ),
        }))
    }

    /// Whose token it is.
    async fn user(&self, token: &str, audience: Option<&str>) -> Result<UserInfo, Refusal> {
        let review = TokenReview {
            spec: TokenReviewSpec {
                token: Some(token.to_owned()),
                audiences: audience.map(|audience| vec![audience.to_owned()]),
            },
            ..TokenReview::default()
        };
        let api: Api<TokenReview> = Api::all(self.client.clone());
        let review = api.create(&PostParams::default(), &review).await;
        let review = review.map_err(|error| unclear("TokenReviews", &error))?;
        let status = review.status.unwrap_or_default();
        let audiences = status.audiences.unwrap_or_default();
        let meant = audience.is_none_or(|wanted| audiences.iter().any(|one| one == wanted));
        match status.user {
            Some(user) if status.authenticated == Some(true) && meant => Ok(user),
            _ => Err(Refusal::Unknown(
                status
                    .error
                    .unwrap_or_else(|| "it is not valid here".to_owned()),
            )),
        }
    }
}

impl Inner {
    /// Remembers an answer, as long as there is place: for one who is let in, that of a refusal.
    fn remember(&mut self, key: Asking, clock: &Clock, answer: Result<(), Refusal>) {
        if answer.is_ok() {
            self.accepted.retain(|_, at| at.elapsed() < ACCEPTED);
            if self.accepted.len() < REMEMBERED {
                self.accepted.insert(key.0, clock.now());
            }
            let refused = self.known.iter().find(|(_, (_, answer))| answer.is_err());
            let refused = refused.map(|(key, _)| key.clone());
            if self.known.len() >= REMEMBERED
                && let Some(refused) = refused
            {
                self.known.remove(&refused);
            }
        }
        if self.known.len() < REMEMBERED {
            self.known.insert(key, (clock.now(), answer));
        }
    }

    /// One more question, if there may be one.
    fn count(&mut self, clock: &Clock, accepted: bool) -> Result<(), Refusal> {
        match &mut self.asked[usize::from(accepted)] {
            Some((since, count)) if since.elapsed() < SPAN => {
                if *count >= QUESTIONS {
                    let text = "too many ask at this moment: try again in a second";
                    return Err(Refusal::Unclear(text.to_owned()));
                }
                *count += 1;
            }
            asked => *asked = Some((clock.now(), 1)),
        }
        Ok(())
    }
}

fn asked(user: UserInfo, wish: &Wish) -> SubjectAccessReviewSpec {
    let mut spec = SubjectAccessReviewSpec {
        user: user.username,
        groups: user.groups,
        uid: user.uid,
        extra: user.extra,
        ..SubjectAccessReviewSpec::default()
    };
    let verb = Some("get".to_owned());
    match wish {
        Wish::Path(path) => {
            spec.non_resource_attributes = Some(NonResourceAttributes {
                path: Some((*path).to_owned()),
                verb,
            });
        }
        Wish::Read {
            group,
            plural,
            namespace,
            name,
        } => {
            spec.resource_attributes = Some(ResourceAttributes {
                group: Some((*group).to_owned()),
                resource: Some((*plural).to_owned()),
                namespace: Some(namespace.clone()),
                name: name.clone(),
                verb,
                ..ResourceAttributes::default()
            });
        }
        Wish::List {
            group,
            plural,
            namespace,
        } => {
            spec.resource_attributes = Some(ResourceAttributes {
                group: Some((*group).to_owned()),
                resource: Some((*plural).to_owned()),
                namespace: namespace.clone(),
                verb: Some("list".to_owned()),
                ..ResourceAttributes::default()
            });
        }
    }
    spec
}

fn unclear(what: &str, error: &kube::Error) -> Refusal {
    Refusal::Unclear(match error {
        kube::Error::Api(status) if status.code == 403 => format!(
            "this is off, because the operator may not create {what}: give it the right (the chart's clusterRead)"
        ),
        error => format!("cannot verify the caller with the API server: {error}"),
    })
}

#[cfg(test)]
#[path = "callers_test.rs"]
pub(super) mod tests;
