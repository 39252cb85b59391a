//! Needs a leader's description: stable endpoints. Replaced members get new names, so clients are given slots, as many
//! as there are voters wanted, each a Service in front of one voter. A slot keeps its member for as long as that one is
//! a voter, except that it is handed over right before its member is retired; a learner never has one. Blocks nothing.

use crate::plan::Rule;
use std::collections::BTreeSet;

use crate::crd::{member_number, slot_service_name};
use crate::plan::action::{Action, ObjectAction};
use crate::plan::draft::Draft;
use crate::plan::observed::{Owner, SlotFacts};
use crate::plan::situation::Situation;

pub(super) fn rule(s: &Situation<'_>, draft: &mut Draft) {
    if s.view.is_none() || wanted(s) == 0 {
        return;
    }
    let mut spare = spare(s);
    spare.reverse();
    let mut held = BTreeSet::new();
    for slot in 0..wanted(s) {
        let reason = match s.o.slots.get(&slot) {
            Some(facts) if facts.terminating => {
                let service = slot_service_name(&s.cluster.name, slot);
                let text = format!("Service {service} to be deleted");
                draft.wait("MapSlot", "", "Terminating", text);
                continue;
            }
            // A slot that was not wanted for a while keeps a member that got another one meanwhile.
            Some(facts) if holder(s, facts).is_some_and(|member| !held.insert(member)) => {
                "its member has another slot"
            }
            Some(facts) => match holder(s, facts) {
                Some(_) if facts.inputs.as_ref() == Some(&s.o.wanted_slot_inputs) => continue,
                Some(member) => {
                    let service = slot_service_name(&s.cluster.name, slot);
                    // It follows its member meanwhile, without what the client Service has not taken.
                    if facts.inputs.is_some() && s.waits_for_client_service(&service) {
                        continue;
                    }
                    let reason = "what it is created from changed";
                    draft.step(Rule::Objects, map(s, slot, member), reason);
                    continue;
                }
                None => "its member is no voter any more",
            },
            None => "it is missing",
        };
        let Some(member) = spare.pop() else { continue };
        draft.step(Rule::Objects, map(s, slot, member), reason);
    }
    drop_surplus(s, draft);
}

/// The action that hands a voter's slot to one that has none, so that clients of the slot do not reach a leaving
/// member. `None` if there is no slot or no such voter.
pub(super) fn hand_over(s: &Situation<'_>, victim: &str) -> Option<Action> {
    let held = |(slot, facts): (&u32, &SlotFacts)| {
        let holds = !facts.terminating && holder(s, facts) == Some(victim);
        (holds && *slot < wanted(s)).then_some(*slot)
    };
    let slot = s.o.slots.iter().find_map(held)?;
    let ready = |name: &&str| s.description(name).is_some_and(|d| d.ready);
    let heir = spare(s).into_iter().find(ready)?;
    Some(map(s, slot, heir))
}

/// Slots wanted; none where the platform has none.
fn wanted(s: &Situation<'_>) -> u32 {
    u32::try_from(s.o.slot_endpoints.len()).unwrap_or(u32::MAX)
}

/// The voter that a slot's Service selects.
fn holder<'f>(s: &Situation<'_>, facts: &'f SlotFacts) -> Option<&'f str> {
    let member = facts.member.as_deref()?;
    s.voters.contains_key(member).then_some(member)
}

/// Our voters without a slot, in the order of preference: staying, healthy, older. A slot beyond the wanted ones does
/// not count, because it is being deleted.
fn spare<'s>(s: &'s Situation<'_>) -> Vec<&'s str> {
    let lasting = s.o.slots.range(..wanted(s));
    let taken: BTreeSet<&str> = lasting.filter_map(|(_, facts)| holder(s, facts)).collect();
    let ours = s.voters.iter().filter(|(_, seat)| seat.ours);
    let mut spare: Vec<&str> = ours
        .map(|(name, _)| name.as_str())
        .filter(|name| !taken.contains(name))
        .collect();
    spare.sort_by_key(|name| {
        let healthy = s.voters.get(*name).is_some_and(|seat| seat.healthy());
        let number = member_number(&s.cluster.name, name);
        (s.retires(name), s.is_replaced(name), !healthy, number)
    });
    spare
}

fn map(s: &Situation<'_>, slot: u32, member: &str) -> Action {
    Action::Object(ObjectAction::MapSlot {
        slot,
        service: slot_service_name(&s.cluster.name, slot),
        member: member.to_owned(),
    })
}

/// Slots are deleted as the voters leave: a surplus one stays until it has no voter.
fn drop_surplus(s: &Situation<'_>, draft: &mut Draft) {
    let voters = u32::try_from(s.voters.len()).unwrap_or(u32::MAX);
    let surplus = s.o.slots.range(wanted(s).max(voters)..);
    let goes = |facts: &SlotFacts| facts.owner == Owner::Ours && !facts.terminating;
    for (slot, facts) in surplus.filter(|(_, facts)| goes(facts)) {
        let action = Action::Object(ObjectAction::DropSlot {
            slot: *slot,
            service: slot_service_name(&s.cluster.name, *slot),
            uid: facts.uid.clone(),
        });
        draft.step(
            Rule::Objects,
            action,
            format!("{} slots are wanted", wanted(s)),
        );
    }
}
