//! The Services of a cluster, as far as the resource says how they are: `spec.service`.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::schema;

/// The Service that clients use, and the IP families of all Services of the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("x-kubernetes-validations" = schema::rules(&[("!has(self.ipFamilies) || size(self.ipFamilies) < 2 || (has(self.ipFamilyPolicy) && self.ipFamilyPolicy != 'SingleStack')", "service.ipFamilies names two families: set service.ipFamilyPolicy to PreferDualStack or RequireDualStack, or name one family")])))]
pub struct ServiceOptions {
    /// Type of the client Service.
    #[serde(rename = "type")]
    pub type_: ServiceType,
    /// Further labels of the client Service.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 64))]
    pub labels: BTreeMap<String, String>,
    /// Annotations of the client Service, for a load balancer's settings.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 64))]
    pub annotations: BTreeMap<String, String>,
    /// How many IP families the client Service, the slots and the Service of the members' names have, as in Kubernetes:
    /// core/v1 ServiceSpec. A change restarts nobody. By default Kubernetes decides: one family when a Service is created,
    /// and afterwards what the Service has. So a field that is taken out leaves those with an address as they are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ip_family_policy: Option<IpFamilyPolicy>,
    /// Their IP families, the first one first, as in Kubernetes: core/v1 ServiceSpec. The first one of a Service with an
    /// address never changes; it is in `status.endpoints.ipFamilies`. By default Kubernetes decides.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::ip_families")]
    pub ip_families: Vec<IpFamily>,
}

impl ServiceOptions {
    /// Whether it says anything about IP families.
    #[must_use]
    pub fn names_families(&self) -> bool {
        self.ip_family_policy.is_some() || !self.ip_families.is_empty()
    }
}

/// Type of a Service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ServiceType {
    /// An address inside the Kubernetes cluster only.
    #[default]
    ClusterIP,
    /// Also a port on every node.
    NodePort,
    /// Also a cloud load balancer.
    LoadBalancer,
}

/// How many IP families a Service has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum IpFamilyPolicy {
    /// One.
    SingleStack,
    /// Both where the Kubernetes cluster has both, otherwise one.
    PreferDualStack,
    /// Both. Refused by a Kubernetes cluster that has one.
    RequireDualStack,
}

impl IpFamilyPolicy {
    /// As Kubernetes writes it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            IpFamilyPolicy::SingleStack => "SingleStack",
            IpFamilyPolicy::PreferDualStack => "PreferDualStack",
            IpFamilyPolicy::RequireDualStack => "RequireDualStack",
        }
    }
}

/// A family of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum IpFamily {
    /// IPv4.
    IPv4,
    /// IPv6.
    IPv6,
}

impl IpFamily {
    /// As Kubernetes writes it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            IpFamily::IPv4 => "IPv4",
            IpFamily::IPv6 => "IPv6",
        }
    }

    /// From what Kubernetes writes; `None` for what it does not have today.
    #[must_use]
    pub fn of(text: &str) -> Option<Self> {
        [IpFamily::IPv4, IpFamily::IPv6]
            .into_iter()
            .find(|family| family.as_str() == text)
    }
}
