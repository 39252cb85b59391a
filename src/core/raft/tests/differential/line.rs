//! The parsed state of a member at rest: a head and a log. Decides when two are equal.

/// A member's line: all but the log, where the log starts, and its entries.
struct Line<'a> {
    head: &'a str,
    start: &'a str,
    entries: Vec<&'a str>,
}

/// How the lines of one member compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Likeness {
    Same,
    /// All is equal, but for how much of what a snapshot stands for is still in the log, too.
    OtherStart,
    Different,
}

impl<'a> Line<'a> {
    /// `None`: the member is down.
    fn parse(line: &'a str) -> Option<Self> {
        let (head, log) = line.split_once(" log=(")?;
        let (start, entries) = log.split_once(')')?;
        Some(Self {
            head,
            start,
            entries: entries.split_whitespace().collect(),
        })
    }

    /// The term at an index and the entries behind it, where the log has them.
    fn from(&self, index: u64) -> Option<(&'a str, &[&'a str])> {
        let (term, start) = position(self.start);
        let at = usize::try_from(index.checked_sub(start)?).ok()?;
        let term = match at.checked_sub(1) {
            None => term,
            Some(before) => position(self.entries.get(before)?).0,
        };
        Some((term, self.entries.get(at..)?))
    }
}

/// Term and index of an entry or a start: `term/index`, and its content after a colon.
fn position(text: &str) -> (&str, u64) {
    let (at, _) = text.split_once(':').unwrap_or((text, ""));
    let (term, index) = at.split_once('/').expect("a term and an index");
    (term, index.parse().expect("an index is a number"))
}

/// Compares a member's state in our cluster with that in the other.
pub(super) fn compare(ours: &str, theirs: &str) -> Likeness {
    if ours == theirs {
        return Likeness::Same;
    }
    let (Some(ours), Some(theirs)) = (Line::parse(ours), Line::parse(theirs)) else {
        return Likeness::Different;
    };
    let (our_start, their_start) = (position(ours.start).1, position(theirs.start).1);
    let common = our_start.max(their_start);
    let (from_ours, from_theirs) = (ours.from(common), theirs.from(common));
    if ours.head == theirs.head
        && our_start != their_start
        && from_ours.is_some()
        && from_ours == from_theirs
    {
        return Likeness::OtherStart;
    }
    Likeness::Different
}

#[test]
fn only_the_start_of_a_log_may_differ() {
    let line = |log: &str| format!("3 term=9 commit=4 last=5 log={log}");
    let whole = line("(1/1) 2/2:a 2/3:b 3/4: 9/5:c");
    for (log, likeness) in [
        ("(1/1) 2/2:a 2/3:b 3/4: 9/5:c", Likeness::Same),
        ("(2/3) 3/4: 9/5:c", Likeness::OtherStart),
        ("(9/5)", Likeness::OtherStart),
        // another term where it starts, another entry, one too few, one too many
        ("(1/3) 3/4: 9/5:c", Likeness::Different),
        ("(2/3) 3/4: 9/5:d", Likeness::Different),
        ("(2/3) 3/4:", Likeness::Different),
        ("(2/3) 3/4: 9/5:c 9/6:", Likeness::Different),
        ("(9/6)", Likeness::Different),
        ("(1/1) 2/2:a 2/3:x 3/4: 9/5:c", Likeness::Different),
    ] {
        assert_eq!(compare(&line(log), &whole), likeness, "{log}");
        assert_eq!(compare(&whole, &line(log)), likeness, "{log}");
    }
    let voted = line("(2/3) 3/4: 9/5:c").replace("term=9", "term=8");
    assert_eq!(compare(&voted, &whole), Likeness::Different);
    assert_eq!(compare("3 down", &whole), Likeness::Different);
}
