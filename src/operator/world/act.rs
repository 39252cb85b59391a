//! The model executes actions; here are assertions on what an operator must never do, whatever its rules and lints
//! allow.

use super::World;
use crate::model::Refused;
use crate::operator::platform::{Act, Failure};
use crate::plan::{Action, MemberAction, MemberView, ObjectAction};

impl World {
    /// Carries out an act as the API server and the servers would.
    pub(super) fn act(&mut self, act: &Act) -> Result<(), Failure> {
        self.never(&act.action);
        self.render();
        self.model.act(&act.action).map_err(failure)?;
        self.acts.push(act.action.word().to_owned());
        self.done.push(act.action.to_string());
        Ok(())
    }

    /// What an operator must never do, whatever its rules allow.
    fn never(&self, action: &Action) {
        match action {
            Action::Member(MemberAction::Bootstrap { .. }) => assert!(
                self.bootstraps() == 0 || !self.model.raft.members.is_empty(),
                "a second cluster of one resource"
            ),
            Action::Member(MemberAction::Remove { id, .. }) => self.keeps_a_quorum_without(*id),
            Action::Object(ObjectAction::DeletePvc { pvc, .. }) => {
                let disk = self.model.disks.get(pvc);
                let of = |view: &MemberView| disk.is_some_and(|disk| disk.member == Some(view.id));
                let member = self.model.raft.members.iter().any(of);
                assert!(!member, "a member's disk is deleted");
            }
            Action::Object(ObjectAction::MapSlot { member, .. }) => assert!(
                self.votes(member),
                "a slot leads to {member}, which is no voter"
            ),
            Action::Object(ObjectAction::DeletePod { member, .. }) => {
                let living = self.living_voters(|view| view.name != *member);
                assert!(
                    !self.votes(member) || living > self.names().len() / 2,
                    "the restart of {member} leaves no quorum"
                );
            }
            _ => {}
        }
    }

    fn keeps_a_quorum_without(&self, id: u64) {
        let raft = &self.model.raft;
        let voter = raft.voters().any(|view| view.id == id);
        let rest = raft.voters().count().saturating_sub(1);
        assert!(
            !voter || self.living_voters(|view| view.id != id) > rest / 2,
            "the removal of {id:x} leaves no quorum"
        );
    }

    fn votes(&self, member: &str) -> bool {
        self.model.raft.voters().any(|view| view.name == member)
    }

    fn living_voters(&self, counts: impl Fn(&MemberView) -> bool) -> usize {
        let voters = self.model.raft.voters();
        voters
            .filter(|view| counts(view) && self.model.lives(view))
            .count()
    }
}

fn failure(refused: Refused) -> Failure {
    match refused {
        Refused::Taken(name) => Failure::NameConflict {
            kind: "object".into(),
            name,
            owner: "another one".into(),
        },
        Refused::Terminating(name) => Failure::Terminating {
            kind: "object".into(),
            name,
        },
        Refused::Changed(why) => Failure::Changed(why),
        Refused::NoQuorum | Refused::Disruption(_) => Failure::Retry(refused.to_string()),
    }
}
