//! Asks members over `quorate.v1`: several at once, each within a bound, over connections that are kept while a cluster is at
//! work. A member that does not answer is simply not in the answer: silence is no evidence.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::future::join_all;
use tonic::{Code, Status};

use super::clock::{Clock, Moment};
use super::held;
use super::platform::Failure;
use crate::plan::{AlarmKind, Fence, MemberAction};
use crate::server::operator_api::access_client::AccessClient;
use crate::server::operator_api::auth::Key;
use crate::server::operator_api::client::{AddressError, Author, MemberClient};
use crate::server::operator_api::held_call::HeldCall;
use crate::server::operator_api::secure::Secure;
use crate::wire::member as proto;

/// A call that takes longer has failed. Membership changes wait for a commit, transfers for an
/// election.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Timeout of a description: one member that hangs must not block the reconcile of a cluster.
const DESCRIBE: Duration = Duration::from_millis(1500);

/// A description and when it was received.
#[derive(Clone, Debug)]
pub struct Described {
    /// The member's error.
    pub description: proto::DescribeResponse,
    /// It leads, and a quorum confirmed the member list above.
    pub leads: bool,
    /// It is unsigned: from a member of version 0.1.0, or from an attacker in front of one.
    pub unsigned: bool,
    /// When the answer came.
    pub at: Moment,
}

/// How a member is reached at its address (`host:port`), for callers with this key, and with TLS if its certificate has
/// to be verified.
pub type Dial =
    Arc<dyn Fn(&str, &Key, Option<&Secure>) -> Result<MemberClient, AddressError> + Send + Sync>;

/// Over the network.
pub fn network() -> Dial {
    Arc::new(|address, key, secure| MemberClient::new(address, key.clone(), TIMEOUT, secure))
}

/// The pod at an address, as reported by Kubernetes: an attacker on the way cannot change it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MadeOf {
    /// Its UID; empty if the platform has none.
    pub pod_uid: String,
    /// The image of its server, by the requested name.
    pub image: String,
    /// The same by its digest, reported by the node once it has pulled it. A tag can be moved to other content.
    pub content: Option<String>,
}

impl MadeOf {
    /// Which servers sign, once one of these has signed from this disk. All of one digest do; for a tag it can only be
    /// recorded disk by disk.
    fn signer(&self, disk_uuid: &str) -> Signer {
        match &self.content {
            Some(content) => Signer::Content(content.clone()),
            None => Signer::Disk {
                disk_uuid: disk_uuid.to_owned(),
                image: self.image.clone(),
            },
        }
    }
}

/// Servers that have proven not to be of version 0.1.0, which signs nothing.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Signer {
    /// Every server of this image.
    Content(String),
    /// The server of this disk for as long as its pod has this image.
    Disk { disk_uuid: String, image: String },
}

/// Connections to the members of one cluster, by address (`host:port`).
#[derive(Clone)]
pub struct Members {
    key: Key,
    dial: Dial,
    clock: Clock,
    clients: Arc<Mutex<BTreeMap<String, MemberClient>>>,
    /// What those that speak TLS have to prove, by address.
    secure: Arc<Mutex<BTreeMap<String, Secure>>>,
    /// Their images, by address.
    made_of: Arc<Mutex<BTreeMap<String, MadeOf>>>,
    met: Arc<Mutex<Met>>,
}

/// Which servers have answered.
#[derive(Default)]
struct Met {
    /// By address, from the last observation.
    authors: BTreeMap<String, Author>,
    /// An unsigned answer from a pod of one of these is not accepted. From one of another image it may be: version
    /// 0.1.0, to which a cluster can be rolled back, signs nothing. The first observation of a restarted operator
    /// learns it again, before any answer is accepted.
    signed: BTreeSet<Signer>,
}

impl std::fmt::Debug for Members {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Members").finish_non_exhaustive()
    }
}

impl Members {
    /// Members that accept this key, reached so.
    pub fn new(key: Key, dial: Dial, clock: Clock) -> Self {
        Self {
            key,
            dial,
            clock,
            clients: Arc::default(),
            secure: Arc::default(),
            made_of: Arc::default(),
            met: Arc::default(),
        }
    }

    fn met(&self) -> MutexGuard<'_, Met> {
        self.met.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on these addresses speak TLS and have to prove this, and all others do not.
    pub fn secure(&self, mut secure: BTreeMap<String, Secure>) {
        let mut known = self.secure.lock().unwrap_or_else(PoisonError::into_inner);
        share(&known, &mut secure);
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        // Connections that proved something else are not used any more.
        clients.retain(|address, _| known.get(address) == secure.get(address));
        *known = secure;
    }

    /// From now on the pods at these addresses have this image.
    pub fn made_of(&self, made_of: BTreeMap<String, MadeOf>) {
        let mut known = self.made_of.lock().unwrap_or_else(PoisonError::into_inner);
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        // A client requires signatures if it has received one: that applies to the image that returned it.
        let image = |all: &BTreeMap<String, MadeOf>, address: &String| {
            let made = all.get(address);
            made.map(|made| (made.image.clone(), made.content.clone()))
        };
        clients.retain(|address, _| image(&known, address) == image(&made_of, address));
        *known = made_of;
    }

    /// A client of the member at this address.
    pub fn at(&self, address: &str) -> Result<MemberClient, Failure> {
        let secure = self.secure.lock().unwrap_or_else(PoisonError::into_inner);
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(client) = clients.get(address) {
            return Ok(client.clone());
        }
        let client = (self.dial)(address, &self.key, secure.get(address))
            .map_err(|error| Failure::Retry(error.to_string()))?;
        clients.insert(address.to_owned(), client.clone());
        Ok(client)
    }

    /// Calls about users and roles to the server that answered at this address when it was last observed.
    pub(super) fn access(&self, address: &str) -> Result<AccessClient, Failure> {
        let author = self.met().authors.get(address).cloned();
        let author = author
            .ok_or_else(|| Failure::Changed(format!("no member answered Describe at {address}")))?;
        Ok(self.at(address)?.only(author).access())
    }

    /// A call that the member at this address holds until its description has another digest than this.
    pub(super) fn held_call(&self, address: &str, digest: u64) -> HeldCall {
        let secure = self.secure.lock().unwrap_or_else(PoisonError::into_inner);
        HeldCall {
            address: address.to_owned(),
            key: self.key.clone(),
            secure: secure.get(address).cloned(),
            digest,
            wait: held::wait_of(address),
        }
    }

    /// Closes the connections: no member is asked for minutes, and the next observation makes others.
    pub(super) fn hang_up(&self) {
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        clients.clear();
    }

    /// Descriptions of the members at these addresses (by any name), as far as they answer, and why the others did not.
    /// From then on each that answers refuses calls of older epochs.
    pub async fn describe(
        &self,
        addresses: &BTreeMap<String, String>,
        epoch: u64,
    ) -> (BTreeMap<String, Described>, BTreeMap<String, String>) {
        // Connections to addresses that are no longer used are dropped.
        {
            let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
            clients.retain(|address, _| addresses.values().any(|used| used == address));
        }
        // A call is bound to this observation or to none.
        self.met().authors.clear();
        let calls = addresses.iter().map(|(name, address)| async move {
            (name, address, self.describe_one(address, epoch).await)
        });
        let answers = join_all(calls).await;
        let mut met = self.met();
        // A signed answer applies to its whole image, also to pods that answered before.
        let signers = answers
            .iter()
            .filter_map(|(.., answer)| answer.as_ref().ok()?.signs());
        met.signed.extend(signers);
        let (mut described, mut silent) = (BTreeMap::new(), BTreeMap::new());
        for (name, address, answer) in answers {
            match answer.and_then(|answer| answer.believed(&met.signed)) {
                Ok((answer, author)) => {
                    met.authors.insert(address.clone(), author);
                    described.insert(name.clone(), answer);
                }
                Err(why) => {
                    silent.insert(name.clone(), why);
                }
            }
        }
        (described, silent)
    }

    /// Calls a member: the one that the action is about, or the leader. `addresses` are those of the
    /// last observation, `urls` gives the URL under which the others dial a member, with TLS or
    /// without. `epoch` is the caller's, for calls whose action carries none.
    pub async fn act(
        &self,
        action: &MemberAction,
        leader: Option<&str>,
        epoch: u64,
        addresses: &BTreeMap<String, String>,
        urls: impl Fn(&str, bool) -> String,
    ) -> Result<(), Failure> {
        let target = match action {
            MemberAction::Bootstrap { member, .. } | MemberAction::Retire { member, .. } => {
                Some(member.as_str())
            }
            MemberAction::Transfer { from, .. } => Some(from.as_str()),
            MemberAction::AddLearner { .. }
            | MemberAction::SetPeerUrls { .. }
            | MemberAction::Promote { .. }
            | MemberAction::Disarm { .. }
            | MemberAction::Remove { .. } => leader,
        };
        let target = target.ok_or_else(|| Failure::Changed("no member leads".into()))?;
        let address = addresses
            .get(target)
            .ok_or_else(|| Failure::Retry(format!("{target} has no known address")))?;
        self.call(action, (address, epoch), urls).await
    }

    async fn call(
        &self,
        action: &MemberAction,
        (address, epoch): (&str, u64),
        urls: impl Fn(&str, bool) -> String,
    ) -> Result<(), Failure> {
        // Addressed to the server whose description the plan was based on, and to no later one.
        let author = self.met().authors.get(address).cloned();
        let author = author.ok_or_else(|| {
            Failure::Changed(format!(
                "{action}: no member answered Describe at {address}"
            ))
        })?;
        let mut client = self.at(address)?.only(author);
        let answer = match action {
            MemberAction::Bootstrap {
                cluster_uid,
                incarnation,
                nonce,
                pvc_uid,
                disk_uuid,
                snapshot,
                ..
            } => {
                let request = proto::BootstrapRequest {
                    snapshot: snapshot.as_ref().map(|snapshot| proto::BootstrapSnapshot {
                        sha256: snapshot.sha256.clone(),
                        bump_revision: snapshot.revision_bump,
                        follow: snapshot.follow,
                    }),
                    cluster_uid: cluster_uid.clone(),
                    incarnation: *incarnation,
                    nonce: nonce.clone(),
                    claim_uid: pvc_uid.clone(),
                    disk_uuid: disk_uuid.clone(),
                };
                client.bootstrap(request).await.map(drop)
            }
            MemberAction::AddLearner {
                member,
                disk_uuid,
                secure,
                fence,
            } => {
                let peer_url = urls(member, *secure);
                let request = proto::AddLearnerRequest {
                    fence: Some(wire(*fence)),
                    name: member.clone(),
                    peer_urls: vec![peer_url],
                    disk_uuid: disk_uuid.clone(),
                };
                client.add_learner(request).await.map(drop)
            }
            MemberAction::SetPeerUrls {
                id, urls, fence, ..
            } => {
                let answer = client.update_peer_urls(wire(*fence), *id, urls.clone());
                answer.await.map(drop)
            }
            MemberAction::Promote { id, fence, .. } => {
                client.promote(wire(*fence), *id).await.map(drop)
            }
            MemberAction::Remove { id, fence, .. } => {
                client.remove(wire(*fence), *id).await.map(drop)
            }
            MemberAction::Transfer { to_id, fence, .. } => {
                client.transfer(wire(*fence), *to_id).await.map(drop)
            }
            MemberAction::Disarm {
                kind, id, fence, ..
            } => {
                let kind = match kind {
                    AlarmKind::NoSpace => proto::AlarmKind::NoSpace,
                    AlarmKind::Corrupt => proto::AlarmKind::Corrupt,
                };
                client.disarm(wire(*fence), kind, *id).await.map(drop)
            }
            MemberAction::Retire { .. } => {
                let fence = proto::Fence {
                    configuration_index: 0,
                    epoch,
                };
                client.retire(fence).await.map(drop)
            }
        };
        answer.map_err(|status| failure(&action.to_string(), &status))
    }

    /// One member's description; a leader's information about the members is confirmed by its quorum.
    async fn describe_one(&self, address: &str, epoch: u64) -> Result<MemberResponse, String> {
        let made = {
            let known = self.made_of.lock().unwrap_or_else(PoisonError::into_inner);
            known.get(address).cloned().unwrap_or_default()
        };
        let mut client = self.at(address).map_err(|failure| failure.to_string())?;
        let first = within(client.describe_by(false, epoch)).await?;
        let confirmed = match first.0.leader_with_quorum {
            true => within(client.describe_by(true, epoch)).await.ok(),
            false => None,
        };
        // If that fails it was the leader a moment ago; its description of itself is still valid.
        let leads = confirmed
            .as_ref()
            .is_some_and(|(description, _)| description.leader_with_quorum);
        let (description, author) = confirmed.unwrap_or(first);
        let described = Described {
            unsigned: !author.signs(),
            description,
            leads,
            at: self.clock.now(),
        };
        Ok(MemberResponse {
            described,
            author,
            made,
        })
    }
}

/// The answer at an address, from which server, and the image of the pod there.
struct MemberResponse {
    described: Described,
    author: Author,
    made: MadeOf,
}

impl MemberResponse {
    /// Which server is shown to sign, if it is signed.
    fn signs(&self) -> Option<Signer> {
        let description = &self.described.description;
        // An address may have passed to another pod by now, and that be of another image.
        let same = self.made.pod_uid.is_empty() || self.made.pod_uid == description.pod_uid;
        (!self.described.unsigned && same).then(|| self.made.signer(&description.disk_uuid))
    }

    /// The answer, unless its member's signature is missing.
    fn believed(self, signed: &BTreeSet<Signer>) -> Result<(Described, Author), String> {
        let disk = &self.described.description.disk_uuid;
        if self.described.unsigned && signed.contains(&self.made.signer(disk)) {
            return Err(format!(
                "the answer of disk {disk} is not signed, and servers of the same image have signed: \
                 it is not believed"
            ));
        }
        Ok((self.described, self.author))
    }
}

async fn within<T>(call: impl Future<Output = Result<T, Status>>) -> Result<T, String> {
    match tokio::time::timeout(DESCRIBE, call).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(status)) => Err(reason(&status)),
        Err(_) => Err(format!("no answer in {} ms", DESCRIBE.as_millis())),
    }
}

fn wire(fence: Fence) -> proto::Fence {
    proto::Fence {
        configuration_index: fence.configuration_index,
        epoch: fence.epoch,
    }
}

/// What a refused or failed call means for the step.
pub fn failure(act: &str, status: &Status) -> Failure {
    let text = format!("{act}: {}", reason(status));
    match status.code() {
        // The configuration changed, the epoch is old, or it no longer leads: observe again.
        Code::FailedPrecondition | Code::Aborted | Code::AlreadyExists | Code::NotFound => {
            Failure::Changed(text)
        }
        Code::Unauthenticated
        | Code::PermissionDenied
        | Code::InvalidArgument
        | Code::Unimplemented => Failure::Refused(text),
        _ => Failure::Retry(text),
    }
}

fn reason(status: &Status) -> String {
    if status.message().is_empty() {
        return format!("{:?}", status.code());
    }
    // A connection error hides its cause (refused, timed out) one level down.
    match std::error::Error::source(status) {
        Some(source) if status.message() == "tcp connect error" => {
            format!("{}: {}", status.message(), deepest(source))
        }
        _ => status.message().to_owned(),
    }
}

fn deepest(error: &dyn std::error::Error) -> String {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
}

/// The same CAs are kept once, for all members and for the calls that they hold.
fn share(known: &BTreeMap<String, Secure>, secure: &mut BTreeMap<String, Secure>) {
    let known = known.values().map(|one| &one.roots_pem);
    let mut roots: BTreeSet<Arc<str>> = known.cloned().collect();
    for one in secure.values_mut() {
        match roots.get(&one.roots_pem) {
            Some(same) => one.roots_pem = same.clone(),
            None => drop(roots.insert(one.roots_pem.clone())),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tower::ServiceExt as _;

    use super::*;
    use crate::server::answering::{Member, key, own};
    use crate::server::operator_api::client::Way;

    #[tokio::test]
    async fn silent_member_blocks_no_other() {
        // Accepts and never answers.
        let hung = tokio::net::TcpListener::bind("127.0.0.1:0")
            .await
            .expect("a free port");
        let address = hung.local_addr().expect("its address").to_string();
        let key = Key::new(b"0123456789abcdef0123456789abcdef");
        let members = Members::new(key, network(), Clock::machine());
        let addresses = BTreeMap::from([
            ("refused".to_owned(), "127.0.0.1:1".to_owned()),
            ("hung".to_owned(), address),
        ]);
        let started = std::time::Instant::now();
        let (described, silent) = members.describe(&addresses, 0).await;
        assert!(described.is_empty());
        assert!(started.elapsed() < 2 * DESCRIBE, "{:?}", started.elapsed());
        assert!(silent["hung"].contains("no answer in"), "{silent:?}");
        assert!(
            silent["refused"].to_lowercase().contains("refused"),
            "{silent:?}"
        );
    }

    /// Each member, and each call that one holds, had a copy of the cluster's CAs.
    #[test]
    fn members_share_their_authorities() {
        let key = Key::new(b"0123456789abcdef0123456789abcdef");
        let members = Members::new(key, network(), Clock::machine());
        let secure = |roots: &str| {
            let one = |name: &str| Secure {
                roots_pem: roots.into(),
                server_name: name.to_owned(),
                plaintext_too: false,
            };
            ["a", "b"]
                .map(|name| (name.to_owned(), one(name)))
                .into_iter()
                .collect()
        };
        let roots = |address: &str| {
            let call = members.held_call(address, 0);
            call.secure.expect("it speaks TLS").roots_pem
        };
        members.secure(secure("one"));
        let held = roots("a");
        members.secure(secure("one"));
        assert!(Arc::ptr_eq(&held, &roots("a")) && Arc::ptr_eq(&held, &roots("b")));
        members.secure(secure("another"));
        assert_eq!((&*roots("a"), &*roots("b")), ("another", "another"));
        assert!(Arc::ptr_eq(&roots("a"), &roots("b")));
    }

    /// The address of a member may be another one's by the time of the act.
    #[tokio::test]
    async fn calls_need_an_observed_member() {
        let key = Key::new(b"0123456789abcdef0123456789abcdef");
        let members = Members::new(key, network(), Clock::machine());
        let retire = MemberAction::Retire {
            member: "demo-1".into(),
            pod_uid: "pod".into(),
        };
        let addresses = BTreeMap::from([("demo-1".to_owned(), "127.0.0.1:1".to_owned())]);
        let done = members
            .act(&retire, None, 1, &addresses, |_, _| String::new())
            .await;
        assert!(
            matches!(&done, Err(Failure::Changed(why)) if why.contains("answered Describe")),
            "{done:?}"
        );
    }

    /// For a disk that had signed, unsigned answers were never accepted while the operator ran: members that were
    /// rolled back to 0.1.0 had no description, and nothing progressed, not even forward.
    #[tokio::test]
    async fn unsigned_is_believed_after_an_image_change() {
        let member = Member::new("one");
        let ways = Arc::new(Mutex::new([member.way(&own("one", "1")), member.old_way()]));
        let answers = Arc::new(AtomicUsize::new(0));
        let at = Arc::clone(&answers);
        let dial: Dial = Arc::new(move |_, key, _| {
            let (ways, at) = (Arc::clone(&ways), Arc::clone(&at));
            let way = Way::new(tower::service_fn(move |request| {
                let way = ways.lock().expect("free")[at.load(Ordering::Relaxed)].clone();
                way.oneshot(request)
            }));
            Ok(MemberClient::over(way, key.clone()))
        });
        let members = Members::new(key(), dial, Clock::machine());
        // Whether an unsigned answer from a pod of this image is accepted there.
        let describe = async |answer, address: &str, image: &str| {
            answers.store(answer, Ordering::Relaxed);
            let made = MadeOf {
                image: image.to_owned(),
                ..MadeOf::default()
            };
            members.made_of(BTreeMap::from([(address.to_owned(), made)]));
            let addresses = BTreeMap::from([("demo-1".to_owned(), address.to_owned())]);
            let (described, _) = members.describe(&addresses, 0).await;
            described.get("demo-1").map(|answer| answer.unsigned)
        };
        let (signs, old) = (0, 1);
        assert_eq!(describe(signs, "a:1", "new").await, Some(false));
        // An attacker on the way cannot change the image.
        assert_eq!(describe(old, "a:1", "new").await, None, "the address");
        assert_eq!(
            describe(old, "b:1", "new").await,
            None,
            "the disk elsewhere"
        );
        assert_eq!(
            describe(old, "b:1", "0.1.0").await,
            Some(true),
            "taken back"
        );
        assert_eq!(describe(old, "b:1", "0.1.0").await, Some(true));
        assert_eq!(describe(old, "b:1", "new").await, None, "and forward");
        assert_eq!(describe(signs, "b:1", "new").await, Some(false));
        assert_eq!(describe(old, "b:1", "new").await, None);
    }

    /// Signing was recorded by disk and by the tag of the image: a restarted operator accepted an unsigned answer in
    /// the name of any member that had not answered it yet, and one that was rolled back to 0.1.0 under the same tag
    /// had no description until the specification was changed.
    #[tokio::test]
    async fn signatures_are_expected_per_image() {
        let (one, two) = (Member::new("one"), Member::new("two"));
        let ways = [one.old_way(), two.way(&own("two", "1")), two.old_way()];
        let ways = Mutex::new(ways);
        let dial: Dial = Arc::new(move |address, key, _| {
            let which = ["one:1", "two:1", "two-back:1"];
            let which = which.iter().position(|known| *known == address);
            let way = ways.lock().expect("free")[which.expect("one of them")].clone();
            Ok(MemberClient::over(way, key.clone()))
        });
        let describe = async |members: &Members, asked: &[(&str, &str)]| {
            let made = asked.iter().map(|(address, content)| {
                let made = MadeOf {
                    image: "quorate:stable".to_owned(),
                    content: Some((*content).to_owned()),
                    ..MadeOf::default()
                };
                ((*address).to_owned(), made)
            });
            members.made_of(made.collect());
            let addresses = asked.iter();
            let addresses = addresses.map(|(address, _)| ((*address).into(), (*address).into()));
            let (described, silent) = members.describe(&addresses.collect(), 0).await;
            for why in silent.values() {
                assert!(
                    why.contains("servers of the same image have signed"),
                    "{why}"
                );
            }
            described.into_keys().collect::<Vec<String>>()
        };
        let started = || Members::new(key(), dial.clone(), Clock::machine());
        // The one that has not signed answers first, in the first observation of an operator.
        let members = started();
        let seen = describe(
            &members,
            &[("one:1", "sha256:new"), ("two:1", "sha256:new")],
        )
        .await;
        assert_eq!(seen, ["two:1"]);
        assert!(
            describe(&members, &[("one:1", "sha256:new")])
                .await
                .is_empty()
        );
        // On the way from 0.1.0, and back to it under the same tag.
        let members = started();
        let seen = describe(
            &members,
            &[("one:1", "sha256:old"), ("two:1", "sha256:new")],
        )
        .await;
        assert_eq!(seen, ["one:1", "two:1"]);
        let seen = describe(&members, &[("two-back:1", "sha256:old")]).await;
        assert_eq!(seen, ["two-back:1"]);
    }

    #[test]
    fn refusals_are_distinguished() {
        let failed = |code| failure("promote demo-2", &Status::new(code, "why"));
        assert_eq!(
            failed(Code::FailedPrecondition),
            Failure::Changed("promote demo-2: why".into())
        );
        assert!(matches!(failed(Code::Unauthenticated), Failure::Refused(_)));
        assert!(matches!(failed(Code::Unavailable), Failure::Retry(_)));
    }
}
