//! Which objects lead on from an entry, without a hole. Pure.

use super::names::Range;
use crate::mutants::mutant;

/// What follows an entry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Chain {
    /// Ranges in order: each begins at or before the entry behind the one before it, and ends behind it.
    pub links: Vec<Range>,
    /// Index of the last entry that is reached; that from which it leads on if there is none.
    pub end: u64,
    /// Entries that are missing behind the end, where others follow.
    pub hole: Option<Range>,
}

/// The fewest ranges that lead on from the entry `after`, as far as they do.
#[must_use]
pub(super) fn chain(ranges: impl IntoIterator<Item = Range>, after: u64) -> Chain {
    let mut ranges: Vec<Range> = ranges.into_iter().filter(|it| it.last > after).collect();
    ranges.sort_unstable();
    let mut chain = Chain {
        end: after,
        ..Chain::default()
    };
    let mut best: Option<Range> = None;
    for range in ranges {
        if range.first > chain.end + 1 {
            // No later one closes it: they are sorted.
            take(&mut chain, &mut best);
            if range.first > chain.end + 1 && !mutant!(ArchiveHolePassedOver) {
                chain.hole = Range::new(chain.end + 1, range.first - 1);
                return chain;
            }
        }
        if best.is_none_or(|it| it.last < range.last) {
            best = Some(range);
        }
    }
    take(&mut chain, &mut best);
    chain
}

fn take(chain: &mut Chain, best: &mut Option<Range>) {
    if let Some(range) = best.take_if(|it| it.last > chain.end) {
        chain.end = range.last;
        mutant!(ArchiveLinkLeftOut => if chain.links.len() == 1 { return });
        chain.links.push(range);
    }
}

/// The newest entries that are stored without a hole.
#[must_use]
pub(super) fn newest_run(ranges: impl IntoIterator<Item = Range>) -> Option<Range> {
    let mut ranges: Vec<Range> = ranges.into_iter().collect();
    ranges.sort_unstable();
    let mut run: Option<Range> = None;
    for range in ranges {
        run = Some(match run {
            Some(run) if range.first <= run.last + 1 => Range {
                first: run.first,
                last: run.last.max(range.last),
            },
            _ => range,
        });
    }
    run
}
