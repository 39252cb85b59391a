//! The conditions that a cluster reports, and their meanings.

/// A condition type of an `EtcdCluster`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ConditionType {
    /// As many ready voters as wanted, and nothing left to do.
    Ready,
    /// At least one voter serves linearizable requests.
    Available,
    /// A leader with a quorum of the voters was observed.
    Quorate,
    /// The operator is changing the cluster, or waits for a change that it began.
    Progressing,
    /// A member is unhealthy or missing, or the size tolerates fewer failures than it could.
    Degraded,
    /// Every certificate exists, is valid, and is used by the members. Only with TLS.
    TlsReady,
    /// Members acknowledge only what is on the disks of a quorum.
    Durable,
    /// The cluster follows another one and takes no writes of clients. Only with `spec.bootstrap.follow` or `spec.replicaOf`.
    Following,
    /// An eviction may take one member now. Only with `disruption.policy: Auto`.
    DisruptionAllowed,
    /// The operator cannot continue by itself: the user has to change something.
    Stalled,
}

impl ConditionType {
    /// All condition types, in the order in which they are reported.
    pub const ALL: [ConditionType; 10] = [
        ConditionType::Ready,
        ConditionType::Available,
        ConditionType::Quorate,
        ConditionType::Progressing,
        ConditionType::Degraded,
        ConditionType::TlsReady,
        ConditionType::Durable,
        ConditionType::Following,
        ConditionType::DisruptionAllowed,
        ConditionType::Stalled,
    ];

    /// The name as written in `status.conditions[].type`.
    pub fn as_str(self) -> &'static str {
        match self {
            ConditionType::Ready => "Ready",
            ConditionType::Available => "Available",
            ConditionType::Quorate => "Quorate",
            ConditionType::Progressing => "Progressing",
            ConditionType::Degraded => "Degraded",
            ConditionType::TlsReady => "TLSReady",
            ConditionType::Durable => "Durable",
            ConditionType::Following => "Following",
            ConditionType::DisruptionAllowed => "DisruptionAllowed",
            ConditionType::Stalled => "Stalled",
        }
    }
}

/// Whether a condition holds. `Unknown` rather than stale.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConditionStatus {
    /// It holds.
    True,
    /// It does not hold.
    False,
    /// Nothing was observed recently enough.
    Unknown,
}

impl ConditionStatus {
    /// The text as written in `status.conditions[].status`.
    pub fn as_str(self) -> &'static str {
        match self {
            ConditionStatus::True => "True",
            ConditionStatus::False => "False",
            ConditionStatus::Unknown => "Unknown",
        }
    }
}

impl From<bool> for ConditionStatus {
    fn from(holds: bool) -> Self {
        if holds {
            ConditionStatus::True
        } else {
            ConditionStatus::False
        }
    }
}
