//! How often what happened. A run over many seeds in which something never happened has tested
//! less than it seems, and fails.

use std::fmt;

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident: $text:literal,)*) => {
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

            /// What never happened.
            pub fn zeros(&self) -> Vec<&'static str> {
                let mut zeros = Vec::new();
                $(if self.$name == 0 { zeros.push($text); })*
                zeros
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
    leader_changes: "leader changes",
    /// Processes killed.
    crashes: "crashes",
    /// Crashes in the middle of a write.
    torn_writes: "writes cut short by a crash",
    /// Torn tails that a start found and cut.
    torn_tails: "torn tails cut at a start",
    /// Disks that stopped in the middle of some operation.
    stopped_disks: "disks that stopped in the middle of an operation",
    /// Syncs that failed and ended the process.
    failed_syncs: "failed syncs",
    /// Disks that were lost for good.
    lost_disks: "disks lost for good",
    /// Servers of removed members that were deleted with their disks.
    cleared: "removed servers deleted",
    /// Cuts of a link, one way or both ways.
    cuts: "links cut",
    /// Messages that the network dropped.
    dropped: "messages dropped",
    /// Messages that the network delivered twice.
    duplicated: "messages delivered twice",
    /// Checkpoints written.
    checkpoints: "checkpoints written",
    /// Checkpoints installed from a leader.
    installs: "snapshots installed",
    /// Changes of the configuration that were applied.
    configuration_changes: "configuration changes",
    /// Learners promoted.
    promotions: "promotions",
    /// Leadership handed over on request.
    transfers: "leadership transfers",
    /// Writes acknowledged to clients.
    acknowledged: "writes acknowledged",
    /// Writes whose fate the client never learnt.
    unknown: "writes of unknown fate",
    /// Writes that were refused before they were appended.
    refused: "writes refused",
    /// Linearizable reads answered.
    reads: "linearizable reads",
    /// Events that watchers were shown.
    events: "events shown to watchers",
    /// Times that a watcher began at a server.
    seats: "watchers begun or resumed",
    /// Watchers that were told that what they need is compacted.
    compacted_watchers: "watchers cancelled by a compaction",
    /// Leases renewed.
    renewals: "leases renewed",
    /// Leases that ended by time.
    expired_leases: "leases expired",
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_never_happened_is_named() {
        let mut sum = Counters::default();
        let run = Counters {
            crashes: 2,
            ..Counters::default()
        };
        sum.add(&run);
        sum.add(&run);
        assert_eq!(sum.crashes, 4);
        assert!(sum.zeros().contains(&"disks lost for good"));
        assert!(!sum.zeros().contains(&"crashes"));
    }
}
