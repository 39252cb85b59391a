//! Every request of an operator is held against the role that the chart ships, as the API server's
//! authorizer would: what the role does not allow is refused, noted, and fails the run at its end.

use std::sync::{Arc, Mutex};

use crate::build;
use crate::opsim::api::{self, Call, Verdict};

use super::gate::{Ledger, lock};

/// Has every request of every operator checked from now on.
pub(super) fn enforce(api: &api::Shared, ledger: Arc<Mutex<Ledger>>) {
    let rules = build::every_rule();
    api.intercept(move |call: &Call| match api::permitted(&rules, call) {
        Ok(()) => Verdict::Pass,
        Err(refusal) => {
            lock(&ledger).forbidden.push(refusal.message.clone());
            Verdict::Refuse(refusal)
        }
    });
}
