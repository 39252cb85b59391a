//! Which specification a cluster is operated with. One that cannot be carried out is refused before a pod is touched,
//! and the one that was admitted last stays in effect: the cluster is healed, its certificates are renewed, its status
//! is reported. Only the change is refused.

use crate::mutants::mutant;
use crate::plan::Rule;
use crate::plan::action::{Action, ObjectAction};
use crate::plan::draft::Draft;
use crate::plan::observed::Refusal;
use crate::plan::situation::Situation;

use super::{timings, user_certificates, version};
use crate::plan::certificates::NOT_ISSUED;

/// Why the specification cannot be carried out, as far as that is known before anything is created from it. The version
/// in an image is known only afterwards, and refused by its own rule.
pub(in crate::plan) fn refusal(s: &Situation<'_>) -> Option<Refusal> {
    let of = |reason, text, of_certificate| {
        Some(Refusal {
            reason,
            text,
            of_certificate,
        })
    };
    if let Some(why) = version::why_by_name(s) {
        return of("VersionRefused", why, false);
    }
    if let Some(why) = timings::why(s) {
        return of("TimingsRefused", why, false);
    }
    let unfit = user_certificates::unfit(s)
        .filter(|unfit| unfit.reason != NOT_ISSUED && !s.hibernates())?;
    of(unfit.reason, unfit.text, true)
}

/// Stores a specification without objections, before anything is created from it.
pub(super) fn rule(s: &Situation<'_>, draft: &mut Draft) {
    let Some(spec) = s.o.spec.as_ref().filter(|_| s.o.refused.is_none()) else {
        return;
    };
    mutant!(AdmittedForgotten => return);
    if spec.kept.as_ref() != Some(&spec.hash) {
        let action = Action::Object(ObjectAction::AdmitSpec {
            hash: spec.hash.clone(),
        });
        draft.step(Rule::Admission, action, "nothing speaks against it");
    }
}
