//! The epochs of the operators that have called this server: an older one than the newest changes nothing any more.
//! Never knows what a call does.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tonic::Status;

use super::MemberRuntime;
use super::service::refusal;
use crate::node::MembershipError;
use crate::server::process::clock;

/// 2024-01-01, in Unix seconds: operators count their epochs from there.
const EPOCHS_BEGIN: u64 = 1_704_067_200;
/// The largest difference between the clocks of two nodes, in seconds.
const DAY: u64 = 86_400;

/// The newest epoch, for all services that an operator calls.
pub(super) struct Epochs {
    local: Arc<MemberRuntime>,
    /// The highest epoch of any call since this server started.
    newest: AtomicU64,
}

impl Epochs {
    pub(super) fn new(local: Arc<MemberRuntime>) -> Epochs {
        Epochs {
            local,
            newest: AtomicU64::new(0),
        }
    }

    /// The highest epoch of any call since this server started; 0 before the first.
    pub(super) fn newest(&self) -> u64 {
        self.newest.load(Ordering::SeqCst)
    }

    /// Records a caller's epoch: an older one than the newest is refused from here on, even before
    /// the newer one has changed anything. An epoch that no Lease can have reached yet is rejected:
    /// otherwise a holder of the key could lock out every later caller for good.
    ///
    /// # Errors
    /// ABORTED for an older one, INVALID_ARGUMENT for one that is too far ahead.
    pub(super) fn heard(&self, epoch: u64) -> Result<(), Status> {
        let recorded = self.local.handle.latest().membership.epoch;
        let today = clock::since_1970().as_secs().saturating_sub(EPOCHS_BEGIN);
        if epoch > recorded.max(today.saturating_add(DAY)) {
            return Err(Status::invalid_argument(format!(
                "epoch {epoch} is more than a day ahead of this server's clock ({today}): set the clocks of the nodes"
            )));
        }
        let newest = self.newest.fetch_max(epoch, Ordering::SeqCst).max(recorded);
        if epoch < newest {
            let error = MembershipError::StaleEpoch {
                given: epoch,
                current: newest,
            };
            return Err(refusal(&error, error.to_string()));
        }
        Ok(())
    }
}
