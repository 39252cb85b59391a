//! Schemas of Kubernetes types that the resource embeds, written by hand: only what the field
//! documents, structural, with list types and limits.

use schemars::{Schema, SchemaGenerator, json_schema};
use serde_json::{Value, json};

/// `status.conditions`.
pub(super) fn conditions(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "maxItems": 16,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
        "items": {
            "type": "object",
            "required": ["type", "status", "lastTransitionTime", "reason", "message"],
            "properties": {
                "type": {
                    "type": "string", "maxLength": 316,
                    "description": "Which condition it is.",
                },
                "status": {
                    "type": "string", "enum": ["True", "False", "Unknown"],
                    "description": "Whether it holds. Unknown: what it takes to tell was not seen lately.",
                },
                "observedGeneration": {
                    "type": "integer", "format": "int64", "minimum": 0,
                    "description": "Generation of the spec that it was judged by.",
                },
                "lastTransitionTime": {
                    "type": "string", "format": "date-time",
                    "description": "When `status` changed last.",
                },
                "reason": {
                    "type": "string", "minLength": 1, "maxLength": 1024,
                    "description": "Machine-readable word for why, such as MemberUnhealthy.",
                },
                "message": {
                    "type": "string", "maxLength": 32768,
                    "description": "What happened, why, and what to do, in words.",
                },
            },
        },
    })
}

/// A time of the status.
pub(super) fn time(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "format": "date-time"})
}

/// A folder in a store.
pub(super) fn store_prefix(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "string",
        "minLength": 1,
        "maxLength": 512,
        "nullable": true,
        "x-kubernetes-validations": rules(&[(
            "self.matches('^[A-Za-z0-9_=.-]+(/[A-Za-z0-9_=.-]+)*$') && !self.split('/').exists(part, part == '.' || part == '..')",
            "prefix is a path such as backups/prod, without a slash at either end",
        )]),
    })
}

/// An object or a folder in a store.
pub(super) fn store_path(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "string",
        "minLength": 1,
        "maxLength": 1024,
        "nullable": true,
        "x-kubernetes-validations": rules(&[(
            "self.matches('^[A-Za-z0-9_=.:@+-]+(/[A-Za-z0-9_=.:@+-]+)*$') && !self.split('/').exists(part, part == '.' || part == '..')",
            "path is a path such as prod/main/nightly-1 or snapshots/etcd.db, without a slash at either end",
        )]),
    })
}

/// UID of a cluster, as labels carry it.
pub(super) fn cluster_uid(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "string",
        "minLength": 1,
        "maxLength": 63,
        "x-kubernetes-validations": rules(&[(
            "self.matches('^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$')",
            "clusterUID is the value of the label quorate.dev/cluster-uid of the volumes: kubectl get pvc -L quorate.dev/cluster-uid",
        )]),
    })
}

/// A URL of a store.
pub(super) fn store_endpoint(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "string",
        "maxLength": 512,
        "nullable": true,
        "x-kubernetes-validations": rules(&[(
            "self.matches('^https?://[^@?# ]+$')",
            "endpoint is a URL with http:// or https://, without credentials: those belong into credentialsSecretRef",
        )]),
    })
}

/// `bootstrap.follow.endpoints`.
pub(super) fn endpoints(_: &mut SchemaGenerator) -> Schema {
    endpoints_of(
        "bootstrap.follow.endpoints are URLs such as https://etcd-0.etcd:2379, without a user and without a path: a user goes into follow.user",
    )
}

/// `replicaOf.endpoints`.
pub(super) fn source_endpoints(_: &mut SchemaGenerator) -> Schema {
    endpoints_of(
        "replicaOf.endpoints are URLs such as https://etcd-0.etcd:2379, without a user and without a path: a user goes into replicaOf.user",
    )
}

/// URLs of a cluster's members.
fn endpoints_of(message: &str) -> Schema {
    json_schema!({
        "type": "array",
        "minItems": 1,
        "maxItems": 16,
        "x-kubernetes-list-type": "atomic",
        "items": {
            "type": "string",
            "minLength": 1,
            "maxLength": 512,
            "x-kubernetes-validations": rules(&[(
                "self.matches('^https?://([-A-Za-z0-9_.]+|\\\\[[0-9A-Fa-f:.]+\\\\])(:[0-9]{1,5})?$')",
                message,
            )]),
        },
    })
}

/// Host names and IP addresses in certificates, each once.
pub(super) fn alternative_names(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "maxItems": 32,
        "x-kubernetes-list-type": "set",
        "items": {
            "type": "string",
            "minLength": 1,
            "maxLength": 253,
            "x-kubernetes-validations": rules(&[(
                "self.matches('^([*][.])?[a-zA-Z0-9]([-a-zA-Z0-9.]*[a-zA-Z0-9])?$') && !self.contains('..') || self.matches('^[0-9a-fA-F:]*:[0-9a-fA-F:]+$')",
                "extraSANs are host names such as etcd.example.com or *.example.com, and IP addresses",
            )]),
        },
    })
}

/// Names of members, each once.
pub(super) fn member_names(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "maxItems": 64,
        "x-kubernetes-list-type": "set",
        "items": {"type": "string", "minLength": 1, "maxLength": 63},
    })
}

/// Keys of taints, each once.
pub(super) fn taint_keys(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "maxItems": 32,
        "x-kubernetes-list-type": "set",
        "items": {"type": "string", "minLength": 1, "maxLength": 316},
    })
}

/// `service.ipFamilies` and what the Services have of them.
pub(super) fn ip_families(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "maxItems": 2,
        "x-kubernetes-list-type": "atomic",
        "items": {"type": "string", "enum": ["IPv4", "IPv6"]},
        "x-kubernetes-validations": rules(&[(
            "size(self) < 2 || self[0] != self[1]",
            "ipFamilies names a family once: IPv4, IPv6 or both",
        )]),
    })
}

/// Tolerations of a pod.
pub(super) fn tolerations(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "maxItems": 64,
        "x-kubernetes-list-type": "atomic",
        "items": {
            "type": "object",
            "properties": {
                "key": {"type": "string", "maxLength": 316},
                "operator": {"type": "string", "enum": ["Exists", "Equal"]},
                "value": {"type": "string", "maxLength": 63},
                "effect": {"type": "string", "enum": ["NoSchedule", "PreferNoSchedule", "NoExecute"]},
                "tolerationSeconds": {"type": "integer", "format": "int64"},
            },
        },
    })
}

/// Secrets with the credentials of registries.
pub(super) fn image_pull_secrets(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "maxItems": 16,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["name"],
        "items": {
            "type": "object",
            "required": ["name"],
            "properties": {"name": {"type": "string", "minLength": 1, "maxLength": 253}},
        },
    })
}

/// Topology spread constraints in addition to the operator's own; the operator adds the selector.
pub(super) fn spread_constraints(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "maxItems": 8,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["topologyKey", "whenUnsatisfiable"],
        "items": {
            "type": "object",
            "required": ["topologyKey", "maxSkew", "whenUnsatisfiable"],
            "properties": {
                "topologyKey": {"type": "string", "minLength": 1, "maxLength": 316},
                "maxSkew": {"type": "integer", "format": "int32", "minimum": 1},
                "whenUnsatisfiable": {"type": "string", "enum": ["DoNotSchedule", "ScheduleAnyway"]},
                "minDomains": {"type": "integer", "format": "int32", "minimum": 1},
                "nodeAffinityPolicy": {"type": "string", "enum": ["Honor", "Ignore"]},
                "nodeTaintsPolicy": {"type": "string", "enum": ["Honor", "Ignore"]},
            },
        },
    })
}

/// Affinity of a pod.
pub(super) fn affinity(_: &mut SchemaGenerator) -> Schema {
    let weighted = |key: &str, term: Value| {
        json!({
            "type": "array", "maxItems": 16, "x-kubernetes-list-type": "atomic",
            "items": {
                "type": "object", "required": ["weight", key],
                "properties": {"weight": {"type": "integer", "format": "int32", "minimum": 1, "maximum": 100}, key: term},
            },
        })
    };
    let pods = || {
        json!({
            "type": "object",
            "properties": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "type": "array", "maxItems": 16, "x-kubernetes-list-type": "atomic", "items": pod_term(),
                },
                "preferredDuringSchedulingIgnoredDuringExecution": weighted("podAffinityTerm", pod_term()),
            },
        })
    };
    json_schema!({
        "type": ["object", "null"],
        "properties": {
            "nodeAffinity": {
                "type": "object",
                "properties": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {
                        "type": "object", "required": ["nodeSelectorTerms"],
                        "properties": {"nodeSelectorTerms": {
                            "type": "array", "maxItems": 16, "x-kubernetes-list-type": "atomic", "items": node_term(),
                        }},
                    },
                    "preferredDuringSchedulingIgnoredDuringExecution": weighted("preference", node_term()),
                },
            },
            "podAffinity": pods(),
            "podAntiAffinity": pods(),
        },
    })
}

fn expressions(operators: &[&str]) -> Value {
    json!({
        "type": "array", "maxItems": 32, "x-kubernetes-list-type": "atomic",
        "items": {
            "type": "object", "required": ["key", "operator"],
            "properties": {
                "key": {"type": "string", "maxLength": 316},
                "operator": {"type": "string", "enum": operators},
                "values": {
                    "type": "array", "maxItems": 64, "x-kubernetes-list-type": "atomic",
                    "items": {"type": "string", "maxLength": 316},
                },
            },
        },
    })
}

fn node_term() -> Value {
    let operators = ["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"];
    json!({
        "type": "object",
        "properties": {"matchExpressions": expressions(&operators), "matchFields": expressions(&operators)},
    })
}

fn label_selector() -> Value {
    json!({
        "type": "object",
        "properties": {
            "matchLabels": {"type": "object", "maxProperties": 32, "additionalProperties": {"type": "string", "maxLength": 63}},
            "matchExpressions": expressions(&["In", "NotIn", "Exists", "DoesNotExist"]),
        },
    })
}

/// `networkPolicy.clients`.
pub(super) fn clients(_: &mut SchemaGenerator) -> Schema {
    peers(
        "networkPolicy.clients must not be empty: omit the field to allow everyone on the client port",
    )
}

/// `networkPolicy.metrics`.
pub(super) fn scrapers(_: &mut SchemaGenerator) -> Schema {
    peers(
        "networkPolicy.metrics must not be empty: omit the field to allow no one on the metrics port",
    )
}

/// Peers as in a NetworkPolicy; an empty list is ambiguous and refused.
fn peers(empty_message: &str) -> Schema {
    let block = |message: &str| {
        json!({
            "type": "string", "maxLength": 64,
            "x-kubernetes-validations": rules(&[("self.matches('^[0-9a-fA-F.:]+/[0-9]{1,3}$')", message)]),
        })
    };
    json_schema!({
        "type": "array",
        "maxItems": 32,
        "x-kubernetes-list-type": "atomic",
        "x-kubernetes-validations": rules(&[("size(self) >= 1", empty_message)]),
        "items": {
            "type": "object",
            "properties": {
                "podSelector": label_selector(),
                "namespaceSelector": label_selector(),
                "ipBlock": {
                    "type": "object",
                    "required": ["cidr"],
                    "properties": {
                        "cidr": block("ipBlock.cidr must be a block of addresses such as 10.0.0.0/8"),
                        "except": {
                            "type": "array", "maxItems": 16, "x-kubernetes-list-type": "atomic",
                            "items": block("ipBlock.except are blocks of addresses such as 10.1.0.0/16"),
                        },
                    },
                },
            },
            "x-kubernetes-validations": rules(&[(
                "has(self.ipBlock) != (has(self.podSelector) || has(self.namespaceSelector))",
                "each entry of networkPolicy has either ipBlock, or podSelector, namespaceSelector or both",
            )]),
        },
    })
}

fn pod_term() -> Value {
    json!({
        "type": "object", "required": ["topologyKey"],
        "properties": {
            "topologyKey": {"type": "string", "minLength": 1, "maxLength": 316},
            "labelSelector": label_selector(),
            "namespaceSelector": label_selector(),
            "namespaces": {
                "type": "array", "maxItems": 32, "x-kubernetes-list-type": "atomic",
                "items": {"type": "string", "maxLength": 63},
            },
        },
    })
}

/// A map of short strings.
pub(super) fn string_map(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "maxProperties": 32,
        "additionalProperties": {"type": "string", "maxLength": 4096},
    })
}

/// Validation rules of a field or a struct: expression and message.
pub(super) fn rules(rules: &[(&str, &str)]) -> Value {
    rules
        .iter()
        .map(|(rule, message)| json!({"rule": rule, "message": message}))
        .collect()
}
