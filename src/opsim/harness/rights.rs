//! Every request of an operator is held against the role that the chart ships, as the API server's
//! authorizer would: what the role does not allow is refused, noted, and fails the run at its end.

use std::sync::{Arc, Mutex};

use crate::build;
use crate::opsim::api::{self, Call, Kind, Refusal, Verdict};

use super::operator::LEASE;
use super::request_faults::{Ledger, lock};

/// Has every request of every operator checked from now on. `without`: kinds, in the plural, that an
/// earlier role did not have.
/// `unserved`: kinds that the API server does not serve.
pub(super) fn enforce(
    api: &api::SharedApiServer,
    ledger: Arc<Mutex<Ledger>>,
    without: &[&str],
    unserved: &'static [Kind],
) {
    let (mut rules, lease) = (build::every_rule(), build::lease_rules(LEASE.1));
    rules.extend(build::trust_bundle_rules());
    rules.extend(build::pod_certificate_rules());
    rules.retain(|rule| {
        let mut of = rule.resources.iter().flatten();
        !of.any(|kind| without.contains(&kind.as_str()))
    });
    api.intercept(move |call: &Call| {
        if unserved.contains(&call.kind) {
            return Verdict::Refuse(Refusal::new(404, "", "404 page not found"));
        }
        // The Lease is its own namespace's business, and no other one's is.
        let own = call.kind == Kind::Lease && call.namespace == LEASE.0;
        let rules = if own { &lease } else { &rules };
        match api::permitted(rules, call) {
            Ok(()) => Verdict::Pass,
            Err(refusal) => {
                lock(&ledger).forbidden.push(refusal.message.clone());
                Verdict::Refuse(refusal)
            }
        }
    });
}
