//! Text in columns and in lines of 80 characters, whatever its content.

/// The width of a screen, in characters.
pub(super) const WIDTH: usize = 80;

/// Lines of cells, each column as wide as its widest cell; cells are never truncated, because names are there to be
/// copied.
pub(super) fn table(rows: &[Vec<String>]) -> Vec<String> {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let wide = |at: usize| {
        let cells = rows.iter().filter_map(|row| row.get(at));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(wide).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths);
        let cells: Vec<String> = cells.map(|(cell, wide)| format!("{cell:<wide$}")).collect();
        cells.join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}

/// Words in lines of [`WIDTH`], the first after `head`, the others below where it ended. A word that
/// is longer than a line has one of its own.
pub(super) fn wrapped(head: &str, words: &str) -> Vec<String> {
    let indent = head.chars().count();
    let mut lines = Vec::new();
    let mut line = head.to_owned();
    for word in words.split_whitespace() {
        let empty = line.chars().count() <= indent;
        let needed = line.chars().count() + usize::from(!empty) + word.chars().count();
        if needed > WIDTH && !empty {
            lines.push(std::mem::replace(&mut line, " ".repeat(indent)));
        }
        if line.chars().count() > indent {
            line.push(' ');
        }
        line.push_str(word);
    }
    lines.push(line.trim_end().to_owned());
    lines
}
