//! IP families of Services: which values are taken, and which changes.

use super::*;
use serde_json::json;

fn cluster(service: &str, has: &[IpFamily]) -> Result<EtcdCluster, ParseError> {
    let text = format!(
        "apiVersion: quorate.dev/v1alpha1\nkind: EtcdCluster\nmetadata: {{name: demo, namespace: d, uid: u}}\nspec: {{service: {service}}}\n"
    );
    let mut cluster: EtcdCluster = parse(&text)?;
    if !has.is_empty() {
        let endpoints = Endpoints {
            ip_families: has.to_vec(),
            ..Endpoints::default()
        };
        cluster.status = Some(EtcdClusterStatus {
            endpoints: Some(endpoints),
            ..EtcdClusterStatus::default()
        });
    }
    Ok(cluster)
}

#[test]
fn families_are_those_of_kubernetes() {
    for good in [
        "{}",
        "{ipFamilyPolicy: SingleStack}",
        "{ipFamilyPolicy: PreferDualStack}",
        "{ipFamilyPolicy: RequireDualStack}",
        "{ipFamilies: [IPv6]}",
        "{ipFamilyPolicy: SingleStack, ipFamilies: [IPv4]}",
        "{ipFamilyPolicy: PreferDualStack, ipFamilies: [IPv6]}",
        "{ipFamilyPolicy: RequireDualStack, ipFamilies: [IPv6, IPv4]}",
    ] {
        let cluster = cluster(good, &[]);
        let cluster = cluster.unwrap_or_else(|error| panic!("{good}: {error}"));
        validate(&cluster).unwrap_or_else(|error| panic!("{good}: {error}"));
        let written = serde_json::to_value(&cluster.spec.service).expect("JSON");
        for field in ["ipFamilyPolicy", "ipFamilies"] {
            assert_eq!(
                written.get(field).is_some(),
                good.contains(field),
                "{written}"
            );
        }
    }
    for (bad, words) in [
        ("{ipFamilyPolicy: DualStack}", "ipFamilyPolicy"),
        ("{ipFamilies: [IPv5]}", "ipFamilies"),
        (
            "{ipFamilies: [IPv4, IPv4], ipFamilyPolicy: PreferDualStack}",
            "names a family once",
        ),
        (
            "{ipFamilies: [IPv4, IPv6]}",
            "set service.ipFamilyPolicy to PreferDualStack",
        ),
        (
            "{ipFamilies: [IPv4, IPv6], ipFamilyPolicy: SingleStack}",
            "or name one family",
        ),
    ] {
        let refused = match cluster(bad, &[]) {
            Err(error) => error.to_string(),
            Ok(cluster) => match validate(&cluster) {
                Err(error) => error.to_string(),
                Ok(_) => panic!("{bad} is taken"),
            },
        };
        assert!(refused.contains(words), "{bad}: {refused}");
    }
}

/// Another first family would be refused by Kubernetes once for each Service, and the resource would keep what it can never
/// have. What was taken before anybody could know may be set back, to anything that fits.
#[test]
fn first_family_stays() {
    use IpFamily::{IPv4, IPv6};
    let dual = "ipFamilyPolicy: PreferDualStack";
    for (old, new, has, fits) in [
        (
            "{}".to_owned(),
            "{ipFamilies: [IPv6]}".to_owned(),
            vec![],
            true,
        ),
        (
            "{}".to_owned(),
            "{ipFamilies: [IPv4]}".to_owned(),
            vec![IPv4],
            true,
        ),
        (
            "{}".to_owned(),
            "{ipFamilies: [IPv6]}".to_owned(),
            vec![IPv4],
            false,
        ),
        (
            format!("{{{dual}}}"),
            format!("{{{dual}, ipFamilies: [IPv6, IPv4]}}"),
            vec![IPv4, IPv6],
            false,
        ),
        (
            format!("{{{dual}}}"),
            format!("{{{dual}, ipFamilies: [IPv6, IPv4]}}"),
            vec![IPv6, IPv4],
            true,
        ),
        // It was asked for while there was no Service yet: other fields can be edited all the same, and it can go.
        (
            "{ipFamilies: [IPv6]}".to_owned(),
            "{ipFamilies: [IPv6], type: NodePort}".to_owned(),
            vec![IPv4],
            true,
        ),
        (
            "{ipFamilies: [IPv6]}".to_owned(),
            "{}".to_owned(),
            vec![IPv4],
            true,
        ),
        (
            "{ipFamilies: [IPv6]}".to_owned(),
            "{ipFamilies: [IPv4]}".to_owned(),
            vec![IPv4],
            true,
        ),
    ] {
        let before = cluster(&old, &has).expect("valid");
        let after = cluster(&new, &has).expect("valid");
        let changed = after.validate_cel_update(&before);
        assert_eq!(
            changed.is_ok(),
            fits,
            "{old} -> {new} with {has:?}: {changed:?}"
        );
        if let Err(errors) = changed {
            let text = errors.to_string();
            assert!(
                text.contains("service.ipFamilies must begin with"),
                "{text}"
            );
        }
    }
}

#[test]
fn families_have_the_words_of_kubernetes() {
    for family in [IpFamily::IPv4, IpFamily::IPv6] {
        assert_eq!(json!(family), family.as_str());
        assert_eq!(IpFamily::of(family.as_str()), Some(family));
    }
    assert_eq!(IpFamily::of("IPv7"), None);
    for policy in [
        IpFamilyPolicy::SingleStack,
        IpFamilyPolicy::PreferDualStack,
        IpFamilyPolicy::RequireDualStack,
    ] {
        assert_eq!(json!(policy), policy.as_str());
    }
}
