//! Log lines that whoever reaches a port can cause: some in a while, and how many were left out.
//! Never a place for what this server itself has to say.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long a while is.
const WHILE: Duration = Duration::from_secs(10);
/// Lines in a while.
const LINES: u32 = 10;

/// One kind of line.
#[derive(Debug)]
pub(crate) struct Quiet(Mutex<Said>);

#[derive(Debug)]
struct Said {
    since: Option<Instant>,
    lines: u32,
    left_out: u64,
}

impl Quiet {
    /// Nothing was said yet.
    pub(crate) const fn new() -> Quiet {
        Quiet(Mutex::new(Said {
            since: None,
            lines: 0,
            left_out: 0,
        }))
    }

    /// Whether a line may be written now, and how many were left out since the last while.
    pub(crate) fn line(&self, now: Instant) -> Option<u64> {
        let mut said = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let over = said
            .since
            .is_none_or(|since| now.duration_since(since) >= WHILE);
        if over {
            said.since = Some(now);
            said.lines = 0;
        }
        if said.lines >= LINES {
            said.left_out += 1;
            return None;
        }
        said.lines += 1;
        Some(std::mem::take(&mut said.left_out))
    }
}

/// What a stranger wrote, as a line of a log can hold it: no control characters, no more than this.
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
    fn a_flood_is_some_lines_and_a_number() {
        let (quiet, start) = (Quiet::new(), Instant::now());
        let written = (0..100_000).filter(|_| quiet.line(start).is_some()).count();
        assert_eq!(written, LINES as usize);
        assert_eq!(quiet.line(start + WHILE), Some(100_000 - u64::from(LINES)));
        assert_eq!(quiet.line(start + WHILE), Some(0));
    }

    #[test]
    fn a_name_cannot_write_a_line_of_its_own() {
        assert_eq!(printable("a\nWARN b\u{1b}[0m", 64), "a?WARN b?[0m");
        assert_eq!(printable("ééé", 2), "éé");
    }
}
