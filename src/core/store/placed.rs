//! The order of revisions by their places, where almost every revision of a range is among them: each is counted to its
//! place, which takes a few steps a revision instead of one for each bit of their number.
//!
//! Never moves them: whoever reads them in this order has them loaded ahead.

use super::Revision;

/// The place of one: its revision, and its number among those of the revision.
type Place = (Revision, u32);

/// So many times as many revisions as there are items may lie between the first and the last: a count is kept for each.
const SPARSE: usize = 2;

/// The indices of all, in the order of their places.
pub(super) fn order<T>(all: &[T], place: impl Fn(&T) -> Place) -> Vec<usize> {
    let mains = || all.iter().map(|item| place(item).0);
    let bounds = mains().min().zip(mains().max());
    let range = bounds.and_then(|(first, last)| usize::try_from(last.checked_sub(first)?).ok());
    let dense =
        |range| range <= SPARSE.saturating_mul(all.len()) && u32::try_from(all.len()).is_ok();
    match (bounds, range) {
        (Some((first, _)), Some(range)) if dense(range) => counted(all, first, range, place),
        _ => {
            let mut order: Vec<usize> = (0..all.len()).collect();
            order.sort_unstable_by_key(|at| place(&all[*at]));
            order
        }
    }
}

/// The same of items whose revisions are at most `range` above `first`, and whose number a `u32` holds.
fn counted<T>(all: &[T], first: Revision, range: usize, place: impl Fn(&T) -> Place) -> Vec<usize> {
    // No revision is below the first.
    let above = |item: &T| usize::try_from(place(item).0 - first).unwrap_or_default();
    // Where those of each revision begin: so many are below it.
    let mut begin = vec![0_u32; range + 2];
    for item in all {
        begin[above(item) + 1] += 1;
    }
    for at in 1..begin.len() {
        begin[at] += begin[at - 1];
    }
    let mut order = vec![0; all.len()];
    for (at, item) in all.iter().enumerate() {
        let next = &mut begin[above(item)];
        order[*next as usize] = at;
        *next += 1;
    }
    let main = |at: &usize| place(&all[*at]).0;
    for of_one in order.chunk_by_mut(|one, next| main(one) == main(next)) {
        if of_one.len() > 1 {
            of_one.sort_unstable_by_key(|at| place(&all[*at]).1);
        }
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sorted(all: &[Place]) -> Vec<Place> {
        let order = order(all, |place| *place);
        order.into_iter().map(|at| all[at]).collect()
    }

    #[test]
    fn any_places_come_in_their_order() {
        let dense = [(9, 0), (4, 2), (7, 0), (4, 0), (4, 1), (8, 0)];
        let sparse = [(9_000_000, 1), (1, 0), (9_000_000, 0), (Revision::MAX, 0)];
        let twice = [(3, 1), (2, 0), (3, 1)];
        for all in [&dense[..], &sparse, &twice, &[(5, 0)], &[]] {
            let mut expected = all.to_vec();
            expected.sort_unstable();
            assert_eq!(sorted(all), expected);
        }
    }

    #[test]
    fn every_index_is_there_once() {
        let all: Vec<Place> = (0..1_000).map(|n| (n * 7_919 % 1_009, 0)).collect();
        let mut order = order(&all, |place| *place);
        order.sort_unstable();
        assert!(order.into_iter().eq(0..all.len()));
    }
}
