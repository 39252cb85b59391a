//! `quorate operator`: flags of the operator for Kubernetes.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::str::FromStr;

use clap::Parser;

use crate::build::OwnImage;
use crate::crd::{ImageReference, OPERATOR_LEASE};
use crate::operator::kubernetes::cache::Namespaces;
use crate::operator::kubernetes::{self, LeaseTimes, Options};
use crate::server::process::log_pipe::last_word;

/// Runs replicated etcd-style clusters on Kubernetes: one EtcdCluster resource, one cluster.
#[derive(Debug, Parser)]
#[command(version, display_name = "quorate")]
pub(super) struct Arguments {
    /// The operator's own image: `[registry[:port]/]repository[:tag][@digest]`. Where a cluster has no spec.image, its
    /// members and Jobs run it if spec.version is the operator's version, and otherwise the one that its members of that
    /// version have, or the image of the same repository whose tag is spec.version; so they do always if neither tag nor
    /// digest is given here.
    #[arg(long, env = "QUORATE_IMAGE")]
    image: ImageReference,

    /// Names of Secrets, separated by commas, with which images of that repository are pulled. They are those of the
    /// cluster's own namespace, and count where its spec.podTemplate.spec has neither imagePullSecrets nor
    /// serviceAccountName.
    #[arg(long, env = "QUORATE_IMAGE_PULL_SECRETS", default_value = "")]
    image_pull_secrets: PullSecrets,

    /// Namespaces to watch, separated by commas; empty: all.
    #[arg(long, env = "QUORATE_WATCH_NAMESPACES", default_value = "")]
    watch_namespaces: String,

    /// Address of /livez, /readyz and /metrics.
    #[arg(long, default_value = "0.0.0.0:8080")]
    probe_address: SocketAddr,

    /// Name of the Lease for leader election among operators.
    #[arg(long, default_value = OPERATOR_LEASE)]
    lease_name: String,

    /// Namespace of the Lease; by default the operator's own.
    #[arg(long, env = "POD_NAMESPACE")]
    lease_namespace: Option<String>,

    /// Seconds after which an operator that has not renewed the Lease may be replaced; 15 to 3600.
    #[arg(long, value_name = "SECONDS", default_value_t = 15)]
    lease_duration: u64,

    /// Seconds for which an operator acts after its last renewal; five less than the duration at most, which is the default.
    #[arg(long, value_name = "SECONDS")]
    lease_renew_deadline: Option<u64>,

    /// Seconds between two tries to acquire or renew the Lease.
    #[arg(long, value_name = "SECONDS", default_value_t = 2)]
    lease_retry_period: u64,

    /// Maximum number of concurrent reconciles.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=64))]
    concurrency: u16,

    /// The user ID of members: a number; `platform` leaves it to the platform, as required on OpenShift; `auto` does so
    /// on OpenShift, and is 65532 elsewhere.
    #[arg(long, default_value = "auto")]
    member_user: kubernetes::MemberUser,

    /// Who may read /metrics: `known` (a bearer token that the API server accepts by TokenReview, and whose subject may
    /// get /metrics by SubjectAccessReview), everybody, or nobody. The metrics name the clusters, and the Secrets with
    /// certificates, of every namespace.
    #[arg(long, value_enum, default_value = "known")]
    metrics: kubernetes::MetricsFor,

    /// Whether POST /forecast at the probes' address returns what the operator would do for a cluster, for `kubectl
    /// quorate plan`, to callers that may read the cluster.
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set)]
    forecasts: bool,

    /// Address of the console, a page that shows clusters, members, events and backups to bearer tokens of the audience
    /// quorate.dev whose subject may list etcdclusters (TokenReview and SubjectAccessReview). By default there is none.
    #[arg(long, value_name = "ADDRESS")]
    console_address: Option<SocketAddr>,

    /// Form of the log.
    #[arg(long, default_value = "text")]
    log_format: super::logging::Format,
}

/// Runs the subcommand.
pub(super) fn run(arguments: Arguments) -> ExitCode {
    let namespaces = match Namespaces::parse(&arguments.watch_namespaces) {
        Ok(namespaces) => namespaces,
        Err(error) => {
            eprintln!("quorate operator: --watch-namespaces: {error}");
            return ExitCode::from(super::USAGE);
        }
    };
    let (duration, renew) = (arguments.lease_duration, arguments.lease_renew_deadline);
    let lease_times = match LeaseTimes::new(duration, renew, arguments.lease_retry_period) {
        Ok(times) => times,
        Err(error) => {
            eprintln!("quorate operator: {error}");
            return ExitCode::from(super::USAGE);
        }
    };
    super::logging::start(arguments.log_format);
    let options = Options {
        image: OwnImage {
            pull_secrets: arguments.image_pull_secrets.0,
            ..OwnImage::of(arguments.image)
        },
        namespaces,
        probe_address: arguments.probe_address,
        own_namespace: own_namespace(),
        lease_name: arguments.lease_name,
        lease_namespace: arguments.lease_namespace,
        lease_times,
        concurrency: arguments.concurrency.into(),
        forecasts: arguments.forecasts,
        metrics: arguments.metrics,
        member_user: arguments.member_user,
        console: arguments.console_address,
    };
    let runtime = match tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("quorate operator: cannot start: {error}");
            return ExitCode::FAILURE;
        }
    };
    match runtime.block_on(kubernetes::run(options)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(error = %super::chain(&error), "the operator ends");
            let text = format!("quorate operator: {}\n", super::chain(&error));
            last_word(std::io::stderr(), &text);
            ExitCode::FAILURE
        }
    }
}

/// The namespace of the pod that this process is in; `None` outside of Kubernetes.
fn own_namespace() -> Option<String> {
    std::env::var_os("KUBERNETES_SERVICE_HOST")?;
    let given = std::env::var("POD_NAMESPACE").ok();
    given.filter(|namespace| !namespace.is_empty())
}

/// Names of Secrets, each once.
#[derive(Clone, Debug)]
struct PullSecrets(Vec<String>);

impl FromStr for PullSecrets {
    type Err = String;

    fn from_str(list: &str) -> Result<Self, String> {
        let mut names = Vec::new();
        for name in list.split(',').filter(|_| !list.is_empty()) {
            let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-.".contains(c);
            if name.is_empty() || name.len() > 253 || !name.chars().all(fits) {
                return Err(format!(
                    "{name:?} is not the name of a Secret: give names separated by commas, or leave it empty for none"
                ));
            }
            if !names.iter().any(|known| known == name) {
                names.push(name.to_owned());
            }
        }
        Ok(PullSecrets(names))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A digest was refused, and a tag ignored: members had an image of their own.
    #[test]
    fn image_is_a_whole_reference() {
        let parse = |flags: &[&str]| {
            let flags = std::iter::once(&"quorate operator").chain(flags);
            Arguments::try_parse_from(flags).map_err(|error| error.to_string())
        };
        let digest = "@sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";
        let image = format!("--image=[fd00::10]:5000/a/quorate:main{digest}");
        let read = parse(&[image.as_str(), "--image-pull-secrets=a,b.c,a"]).expect("flags");
        assert_eq!(format!("--image={}", read.image), image);
        assert_eq!(read.image_pull_secrets.0, ["a", "b.c"]);
        let read = parse(&["--image=quorate", "--image-pull-secrets="]).expect("flags");
        assert!(read.image_pull_secrets.0.is_empty());
        for (flags, says) in [
            (["--image=", "--metrics=known"], "an image is missing"),
            (
                ["--image=Quorate:1", "--metrics=known"],
                "is no part of a repository",
            ),
            (
                ["--image=quorate", "--image-pull-secrets=a,,b"],
                "is not the name of a Secret",
            ),
            (
                ["--image=quorate", "--image-pull-secrets=A"],
                "is not the name of a Secret",
            ),
        ] {
            let error = parse(&flags).expect_err(says);
            assert!(error.contains(says), "{error}");
        }
    }

    #[test]
    fn flags_are_checked() {
        let parse = |flags: &[&str]| {
            Arguments::try_parse_from(std::iter::once(&"quorate operator").chain(flags))
                .map_err(|error| error.to_string())
        };
        assert!(parse(&["--image=quorate"]).is_ok());
        let error = parse(&["--image=quorate", "--concurrency=0"]).expect_err("too few");
        assert!(error.contains("--concurrency"), "{error}");
        assert!(parse(&["--image=quorate", "--member-user=1000", "--metrics=nobody"]).is_ok());
        let error = parse(&["--image=quorate", "--member-user=0"]).expect_err("root");
        assert!(error.contains("other than root"), "{error}");
        let error = parse(&["--image=quorate", "--probe-address=8080"]).expect_err("no address");
        assert!(error.contains("--probe-address"), "{error}");
    }
}
