//! Bytes that were durable and are not what was written any more: bits that flipped, and writes
//! that went to another place. The server must find it out when it starts, or when it reads, and
//! refuse; or the damage lies where nothing counts, or in a value that another server has, and then all must be there as
//! it was. Whose server refuses is replaced as one whose disk is lost.

use rand::RngExt as _;

use crate::disk::{Class, SECTOR};

use super::clock::SECOND;
use super::host::StartError;
use super::network::HostId;
use super::oracles::Violation;
use super::world::{Event, Step, World, broken};

/// How bytes are spoilt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Damage {
    /// A bit is another.
    Rot,
    /// A sector is at another place, and zeros are where it belongs.
    Misdirected,
}

impl World {
    /// Spoils some bytes of a server's disk. It runs on for a while, or is killed at once.
    pub(super) fn spoil(&mut self, host: HostId, damage: Damage) -> Step {
        if self.hosts[host].process.is_none() || self.hosts[host].disk.tripped() {
            return Ok(());
        }
        let what = match damage {
            Damage::Rot => self.flip_a_bit(host),
            Damage::Misdirected => self.misdirect_a_sector(host),
        };
        let Some(what) = what else {
            return Ok(());
        };
        match damage {
            Damage::Rot => self.counters.rotten += 1,
            Damage::Misdirected => self.counters.misdirected += 1,
        }
        self.hosts[host].spoilt = true;
        let now = self.agenda.now();
        self.trace
            .note(now, format_args!("host {host}: {damage:?}: {what}"));
        let boot = self.hosts[host].boot;
        let later = match self.random.random_bool(0.5) {
            true => 0,
            false => self.random.random_range(0..8 * SECOND),
        };
        self.agenda.after(later, Event::Kill(host, boot));
        Ok(())
    }

    fn flip_a_bit(&mut self, host: HostId) -> Option<String> {
        let disk = self.hosts[host].disk.clone();
        let files = disk.files();
        let mut files: Vec<&String> = files
            .iter()
            .filter(|name| !name.ends_with(".tmp"))
            .collect();
        let is_values = |name: &&String| name.ends_with(".values");
        if files.iter().any(is_values) && self.random.random_bool(0.5) {
            files.retain(is_values);
        }
        let name = *files.get(self.random.random_range(0..files.len().max(1)))?;
        let bytes = disk.contents(name).ok()?;
        // Mostly where something was written: a segment's end is zeros.
        let written = bytes.iter().rposition(|byte| *byte != 0).unwrap_or(0) + 1;
        let within = match self.random.random_range(0..4) {
            0 => bytes.len(),
            _ => written,
        };
        let offset = self.random.random_range(0..within.max(1)) as u64;
        let bit = self.random.random_range(0..8);
        disk.flip_bit(name, offset, bit).ok()?;
        Some(format!("bit {bit} of byte {offset} of {name}"))
    }

    /// Not of the last batch: a disk that reports it has written that and has not cannot be distinguished
    /// from one that lost power before.
    fn misdirect_a_sector(&mut self, host: HostId) -> Option<String> {
        let disk = self.hosts[host].disk.clone();
        let files = disk.files();
        let logs: Vec<&String> = files.iter().filter(|name| name.ends_with(".log")).collect();
        let mut from = Vec::new();
        let mut to = Vec::new();
        for name in &files {
            let bytes = disk.contents(name).ok()?;
            let sectors = bytes.len() / SECTOR;
            to.extend((0..sectors).map(|sector| (name, sector as u64)));
            if logs.contains(&name) {
                let last = logs.last() == Some(&name);
                from.extend(settled_sectors(&bytes, last).map(|sector| (name, sector as u64)));
            }
        }
        let from = *from.get(self.random.random_range(0..from.len().max(1)))?;
        to.retain(|place| *place != from);
        let to = *to.get(self.random.random_range(0..to.len().max(1)))?;
        disk.misdirect((from.0, from.1), (to.0, to.1)).ok()?;
        Some(format!(
            "sector {} of {} to sector {} of {}",
            from.1, from.0, to.1, to.0
        ))
    }

    /// What becomes of a server that does not start.
    pub(super) fn did_not_start(&mut self, host: HostId, error: &StartError) -> Step {
        let now = self.agenda.now();
        let what = format!("start of host {host}");
        self.trace.note(now, format_args!("{what}: {error}"));
        let class = error.class();
        if class == Some(Class::DiskFull) && self.hosts[host].disk.filled() {
            self.hosts[host].disk.crash_process();
            let back = self.random.random_range(SECOND / 5..SECOND);
            self.agenda.after(back, Event::Restart(host));
            return Ok(());
        }
        let refused = matches!(
            class,
            Some(Class::Corrupt | Class::Identity | Class::ForeignDisk | Class::TooNew)
        );
        if self.hosts[host].spoilt && refused {
            self.counters.refused_starts += 1;
            self.dispose_of(host);
            return Ok(());
        }
        Err(broken(&what, error))
    }

    /// What a server reads of its state, values in files included. One that is damaged is found out by whoever reads
    /// it, not by a start; if nobody can heal it, an operator replaces the member.
    pub(super) fn unless_damaged<T>(
        &mut self,
        host: HostId,
        what: &str,
        result: Result<T, impl std::fmt::Display>,
    ) -> Result<Option<T>, Violation> {
        match result {
            Err(error)
                if self.hosts[host].spoilt
                    && !self.hosts[host].disk.tripped()
                    && error.to_string().contains(".values") =>
            {
                let now = self.agenda.now();
                let text = format_args!("host {host}: {what}: {error}");
                self.trace.note(now, text);
                self.counters.spoilt_values += 1;
                self.hosts[host].process = None;
                self.hosts[host].disk.crash_process();
                self.dispose_of(host);
                Ok(None)
            }
            // Any other error is no damage that a read may find, whatever the disk is like.
            Err(error) if !self.hosts[host].disk.tripped() => Err(broken(what, error)),
            result => self.unless_disk_failed(host, what, result),
        }
    }

    /// A spoilt disk gave an error to a server that runs: it ends, and will not start again.
    pub(super) fn found_at_a_read(&mut self, host: HostId, error: &str) -> Step {
        if !self.hosts[host].spoilt {
            let text = format!("host {host} reads: {error}");
            return Err(Violation::new("nothing fails by itself", text));
        }
        let now = self.agenda.now();
        self.trace.note(
            now,
            format_args!("host {host} reads what is spoilt: {error}"),
        );
        self.counters.spoilt_reads += 1;
        self.hosts[host].process = None;
        self.hosts[host].disk.crash_process();
        let back = self.random.random_range(SECOND / 50..SECOND);
        self.agenda.after(back, Event::Restart(host));
        Ok(())
    }
}

/// The sectors of a segment whose loss must be noticed: those that were written, but for the last
/// batch of the last segment. All sectors of a batch begin with the same byte.
fn settled_sectors(bytes: &[u8], last: bool) -> std::ops::Range<usize> {
    let written = |at: &usize| {
        bytes[at * SECTOR..(at + 1) * SECTOR]
            .iter()
            .any(|b| *b != 0)
    };
    let end = (0..bytes.len() / SECTOR).rev().find(written);
    let Some(end) = end else { return 0..0 };
    if !last {
        return 0..end + 1;
    }
    let stamp = bytes[end * SECTOR];
    let before = (1..end).rev().find(|at| bytes[at * SECTOR] != stamp);
    match before {
        // A head alone, or a head and one batch: nothing that a later batch would give away.
        None => 0..0,
        Some(before) => 0..before + 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_batch_is_left_alone() {
        let sectors = |stamps: &[u8]| -> Vec<u8> {
            stamps.iter().flat_map(|stamp| [*stamp; SECTOR]).collect()
        };
        let log = sectors(&[1, 0x81, 0x82, 0x82, 0, 0]);
        assert_eq!(settled_sectors(&log, false), 0..4);
        assert_eq!(settled_sectors(&log, true), 0..2);
        assert_eq!(settled_sectors(&sectors(&[1, 0x81, 0]), true), 0..0);
        assert_eq!(settled_sectors(&sectors(&[0, 0]), true), 0..0);
    }
}
