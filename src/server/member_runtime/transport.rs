//! The transport of the core threads: messages to the links, checkpoints to their streams, and the
//! event that this member was removed. Never waits: a message that no link accepts is dropped, and
//! that is reported.

use std::sync::{Arc, PoisonError, Weak};

use super::{MemberRuntime, checkpoint};
use crate::node::{Input, PeerMessage};
use crate::server::metrics::peers::Way;

/// A weak reference to the member runtime, which owns the core threads.
pub(crate) struct Transport(Weak<MemberRuntime>);

impl Transport {
    pub(super) fn new(local: &Arc<MemberRuntime>) -> Transport {
        Transport(Arc::downgrade(local))
    }

    /// Sends a message; false when it was dropped.
    pub(crate) fn send(&self, to: u64, message: PeerMessage) -> bool {
        let Some(local) = self.0.upgrade() else {
            return false;
        };
        let links = local.links.read().unwrap_or_else(PoisonError::into_inner);
        let unsent = match links.get(&to) {
            Some((_, link)) => link.send(message).err(),
            None => Some(message),
        };
        drop(links);
        match unsent {
            Some(message) => {
                local.unsent(to, message);
                false
            }
            None => true,
        }
    }

    /// Streams the newest checkpoint to a member.
    pub(crate) fn send_checkpoint(&self, to: u64, term: u64, index: u64) {
        let Some(local) = self.0.upgrade() else {
            return;
        };
        let runtime = local.runtime.clone();
        runtime.spawn(async move {
            let told = local.shared.metrics.peers.checkpoint(to, Way::Send);
            let ok = match Box::pin(checkpoint::send(&local, to, term, index)).await {
                Ok(()) => {
                    told.done();
                    true
                }
                Err(error) => {
                    let to = format!("{to:x}");
                    tracing::warn!(%to, index, "cannot send a checkpoint: {error}");
                    false
                }
            };
            local.shared.report(Input::SnapshotSent { to, ok });
        });
    }

    /// This member was removed for good.
    pub(crate) fn removed(&self, reason: &str) {
        if let Some(local) = self.0.upgrade() {
            local.gone(reason);
        }
    }
}
