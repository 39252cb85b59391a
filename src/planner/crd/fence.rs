//! The annotation that names the voters that are to be stopped. Decides about none of them.

use std::collections::{BTreeMap, BTreeSet};

use super::labels::ANNOTATION_FENCED;

/// The names in a resource's annotation.
pub fn fenced_members(annotations: Option<&BTreeMap<String, String>>) -> BTreeSet<String> {
    let text = annotations.and_then(|all| all.get(ANNOTATION_FENCED));
    let names = text.into_iter().flat_map(|text| text.split(','));
    let names = names.map(str::trim).filter(|name| !name.is_empty());
    names.map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_separated_by_commas() {
        let of = |text: &str| {
            let annotations = BTreeMap::from([(ANNOTATION_FENCED.to_owned(), text.to_owned())]);
            Vec::from_iter(fenced_members(Some(&annotations)))
        };
        assert_eq!(of(" demo-2, demo-1,,"), ["demo-1", "demo-2"]);
        assert!(of("").is_empty());
        assert!(fenced_members(None).is_empty());
    }
}
