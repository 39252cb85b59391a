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
            /// thousand of them, and scaled for others.
            pub fn too_few(&self, seeds: u64) -> Vec<String> {
                let mut few = Vec::new();
                $({
                    let least: u64 = $least * seeds / 1000;
                    if self.$name < least {
                        few.push(format!("{} {}, at least {least} are asked", self.$name, $text));
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
    leader_changes: "leader changes", 4_000;
    /// Processes killed.
    crashes: "crashes", 3_000;
    /// Processes that were paused.
    pauses: "pauses of a process", 1_500;
    /// Crashes in the middle of a write.
    torn_writes: "writes cut short by a crash", 60;
    /// Torn tails that a start found and cut.
    torn_tails: "torn tails cut at a start", 50;
    /// Disks that stopped in the middle of some operation.
    stopped_disks: "disks that stopped in the middle of an operation", 2_000;
    /// Syncs that failed and ended the process.
    failed_syncs: "failed syncs", 1_000;
    /// Writes for which there was no space and that ended the process.
    full_disks: "processes ended by a full disk", 700;
    /// Checkpoints for which there was no space, and that were tried again.
    full_checkpoints: "checkpoints that found no space", 100;
    /// Disks that were slow for a while.
    slow_disks: "slow disks", 500;
    /// Disks that did nothing for a while, while their servers answered.
    hung_disks: "disks that hung", 150;
    /// Disks that were lost for good.
    lost_disks: "disks lost for good", 400;
    /// Disks of which an older state came back.
    set_back: "disks set back to an older state", 100;
    /// Members that refused such a disk.
    refused_copies: "refusals of a disk that was set back", 100;
    /// Bits that flipped on a disk.
    rotten: "disks with a flipped bit", 300;
    /// Writes that went to another place.
    misdirected: "disks with a misdirected write", 300;
    /// Starts that were refused because of either.
    refused_starts: "starts refused on a spoilt disk", 300;
    /// Processes that read what was spoilt and ended.
    spoilt_reads: "spoilt entries found by reading them", 2;
    /// Servers that read a spoilt value that no other one could heal, and ended.
    spoilt_values: "spoilt values that ended their server", 0;
    /// Values that were healed from another server.
    healed_values: "spoilt values healed from another server", 1;
    /// Starts on a spoilt disk on which all that counts was whole.
    harmless_damage: "starts that damage did no harm to", 100;
    /// Servers of removed members that were deleted with their disks.
    cleared: "removed servers deleted", 2_500;
    /// Cuts of a link, one way or both ways.
    cuts: "links cut", 1_500;
    /// Servers that were cut off, one way or both ways.
    isolated: "servers cut off", 700;
    /// Partitions into two groups.
    splits: "partitions", 700;
    /// Dials that showed a member that another one's process had ended.
    gone: "dials refused after a process ended", 20_000;
    /// Connections to a server that ran were reset, so that others took it for gone.
    false_reports: "connections reset by a firewall", 700;
    /// Messages that the network dropped.
    dropped: "messages dropped", 300_000;
    /// Messages that the network delivered twice.
    duplicated: "messages delivered twice", 100_000;
    /// Checkpoints written.
    checkpoints: "checkpoints written", 50_000;
    /// Checkpoints installed from a leader.
    installs: "snapshots installed", 3_000;
    /// Those whose log began anew while entries from before waited to be applied.
    installs_behind: "snapshots installed behind entries that waited", 5;
    /// Changes of the configuration that were applied.
    configuration_changes: "configuration changes", 9_000;
    /// Learners promoted.
    promotions: "promotions", 3_000;
    /// Leadership handed over on request.
    transfers: "leadership transfers", 100;
    /// Writes acknowledged to clients.
    acknowledged: "writes acknowledged", 500_000;
    /// Writes whose fate the client never learnt.
    unknown: "writes of unknown fate", 10_000;
    /// Proposals that their client gave up and that had not left their member.
    withdrawn: "proposals withdrawn before they left", 10_000;
    /// Forwarded proposals that were proposed again since an entry of a later term was applied without them.
    repeated: "proposals repeated in a later term", 10_000;
    /// Forwards that were given back to their sender, since they had not been sent.
    unsent: "forwards given back unsent", 5_000;
    /// Starts of a server that ran 0.1.0 before, and does not now.
    upgrades: "servers upgraded from 0.1.0", 500;
    /// Starts of a server of 0.1.0 that ran a newer version before.
    ways_back: "servers taken back to 0.1.0", 500;
    /// Forwards for a term that reached a server which had been taken back to 0.1.0.
    ignored: "forwards ignored by a server of 0.1.0", 2;
    /// Writes that were refused before they were appended, or by the state.
    refused: "writes refused", 20_000;
    /// Writes that were refused for want of a permission.
    denied: "writes denied", 60_000;
    /// Writes that were refused because NOSPACE was on.
    no_space: "writes refused under NOSPACE", 2_000;
    /// Linearizable reads answered.
    reads: "linearizable reads", 300_000;
    /// Serializable reads answered.
    old_reads: "serializable reads", 200_000;
    /// Compactions.
    compactions: "compactions", 1_500;
    /// Changes of users, roles and permissions.
    auth_changes: "changes of users and roles", 15_000;
    /// Alarms raised and switched off.
    alarms: "alarms raised or switched off", 500;
    /// Events that watchers were shown.
    events: "events shown to watchers", 500_000;
    /// Times that a watcher began at a server.
    seats: "watchers begun or resumed", 20_000;
    /// Watchers that were cancelled since what they need is compacted.
    compacted_watchers: "watchers cancelled by a compaction", 100;
    /// Progress answers to watchers.
    bookmarks: "progress answers", 300_000;
    /// Leases renewed.
    renewals: "leases renewed", 30_000;
    /// Leases that ended by time.
    expired_leases: "leases expired", 10_000;
}

impl Counters {
    /// What went wrong.
    pub fn faults(&self) -> u64 {
        let processes = self.crashes + self.pauses;
        let network = self.cuts + self.isolated + self.splits;
        let disks = self.stopped_disks
            + self.failed_syncs
            + self.full_disks
            + self.slow_disks
            + self.hung_disks;
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
    fn rare_events_are_named() {
        let mut sum = Counters::default();
        let run = Counters {
            crashes: 2,
            ..Counters::default()
        };
        sum.add(&run);
        sum.add(&run);
        assert_eq!(sum.crashes, 4);
        assert!(!sum.too_few(1).join("\n").contains("crashes, "));
        let few = sum.too_few(1000).join("\n");
        assert!(few.contains("0 disks lost for good, at least 400 are asked"));
        assert!(few.contains("4 crashes, at least"));
        assert_eq!(sum.faults(), 4);
    }
}
