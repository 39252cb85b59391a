//! A member's StatefulSet is applied only when the Secrets with the certificates that its pod mounts exist: otherwise
//! the pod would hang in ContainerCreating. Until then the rule that wants it waits.

use crate::mutants::mutant;
use crate::plan::Rule;
use crate::plan::action::{Action, CertificateAction};
use crate::plan::draft::Draft;
use crate::plan::situation::Situation;

/// Wants a member's set applied, or waits for its certificates.
pub(super) fn apply(
    s: &Situation<'_>,
    draft: &mut Draft,
    rule: Rule,
    member: &str,
    reason: impl Into<String>,
) {
    let lacks = lacking(s, draft, member);
    if lacks.is_empty() || mutant!(SetBeforeSecrets) {
        draft.step(rule, s.apply_set(member), reason);
        return;
    }
    let what = format!("the certificate {} to be issued", lacks.join(" and "));
    draft.wait("ApplySet", member, "CertificateMissing", what);
}

/// The missing Secrets that no earlier step of this plan creates. A hibernating member needs none.
fn lacking(s: &Situation<'_>, draft: &Draft, member: &str) -> Vec<String> {
    if s.hibernates() {
        return Vec::new();
    }
    let mut lacks = s.o.tls.missing(member);
    lacks.retain(|secret| !draft.steps.iter().any(|step| makes(&step.action, secret)));
    lacks
}

fn makes(action: &Action, wanted: &str) -> bool {
    matches!(action, Action::Certificate(
        CertificateAction::IssueCertificate { secret, .. } | CertificateAction::MakeTrust { secret, .. },
    ) if secret == wanted)
}
