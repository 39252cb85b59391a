//! Disks that were set back to an older state. The starts that members show each other distinguish them: a
//! disk of before a start is accepted by no member that has seen that start, and no other disk is refused.

use std::sync::Arc;

use crate::disk::double::{Faults, MemoryDisk};
use crate::disk::{Descent, Disk, Starts};

use super::network::HostId;
use super::oracles::Violation;
use super::world::{Step, World, broken};

const NOT_HEARD: &str = "a disk that was set back is not heard";

impl World {
    /// One member sends a hello to another, which judges and remembers its start. False: a process ended.
    pub(super) fn shows_its_starts(
        &mut self,
        speaker: HostId,
        listener: HostId,
    ) -> Result<bool, Violation> {
        let id = self.hosts[speaker].member.unwrap_or_default();
        let disk_uuid = self.hosts[speaker].disk_name();
        let shown = self.hosts[speaker].process.as_ref();
        let Some(shown) = shown.map(|process| process.starts.own().clone()) else {
            return Ok(false);
        };
        let Some(process) = &mut self.hosts[listener].process else {
            return Ok(false);
        };
        let noted = process.note_start((id, &disk_uuid), &shown);
        match self.unless_disk_failed(listener, "remembering a start", noted)? {
            None => Ok(false),
            Some(Descent::Copy(seen)) => Err(Violation::new(
                NOT_HEARD,
                format!("host {listener} refuses host {speaker}, whose disk is its own: {seen:?}"),
            )),
            Some(_) => Ok(true),
        }
    }

    /// Instead of its disk a member has got back an older state of it, and is started. Whoever has seen a
    /// newer start of the member refuses it; then its server ends for good, as one whose disk is lost.
    pub(super) fn comes_back_older(&mut self, host: HostId, older: &MemoryDisk) -> Step {
        older.set_faults(Faults::default());
        let id = self.hosts[host].member.unwrap_or_default();
        let (uuid, name) = (self.hosts[host].disk_uuid, self.hosts[host].disk_name());
        let disk: Arc<dyn Disk> = Arc::new(older.clone());
        let nonce = self.number();
        let begun = Starts::begin(&disk, uuid, nonce);
        let begun = begun.map_err(|error| broken("an older disk", error))?;
        let newest = begun.own().newest().map_or(0, |start| start.number);
        self.counters.set_back += 1;
        for other in self.hosts.iter().filter(|other| other.id != host) {
            let Some(process) = &other.process else {
                continue;
            };
            // Whoever saw nothing since cannot know.
            let seen = process.starts.seen(id, &name);
            if seen.is_none_or(|seen| seen.number < newest) {
                continue;
            }
            let verdict = process.starts.judge(id, &name, Some(begun.own()));
            if !matches!(verdict, Descent::Copy(_)) {
                let text = format!("host {} hears host {host}: {verdict:?}", other.id);
                return Err(Violation::new(NOT_HEARD, text));
            }
            self.counters.refused_copies += 1;
        }
        let now = self.agenda.now();
        self.trace.note(
            now,
            format_args!("host {host} comes back on an older disk, in start {newest}"),
        );
        Ok(())
    }
}
