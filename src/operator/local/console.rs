//! Console output: what happened and when, each thing once, and a table.

use std::io::Write;
use std::time::Instant;

/// Prints lines with the seconds since the start; the same text twice in a row only once.
#[derive(Debug)]
pub struct Console {
    start: Instant,
    last: String,
    /// The last printed reason for waiting.
    waiting: String,
}

impl Console {
    /// Starts the clock of the lines.
    pub fn new() -> Self {
        Self {
            start: Instant::now(),
            last: String::new(),
            waiting: String::new(),
        }
    }

    /// Something happened.
    pub fn print(&mut self, text: &str) {
        self.waiting.clear();
        if self.last == text {
            return;
        }
        text.clone_into(&mut self.last);
        self.line(text);
    }

    /// Nothing happens, and why. Printed again only when the reason changed.
    pub fn waits(&mut self, why: &str) {
        if self.waiting == why {
            return;
        }
        why.clone_into(&mut self.waiting);
        self.line(&format!("  waits: {why}"));
    }

    /// A heading between two parts of a story.
    pub fn heading(&mut self, text: &str) {
        self.waiting.clear();
        self.last.clear();
        self.line(&format!("== {text}"));
    }

    fn line(&self, text: &str) {
        let seconds = self.start.elapsed().as_secs_f64();
        // The reader may have closed the pipe; the cluster continues.
        let _ = writeln!(std::io::stdout(), "{seconds:6.1}s  {text}");
    }
}

impl Default for Console {
    fn default() -> Self {
        Self::new()
    }
}

/// A table with columns as wide as their widest cell. The first row is the heading.
pub fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let cells: Vec<String> = row
            .iter()
            .zip(&widths)
            .map(|(cell, width)| format!("{cell:<width$}"))
            .collect();
        text += cells.join("  ").trim_end();
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let row = |cells: [&str; 3]| cells.map(str::to_owned).to_vec();
        let rows = [
            row(["MEMBER", "ROLE", "PID"]),
            row(["demo-1", "Voter", ""]),
            row(["d", "L", "7"]),
        ];
        assert_eq!(
            table(&rows),
            "MEMBER  ROLE   PID\ndemo-1  Voter\nd       L      7\n"
        );
    }
}
