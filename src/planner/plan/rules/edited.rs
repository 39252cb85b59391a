//! A member's StatefulSet that was edited by hand is applied again as it was rendered, before its next pod is created
//! from the edit. That restarts nothing: no pod follows its StatefulSet by itself.

use crate::mutants::mutant;
use crate::plan::Rule;
use crate::plan::draft::Draft;
use crate::plan::observed::Owner;
use crate::plan::situation::Situation;

use super::sets;

pub(super) fn rule(s: &Situation<'_>, draft: &mut Draft) {
    for (member, set) in &s.o.sets {
        // An outdated one gets the current template in its turn, by `roll`.
        let current = set.inputs.as_ref() == Some(&s.o.wanted_inputs);
        let ours = set.owner == Owner::Ours && !set.terminating;
        let stays = s.pvc(member).is_some() && !s.leaving.contains(member);
        if set.edited && current && ours && stays && !mutant!(EditsStay) {
            let reason = "its StatefulSet was edited; reverting that restarts nothing";
            sets::apply(s, draft, Rule::MissingSet, member, reason);
        }
    }
}
