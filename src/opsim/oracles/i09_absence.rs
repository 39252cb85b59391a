//! I9: the operator's absence changes nothing. Between two writes of operators the configuration
//! stays what it is: servers elect and heal, and never change who belongs to them by themselves.

use super::{History, Of};

pub(super) fn moment(of: &Of<'_>, history: &mut History) -> Option<String> {
    let now = of.cluster.configuration_index;
    let before = history
        .configuration
        .insert(of.uid.to_owned(), now)
        .unwrap_or(now);
    (before != now && before != 0).then(|| {
        format!("the configuration went from {before} to {now} without a write of an operator")
    })
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{cluster, of};
    use super::*;

    #[test]
    fn change_without_a_writer_is_detected() {
        let mut three = cluster(3);
        let mut past = History::default();
        assert_eq!(moment(&of(&three, 0), &mut past), None);
        assert_eq!(moment(&of(&three, 1), &mut past), None);
        three.configuration_index += 1;
        assert!(moment(&of(&three, 2), &mut past).is_some());
    }
}
