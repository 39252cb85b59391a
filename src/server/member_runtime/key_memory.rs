//! With values in files the quota says nothing of memory: what stays there are keys, what is known of each revision of them,
//! short values, and those that no checkpoint has moved yet. Asks for a checkpoint when that becomes much, and raises
//! NOSPACE when it is too much after one, before the kernel ends the process.
//!
//! Never counts what a view or an answer holds for a while, and never switches the alarm off.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tokio::task::spawn_blocking;
use tokio::time::sleep;

use super::MemberRuntime;
use crate::node::Input;
use crate::server::process::host_facts;

/// How often it is judged.
const JUDGE: Duration = Duration::from_millis(500);
/// How long a count of what is in files holds while nothing depends on it. A count looks at every record.
const COUNT: Duration = Duration::from_secs(30);
/// The shortest interval between two counts.
const COUNT_AGAIN: Duration = Duration::from_secs(2);
/// Reason for NOSPACE, for the log.
const KEYS_NEED_THE_MEMORY: &str = "the keys need the memory that this member has for them; delete what is not needed and \
                                    compact, or raise the memory limit";

/// Watches a member that may have so many bytes of its store in memory.
pub(super) async fn watch(local: &MemberRuntime, most: u64) {
    let mut account = Account::new(most);
    loop {
        let view = Arc::clone(&local.handle.published().view);
        let (size, now) = (view.db_size(), Instant::now());
        let saved = local.saver.get().map_or(0, |saver| saver.saved());
        if account.wants_count(now, size) {
            let counted = spawn_blocking(move || view.bytes_in_files(&host_facts::pace()));
            // It fails only when the server ends.
            let Ok(in_files) = counted.await else { return };
            account.counted(now, (size, in_files), saved);
        }
        let wanted = account.judge(size);
        let in_memory = &local.shared.in_memory;
        in_memory.store(account.in_memory(size), Ordering::Relaxed);
        if wanted.checkpoint {
            account.asked();
            local.shared.report(Input::WantCheckpoint);
        }
        if wanted.alarm && !local.handle.raise_no_space(KEYS_NEED_THE_MEMORY).await {
            // As during an election: the next judgement raises it.
            account.before = 0;
        }
        sleep(JUDGE).await;
    }
}

/// The result of one judgement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Wanted {
    checkpoint: bool,
    alarm: bool,
}

/// What is known of the store's share of memory.
#[derive(Debug)]
struct Account {
    most: u64,
    /// The last count, if there was one.
    count: Option<Count>,
    /// Bytes in memory when this was last judged.
    before: u64,
    /// The fewest since a checkpoint was asked for; 0 before that.
    least: u64,
    /// How many checkpoints there had been when one was last asked for.
    asked_after: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
struct Count {
    at: Instant,
    /// Bytes of values in files.
    in_files: u64,
    /// Bytes of the others.
    in_memory: u64,
    /// How many checkpoints had been written before it.
    saved: u64,
}

impl Account {
    fn new(most: u64) -> Self {
        Account {
            most,
            count: None,
            before: u64::MAX,
            least: 0,
            asked_after: None,
        }
    }

    /// Bytes of a store of this size that are in no file, as far as that is known.
    fn in_memory(&self, size: u64) -> u64 {
        size.saturating_sub(self.count.map_or(0, |count| count.in_files))
    }

    /// A store that would fit into memory with all its values needs no count, and an old one suffices unless it says that
    /// there is more in memory than then: checkpoints may have moved it.
    fn wants_count(&self, now: Instant, size: u64) -> bool {
        let Some(count) = self.count else {
            return size >= self.most / 2;
        };
        let age = now.saturating_duration_since(count.at);
        let in_memory = self.in_memory(size);
        let more = in_memory >= count.in_memory + self.most / 32;
        let matters = in_memory >= self.most / 2 && more && age >= COUNT_AGAIN;
        matters || age >= COUNT && size >= self.most / 2
    }

    fn counted(&mut self, at: Instant, (size, in_files): (u64, u64), saved: u64) {
        self.count = Some(Count {
            at,
            in_files,
            in_memory: size.saturating_sub(in_files),
            saved,
        });
    }

    /// Only growth raises the alarm, so that it stays off while an administrator who disarmed it frees space. A checkpoint
    /// is wanted again when there is an eighth more than it left.
    fn judge(&mut self, size: u64) -> Wanted {
        let in_memory = self.in_memory(size);
        let grew = in_memory > self.before;
        self.before = in_memory;
        self.least = self.least.min(in_memory);
        let much = in_memory >= (self.most / 2).max(self.least + self.most / 8);
        let saved = self.count.map_or(0, |count| count.saved);
        // What a checkpoint will move is no reason, unless it does not come.
        let is_moved = self.asked_after.is_some_and(|asked| saved > asked);
        let too_much = in_memory >= self.most && is_moved || in_memory >= 2 * self.most;
        Wanted {
            checkpoint: much,
            alarm: too_much && grew,
        }
    }

    /// A checkpoint was asked for.
    fn asked(&mut self) {
        self.least = self.before;
        self.asked_after = Some(self.count.map_or(0, |count| count.saved));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTHING: Wanted = Wanted {
        checkpoint: false,
        alarm: false,
    };
    const CHECKPOINT: Wanted = Wanted {
        checkpoint: true,
        alarm: false,
    };

    /// A count of half a minute ago took what checkpoints had moved since then for memory.
    #[test]
    fn it_is_counted_before_it_is_judged() {
        let now = Instant::now();
        let mut account = Account::new(1000);
        assert!(!account.wants_count(now, 499));
        assert!(account.wants_count(now, 8000));
        account.counted(now, (8000, 7900), 1);
        assert_eq!(account.judge(8000), NOTHING);
        let later = now + 2 * COUNT_AGAIN;
        assert!(!account.wants_count(later, 8200), "300 in memory at most");
        assert!(account.wants_count(later, 8400), "500, as far as is known");
        account.counted(later, (8400, 8300), 2);
        assert_eq!(account.judge(8400), NOTHING);
        assert!(account.wants_count(later + COUNT, 8400));
    }

    /// Values that no checkpoint had moved yet raised the alarm; then no write came that made a checkpoint due.
    #[test]
    fn checkpoint_is_asked_for_before_the_alarm() {
        let now = Instant::now();
        let mut account = Account::new(1000);
        account.counted(now, (1100, 0), 5);
        assert_eq!(
            account.judge(1100),
            CHECKPOINT,
            "as where the gate was turned on"
        );
        account.asked();
        assert_eq!(account.judge(1150), NOTHING, "it is under way");
        account.counted(now, (1150, 200), 6);
        assert!(!account.judge(1160).alarm, "it did not grow");
        let alarm = account.judge(1300);
        assert!(alarm.alarm, "1,100 after a checkpoint");
        assert!(!account.judge(1300).alarm, "only growth");
    }

    #[test]
    fn checkpoint_is_asked_for_again_after_growth() {
        let now = Instant::now();
        let mut account = Account::new(800);
        account.counted(now, (450, 0), 1);
        assert_eq!(account.judge(450), CHECKPOINT);
        account.asked();
        account.counted(now, (450, 40), 2);
        assert_eq!(account.judge(460), NOTHING, "420 are keys");
        assert_eq!(account.judge(550), NOTHING);
        assert_eq!(account.judge(560), CHECKPOINT, "100 more");
    }

    #[test]
    fn alarm_does_not_wait_for_a_checkpoint_that_does_not_come() {
        let mut account = Account::new(1000);
        account.counted(Instant::now(), (1500, 0), 1);
        account.judge(1500);
        account.asked();
        assert!(!account.judge(1900).alarm);
        assert!(account.judge(2000).alarm);
    }

    /// Every large store looks full before its values in files are counted.
    #[test]
    fn start_with_a_large_store_raises_nothing() {
        let now = Instant::now();
        let mut account = Account::new(1000);
        assert!(account.wants_count(now, 8000));
        account.counted(now, (8000, 7900), 0);
        assert_eq!(account.judge(8000), NOTHING);
        assert_eq!(account.judge(8001), NOTHING);
    }
}
