//! `quorate operator`: flags of the operator for Kubernetes.

use std::net::SocketAddr;
use std::process::ExitCode;

use clap::Parser;

use crate::operator::kubernetes::cache::Namespaces;
use crate::operator::kubernetes::{self, Options};
use crate::server::process::log_pipe::last_word;

/// Name of the Lease for leader election among operators, if no other is given.
pub(super) const LEASE: &str = "quorate-operator";

/// Runs replicated etcd-style clusters on Kubernetes: one EtcdCluster resource, one cluster.
#[derive(Debug, Parser)]
#[command(version, display_name = "quorate")]
pub(super) struct Arguments {
    /// Image of the members where spec.image is not given; usually the operator's own. Its tag,
    /// if it has one, gives way to the cluster's spec.version.
    #[arg(long, env = "QUORATE_IMAGE", value_parser = repository)]
    image: String,

    /// Namespaces to watch, separated by commas; empty: all.
    #[arg(long, env = "QUORATE_WATCH_NAMESPACES", default_value = "")]
    watch_namespaces: String,

    /// Address of /livez, /readyz and /metrics.
    #[arg(long, default_value = "0.0.0.0:8080")]
    probe_address: SocketAddr,

    /// Name of the Lease for leader election among operators.
    #[arg(long, default_value = LEASE)]
    lease_name: String,

    /// Namespace of the Lease; by default the operator's own.
    #[arg(long, env = "POD_NAMESPACE")]
    lease_namespace: Option<String>,

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
    super::logging::start(arguments.log_format);
    let options = Options {
        image_repository: arguments.image,
        namespaces,
        probe_address: arguments.probe_address,
        own_namespace: own_namespace(),
        lease_name: arguments.lease_name,
        lease_namespace: arguments.lease_namespace,
        concurrency: arguments.concurrency.into(),
        forecasts: arguments.forecasts,
        metrics: arguments.metrics,
        member_user: arguments.member_user,
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

/// The part of an image reference before its tag.
fn repository(image: &str) -> Result<String, String> {
    if image.is_empty() || image.contains(char::is_whitespace) {
        return Err("give an image reference such as registry.example/quorate:0.1.0".into());
    }
    if image.contains('@') {
        return Err(
            "a digest cannot stand for every version: give the reference with a tag or without one, and set spec.image where a cluster needs a digest".into(),
        );
    }
    let path = image.rfind('/').map_or(0, |slash| slash + 1);
    let end = image[path..]
        .rfind(':')
        .map_or(image.len(), |colon| path + colon);
    Ok(image[..end].to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_wins_over_the_image_tag() {
        assert_eq!(repository("quorate:0.1.0").as_deref(), Ok("quorate"));
        assert_eq!(
            repository("host:5000/a/quorate").as_deref(),
            Ok("host:5000/a/quorate")
        );
        assert_eq!(
            repository("host:5000/a/quorate:x").as_deref(),
            Ok("host:5000/a/quorate")
        );
        assert!(repository("quorate@sha256:00").is_err_and(|error| error.contains("spec.image")));
        assert!(repository("").is_err());
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
