//! Who may reach the members over the network: `spec.networkPolicy`. Other members and the operator always may; others
//! are listed here.

use k8s_openapi::api::networking::v1::{IPBlock, NetworkPolicyPeer};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::schema;

/// Who may reach the members' ports, where the Kubernetes cluster's network enforces NetworkPolicies. The peer port is
/// always open only to the other members and the operator.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct NetworkAccess {
    /// Who may reach the client port. Default: everyone. As in Kubernetes: networking.k8s.io/v1
    /// NetworkPolicyPeer.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::clients")]
    pub clients: Vec<NetworkPolicyPeer>,
    /// Who may reach the metrics port, such as Prometheus. Default: no one but probes, which come from the node. As in
    /// Kubernetes: networking.k8s.io/v1 NetworkPolicyPeer.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::scrapers")]
    pub metrics: Vec<NetworkPolicyPeer>,
}

impl NetworkAccess {
    /// Nothing is set: omitted when a resource is written.
    pub(super) fn is_default(&self) -> bool {
        *self == NetworkAccess::default()
    }

    /// What the schema's expressions cannot check: invalid CIDRs, which the API server would refuse when the operator
    /// writes the policy.
    pub(super) fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        for (field, peers) in [("clients", &self.clients), ("metrics", &self.metrics)] {
            for block in peers.iter().filter_map(|peer| peer.ip_block.as_ref()) {
                if let Err(why) = judge(block) {
                    problems.push(format!("spec.networkPolicy.{field}: {why}"));
                }
            }
        }
        problems
    }
}

fn judge(block: &IPBlock) -> Result<(), String> {
    let whole = parse(&block.cidr)?;
    for except in block.except.iter().flatten() {
        let part = parse(except)?;
        if !whole.holds(part) {
            return Err(format!(
                "except {except} does not lie inside of {}: take it out",
                block.cidr
            ));
        }
    }
    Ok(())
}

/// A CIDR: an address family and a prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cidr {
    bits: u128,
    length: u32,
    family: u32,
}

impl Cidr {
    /// Whether it strictly contains the other.
    fn holds(self, part: Cidr) -> bool {
        let kept = |bits: u128| {
            let gone = self.family - self.length;
            bits.checked_shr(gone).unwrap_or(0)
        };
        self.family == part.family
            && self.length < part.length
            && kept(self.bits) == kept(part.bits)
    }
}

fn parse(text: &str) -> Result<Cidr, String> {
    let wrong =
        || format!("{text:?} is no block of addresses: write one such as 10.0.0.0/8 or fd00::/8");
    let (address, length) = text.split_once('/').ok_or_else(wrong)?;
    let (bits, family) = match address.parse::<core::net::IpAddr>() {
        Ok(core::net::IpAddr::V4(address)) => (u128::from(u32::from(address)), 32),
        Ok(core::net::IpAddr::V6(address)) => (u128::from(address), 128),
        Err(_) => return Err(wrong()),
    };
    let plain = length == "0" || !length.starts_with(['0', '+']);
    let length = length
        .parse()
        .ok()
        .filter(|length| plain && *length <= family);
    let length = length.ok_or_else(wrong)?;
    Ok(Cidr {
        bits,
        length,
        family,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(cidr: &str, except: &[&str]) -> NetworkAccess {
        let except: Vec<String> = except.iter().map(|text| (*text).to_owned()).collect();
        let peer = NetworkPolicyPeer {
            ip_block: Some(IPBlock {
                cidr: cidr.to_owned(),
                except: (!except.is_empty()).then_some(except),
            }),
            ..NetworkPolicyPeer::default()
        };
        NetworkAccess {
            clients: vec![peer],
            metrics: Vec::new(),
        }
    }

    #[test]
    fn cidr_blocks_as_kubernetes_takes_them() {
        for (cidr, except) in [
            ("10.0.0.0/8", &["10.1.0.0/16", "10.2.3.4/32"][..]),
            ("0.0.0.0/0", &["192.168.0.0/16"]),
            ("fd00::/8", &["fd00:1::/32"]),
            ("::/0", &[]),
        ] {
            assert_eq!(
                block(cidr, except).problems(),
                Vec::<String>::new(),
                "{cidr}"
            );
        }
        for (cidr, except, words) in [
            ("10.0.0.0", &[][..], "is no block of addresses"),
            ("10.0.0.0/33", &[], "is no block of addresses"),
            ("10.0.0.0/08", &[], "is no block of addresses"),
            ("10.0.0/8", &[], "is no block of addresses"),
            (
                "10.0.0.0/8",
                &["11.0.0.0/16"],
                "does not lie inside of 10.0.0.0/8",
            ),
            ("10.0.0.0/8", &["10.0.0.0/8"], "does not lie inside of"),
            ("10.0.0.0/8", &["fd00::/16"], "does not lie inside of"),
        ] {
            let problems = block(cidr, except).problems();
            assert!(
                problems.len() == 1 && problems[0].contains(words),
                "{cidr}: {problems:?}"
            );
            assert!(
                problems[0].starts_with("spec.networkPolicy.clients: "),
                "{problems:?}"
            );
        }
    }
}
