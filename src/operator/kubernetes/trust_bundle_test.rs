//! When a ClusterTrustBundle is read, and what its absence means.

use std::sync::atomic::AtomicU64;

use super::*;
use crate::crd::{Endpoints, parse, validate};
use crate::opsim::api::{ApiServer, Call, Refusal, SharedApiServer, Verdict};

fn cluster(tls: &str) -> ValidatedCluster {
    let text = format!(
        "{{apiVersion: quorate.dev/v1alpha1, kind: EtcdCluster, metadata: {{name: demo, namespace: prod}}, spec: {{tls: {tls}}}}}"
    );
    let mut parsed = parse(&text).expect("a cluster");
    parsed.metadata.uid = Some("u".into());
    validate(&parsed).expect("a valid cluster")
}

const ASKS: &str = "{publishCAs: ClusterTrustBundle}";

/// What is known of it after each of these answers, `None` for that of an API server that has none of this name; and how
/// often the API server was asked.
async fn known(
    cluster: &ValidatedCluster,
    status: &EtcdClusterStatus,
    answers: &[Option<u16>],
) -> (Vec<TrustBundle>, u64) {
    let shared = SharedApiServer::new(ApiServer::new(1, 1_700_000_000_000));
    let bundles = Bundles::new(&shared.client("operator-1", "prod"));
    let time = Arc::new(AtomicU64::new(1_700_000_000_000));
    let clock = Clock::simulated(time.clone());
    let asked = Arc::new(AtomicU64::new(0));
    let (mut known, mut all) = (Known::default(), Vec::new());
    for answer in answers {
        let (answer, asked) = (*answer, asked.clone());
        shared.intercept(move |_: &Call| {
            asked.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            match answer {
                None => Verdict::Pass,
                Some(code) => Verdict::Refuse(Refusal::new(code, "", "no")),
            }
        });
        time.fetch_add(31_000, std::sync::atomic::Ordering::SeqCst);
        for _ in 0..2 {
            known.read(&bundles, cluster, status, &clock).await;
        }
        all.push(known.facts());
    }
    (all, asked.load(std::sync::atomic::Ordering::SeqCst))
}

#[tokio::test]
async fn absence_is_told_apart() {
    use TrustBundle::{Denied, Missing, NotServed, Unseen};
    let answers = [Some(500), Some(404), Some(403), None, Some(500), Some(404)];
    let status = EtcdClusterStatus::default();
    let (all, asked) = known(&cluster(ASKS), &status, &answers).await;
    // Earlier observations stay, and without one the cluster is operated all the same.
    assert_eq!(
        all,
        [Unseen, NotServed, Denied, Missing, Missing, NotServed]
    );
    // Twice within the half minute is once, apart from those that failed. The version that is asked for first is not served, and not
    // counted here.
    assert_eq!(asked, 8);
}

/// An API server that does not serve the kind is not asked about it for every cluster that there is.
#[tokio::test]
async fn only_what_may_be_there_is_read() {
    let mut status = EtcdClusterStatus::default();
    let unasked = cluster("{}");
    let (all, asked) = known(&unasked, &status, &[None, None]).await;
    assert_eq!((all, asked), (vec![TrustBundle::Unseen; 2], 0));
    status.endpoints = Some(Endpoints {
        cluster_trust_bundle: Some("quorate.dev:prod.demo:client".into()),
        ..Endpoints::default()
    });
    let (all, asked) = known(&unasked, &status, &[None]).await;
    assert_eq!((all, asked), (vec![TrustBundle::Missing], 1));
}
