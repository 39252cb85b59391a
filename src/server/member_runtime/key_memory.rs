//! With values in files the quota says nothing of memory: what stays there are keys, what is known of each revision of them,
//! and short values. Raises NOSPACE when that outgrows its share of the memory limit, before the kernel ends the process.
//!
//! Never counts values that a checkpoint has moved or will move, nor what a view or an answer holds for a while, and never
//! switches the alarm off.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tokio::task::spawn_blocking;
use tokio::time::sleep;

use super::MemberRuntime;
use crate::server::process::host_facts;

/// How often it is judged.
const JUDGE: Duration = Duration::from_millis(500);
/// How long a count of the values holds as long as the keys may have what they need. A count looks at every record.
const COUNT: Duration = Duration::from_secs(30);
/// The shortest interval between two counts.
const COUNT_AGAIN: Duration = Duration::from_secs(5);
/// Reason for NOSPACE, for the log.
const KEYS_NEED_THE_MEMORY: &str = "the keys need the memory that this member has for them; delete what is not needed and \
                                    compact, or raise the memory limit";

/// Watches a member that may have so many bytes of its store in memory for good.
pub(super) async fn watch(local: &MemberRuntime, most: u64) {
    let mut account = Account::new(most);
    loop {
        let size = local.handle.latest().overview.db_size();
        let now = Instant::now();
        let saver = local.saver.get();
        let from = saver.and_then(|saver| saver.to_files());
        if let Some(from) = from.filter(|_| account.wants_count(now, size)) {
            let view = Arc::clone(&local.handle.published().view);
            let counted = spawn_blocking(move || view.bytes_of_values(from, &host_facts::pace()));
            // It fails only when the server ends.
            let Ok(values) = counted.await else { return };
            let outgrown = account.counted(now, size, values);
            if outgrown && !local.handle.raise_no_space(KEYS_NEED_THE_MEMORY).await {
                // As during an election: the next count raises it.
                account.before = 0;
            }
        }
        let in_memory = &local.shared.in_memory;
        in_memory.store(account.keys(size), Ordering::Relaxed);
        sleep(JUDGE).await;
    }
}

/// What is known of the store's share of memory.
#[derive(Debug)]
struct Account {
    most: u64,
    /// When the values were last counted, and their bytes.
    count: Option<(Instant, u64)>,
    /// Bytes of the store without them, then.
    before: u64,
}

impl Account {
    fn new(most: u64) -> Self {
        Account {
            most,
            count: None,
            before: u64::MAX,
        }
    }

    /// A store that would fit into memory with all its values needs no count. Before the alarm is raised there is always
    /// one: what was written since the last may be values.
    fn wants_count(&self, now: Instant, size: u64) -> bool {
        if size < self.most {
            return false;
        }
        self.count.is_none_or(|(at, values)| {
            let age = now.saturating_duration_since(at);
            let may_be_too_much = size.saturating_sub(values) >= self.most;
            age >= COUNT || age >= COUNT_AGAIN && may_be_too_much
        })
    }

    /// Of a store of this size so many bytes are values that are in files or will be. Returns whether the rest has outgrown
    /// its share: only growth counts, so that the alarm stays off while an administrator who disarmed it frees space.
    fn counted(&mut self, now: Instant, size: u64, values: u64) -> bool {
        let keys = size.saturating_sub(values);
        let grew = keys > self.before;
        self.before = keys;
        self.count = Some((now, values));
        keys >= self.most && grew
    }

    /// Bytes in memory for good, as of the last count.
    fn keys(&self, size: u64) -> u64 {
        match self.count {
            Some(_) => self.before.min(size),
            None => size,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Eight gigabytes written at full speed raised the alarm at three: values that the next checkpoint would move, and those
    /// written since the last count, were taken for keys.
    #[test]
    fn values_are_counted_before_the_alarm_is_raised() {
        let now = Instant::now();
        let mut account = Account::new(1000);
        assert!(!account.wants_count(now, 999));
        assert!(account.wants_count(now, 8000));
        assert!(!account.counted(now, 8000, 7900));
        assert!(!account.wants_count(now + COUNT_AGAIN, 8800), "900 at most");
        assert!(account.wants_count(now + COUNT_AGAIN, 8900));
        assert!(!account.wants_count(now + COUNT_AGAIN / 2, 8900));
        assert!(!account.counted(now, 8900, 8700), "they were values");
        assert!(account.wants_count(now + COUNT, 8900));
        assert_eq!(account.keys(9500), 200);
    }

    #[test]
    fn only_growth_of_keys_raises_the_alarm() {
        let now = Instant::now();
        let mut account = Account::new(1000);
        assert!(!account.counted(now, 3000, 1500), "a start is no growth");
        assert_eq!(account.keys(3000), 1500);
        assert!(account.counted(now, 3100, 1500));
        assert!(!account.counted(now, 3100, 1500));
        assert!(!account.counted(now, 3000, 1500), "it is being freed");
    }

    #[test]
    fn small_store_has_all_its_bytes_in_memory() {
        let account = Account::new(1000);
        assert_eq!(account.keys(500), 500);
    }
}
