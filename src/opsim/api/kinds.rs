//! The kinds that the simulated API server knows, and how a request's path names them. A kind that
//! is not here is refused: nothing is guessed.

/// A kind of objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// `quorate.dev/v1alpha1`.
    EtcdCluster,
    /// `quorate.dev/v1alpha1`.
    EtcdRecovery,
    /// `quorate.dev/v1alpha1`.
    EtcdBackupStore,
    /// `quorate.dev/v1alpha1`.
    EtcdBackup,
    /// `quorate.dev/v1alpha1`.
    EtcdBackupSchedule,
    /// `batch/v1`.
    Job,
    /// `apps/v1`.
    StatefulSet,
    /// `apps/v1`.
    ControllerRevision,
    /// `v1`.
    Pod,
    /// `v1`.
    PersistentVolumeClaim,
    /// `v1`.
    PersistentVolume,
    /// `storage.k8s.io/v1`.
    StorageClass,
    /// `v1`.
    Node,
    /// `v1`.
    Service,
    /// `discovery.k8s.io/v1`.
    EndpointSlice,
    /// `v1`.
    Secret,
    /// `policy/v1`.
    PodDisruptionBudget,
    /// `networking.k8s.io/v1`.
    NetworkPolicy,
    /// `coordination.k8s.io/v1`.
    Lease,
    /// `events.k8s.io/v1`.
    Event,
    /// `cert-manager.io/v1`.
    Certificate,
    /// `certificates.k8s.io/v1beta1`.
    ClusterTrustBundle,
    /// `certificates.k8s.io/v1`.
    PodCertificateRequest,
}

/// What is fixed about a kind.
#[derive(Clone, Copy, Debug)]
pub(super) struct Facts {
    pub(super) group: &'static str,
    pub(super) version: &'static str,
    pub(super) kind: &'static str,
    pub(super) plural: &'static str,
    pub(super) namespaced: bool,
    /// It has the subresource `status`, so that a write to the object itself leaves it alone.
    pub(super) status: bool,
    /// `metadata.generation` counts changes of the specification.
    pub(super) generation: bool,
}

const fn facts(
    group: &'static str,
    version: &'static str,
    kind: &'static str,
    plural: &'static str,
) -> Facts {
    Facts {
        group,
        version,
        kind,
        plural,
        namespaced: true,
        status: false,
        generation: false,
    }
}

impl Facts {
    const fn with_status(mut self) -> Self {
        self.status = true;
        self
    }

    const fn with_generation(mut self) -> Self {
        self.generation = true;
        self
    }

    const fn of_the_cluster(mut self) -> Self {
        self.namespaced = false;
        self
    }
}

impl Kind {
    /// Every kind.
    pub const ALL: [Self; 23] = [
        Self::EtcdCluster,
        Self::EtcdRecovery,
        Self::EtcdBackupStore,
        Self::EtcdBackup,
        Self::EtcdBackupSchedule,
        Self::Job,
        Self::StatefulSet,
        Self::ControllerRevision,
        Self::Pod,
        Self::PersistentVolumeClaim,
        Self::PersistentVolume,
        Self::StorageClass,
        Self::Node,
        Self::Service,
        Self::EndpointSlice,
        Self::Secret,
        Self::PodDisruptionBudget,
        Self::NetworkPolicy,
        Self::Lease,
        Self::Event,
        Self::Certificate,
        Self::ClusterTrustBundle,
        Self::PodCertificateRequest,
    ];

    pub(super) const fn facts(self) -> Facts {
        match self {
            Self::EtcdCluster => ours("EtcdCluster", "etcdclusters"),
            Self::EtcdRecovery => ours("EtcdRecovery", "etcdrecoveries"),
            Self::EtcdBackupStore => ours("EtcdBackupStore", "etcdbackupstores"),
            Self::EtcdBackup => ours("EtcdBackup", "etcdbackups"),
            Self::EtcdBackupSchedule => ours("EtcdBackupSchedule", "etcdbackupschedules"),
            Self::Job => facts("batch", "v1", "Job", "jobs")
                .with_status()
                .with_generation(),
            Self::StatefulSet => facts("apps", "v1", "StatefulSet", "statefulsets")
                .with_status()
                .with_generation(),
            Self::ControllerRevision => {
                facts("apps", "v1", "ControllerRevision", "controllerrevisions")
            }
            Self::Pod => facts("", "v1", "Pod", "pods")
                .with_status()
                .with_generation(),
            Self::PersistentVolumeClaim => {
                facts("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims").with_status()
            }
            Self::PersistentVolume => facts("", "v1", "PersistentVolume", "persistentvolumes")
                .with_status()
                .of_the_cluster(),
            Self::StorageClass => {
                facts("storage.k8s.io", "v1", "StorageClass", "storageclasses").of_the_cluster()
            }
            Self::Node => facts("", "v1", "Node", "nodes")
                .with_status()
                .of_the_cluster(),
            Self::Service => facts("", "v1", "Service", "services").with_status(),
            Self::EndpointSlice => {
                facts("discovery.k8s.io", "v1", "EndpointSlice", "endpointslices")
            }
            Self::Secret => facts("", "v1", "Secret", "secrets"),
            Self::PodDisruptionBudget => facts(
                "policy",
                "v1",
                "PodDisruptionBudget",
                "poddisruptionbudgets",
            )
            .with_status()
            .with_generation(),
            Self::NetworkPolicy => facts(
                "networking.k8s.io",
                "v1",
                "NetworkPolicy",
                "networkpolicies",
            )
            .with_generation(),
            Self::Lease => facts("coordination.k8s.io", "v1", "Lease", "leases"),
            Self::Event => facts("events.k8s.io", "v1", "Event", "events"),
            Self::ClusterTrustBundle => facts(
                "certificates.k8s.io",
                "v1beta1",
                "ClusterTrustBundle",
                "clustertrustbundles",
            )
            .of_the_cluster(),
            Self::PodCertificateRequest => facts(
                "certificates.k8s.io",
                "v1",
                "PodCertificateRequest",
                "podcertificaterequests",
            )
            .with_status(),
            Self::Certificate => facts("cert-manager.io", "v1", "Certificate", "certificates")
                .with_status()
                .with_generation(),
        }
    }

    /// Whether it is a resource of ours, with a schema of its own.
    pub(super) fn is_ours(self) -> bool {
        self.facts().group == "quorate.dev"
    }

    /// Its name in the singular, CamelCase.
    pub const fn name(self) -> &'static str {
        self.facts().kind
    }

    /// Its name in paths.
    pub const fn plural(self) -> &'static str {
        self.facts().plural
    }

    /// Whether its objects live in namespaces.
    pub const fn is_namespaced(self) -> bool {
        self.facts().namespaced
    }

    /// `group/version`, or the version alone for the core group.
    pub fn api_version(self) -> String {
        let facts = self.facts();
        if facts.group.is_empty() {
            return facts.version.to_owned();
        }
        format!("{}/{}", facts.group, facts.version)
    }

    /// The kind with this name and this `apiVersion`'s group.
    pub fn of(api_version: &str, kind: &str) -> Option<Self> {
        let group = api_version.split_once('/').map_or("", |(group, _)| group);
        Self::ALL
            .into_iter()
            .find(|known| known.facts().group == group && known.facts().kind == kind)
    }

    /// How errors name it: the plural, and the group where there is one.
    pub(super) fn resource(self) -> String {
        let facts = self.facts();
        if facts.group.is_empty() {
            return facts.plural.to_owned();
        }
        format!("{}.{}", facts.plural, facts.group)
    }
}

/// A resource of ours.
const fn ours(kind: &'static str, plural: &'static str) -> Facts {
    facts("quorate.dev", "v1alpha1", kind, plural)
        .with_status()
        .with_generation()
}

/// What a path points at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) kind: Kind,
    /// Empty: all of them, or the kind has none.
    pub(super) namespace: String,
    /// Empty: the collection.
    pub(super) name: String,
    /// Empty: the object itself.
    pub(super) subresource: String,
}

/// Reads a path such as `/apis/apps/v1/namespaces/prod/statefulsets/demo-1`.
pub(super) fn target(path: &str) -> Option<Target> {
    let mut parts = path.split('/').filter(|part| !part.is_empty());
    let group = match parts.next()? {
        "api" => "",
        "apis" => parts.next()?,
        _ => return None,
    };
    let version = parts.next()?;
    let mut rest: Vec<&str> = parts.collect();
    let mut namespace = "";
    if rest.first() == Some(&"namespaces") && rest.len() > 2 {
        namespace = rest.get(1)?;
        rest.drain(..2);
    }
    let plural = rest.first()?;
    let kind = Kind::ALL.into_iter().find(|kind| {
        let facts = kind.facts();
        facts.group == group && facts.version == version && facts.plural == *plural
    })?;
    let part = |at: usize| rest.get(at).copied().unwrap_or_default().to_owned();
    let fits = rest.len() <= 3 && (kind.is_namespaced() || namespace.is_empty());
    fits.then(|| Target {
        kind,
        namespace: namespace.to_owned(),
        name: part(1),
        subresource: part(2),
    })
}

/// Whether a path is of a version that only a later Kubernetes serves, and that we ask for first.
pub(super) fn is_newer(path: &str) -> bool {
    path.starts_with("/apis/certificates.k8s.io/v1/clustertrustbundles")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_name_objects() {
        let found = target("/apis/apps/v1/namespaces/prod/statefulsets/demo-1").expect("known");
        assert_eq!(found.kind, Kind::StatefulSet);
        assert_eq!(
            (found.namespace.as_str(), found.name.as_str()),
            ("prod", "demo-1")
        );
        let found = target("/api/v1/pods").expect("known");
        assert_eq!((found.kind, found.namespace.as_str()), (Kind::Pod, ""));
        let found = target("/api/v1/nodes/n1").expect("known");
        assert_eq!((found.kind, found.name.as_str()), (Kind::Node, "n1"));
        let path = "/apis/quorate.dev/v1alpha1/namespaces/a/etcdclusters/b/status";
        assert_eq!(target(path).map(|t| t.subresource), Some("status".into()));
        assert_eq!(target("/api/v1/configmaps"), None);
        assert_eq!(target("/api/v1/namespaces/a/nodes/n1"), None);
        for kind in Kind::ALL {
            assert_eq!(Kind::of(&kind.api_version(), kind.name()), Some(kind));
        }
    }
}
