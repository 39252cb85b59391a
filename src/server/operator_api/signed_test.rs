//! An operator's client and the servers that may answer it: members, members of 0.1.0, and others.

use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::super::auth::{Verified, Verifier};
use super::super::proof::{self, DESCRIBE, RESPONSE_PROOF};
use super::*;
use crate::server::operator_api::client::{MemberClient, Way, WayError};
use crate::wire::member as proto;

pub(crate) fn key() -> Key {
    Key::new(b"0123456789abcdef0123456789abcdef")
}

pub(crate) fn own(disk: &str, boot: &str) -> Recipient {
    Recipient {
        disk_uuid: disk.to_owned(),
        boot: boot.to_owned(),
    }
}

/// A member with this description, which counts the calls to retire.
#[derive(Clone)]
pub(crate) struct Member {
    disk: String,
    retired: Arc<AtomicUsize>,
}

impl Member {
    pub(crate) fn new(disk: &str) -> Member {
        Member {
            disk: disk.to_owned(),
            retired: Arc::default(),
        }
    }

    fn retired(&self) -> usize {
        self.retired.load(Ordering::Relaxed)
    }

    fn answer(&self, path: &str) -> http::Response<Body> {
        let message = match path {
            DESCRIBE => prost::Message::encode_to_vec(&proto::DescribeResponse {
                disk_uuid: self.disk.clone(),
                version: "0.1.0".to_owned(),
                ..Default::default()
            }),
            _ => {
                self.retired.fetch_add(1, Ordering::Relaxed);
                prost::Message::encode_to_vec(&proto::RetireResponse { leader: 7 })
            }
        };
        let length = u32::try_from(message.len()).expect("short").to_be_bytes();
        let framed = [&[0][..], &length, &message].concat();
        let mut last = http::HeaderMap::new();
        last.insert("grpc-status", http::HeaderValue::from_static("0"));
        let last = async move { Some(Ok(last)) };
        let body = http_body_util::BodyExt::with_trailers(Full::new(Bytes::from(framed)), last);
        let mut response = http::Response::new(Body::new(body));
        let kind = http::HeaderValue::from_static("application/grpc");
        response.headers_mut().insert("content-type", kind);
        response
    }

    /// As shipped.
    pub(crate) fn way(&self, own: &Recipient) -> Way {
        let member = self.clone();
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let answer = member.answer(request.uri().path());
            async move { Ok::<_, Infallible>(answer) }
        });
        let verified = Verified::new(service, Verifier::new(Some(key()), None, own));
        way(move |request| {
            let verified = verified.clone();
            async move {
                verified
                    .oneshot(request)
                    .await
                    .map_err(|never| match never {})
            }
        })
    }

    /// As in version 0.1.0: its own format of proofs, unsigned answers.
    pub(crate) fn old_way(&self) -> Way {
        let member = self.clone();
        way(move |request| {
            let member = member.clone();
            async move {
                let (parts, body) = request.into_parts();
                let body = gather(body, Caller::Operator.call_limit())
                    .await
                    .expect("short");
                let text = |name: &str| parts.headers.get(name)?.to_str().ok();
                let headers = (text(TIME), text(NONCE), text(OLD_PROOF));
                let (Some(time), Some(nonce), Some(proof)) = headers else {
                    let why = "the call carries no proof of the operator's key";
                    return Ok(tonic::Status::unauthenticated(why).into_http());
                };
                let call = Call {
                    path: parts.uri.path(),
                    to: "",
                    time,
                    nonce,
                    body: &body,
                };
                match proof::fits(key().of_old_call(call), proof) {
                    true => Ok(member.answer(parts.uri.path())),
                    false => {
                        Ok(tonic::Status::unauthenticated("the proof was not made").into_http())
                    }
                }
            }
        })
    }
}

fn way<F>(answer: impl Fn(http::Request<Body>) -> F + Clone + Send + 'static) -> Way
where
    F: Future<Output = Result<http::Response<Body>, WayError>> + Send + 'static,
{
    Way::new(tower::service_fn(answer))
}

fn operator(way: &Way) -> MemberClient {
    MemberClient::over(way.clone(), key())
}

#[tokio::test]
async fn member_executes_only_its_own_calls() {
    let member = Member::new("one");
    let mut operator = operator(&member.way(&own("one", "1")));
    let description = operator.describe(false).await.expect("signed");
    assert_eq!(description.disk_uuid, "one");
    assert_eq!(
        operator
            .retire(proto::Fence::default())
            .await
            .expect("signed")
            .leader,
        7
    );
    assert_eq!(member.retired(), 1);
}

/// A call without a description before it describes the server first; a call for a server that has
/// restarted is refused by it, signed, and the next one describes again.
#[tokio::test]
async fn call_is_bound_to_the_described_start() {
    let member = Member::new("one");
    let (first, second) = (member.way(&own("one", "1")), member.way(&own("one", "2")));
    let restarted = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let again = Arc::clone(&restarted);
    // The transport is not `Sync`: each call has its own.
    let ways = Arc::new(Mutex::new((first, second)));
    let moving = way(move |request| {
        let (first, second) = ways.lock().expect("free").clone();
        let way = match again.load(Ordering::Relaxed) {
            true => second,
            false => first,
        };
        way.oneshot(request)
    });
    let mut operator = operator(&moving);
    operator
        .retire(proto::Fence::default())
        .await
        .expect("it asks first");
    restarted.store(true, Ordering::Relaxed);
    let refused = operator
        .retire(proto::Fence::default())
        .await
        .expect_err("another start");
    assert_eq!(refused.code(), Code::FailedPrecondition, "{refused}");
    assert_eq!(member.retired(), 1);
    operator
        .retire(proto::Fence::default())
        .await
        .expect("it asks first");
    assert_eq!(member.retired(), 2);
}

/// Any pod with the right labels was believed: its answers decided which member is removed and
/// which volume is deleted. A server without the key may answer all calls, none, or any.
#[tokio::test]
async fn servers_without_the_key_are_rejected() {
    let member = Member::new("one");
    let refusal = || tonic::Status::unauthenticated("no").into_http();
    let all = {
        let member = member.clone();
        way(move |request| {
            let answer = member.answer(request.uri().path());
            async move { Ok(answer) }
        })
    };
    let none = way(move |_| async move { Ok(refusal()) });
    // It answers what only 0.1.0 could answer, as often as that would.
    let any = {
        let member = member.clone();
        let turn = Arc::new(AtomicUsize::new(0));
        way(move |request| {
            let old = request.headers().contains_key(OLD_PROOF);
            let even = turn.fetch_add(1, Ordering::Relaxed).is_multiple_of(2);
            let answer = match old && even {
                true => member.answer(request.uri().path()),
                false => refusal(),
            };
            async move { Ok(answer) }
        })
    };
    // It answers everything that could be of 0.1.0.
    let eager = {
        let member = member.clone();
        way(move |request| {
            let answer = match request.headers().contains_key(OLD_PROOF) {
                true => member.answer(request.uri().path()),
                false => refusal(),
            };
            async move { Ok(answer) }
        })
    };
    for imposter in [all, none, any, eager] {
        let mut operator = operator(&imposter);
        let refused = operator.describe(false).await.expect_err("no key");
        let codes = [Code::Unknown, Code::Unauthenticated];
        assert!(codes.contains(&refused.code()), "{refused}");
        assert!(operator.retire(proto::Fence::default()).await.is_err());
    }
    assert_eq!(member.retired(), 0, "it did not even receive the call");
}

/// A man in the middle can change nothing, and cannot replace one answer by another.
#[tokio::test]
async fn changed_response_is_not_accepted() {
    let member = Member::new("one");
    type Bend = fn(&mut http::Response<Body>);
    let bends: [Bend; 3] = [
        |response| {
            response.headers_mut().remove(RESPONSE_PROOF);
        },
        |response| {
            let from = http::HeaderValue::from_static("two/1");
            response.headers_mut().insert(FROM, from);
        },
        |response| {
            let other = Member::new("two").answer(DESCRIBE).into_body();
            *response.body_mut() = other;
        },
    ];
    for bend in bends {
        let honest = Arc::new(Mutex::new(member.way(&own("one", "1"))));
        let between = way(move |request| {
            let honest = honest.lock().expect("free").clone();
            async move {
                let mut response = honest.oneshot(request).await?;
                bend(&mut response);
                Ok(response)
            }
        });
        let refused = operator(&between).describe(false).await.expect_err("bent");
        assert!(refused.message().contains("not signed"), "{refused}");
    }
    // An answer to an earlier call.
    let honest = Arc::new(Mutex::new(member.way(&own("one", "1"))));
    let kept = Arc::new(Mutex::new(None::<(http::HeaderMap, Bytes)>));
    let replays = way(move |request| {
        let (honest, kept) = (honest.lock().expect("free").clone(), Arc::clone(&kept));
        async move {
            let response = honest.oneshot(request).await?;
            let (parts, body) = response.into_parts();
            let body = gather(body, Caller::Operator.call_limit())
                .await
                .map_err(WayError::new)?;
            let mut kept = kept.lock().expect("free");
            let (headers, body) = kept.get_or_insert((parts.headers, body)).clone();
            let mut last = http::HeaderMap::new();
            last.insert("grpc-status", http::HeaderValue::from_static("0"));
            let last = async move { Some(Ok(last)) };
            let body = http_body_util::BodyExt::with_trailers(Full::new(body), last);
            let mut response = http::Response::new(Body::new(body));
            *response.headers_mut() = headers;
            Ok(response)
        }
    });
    let mut operator = operator(&replays);
    operator.describe(false).await.expect("the first time");
    operator.describe(false).await.expect_err("of another call");
}

/// One member's description, signed with another's disk: a member that reports a wrong disk.
#[tokio::test]
async fn description_is_bound_to_its_signing_disk() {
    let way = Member::new("two").way(&own("one", "1"));
    let refused = operator(&way).describe(false).await.expect_err("whose?");
    assert!(refused.message().contains("from another"), "{refused}");
}

/// The operator is updated first: it has to describe and call members of 0.1.0, which sign nothing.
#[tokio::test]
async fn members_of_0_1_0_differ_from_strangers() {
    let member = Member::new("one");
    let mut operator = operator(&member.old_way());
    let description = operator.describe(false).await.expect("it knows the key");
    assert_eq!(description.disk_uuid, "one");
    assert_eq!(
        operator
            .retire(proto::Fence::default())
            .await
            .expect("carried out")
            .leader,
        7
    );
    assert_eq!(member.retired(), 1);
    let mut stranger = MemberClient::over(member.old_way(), Key::new(b"another key, as long"));
    assert!(stranger.describe(false).await.is_err());
    assert!(stranger.retire(proto::Fence::default()).await.is_err());
    assert_eq!(member.retired(), 1);
}

/// A present member does not accept the old format, so an attacker that removes the signatures of
/// its answers cannot make it pass for an old one.
#[tokio::test]
async fn current_member_is_not_taken_for_an_old_one() {
    let member = Member::new("one");
    let honest = Arc::new(Mutex::new(member.way(&own("one", "1"))));
    let between = way(move |mut request| {
        let honest = honest.lock().expect("free").clone();
        async move {
            if let Some(old) = request.headers().get(OLD_PROOF).cloned() {
                request.headers_mut().insert(PROOF, old);
            } else {
                return Ok(tonic::Status::unauthenticated("pretends to be old").into_http());
            }
            let mut response = honest.oneshot(request).await?;
            for name in [FORM, RESPONSE_PROOF, FROM] {
                response.headers_mut().remove(name);
            }
            Ok(response)
        }
    });
    assert!(operator(&between).describe(false).await.is_err());
}

/// A call without a known server, or after a restart, was bound to whichever server answered:
/// another disk at the same address, or another start of the same one, than the plan was made for.
#[tokio::test]
async fn call_is_bound_to_the_described_process() {
    let (one, two) = (Member::new("one"), Member::new("two"));
    let ways = [
        one.way(&own("one", "1")),
        one.way(&own("one", "2")),
        two.way(&own("two", "1")),
        two.old_way(),
    ];
    let ways = Arc::new(Mutex::new(ways));
    let there = Arc::new(AtomicUsize::new(0));
    let at = Arc::clone(&there);
    let moving = way(move |request| {
        let way = ways.lock().expect("free")[at.load(Ordering::Relaxed)].clone();
        way.oneshot(request)
    });
    let mut operator = operator(&moving);
    let (_, signer) = operator.describe_by(false, 0).await.expect("signed");
    assert_eq!(signer.disk_uuid(), Some("one"));
    for other in [1, 2, 3] {
        there.store(other, Ordering::Relaxed);
        for _ in 0..2 {
            let mut bound = operator.only(signer.clone());
            let refused = bound.retire(proto::Fence::default()).await;
            refused.expect_err("another one");
        }
    }
    assert_eq!((one.retired(), two.retired()), (0, 0));
    there.store(0, Ordering::Relaxed);
    let mut bound = operator.only(signer);
    let retired = bound.retire(proto::Fence::default()).await;
    assert_eq!(retired.expect("for it").leader, 7);
    assert_eq!(one.retired(), 1);
}

/// While members of 0.1.0 were left, an attacker that removed the signatures of a member's answers
/// and forwarded its calls to one of those had it accepted as that member, with its disk.
#[tokio::test]
async fn signing_members_are_never_taken_for_old() {
    let (new, old) = (Member::new("one"), Member::new("two"));
    let ways = Arc::new(Mutex::new([new.way(&own("one", "1")), old.old_way()]));
    let between = Arc::new(AtomicUsize::new(0));
    let at = Arc::clone(&between);
    let moving = way(move |request| {
        let way = ways.lock().expect("free")[at.load(Ordering::Relaxed)].clone();
        way.oneshot(request)
    });
    let mut operator = operator(&moving);
    operator.describe(false).await.expect("signed");
    between.store(1, Ordering::Relaxed);
    for _ in 0..2 {
        operator.describe(false).await.expect_err("it has signed");
        let retired = operator.retire(proto::Fence::default()).await;
        retired.expect_err("no signer is known");
    }
    assert_eq!(old.retired(), 0);
    // A server that has never signed is an old one, as before.
    let mut stranger = super::tests::operator(&moving);
    assert_eq!(
        stranger.describe(false).await.expect("old").disk_uuid,
        "two"
    );
}
