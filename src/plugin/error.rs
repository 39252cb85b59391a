//! Why the plugin could not do what it was asked for, and what to do about it. Prints nothing.

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// kubectl does not exist, or cannot be started.
    #[error("cannot run kubectl, by which it asks: put it on the PATH")]
    NoKubectl(#[source] std::io::Error),
    /// kubectl failed; its error states why.
    #[error("{0}")]
    Refused(String),
    /// kubectl's output is not the expected object.
    #[error("kubectl printed what cannot be read")]
    Unreadable(#[source] serde_json::Error),
    /// A resource has what this plugin does not know.
    #[error(
        "the EtcdCluster has what this plugin, of version {}, does not know: install the one of the operator's version, or use -o json",
        env!("CARGO_PKG_VERSION")
    )]
    Newer(#[source] serde_json::Error),
    /// Standard output cannot be written.
    #[error("cannot print the answer")]
    Unprinted(#[source] std::io::Error),
    /// A document cannot be written.
    #[error("cannot write this as YAML: {0}; -o json may do")]
    Unwritable(String),
    /// A name is needed.
    #[error("there is no EtcdCluster in this namespace; -n names another one")]
    None,
    /// A name is needed.
    #[error("several EtcdClusters exist in this namespace: name one of {0}")]
    Several(String),
    /// The file contains another kind of resource.
    #[error("{0} holds {1}: give the manifest of one EtcdCluster")]
    NotOne(String, String),
    /// No operator could be asked for a forecast.
    #[error(
        "no operator is running for this cluster, so there is no forecast: check the operator's pods"
    )]
    NoOperator,
    /// The active operator cannot be determined.
    #[error(
        "cannot read the operator's Lease: you need permission to list Leases in all namespaces, or in the operator's namespace with --operator-namespace; {0}"
    )]
    NoLease(String),
    /// No token to authenticate the request.
    #[error(
        "the operator wants to know who asks, and no token of the service account {0} can be made: name one that you may make tokens of, and that may get etcdclusters, with --service-account NAMESPACE/NAME; {1}"
    )]
    NoToken(String, String),
    /// A service account must be given as namespace and name.
    #[error("{0:?} is no service account: name it as NAMESPACE/NAME")]
    NoAccount(String),
    /// No recovery can be planned.
    #[error("{0}")]
    NoRecovery(String),
    /// The operator returned an error.
    #[error("the operator could not compute a forecast: {0}")]
    NoForecast(String),
    /// There is nothing to draw on.
    #[error("standard output is no terminal: --once prints the list once")]
    NoTerminal,
    /// There is nowhere to save to.
    #[error(
        "there is no EtcdBackupStore in namespace {0}: create one that says where backups are stored, as deploy/samples/backup.yaml"
    )]
    NoStore(String),
    /// A name is needed.
    #[error("several EtcdBackupStores exist: name one of {0} with --store")]
    SeveralStores(String),
    /// A backup was given up.
    #[error("the backup was given up: {0}")]
    BackupFailed(String),
    /// A backup takes longer than was waited for.
    #[error("the backup goes on, and was waited for long enough: kubectl get etcdbackups {0}")]
    BackupGoesOn(String),
    /// A cluster of the wanted name exists.
    #[error(
        "EtcdCluster {0} exists: give another name with --as. What a cluster that exists has lost comes back in place with kubectl quorate recover"
    )]
    Exists(String),
    /// A backup is not there, or not yet.
    #[error("EtcdBackup {0} is {1}, so there is nothing to restore from it: {2}")]
    NotSaved(String, String, String),
    /// Only voters are fenced.
    #[error("{0} is no voter of this cluster: kubectl quorate members lists them")]
    NoVoter(String),
    /// A member that is to be stopped is needed.
    #[error(
        "without {member} {rest} healthy voters of {all} are left, and {needed} are a quorum, so it is not stopped. To stop the whole cluster, with its volumes as they are, set spec.replicas to 0"
    )]
    CostsQuorum {
        /// Who is to be stopped.
        member: String,
        /// Healthy voters that are left.
        rest: usize,
        /// All voters.
        all: usize,
        /// A quorum of them.
        needed: usize,
    },
    /// Nobody has fenced it.
    #[error("{0} is not fenced, so there is nothing to take back")]
    NotFenced(String),
    /// A report cannot be packed.
    #[error("cannot pack the report")]
    Unpacked(#[source] std::io::Error),
    /// A report cannot be stored.
    #[error("cannot write {0}: --output names another file, which must not exist")]
    Unstored(String, #[source] std::io::Error),
    /// etcdctl does not exist, or cannot be started.
    #[error("cannot run etcdctl: put it on the PATH; it is part of etcd's releases")]
    NoEtcdctl(#[source] std::io::Error),
    /// A flag of etcdctl that contradicts the purpose.
    #[error(
        "endpoints and certificates are set here: leave out etcdctl's {0}; --member and --client-secret before the -- choose others"
    )]
    SetHere(&'static str),
    /// No member to talk to.
    #[error(
        "no voter of {0} is ready: kubectl quorate status {0} says why; --member MEMBER talks to one that runs all the same"
    )]
    NoReadyMember(String),
    /// A member that was named has no pod that runs.
    #[error(
        "{0} is no member of this cluster with a pod that runs: kubectl quorate members lists them"
    )]
    NotRunning(String),
    /// A member that was named has no pod.
    #[error(
        "{0} is no member of this cluster with a pod: kubectl quorate members -o wide lists them"
    )]
    NoPod(String),
    /// A Secret for TLS was named in vain.
    #[error("the members of {0} do not use TLS, so --client-secret has no effect: leave it out")]
    NoTls(String),
    /// The status names no certificates.
    #[error(
        "no operator has reported where the certificates of {0} are yet: kubectl quorate status {0} says what it waits for"
    )]
    NoCertificatesYet(String),
    /// The operator makes no certificate for clients.
    #[error(
        "the members of {0} ask clients for a certificate of your own CA: name the Secret with its tls.crt and tls.key with --client-secret SECRET"
    )]
    NoClientSecret(String),
    /// A Secret cannot be read.
    #[error(
        "cannot read Secret {0}, which holds certificates: you need permission to get Secrets in the namespace of the cluster; {1}"
    )]
    NoSecret(String, String),
    /// A Secret lacks a part.
    #[error(
        "Secret {0} has no {1}: it is to be of type kubernetes.io/tls, with ca.crt where it verifies members"
    )]
    IncompleteSecret(String, String),
    /// The certificates cannot be written.
    #[error(
        "cannot write the certificates into a folder of their own: TMPDIR may name another place"
    )]
    NoFolder(#[source] std::io::Error),
    /// No member can be reached.
    #[error(
        "no member is reached by kubectl port-forward: you need permission to create pods/portforward; {0}"
    )]
    NoForward(String),
    /// One of the named members does not speak TLS yet.
    #[error(
        "{0} does not speak TLS yet, and another member that you named does: name those that do, or that one alone"
    )]
    TlsOfSome(String),
    /// Signals cannot be received.
    #[error("cannot receive signals, and would leave certificates behind")]
    NoSignals(#[source] std::io::Error),
    /// The user or the system asked it to end.
    #[error("stopped before etcdctl was run")]
    Stopped,
}
