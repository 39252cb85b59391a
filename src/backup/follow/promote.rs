//! The promotion of a standby whose source is lost: clients write here from the revision that is here. Refuses while any
//! member of the source answers as one of a living cluster, and where less is here than was reviewed. Never closes the
//! source: nobody reaches it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::join_all;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::{sleep, timeout};
use tonic::Status;
use tonic::transport::Uri;

use super::run::Follow;
use super::target::Target;
use super::{CutOver, Failed, now_ms};
use crate::backup::Error;
use crate::backup::source::{Clients, text};
use crate::store::{Follow as Step, FollowPromote, Revision};
use crate::wire::etcd::maintenance_client::MaintenanceClient;
use crate::wire::etcd::{StatusRequest, StatusResponse};
use crate::wire::member::{Following, PositionResponse};

/// A member of a living source answers within this.
const ANSWER: Duration = Duration::from_secs(5);
/// How often each is asked.
const ROUNDS: u32 = 3;
/// Between two rounds.
const PAUSE: Duration = Duration::from_secs(2);
/// For so long members without a leader are asked: one may be about to be elected.
const ELECTION: Duration = Duration::from_secs(60);
/// Seconds for a lease of which only keys are here: whoever holds it keeps it alive within this.
const LEASE_TTL: i64 = 60;
/// By so much the revision is raised: more than the source can have written since, as for a restore.
const BUMP: u64 = 1_000_000_000;

/// What an endpoint of the source shows.
#[derive(Debug, PartialEq, Eq)]
enum Seen {
    /// Nobody.
    Silence,
    /// A member of the source that knows no leader.
    NoLeader,
    /// Somebody who may be the source, or is: how.
    Somebody(String),
}

impl Follow {
    /// Ends the following at what is here, at least at this revision.
    pub(super) async fn promote(
        &self,
        target: &mut Target<'_>,
        here: &PositionResponse,
        least: Revision,
    ) -> Result<CutOver, Failed> {
        if here.revision < least {
            return Err(refused(format!(
                "revision {} is here, and the promotion asks for {least} at least: see why this standby has fallen behind, then give a revision that it has",
                here.revision
            )));
        }
        let source = here.following.as_ref().map_or(0, |it| it.source_cluster);
        expect_lost(&self.from, source).await?;
        let step = Step {
            source,
            promote: Some(FollowPromote {
                revision: least,
                lease_ttl: LEASE_TTL,
                bump: BUMP,
            }),
            ..Step::default()
        };
        // If that fails the source is asked once more before it is sent again.
        let revision = target.advance(Some(&step), Following::default()).await?;
        Ok(CutOver {
            revision,
            frozen_unix_ms: 0,
            writable_unix_ms: now_ms(),
        })
    }
}

fn refused(why: String) -> Failed {
    Failed::Final(Error::Usage(why))
}

async fn expect_lost(clients: &Clients, source: u64) -> Result<(), Failed> {
    let began = Instant::now();
    let mut rounds = 0;
    loop {
        let all = clients.endpoints.iter().filter(|it| !it.is_empty());
        let seen = join_all(all.map(|endpoint| seen(clients, endpoint, source))).await;
        let elects = seen.contains(&Seen::NoLeader) && began.elapsed() < ELECTION;
        for seen in seen {
            if let Seen::Somebody(how) = seen {
                return Err(refused(format!(
                    "the source is not lost: {how}. Promote by a switchover, which loses nothing, or stop the source first; an endpoint that leads elsewhere now has to be taken out"
                )));
            }
        }
        rounds += 1;
        if rounds >= ROUNDS && !elects {
            return Ok(());
        }
        sleep(PAUSE).await;
    }
}

async fn seen(clients: &Clients, endpoint: &str, source: u64) -> Seen {
    let channel = match clients.channel(endpoint) {
        Ok(channel) => channel,
        // Nothing was asked, so nothing is known.
        Err(why) => return Seen::Somebody(format!("{endpoint} cannot be asked: {why}")),
    };
    // Without a user: a member without a quorum gives no token.
    let mut client = MaintenanceClient::new(channel);
    match timeout(ANSWER, client.status(StatusRequest {})).await {
        Ok(Ok(status)) => of_member(&status.into_inner(), endpoint, source),
        Ok(Err(status)) if is_of_server(&status) => {
            Seen::Somebody(format!("{endpoint} answers: {}", text(&status)))
        }
        // Its certificate is refused, or ours is.
        Ok(Err(_)) | Err(_) if speaks_tls(endpoint).await => Seen::Somebody(format!(
            "{endpoint} speaks TLS, and does not say how it is: see whether the certificates fit"
        )),
        Ok(Err(_)) | Err(_) => Seen::Silence,
    }
}

fn of_member(status: &StatusResponse, endpoint: &str, source: u64) -> Seen {
    let cluster = status.header.as_ref().map_or(0, |it| it.cluster_id);
    if cluster != source {
        return Seen::Somebody(format!(
            "cluster {cluster:x} answers at {endpoint}, and cluster {source:x} is followed"
        ));
    }
    match (status.is_learner, status.leader) {
        // It serves nobody, and never forgets a leader.
        (true, _) => Seen::Silence,
        (false, 0) => Seen::NoLeader,
        (false, _) => Seen::Somebody(format!("{endpoint} answers and has a leader")),
    }
}

/// Whether a server has refused. A proxy says unavailable as well, with nothing behind it.
fn is_of_server(status: &Status) -> bool {
    let passing = [tonic::Code::Unavailable, tonic::Code::DeadlineExceeded];
    std::error::Error::source(status).is_none() && !passing.contains(&status.code())
}

/// Whether somebody answers a TLS greeting, whatever certificates both have.
async fn speaks_tls(endpoint: &str) -> bool {
    let answer = timeout(ANSWER, greets(endpoint)).await;
    answer.is_ok_and(|answer| answer.is_some())
}

async fn greets(endpoint: &str) -> Option<()> {
    let uri: Uri = endpoint.parse().ok()?;
    if uri.scheme_str() != Some("https") {
        return None;
    }
    let host = uri.host()?.trim_matches(['[', ']']);
    let place = (host, uri.port_u16().unwrap_or(443));
    let name = ServerName::try_from(host.to_owned()).ok()?;
    let config =
        rustls::ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .ok()?
            .with_root_certificates(rustls::RootCertStore::empty())
            .with_no_client_auth();
    let mut greeting = Vec::new();
    let mut tls = rustls::ClientConnection::new(Arc::new(config), name).ok()?;
    tls.write_tls(&mut greeting).ok()?;
    let mut stream = tokio::net::TcpStream::connect(place).await.ok()?;
    stream.write_all(&greeting).await.ok()?;
    stream.read_u8().await.ok().map(drop)
}

#[cfg(test)]
mod tests {
    use std::io::{Error, ErrorKind};

    use tonic::Status;

    use super::*;
    use crate::wire::etcd::ResponseHeader;

    /// What only a server can have said, and what a load balancer without one behind it says as well.
    #[test]
    fn a_refusal_is_an_answer_and_a_closed_connection_is_none() {
        for status in [
            Status::unauthenticated("etcdserver: invalid auth token"),
            Status::permission_denied("etcdserver: permission denied"),
            Status::unimplemented("another server"),
        ] {
            assert!(is_of_server(&status), "{status}");
        }
        for status in [
            Status::unavailable("etcdserver: no leader"),
            Status::deadline_exceeded("Timeout expired"),
            Status::from_error(Box::new(Error::from(ErrorKind::ConnectionReset))),
        ] {
            assert!(!is_of_server(&status), "{status}");
        }
    }

    /// A source that was restored has another ID: it lives all the same.
    #[test]
    fn a_member_says_of_which_cluster_it_is_and_whether_that_works() {
        let status = |cluster_id, leader, is_learner| StatusResponse {
            header: Some(ResponseHeader {
                cluster_id,
                ..ResponseHeader::default()
            }),
            leader,
            is_learner,
            ..StatusResponse::default()
        };
        let seen = |status| of_member(&status, "http://a:1", 7);
        assert!(matches!(seen(status(7, 3, false)), Seen::Somebody(_)));
        assert!(matches!(seen(status(8, 0, false)), Seen::Somebody(_)));
        assert_eq!(seen(status(7, 0, false)), Seen::NoLeader);
        assert_eq!(seen(status(7, 3, true)), Seen::Silence);
    }

    /// A server that refuses our certificate does so after the handshake, and what a client sees of that is a closed
    /// connection. Its greeting is what a proxy with nothing behind it does not give.
    #[tokio::test]
    async fn tls_is_known_by_its_greeting() {
        for (answer, speaks) in [(&b"\x16\x03\x03"[..], true), (b"", false)] {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
                .await
                .expect("a port");
            let port = listener.local_addr().expect("an address").port();
            let serves = tokio::spawn(async move {
                let (mut stream, _) = listener.accept().await.expect("a connection");
                let mut hello = [0; 5];
                stream.read_exact(&mut hello).await.expect("a greeting");
                stream.write_all(answer).await.expect("sent");
                hello[0]
            });
            assert_eq!(
                speaks_tls(&format!("https://127.0.0.1:{port}")).await,
                speaks
            );
            assert_eq!(serves.await.expect("no panic"), 0x16);
        }
        assert!(!speaks_tls("https://127.0.0.1:1").await);
    }
}
