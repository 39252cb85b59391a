//! With values in files the quota says nothing of memory: what stays there are keys, what is known of each revision of them,
//! and short values. Raises NOSPACE when that outgrows its share of the memory limit, before the kernel ends the process.
//!
//! Never counts what a view or an answer holds for a while, and never switches the alarm off.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tokio::task::spawn_blocking;
use tokio::time::sleep;

use super::MemberRuntime;
use crate::store::Pace;

/// How often it is judged.
const JUDGE: Duration = Duration::from_millis(500);
/// How often what is in files is counted while the store is larger than what may be in memory. A count looks at every
/// record.
const COUNT: Duration = Duration::from_secs(30);
/// Reason for NOSPACE, for the log.
const KEYS_NEED_THE_MEMORY: &str = "the keys need the memory that this member has for them; delete what is not needed and \
                                    compact, or raise the memory limit";

/// Watches a member that may have so many bytes of its store in memory.
pub(super) async fn watch(local: &MemberRuntime, most: u64) {
    let mut account = Account::new(most);
    loop {
        let view = Arc::clone(&local.handle.published().view);
        let (size, now) = (view.db_size(), Instant::now());
        if account.wants_count(now, size) {
            let counted = spawn_blocking(move || view.bytes_in_files(&Pace::default()));
            // It fails only when the server ends.
            let Ok(in_files) = counted.await else { return };
            account.counted(now, in_files);
        }
        let outgrown = account.is_outgrown(size);
        let in_memory = &local.shared.in_memory;
        in_memory.store(account.in_memory, Ordering::Relaxed);
        if outgrown {
            local.handle.raise_no_space(KEYS_NEED_THE_MEMORY).await;
        }
        sleep(JUDGE).await;
    }
}

/// What is known of the store's share of memory.
#[derive(Debug)]
struct Account {
    most: u64,
    /// Bytes of values in files when they were last counted.
    in_files: u64,
    at: Option<Instant>,
    /// Bytes in memory when this was last judged.
    in_memory: u64,
}

impl Account {
    fn new(most: u64) -> Self {
        Account {
            most,
            in_files: 0,
            at: None,
            in_memory: u64::MAX,
        }
    }

    /// A store that would fit into memory with all its values needs no count.
    fn wants_count(&self, now: Instant, size: u64) -> bool {
        let due = |at: Instant| now.saturating_duration_since(at) >= COUNT;
        size >= self.most && self.at.is_none_or(due)
    }

    fn counted(&mut self, now: Instant, in_files: u64) {
        (self.in_files, self.at) = (in_files, Some(now));
    }

    /// Only growth raises the alarm, so that it stays off while an administrator who disarmed it frees space.
    fn is_outgrown(&mut self, size: u64) -> bool {
        let in_memory = size.saturating_sub(self.in_files);
        let grew = in_memory > self.in_memory;
        self.in_memory = in_memory;
        in_memory >= self.most && grew
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_in_files_do_not_count() {
        let now = Instant::now();
        let mut account = Account::new(1000);
        assert!(!account.wants_count(now, 999));
        assert!(!account.is_outgrown(900));
        assert!(account.wants_count(now, 8000));
        account.counted(now, 7100);
        assert!(!account.is_outgrown(8000), "900 in memory");
        assert!(!account.wants_count(now + COUNT / 2, 8050));
        assert!(account.is_outgrown(8100), "1000 in memory");
        assert!(!account.is_outgrown(8100), "only growth");
        assert!(account.wants_count(now + COUNT, 8100));
        account.counted(now + COUNT, 7900);
        assert!(!account.is_outgrown(8200), "they went to a file");
    }

    /// Every large store looks full before its values in files are counted.
    #[test]
    fn start_with_a_large_store_raises_nothing() {
        let now = Instant::now();
        let mut account = Account::new(1000);
        assert!(account.wants_count(now, 8000));
        account.counted(now, 7900);
        assert!(!account.is_outgrown(8000));
        assert!(!account.is_outgrown(8001));
    }
}
