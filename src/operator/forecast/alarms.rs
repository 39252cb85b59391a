//! What a leader to be finds when it compares the members' data: whose data differs now differs for as
//! long as they are members, and whoever comes has what the others have.

use std::collections::BTreeSet;

use crate::plan::{Comparison, Observed, Phase};

/// Between two comparisons.
const AGAIN_MS: u64 = 5_000;

/// Whose data differs, as far as it was compared.
pub(super) fn differing(o: &Observed) -> Option<BTreeSet<u64>> {
    let mut all = o.descriptions.values();
    let leader = all.find(|said| said.leads && said.phase == Phase::Member)?;
    let newest = leader.comparisons.first()?;
    (!newest.agree.is_empty()).then(|| newest.differ.clone())
}

/// The leader has compared twice since whatever was done last.
pub(super) fn compare(o: &mut Observed, differing: &BTreeSet<u64>) {
    let mut all = o.descriptions.values_mut();
    let Some(leader) = all.find(|said| said.leads && said.phase == Phase::Member) else {
        return;
    };
    let members = || leader.members.iter().map(|view| view.id);
    let compared = |age_ms| Comparison {
        agree: members().filter(|id| !differing.contains(id)).collect(),
        differ: members().filter(|id| differing.contains(id)).collect(),
        silent: BTreeSet::new(),
        age_ms,
    };
    let twice = vec![compared(0), compared(AGAIN_MS)];
    leader.comparisons = twice;
}
