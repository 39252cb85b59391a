//! Finds where a JSON value may end in a body that arrives in pieces, so that a long one in many
//! pieces is not parsed from its beginning with each of them. Never validates JSON: that is left to
//! the parser.

/// The scanner's state in a body's first value.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::server) struct Pieces {
    scanned: usize,
    /// Open objects and lists.
    depth: usize,
    string: bool,
    escaped: bool,
    /// The length at which parsing was last worthwhile.
    read: usize,
}

impl Pieces {
    /// Scans more of `buffer`, up to where a value may end, or all of it. Returns whether parsing
    /// is worthwhile now: a value may have ended, or the length has doubled, so that an error is
    /// found before all of it has arrived.
    pub(in crate::server) fn worth_reading(&mut self, buffer: &[u8]) -> bool {
        let mut ended = false;
        while let Some(byte) = buffer.get(self.scanned).filter(|_| !ended) {
            self.scanned += 1;
            match byte {
                _ if self.escaped => self.escaped = false,
                b'\\' if self.string => self.escaped = true,
                b'"' => self.string = !self.string,
                _ if self.string => {}
                b'{' | b'[' => self.depth += 1,
                b'}' | b']' => self.depth = self.depth.saturating_sub(1),
                _ => {}
            }
            ended = self.depth == 0 && !self.string && !byte.is_ascii_whitespace();
        }
        let worth = ended || self.scanned > 2 * self.read;
        if worth {
            self.read = self.scanned;
        }
        worth
    }

    /// Whether a part of a value was scanned already.
    pub(in crate::server) fn are_scanned(&self) -> bool {
        self.scanned > 0
    }

    /// Whether a part of `buffer` was not scanned yet.
    pub(in crate::server) fn more(&self, buffer: &[u8]) -> bool {
        self.scanned < buffer.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How often a text in pieces of one byte is parsed, and how many bytes in all.
    fn read(text: &[u8]) -> (usize, usize) {
        let mut pieces = Pieces::default();
        let reads: Vec<usize> = (1..=text.len())
            .filter(|end| pieces.worth_reading(&text[..*end]))
            .collect();
        (reads.len(), reads.iter().sum())
    }

    /// A client could send a body byte by byte and have the server parse everything received so far
    /// with each byte: three megabytes cost as much as five million of them.
    #[test]
    fn long_value_is_read_once() {
        let list = format!("{{\"key\":[{}1]}}", "1,".repeat(100_000));
        let text = format!("{{\"key\":\"{}\"}}", "a\\\"}".repeat(50_000));
        let blanks = " ".repeat(200_000);
        for long in [list, text, blanks] {
            let (times, bytes) = read(long.as_bytes());
            assert!(times < 30 && bytes <= 4 * long.len(), "{times} {bytes}");
        }
    }

    #[test]
    fn value_is_parsed_where_it_may_end() {
        for text in [
            &b"{\"a\":[{}]}"[..],
            b"  {\"}\\\"\":1}",
            b"[]",
            b"\"text\"",
            b"1",
            b"}",
        ] {
            let mut pieces = Pieces::default();
            assert!(pieces.worth_reading(text));
            assert!(!pieces.more(text), "{text:?}");
        }
        let two = b"{\"a\":1}{\"b\":2}";
        let mut pieces = Pieces::default();
        assert!(pieces.worth_reading(two) && pieces.more(two));
        assert!(pieces.worth_reading(two) && !pieces.more(two));
    }
}
