//! IP families of the Services: rendered where they are asked for, and what the API server adds is named.

use super::tests::cluster;
use super::*;
use crate::crd::IpFamily;

fn all(spec: &str) -> [k8s_openapi::api::core::v1::Service; 3] {
    let cluster = cluster(&format!("spec: {{service: {spec}}}"));
    [
        client_service(&cluster),
        peers_service(&cluster),
        slot_service(&cluster, 0, "demo-1"),
    ]
}

type Families = (Option<String>, Option<Vec<String>>);

fn families(service: &k8s_openapi::api::core::v1::Service) -> Families {
    let spec = service.spec.clone().expect("a spec");
    (spec.ip_family_policy, spec.ip_families)
}

fn of(policy: Option<&str>, families: Option<&[&str]>) -> Families {
    let families = families.map(|all| all.iter().map(|one| (*one).to_owned()).collect());
    (policy.map(str::to_owned), families)
}

/// What is not asked for is the API server's, and no Service is applied again for a newer operator.
#[test]
fn families_are_rendered_where_they_are_asked_for() {
    for service in all("{}") {
        assert_eq!(families(&service), of(None, None));
    }
    for service in all("{ipFamilyPolicy: RequireDualStack, ipFamilies: [IPv6, IPv4]}") {
        let asked = of(Some("RequireDualStack"), Some(&["IPv6", "IPv4"]));
        assert_eq!(families(&service), asked);
    }
    for service in all("{ipFamilies: [IPv6]}") {
        assert_eq!(families(&service), of(None, Some(&["IPv6"])));
    }
}

/// They change the Services, and no member.
#[test]
fn families_are_inputs_of_services_alone() {
    let of = |spec: &str| cluster(&format!("spec: {{service: {spec}}}"));
    let inputs = |spec: &str| {
        let cluster = of(spec);
        let services = resource_objects(&cluster).into_iter();
        let services = services.filter(|(key, _)| key.kind == crate::plan::ObjectKind::Service);
        let mut all: Vec<String> = services.map(|(_, inputs)| inputs).collect();
        all.push(wanted_slot_inputs(&cluster));
        all
    };
    let specs = [
        "{}",
        "{ipFamilyPolicy: SingleStack}",
        "{ipFamilyPolicy: PreferDualStack}",
        "{ipFamilies: [IPv4]}",
        "{ipFamilyPolicy: PreferDualStack, ipFamilies: [IPv4]}",
        "{ipFamilyPolicy: PreferDualStack, ipFamilies: [IPv4, IPv6]}",
    ];
    for (at, one) in specs.iter().enumerate() {
        assert_eq!(wanted_inputs(&of(one)), wanted_inputs(&of("{}")), "{one}");
        for other in &specs[at + 1..] {
            let pairs = inputs(one).into_iter().zip(inputs(other));
            assert!(pairs.into_iter().all(|(a, b)| a != b), "{one} and {other}");
        }
    }
    // A type is the client Service's alone.
    let (plain, typed) = (inputs("{}"), inputs("{type: NodePort}"));
    let differ = plain.iter().zip(&typed).filter(|(a, b)| a != b).count();
    assert_eq!(differ, 1);
}

/// A request that names one family of a Service with two gives the second one up, which the API server refuses under every
/// policy but SingleStack: the second time that such a Service was applied it was refused.
#[test]
fn an_added_family_is_named() {
    let live = |policy: &str, families: &[&str]| {
        let [mut service, ..] = all("{}");
        let spec = service.spec.as_mut().expect("a spec");
        (spec.ip_family_policy, spec.ip_families) = of(Some(policy), Some(families));
        service
    };
    for (asked, found, expected) in [
        (
            "{ipFamilyPolicy: PreferDualStack, ipFamilies: [IPv4]}",
            live("PreferDualStack", &["IPv4", "IPv6"]),
            of(Some("PreferDualStack"), Some(&["IPv4", "IPv6"])),
        ),
        (
            "{ipFamilies: [IPv6]}",
            live("RequireDualStack", &["IPv6", "IPv4"]),
            of(None, Some(&["IPv6", "IPv4"])),
        ),
        // It is to go.
        (
            "{ipFamilyPolicy: SingleStack, ipFamilies: [IPv4]}",
            live("PreferDualStack", &["IPv4", "IPv6"]),
            of(Some("SingleStack"), Some(&["IPv4"])),
        ),
        // It comes with this request, or Kubernetes has none.
        (
            "{ipFamilyPolicy: PreferDualStack, ipFamilies: [IPv4]}",
            live("SingleStack", &["IPv4"]),
            of(Some("PreferDualStack"), Some(&["IPv4"])),
        ),
        // Refused by Kubernetes, and not turned into something else.
        (
            "{ipFamilyPolicy: PreferDualStack, ipFamilies: [IPv6]}",
            live("PreferDualStack", &["IPv4", "IPv6"]),
            of(Some("PreferDualStack"), Some(&["IPv6"])),
        ),
        (
            "{ipFamilyPolicy: PreferDualStack}",
            live("PreferDualStack", &["IPv4", "IPv6"]),
            of(Some("PreferDualStack"), None),
        ),
    ] {
        let [service, ..] = all(asked);
        let applied = with_added_family(service, &found);
        assert_eq!(families(&applied), expected, "{asked}");
    }
    let both = families_of(&live("PreferDualStack", &["IPv6", "IPv4"]));
    assert_eq!(both, [IpFamily::IPv6, IpFamily::IPv4]);
    assert_eq!(families_of(&all("{}")[0]), []);
}
