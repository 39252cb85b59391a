//! I17: the members of one life are those of one resource: where another one adopts its volumes, every StatefulSet of the
//! deleted one is gone before the first of the new one is there.

use super::Of;

pub(super) fn moment(of: &Of<'_>) -> Option<String> {
    let controllers = &of.cluster.controllers;
    (controllers.len() > 1).then(|| format!("its StatefulSets belong to {controllers:?}"))
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{cluster, of};
    use super::*;

    #[test]
    fn members_of_two_resources_are_detected() {
        let mut one = cluster(3);
        one.controllers.insert("former".into());
        assert_eq!(moment(&of(&one, 0)), None);
        one.controllers.insert("other".into());
        assert!(moment(&of(&one, 0)).is_some());
    }
}
