//! Limits log lines that any host that reaches a port can cause: some per interval, and the number
//! left out. Never used for what this server logs on its own account.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Length of an interval.
const WHILE: Duration = Duration::from_secs(10);
/// Lines in an interval.
const LINES: u32 = 10;

/// One kind of line.
#[derive(Debug)]
pub(crate) struct Quiet(Mutex<Interval>);

#[derive(Debug)]
struct Interval {
    since: Option<Instant>,
    lines: u32,
    left_out: u64,
}

impl Quiet {
    /// Nothing was logged yet.
    pub(crate) const fn new() -> Quiet {
        Quiet(Mutex::new(Interval {
            since: None,
            lines: 0,
            left_out: 0,
        }))
    }

    /// Whether a line may be logged now, and how many were left out since the last one.
    pub(crate) fn line(&self, now: Instant) -> Option<u64> {
        let mut interval = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let over = interval
            .since
            .is_none_or(|since| now.duration_since(since) >= WHILE);
        if over {
            interval.since = Some(now);
            interval.lines = 0;
        }
        if interval.lines >= LINES {
            interval.left_out += 1;
            return None;
        }
        interval.lines += 1;
        Some(std::mem::take(&mut interval.left_out))
    }
}

/// Text of an unknown host, made fit for a log line: no control characters, at most `most`
/// characters.
pub(crate) fn printable(text: &str, most: usize) -> String {
    let shown = |c: char| match c.is_control() {
        true => '?',
        false => c,
    };
    text.chars().take(most).map(shown).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_flood_is_summarized() {
        let (quiet, start) = (Quiet::new(), Instant::now());
        let written = (0..100_000).filter(|_| quiet.line(start).is_some()).count();
        assert_eq!(written, LINES as usize);
        assert_eq!(quiet.line(start + WHILE), Some(100_000 - u64::from(LINES)));
        assert_eq!(quiet.line(start + WHILE), Some(0));
    }

    #[test]
    fn name_cannot_inject_log_lines() {
        assert_eq!(printable("a\nWARN b\u{1b}[0m", 64), "a?WARN b?[0m");
        assert_eq!(printable("ééé", 2), "éé");
    }
}
