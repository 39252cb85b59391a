//! Pure: `Observed` to `Plan`; a file per situation.
//!
//! The shell observes, calls [`plan`], executes the first step of the answer and nothing else,
//! reports from the same view, and observes again. One mutating step a reconcile makes every half-done
//! state an ordinary input, so nothing here remembers anything: what a reconcile needs is in
//! [`Observed`]. No clock, no network, no randomness: all three are arguments.

mod action;
mod alarms;
mod calm;
mod certificates;
mod draft;
mod evidence;
mod fence;
mod following;
mod guards;
mod incarnation;
mod lint;
mod nodes;
mod observed;
mod pdb;
mod report;
mod rules;
mod services;
mod situation;
mod space;
pub mod status_memory;
mod step;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod text;
mod victims;
mod volumes;

#[cfg(test)]
mod tests;

pub use action::*;
pub use alarms::CLOSED_BY;
pub use certificates::{
    Certificate, CertificateFacts, NOT_ISSUED, POD_CERTIFICATE_SKEW_MS, PortSecurity, RequestFacts,
    TlsFacts, TrustBundle, TrustBundleFacts, Unfit, UserCertificate,
};
pub use evidence::SYNC_MS;
pub use lint::lint;
pub use observed::*;
pub use pdb::*;
pub use report::SOURCE_OPEN;
pub use situation::{CONTACT_MS, FRESH_MS};
pub use step::*;

use draft::Draft;
use situation::Situation;

/// Decides what to do about these facts. The same facts give the same plan. Its status is that of
/// a plan whose first step is done.
pub fn plan(o: &Observed) -> Plan {
    decide(o, |draft| {
        draft.steps.first().map(|step| step.action.clone())
    })
}

/// The same plan with the status of one of which this was done, or nothing: a step may have failed, or
/// something may have overtaken it.
pub fn plan_after(o: &Observed, done: Option<&Action>) -> Plan {
    decide(o, |_| done.cloned())
}

fn decide(o: &Observed, done: impl FnOnce(&Draft) -> Option<Action>) -> Plan {
    let cluster = match &o.cluster {
        Ok(cluster) => cluster,
        Err(invalid) => return report::invalid(o, invalid),
    };
    // Garbage collection deletes everything; nothing needs to be done about members. Until the last backup is stored,
    // nothing of it has begun.
    if o.deleting && !o.held {
        return report::deleting(o);
    }
    let (incarnation, own) = incarnation::current(o, cluster);
    let s = Situation::new(&own, cluster, incarnation);
    let mut draft = Draft::default();
    rules::run(&s, &mut draft);
    let refused = lint::steps_of((o, &own), cluster, &draft.steps);
    if let Some(change) = &o.refused {
        let text = format!(
            "{}. Until then the cluster is kept as it was last admitted",
            change.text
        );
        draft.stall(change.reason, text);
    }
    if !refused.is_empty() {
        draft.steps.clear();
        draft.stall(
            "PlanRefused",
            format!(
                "the operator refused its own plan because it violates an invariant (a bug): {}. Report it with this message and the operator's log",
                refused.join("; ")
            ),
        );
    }
    draft.done = done(&draft);
    report::plan(&s, draft)
}

/// Why the specification as it is cannot be carried out, if it cannot: a shell then plans from the
/// one that was last admitted, where it has one.
pub fn refusal(o: &Observed) -> Option<Refusal> {
    match &o.cluster {
        Err(invalid) => Some(Refusal {
            reason: "InvalidSpec",
            text: format!("the resource is invalid: {}", invalid.problems),
            of_certificate: false,
        }),
        Ok(_) if o.deleting && !o.held => None,
        Ok(cluster) => {
            let (incarnation, own) = incarnation::current(o, cluster);
            rules::refusal(&Situation::new(&own, cluster, incarnation))
        }
    }
}
