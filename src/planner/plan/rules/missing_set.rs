//! A known member without its set gets it back, on the disk that it had. Never a new
//! PVC for a started member: that would be an empty disk under an old name.

use crate::plan::Rule;
use crate::plan::draft::Draft;
use crate::plan::observed::PvcState;
use crate::plan::situation::Situation;

use super::sets;

pub(super) fn rule(s: &Situation<'_>, draft: &mut Draft) {
    for (_, pvc) in s.our_pvcs() {
        let Some(member) = pvc.member.as_deref() else {
            continue;
        };
        if pvc.terminating {
            continue;
        }
        // Without a leader's description, a PVC that a member used counts as a member.
        let known = match s.view {
            Some(_) => s.voters.contains_key(member) || s.learners.contains_key(member),
            // One that is marked as kept, by a recovery that was given up, is that of a voter if the status says so.
            None => match pvc.state {
                // The deleted resource may not have come to mark it. A server without data waits there for a leader's word.
                PvcState::New => s.is_adopted(),
                PvcState::Joined => true,
                PvcState::Retired => s.o.status_memory.voters.iter().any(|it| it == member),
            },
        };
        match s.o.sets.get(member) {
            None if known => {
                let reason = "the member is known and its set is missing";
                sets::apply(s, draft, Rule::MissingSet, member, reason);
            }
            Some(set) if known && set.terminating => {
                draft.wait(
                    "ApplySet",
                    member,
                    "Terminating",
                    "its StatefulSet to be deleted, to create it again",
                );
            }
            _ => {}
        }
    }
}
