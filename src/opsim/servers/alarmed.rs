//! What simulated servers report and do under an alarm: how full they are, what their leader finds when it
//! compares the members' data, and that it switches an alarm off where it is asked to.

use tonic::Status;

use crate::wire::member as proto;

use super::{Container, Group, Servers};

/// Bytes that every server holds.
pub(super) const USED: i64 = 100 << 20;
/// So many comparisons are reported.
const KEPT: usize = 3;

impl Servers {
    /// How full a member is.
    pub(super) fn space(&self, member: &Container) -> proto::Space {
        let used = u64::try_from(USED).unwrap_or_default();
        let size = self.sizes.get(&member.volume).copied().unwrap_or(0);
        proto::Space {
            quota_bytes: match self.full.contains(&member.name) {
                true => used,
                false => 2 * used,
            },
            volume_free_bytes: size.saturating_sub(self.behaviour.filled_bytes),
            volume_needed_bytes: 2 * used,
            in_memory_bytes: 0,
            in_memory_most_bytes: 0,
        }
    }

    /// Raises an alarm in the name of a member.
    pub(crate) fn raise(&mut self, kind: &str, member: &str) {
        let members = self
            .groups
            .values()
            .flat_map(|group| group.membership.members.values());
        let id = members
            .filter(|known| known.name == member)
            .map(|known| known.id)
            .next();
        if let Some(id) = id {
            self.alarms.push(format!("{kind} {id:x}"));
        }
    }

    /// The data of a member's disk, if it is there.
    pub(crate) fn data_of(&self, group: u64, id: u64) -> Option<u32> {
        self.disk_of(group, id).map(|disk| disk.data)
    }

    /// A fault changes the data of a volume behind its server's back, or takes that back.
    pub(crate) fn change_data(&mut self, volume: &str, data: u32) {
        if let Some(disk) = self.disks.get_mut(volume) {
            disk.data = data;
        }
    }

    /// Under the alarm CORRUPT a leader with a quorum compares the members' data.
    pub(super) fn compare(&self, group: &mut Group) {
        let on = self.alarms.iter().any(|alarm| alarm.starts_with("CORRUPT"));
        let Some(leader) = group.leader.filter(|_| on) else {
            group.compared.clear();
            return;
        };
        let last = group.compared.first().map(|(at, _)| *at);
        let due = last.is_none_or(|at| at + self.behaviour.compare_ms <= self.now_ms);
        if !due || !group.is_quorate(self.now_ms) {
            return;
        }
        let ids: Vec<u64> = group.membership.members.keys().copied().collect();
        let hash = |id: u64| {
            let heard = id == leader || self.reaches(group.id, leader, id);
            let whole = self.held(group.id, id) == Some(group.commit);
            self.data_of(group.id, id).filter(|_| heard && whole)
        };
        let voters: Vec<u64> = group.membership.voters().map(|voter| voter.id).collect();
        let mut found = proto::Comparison::default();
        let same = |among: &[u64], own| among.iter().filter(|id| hash(**id) == own).count();
        let most = |among: &[u64], own| same(among, own) > among.len() / 2;
        let mut given = ids.iter().map(|id| hash(*id));
        let voted = given.any(|own| own.is_some() && most(&voters, own));
        let among = if voted { &voters } else { &ids };
        for id in &ids {
            let own = hash(*id);
            let side = match own {
                None => &mut found.silent,
                Some(_) if most(among, own) => &mut found.agree,
                Some(_) => &mut found.differ,
            };
            side.push(*id);
        }
        group.compared.insert(0, (self.now_ms, found));
        group.compared.truncate(KEPT);
    }

    /// Switches an alarm off, for whoever knows the configuration as it is.
    pub(super) fn disarm(
        &mut self,
        pod: &str,
        request: &proto::DisarmRequest,
    ) -> Result<proto::DisarmResponse, Status> {
        let disk = &self.disks[&self.processes[pod].container.volume];
        let own = disk.member_id;
        let group = self.settled(pod)?;
        if group.leader != Some(own) {
            return Err(Status::failed_precondition("not leader"));
        }
        let decided_on = request
            .fence
            .as_ref()
            .map(|fence| fence.configuration_index);
        if decided_on != Some(group.membership.configuration_index) {
            return Err(Status::aborted("the configuration has changed"));
        }
        let kind = match request.kind() {
            proto::AlarmKind::NoSpace => "NOSPACE",
            proto::AlarmKind::Corrupt => "CORRUPT",
            proto::AlarmKind::Unspecified => return Err(Status::invalid_argument("which alarm")),
        };
        let on = format!("{kind} {:x}", request.member);
        let before = self.alarms.len();
        self.alarms.retain(|alarm| *alarm != on);
        let was_on = self.alarms.len() < before;
        Ok(proto::DisarmResponse { was_on })
    }
}

impl Group {
    /// What its leader reports of them now.
    pub(super) fn comparisons(&self, now_ms: u64) -> Vec<proto::Comparison> {
        let aged = |(at, compared): &(u64, proto::Comparison)| proto::Comparison {
            age_ms: now_ms.saturating_sub(*at),
            ..compared.clone()
        };
        self.compared.iter().map(aged).collect()
    }
}
