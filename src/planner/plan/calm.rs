//! Whether nothing can happen in a cluster that its own objects or its members do not tell of: then it need not be looked at
//! every few seconds, if the platform is told of those. In doubt it is not calm.

use crate::crd::{CertificateSource, TlsPort};

use super::draft::Draft;
use super::situation::Situation;

/// Nothing is to be done or awaited, and everything that a rule judges has its events.
pub(super) fn is_calm(s: &Situation<'_>, draft: &Draft) -> bool {
    is_settled(draft) && is_whole(s) && !is_read_elsewhere(s) && !is_gradual(s)
}

fn is_settled(draft: &Draft) -> bool {
    draft.steps.is_empty()
        && draft.waits.is_empty()
        && draft.holds.is_empty()
        && draft.notes.is_empty()
        && draft.stalled.is_none()
        && draft.failed_joins.is_empty()
        && draft.recoveries.is_empty()
        && !(draft.evictions.as_ref()).is_some_and(|it| it.as_ref().is_err_and(|it| it.passes))
}

/// Every member is a healthy voter with a pod that described itself, and nothing else is there.
fn is_whole(s: &Situation<'_>) -> bool {
    let sound = s.voters.iter().all(|(name, seat)| {
        let pod = s.o.pods.get(name);
        // How long another container is given is no event.
        let well = pod.is_some_and(|pod| pod.beside.is_none());
        seat.healthy() && s.description(name).is_some() && well
    });
    let nothing_else = s.learners.is_empty() && s.standbys.is_empty() && s.leaving.is_empty();
    let earlier = &s.o.earlier;
    let no_earlier = earlier.sets.is_empty() && earlier.pods.is_empty() && earlier.pvcs.is_empty();
    s.view.is_some()
        && !s.voters.is_empty()
        && sound
        && s.o.descriptions.len() == s.voters.len()
        && nothing_else
        && no_earlier
        && s.o.refused.is_none()
}

/// What other reconciles find out, what is read from the API server now and then, and what may not be watched.
fn is_read_elsewhere(s: &Situation<'_>) -> bool {
    let spec = &s.cluster.spec;
    let tls = spec.tls.as_ref();
    let foreign = |tls: &crate::crd::Tls| {
        let mut ports = TlsPort::ALL.into_iter();
        tls.publishes_bundle()
            || ports.any(|port| tls.port(port).source != CertificateSource::Operator)
    };
    tls.is_some_and(foreign)
        || spec.follow().is_some()
        || spec.backup_before_deletion.is_some()
        || s.o.held
        || s.o.last_backup.is_some()
        || !s.o.recoveries.is_empty()
        || !s.o.denied.is_empty()
}

/// What a description does not count as a change, and a rule or the status follows all the same.
fn is_gradual(s: &Situation<'_>) -> bool {
    let mut descriptions = s.o.descriptions.values();
    s.cluster.autogrow().is_some()
        || descriptions.any(|it| {
            !it.alarms.is_empty()
                || !it.comparisons.is_empty()
                || it.archived.is_some()
                || it.following.is_some()
                || it.staged.is_some()
                || it.retiring_ms.is_some()
        })
}
