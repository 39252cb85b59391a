//! Where a JSON value may end in a body that comes in pieces, so that a long one in many pieces is
//! not read from its beginning with each of them. Never judges JSON: whether a value is there, and
//! a right one, is for whoever reads it.

/// What is known of a body's first value, up to where it was looked at.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::server) struct Pieces {
    looked: usize,
    /// Objects and lists that are open.
    depth: usize,
    string: bool,
    escaped: bool,
    /// How much there was when it was last worth reading.
    read: usize,
}

impl Pieces {
    /// Looks at more of `buffer`, up to where a value may end, or all of it. Whether it is worth
    /// reading now: a value may have ended, or twice as much is there as the last time, so that
    /// what is wrong is found before all of it has come.
    pub(in crate::server) fn worth_reading(&mut self, buffer: &[u8]) -> bool {
        let mut ended = false;
        while let Some(byte) = buffer.get(self.looked).filter(|_| !ended) {
            self.looked += 1;
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
        let worth = ended || self.looked > 2 * self.read;
        if worth {
            self.read = self.looked;
        }
        worth
    }

    /// Whether some of a value was looked at already.
    pub(in crate::server) fn are_looked_at(&self) -> bool {
        self.looked > 0
    }

    /// Whether some of `buffer` was not looked at yet.
    pub(in crate::server) fn more(&self, buffer: &[u8]) -> bool {
        self.looked < buffer.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The times that a text in pieces of one byte is read, and bytes read in all.
    fn read(text: &[u8]) -> (usize, usize) {
        let mut pieces = Pieces::default();
        let reads: Vec<usize> = (1..=text.len())
            .filter(|end| pieces.worth_reading(&text[..*end]))
            .collect();
        (reads.len(), reads.iter().sum())
    }

    /// A client could send a body byte by byte and had the server read all that had come with each
    /// of them: three megabytes cost as much as five million of them.
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
    fn a_value_is_read_where_it_may_end() {
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
