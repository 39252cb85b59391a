//! The promotion of a standby whose source is lost: clients write here from the revision that is here. Refuses while any
//! member of the source answers as one of a living cluster, and where less is here than was reviewed. Never closes the
//! source: nobody reaches it.

use std::error::Error as _;
use std::time::{Duration, Instant};

use futures::future::join_all;
use tokio::time::{sleep, timeout};
use tonic::Status;

use super::run::Follow;
use super::target::Target;
use super::{CutOver, Failed, now_ms};
use crate::backup::Error;
use crate::backup::source::{Clients, text};
use crate::store::{Follow as Step, FollowPromote, Revision};
use crate::wire::etcd::StatusRequest;
use crate::wire::etcd::maintenance_client::MaintenanceClient;
use crate::wire::member::PositionResponse;

/// A member of a living source answers within this.
const ANSWER: Duration = Duration::from_secs(5);
/// How often each is asked: between two leaders there is none.
const ROUNDS: u32 = 3;
/// Between two rounds.
const PAUSE: Duration = Duration::from_secs(2);
/// For so long the step is repeated.
const LAST: Duration = Duration::from_secs(300);
/// Seconds for a lease of which only keys are here: whoever holds it keeps it alive within this.
const LEASE_TTL: i64 = 60;
/// By so much the revision is raised: more than the source can have written since, as for a restore.
const BUMP: u64 = 1_000_000_000;

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
        for round in 0..ROUNDS {
            if round > 0 {
                sleep(PAUSE).await;
            }
            if let Some(how) = lives(&self.from, source).await {
                return Err(refused(format!(
                    "the source is not lost: {how}. Promote by a switchover, which loses nothing, or stop the source first"
                )));
            }
        }
        let step = Step {
            source,
            promote: Some(FollowPromote {
                revision: least,
                lease_ttl: LEASE_TTL,
                bump: BUMP,
            }),
            ..Step::default()
        };
        let revision = apply(target, &step).await?;
        Ok(CutOver {
            revision: revision.unwrap_or(here.revision),
            frozen_unix_ms: 0,
            writable_unix_ms: now_ms(),
        })
    }
}

fn refused(why: String) -> Failed {
    Failed::Final(Error::Usage(why))
}

/// Replicates the last step. Its answer may be lost, so it is repeated until the cluster says that it follows none. Returns
/// the revision, where the answer said it.
async fn apply(target: &mut Target<'_>, step: &Step) -> Result<Option<Revision>, Failed> {
    let began = Instant::now();
    loop {
        let told = crate::wire::member::Following::default();
        let why = match target.advance(Some(step), told).await {
            Ok(revision) => return Ok(Some(revision)),
            Err(Failed::Passing(why)) => why,
            Err(failed) => return Err(failed),
        };
        if began.elapsed() > LAST {
            return Err(Failed::Final(Error::Source(why)));
        }
        sleep(PAUSE).await;
        if let Ok(position) = target.connect().await
            && position.following.is_none()
        {
            return Ok(None);
        }
    }
}

/// How a member of the source shows that it lives, if one does.
async fn lives(clients: &Clients, source: u64) -> Option<String> {
    let all = clients.endpoints.iter().filter(|it| !it.is_empty());
    let asked = all.map(|endpoint| shows(clients, endpoint, source));
    join_all(asked).await.into_iter().flatten().next()
}

/// Silence, a closed connection and the word of a member without a leader say that it is lost.
async fn shows(clients: &Clients, endpoint: &str, source: u64) -> Option<String> {
    let channel = match clients.channel(endpoint) {
        Ok(channel) => channel,
        // Nothing was asked, so nothing is known.
        Err(why) => return Some(format!("{endpoint} cannot be asked: {why}")),
    };
    // Without a user: a member without a quorum gives no token.
    let mut client = MaintenanceClient::new(channel);
    let answer = timeout(ANSWER, client.status(StatusRequest {}))
        .await
        .ok()?;
    match answer {
        Ok(status) => {
            let status = status.into_inner();
            let cluster = status.header.unwrap_or_default().cluster_id;
            let is_source = cluster == source && status.leader != 0;
            is_source.then(|| format!("{endpoint} answers and has a leader"))
        }
        Err(status) if answers(&status) => Some(format!("{endpoint} answers: {}", text(&status))),
        Err(_) => None,
    }
}

/// Whether a failure shows that somebody is there: the refusal of a server, or of the TLS of one of both sides.
fn answers(status: &Status) -> bool {
    let passing = matches!(
        status.code(),
        tonic::Code::Unavailable | tonic::Code::DeadlineExceeded
    );
    match status.source() {
        // It came from the server.
        None => !passing,
        Some(cause) => is_of_tls(cause),
    }
}

/// Whether TLS was spoken, and failed.
fn is_of_tls(cause: &(dyn std::error::Error + 'static)) -> bool {
    let mut next = Some(cause);
    while let Some(error) = next {
        let within = error.downcast_ref::<std::io::Error>();
        let within = within.and_then(std::io::Error::get_ref);
        if error.is::<rustls::Error>() || within.is_some_and(|it| it.is::<rustls::Error>()) {
            return true;
        }
        next = error.source();
    }
    false
}

#[cfg(test)]
mod tests {
    use std::io::{Error, ErrorKind};

    use tonic::Status;

    use super::answers;

    /// What only a server can have said, and what a load balancer without one behind it says as well.
    #[test]
    fn a_refusal_is_an_answer_and_a_closed_connection_is_none() {
        for status in [
            Status::unauthenticated("etcdserver: invalid auth token"),
            Status::permission_denied("etcdserver: permission denied"),
            Status::unimplemented("another server"),
        ] {
            assert!(answers(&status), "{status}");
        }
        let tls = rustls::Error::InvalidCertificate(rustls::CertificateError::UnknownIssuer);
        let tls = Error::new(ErrorKind::InvalidData, tls);
        assert!(answers(&Status::from_error(Box::new(tls))));
        for status in [
            Status::unavailable("etcdserver: no leader"),
            Status::deadline_exceeded("Timeout expired"),
        ] {
            assert!(!answers(&status), "{status}");
        }
        for kind in [
            ErrorKind::ConnectionRefused,
            ErrorKind::ConnectionReset,
            ErrorKind::UnexpectedEof,
        ] {
            let status = Status::from_error(Box::new(Error::from(kind)));
            assert!(!answers(&status), "{status}");
        }
    }
}
