//! IP families and addresses of Services, as the API server settles them when a Service is created or changed: what a
//! request leaves out is what the Service had, or what the cluster has; a second family comes and goes with the policy, and
//! the first one stays.

use serde_json::{Value, json};

use super::kinds::Kind;
use super::object;
use super::refusal::Refusal;
use super::server::ApiServer;

const SINGLE: &str = "SingleStack";
const PREFER: &str = "PreferDualStack";
const REQUIRE: &str = "RequireDualStack";
const HEADLESS: &str = "None";

/// Completes a new Service, or a new version of one, or refuses it.
pub(super) fn settle(
    server: &ApiServer,
    old: Option<&Value>,
    service: &mut Value,
) -> Result<(), Refusal> {
    let name = object::name(service).to_owned();
    let refuse = |field: &str, why: &str| {
        let why = format!("Invalid value: {why}");
        Err(Refusal::invalid(Kind::Service, &name, field, &why))
    };
    let cluster_ip = |service: &Value| object::text(service, &["spec", "clusterIP"]).to_owned();
    if let Some(was) = old.map(cluster_ip).filter(|was| !was.is_empty()) {
        let is = cluster_ip(service);
        if !is.is_empty() && is != was {
            return refuse("spec.clusterIP", "field is immutable");
        }
    }
    let had = old.map(Stacks::of);
    let mut has = Stacks::of(service);
    if let Some(had) = &had {
        has.keep_addresses(had, object::at(service, &["spec", "clusterIPs"]).is_some());
        let as_before = has.policy == PREFER && has == *had;
        if as_before {
            has.write(service);
            return Ok(());
        }
    }
    if has.policy.is_empty() {
        let before = had.as_ref().map(|had| had.policy.clone());
        has.policy = before
            .filter(|policy| !policy.is_empty())
            .unwrap_or_else(|| SINGLE.to_owned());
    }
    if ![SINGLE, PREFER, REQUIRE].contains(&has.policy.as_str()) {
        let why = "Unsupported value: supported values: \"PreferDualStack\", \"RequireDualStack\", \"SingleStack\"";
        return Err(Refusal::invalid(
            Kind::Service,
            &name,
            "spec.ipFamilyPolicy",
            why,
        ));
    }
    for (at, family) in has.families.iter().enumerate() {
        let field = format!("spec.ipFamilies[{at}]");
        if !["IPv4", "IPv6"].contains(&family.as_str()) {
            let why = "Unsupported value: supported values: \"IPv4\", \"IPv6\"";
            return Err(Refusal::invalid(Kind::Service, &name, &field, why));
        }
        if has.families.iter().take(at).any(|other| other == family) {
            return Err(Refusal::invalid(
                Kind::Service,
                &name,
                &field,
                "Duplicate value",
            ));
        }
        let address = has.addresses.get(at).filter(|address| *address != HEADLESS);
        if address.is_some_and(|address| family_of(address) != family) {
            let why = format!("expected an {family} value as indicated by `ipFamilies[{at}]`");
            return refuse(&format!("spec.clusterIPs[{at}]"), &why);
        }
    }
    if let Some(had) = &had {
        if has.policy == SINGLE {
            if has.addresses == had.addresses {
                has.addresses.truncate(1);
            }
            if has.families == had.families {
                has.families.truncate(1);
            }
        } else {
            let fewer = |new: &[String], old: &[String]| !new.is_empty() && new.len() < old.len();
            if fewer(&has.addresses, &had.addresses) {
                return refuse(
                    "spec.ipFamilyPolicy",
                    "must be 'SingleStack' to release the secondary cluster IP",
                );
            }
            if fewer(&has.families, &had.families) {
                return refuse(
                    "spec.ipFamilyPolicy",
                    "must be 'SingleStack' to release the secondary IP family",
                );
            }
        }
    }
    if has.policy == SINGLE {
        // A headless Service has one address, `None`, whatever its families are.
        if has.families.len() == 1 && has.addresses.len() == 2 {
            has.addresses.truncate(1);
        }
        if has.addresses.len() == 2 || has.families.len() == 2 {
            let why = "must be 'RequireDualStack' or 'PreferDualStack' when multiple IP families are specified";
            return refuse("spec.ipFamilyPolicy", why);
        }
    }
    let of_addresses = has.addresses.iter().filter(|address| *address != HEADLESS);
    let missing: Vec<String> = of_addresses
        .skip(has.families.len())
        .map(|address| family_of(address).to_owned())
        .collect();
    has.families.extend(missing);
    let configured = server.ip_families();
    if has.policy == REQUIRE && configured.len() < 2 {
        return refuse(
            "spec.ipFamilyPolicy",
            "this cluster is not configured for dual-stack services",
        );
    }
    for (at, family) in has.families.iter().enumerate() {
        if !configured.contains(&family.as_str()) {
            return refuse(
                &format!("spec.ipFamilies[{at}]"),
                "not configured on this cluster",
            );
        }
    }
    if has.families.is_empty() {
        has.families = configured
            .iter()
            .take(1)
            .map(|family| (*family).to_owned())
            .collect();
    }
    if has.policy != SINGLE && has.families.len() == 1 {
        let others = configured
            .iter()
            .filter(|family| !has.families.contains(&(**family).to_owned()));
        let others: Vec<String> = others.map(|family| (*family).to_owned()).collect();
        has.families.extend(others);
    }
    if has
        .addresses
        .first()
        .is_none_or(|address| address != HEADLESS)
    {
        let missing = has.families.iter().skip(has.addresses.len());
        let missing: Vec<String> = missing
            .map(|family| address(family, server.revision()))
            .collect();
        has.addresses.extend(missing);
    }
    has.write(service);
    Ok(())
}

/// What of a Service is about families.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Stacks {
    policy: String,
    families: Vec<String>,
    addresses: Vec<String>,
}

impl Stacks {
    fn of(service: &Value) -> Self {
        let texts = |field: &str| -> Vec<String> {
            let items = object::items(service, &["spec", field]).iter();
            items.filter_map(Value::as_str).map(str::to_owned).collect()
        };
        let mut addresses = texts("clusterIPs");
        let first = object::text(service, &["spec", "clusterIP"]);
        if addresses.is_empty() && !first.is_empty() {
            addresses = vec![first.to_owned()];
        }
        Self {
            policy: object::text(service, &["spec", "ipFamilyPolicy"]).to_owned(),
            families: texts("ipFamilies"),
            addresses,
        }
    }

    /// Addresses that a request leaves out are those that the Service has.
    fn keep_addresses(&mut self, had: &Self, all_named: bool) {
        let Some(first) = had.addresses.first().filter(|first| *first != HEADLESS) else {
            return;
        };
        let same = self.addresses.first().is_none_or(|named| named == first);
        if same && !all_named {
            self.addresses.clone_from(&had.addresses);
        }
    }

    fn write(&self, service: &mut Value) {
        let spec = &mut service["spec"];
        spec["ipFamilyPolicy"] = json!(self.policy);
        spec["ipFamilies"] = json!(self.families);
        spec["clusterIP"] = json!(self.addresses.first());
        spec["clusterIPs"] = json!(self.addresses);
    }
}

fn family_of(address: &str) -> &'static str {
    match address.contains(':') {
        true => "IPv6",
        false => "IPv4",
    }
}

fn address(family: &str, revision: u64) -> String {
    match family {
        "IPv6" => format!("fd00:96::{:x}", revision & 0xffff),
        _ => format!("10.96.{}.{}", (revision >> 8) & 0xff, revision & 0xff),
    }
}
