//! How often what happened. A run over many seeds in which something happened seldom or never has
//! tested less than it seems, and fails.

use std::fmt;

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident: $text:literal, $least:literal;)*) => {
        /// How often what happened, in one run or summed over many.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Counters {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl Counters {
            /// Adds the counts of another run.
            pub fn add(&mut self, other: &Self) {
                $(self.$name += other.$name;)*
            }

            /// What happened less often than is asked of so many seeds: each count is for a
            /// thousand of them, and at least one.
            pub fn too_few(&self, seeds: u64) -> Vec<String> {
                let mut few = Vec::new();
                $({
                    let least: u64 = $least * seeds / 1000;
                    if self.$name < least.max(1) {
                        few.push(format!("{} {}, at least {} are asked", self.$name, $text, least.max(1)));
                    }
                })*
                few
            }
        }

        impl fmt::Display for Counters {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                $(writeln!(f, "{:>10}  {}", self.$name, $text)?;)*
                Ok(())
            }
        }
    };
}

counters! {
    /// Elections won.
    leader_changes: "leader changes", 1;
    /// Processes killed.
    crashes: "crashes", 1;
    /// Processes that were paused.
    pauses: "pauses of a process", 1;
    /// Crashes in the middle of a write.
    torn_writes: "writes cut short by a crash", 1;
    /// Torn tails that a start found and cut.
    torn_tails: "torn tails cut at a start", 1;
    /// Disks that stopped in the middle of some operation.
    stopped_disks: "disks that stopped in the middle of an operation", 1;
    /// Syncs that failed and ended the process.
    failed_syncs: "failed syncs", 1;
    /// Writes for which there was no space and that ended the process.
    full_disks: "processes ended by a full disk", 1;
    /// Disks that were slow for a while.
    slow_disks: "slow disks", 1;
    /// Disks that were lost for good.
    lost_disks: "disks lost for good", 1;
    /// Bits that flipped on a disk.
    rotten: "disks with a flipped bit", 1;
    /// Writes that went to another place.
    misdirected: "disks with a misdirected write", 1;
    /// Starts that were refused because of either.
    refused_starts: "starts refused on a spoilt disk", 1;
    /// Processes that read what was spoilt and ended.
    spoilt_reads: "spoilt entries found by reading them", 1;
    /// Starts on a spoilt disk on which all that counts was whole.
    harmless_damage: "starts that damage did no harm to", 1;
    /// Servers of removed members that were deleted with their disks.
    cleared: "removed servers deleted", 1;
    /// Cuts of a link, one way or both ways.
    cuts: "links cut", 1;
    /// Servers that were cut off, one way or both ways.
    isolated: "servers cut off", 1;
    /// Partitions into two groups.
    splits: "partitions", 1;
    /// Messages that the network dropped.
    dropped: "messages dropped", 1;
    /// Messages that the network delivered twice.
    duplicated: "messages delivered twice", 1;
    /// Checkpoints written.
    checkpoints: "checkpoints written", 1;
    /// Checkpoints installed from a leader.
    installs: "snapshots installed", 1;
    /// Changes of the configuration that were applied.
    configuration_changes: "configuration changes", 1;
    /// Learners promoted.
    promotions: "promotions", 1;
    /// Leadership handed over on request.
    transfers: "leadership transfers", 1;
    /// Writes acknowledged to clients.
    acknowledged: "writes acknowledged", 1;
    /// Writes whose fate the client never learnt.
    unknown: "writes of unknown fate", 1;
    /// Writes that were refused before they were appended, or by the state.
    refused: "writes refused", 1;
    /// Writes that were refused for want of a permission.
    denied: "writes denied", 1;
    /// Writes that were refused because NOSPACE was on.
    no_space: "writes refused under NOSPACE", 1;
    /// Linearizable reads answered.
    reads: "linearizable reads", 1;
    /// Serializable reads answered.
    old_reads: "serializable reads", 1;
    /// Compactions.
    compactions: "compactions", 1;
    /// Changes of users, roles and permissions.
    auth_changes: "changes of users and roles", 1;
    /// Alarms raised and switched off.
    alarms: "alarms raised or switched off", 1;
    /// Events that watchers were shown.
    events: "events shown to watchers", 1;
    /// Times that a watcher began at a server.
    seats: "watchers begun or resumed", 1;
    /// Watchers that were told that what they need is compacted.
    compacted_watchers: "watchers cancelled by a compaction", 1;
    /// Progress answers to watchers.
    bookmarks: "progress answers", 1;
    /// Leases renewed.
    renewals: "leases renewed", 1;
    /// Leases that ended by time.
    expired_leases: "leases expired", 1;
}

impl Counters {
    /// What went wrong.
    pub fn faults(&self) -> u64 {
        let processes = self.crashes + self.pauses;
        let network = self.cuts + self.isolated + self.splits;
        let disks = self.stopped_disks + self.failed_syncs + self.full_disks + self.slow_disks;
        processes + network + disks + self.lost_disks + self.rotten + self.misdirected
    }

    /// Operations of clients that were answered.
    pub fn operations(&self) -> u64 {
        let writes = self.acknowledged + self.denied + self.no_space;
        writes + self.reads + self.old_reads
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_happened_too_seldom_is_named() {
        let mut sum = Counters::default();
        let run = Counters {
            crashes: 2,
            ..Counters::default()
        };
        sum.add(&run);
        sum.add(&run);
        assert_eq!(sum.crashes, 4);
        let few = sum.too_few(1).join("\n");
        assert!(few.contains("0 disks lost for good, at least 1 are asked"));
        assert!(!few.contains("crashes"));
        assert_eq!(sum.faults(), 4);
    }
}
