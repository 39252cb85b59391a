//! The flags of distributed tracing, validated.
//!
//! As in etcd they count only with `--enable-distributed-tracing`. Never resolves a name or dials it.

use super::Flags;
use super::collector_headers::CollectorHeaders;

/// Traces of this many requests in a million at most: of all.
const MILLION: i64 = 1_000_000;
/// The flags that need `--enable-distributed-tracing`.
const DEPENDENT: [&str; 4] = [
    "distributed-tracing-address",
    "distributed-tracing-service-name",
    "distributed-tracing-instance-id",
    "distributed-tracing-sampling-rate",
];

/// Where spans of requests go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tracing {
    /// The collector, as `host:port`.
    pub address: String,
    /// The same for all members.
    pub service_name: String,
    /// This member's own.
    pub instance_id: Option<String>,
    /// Requests in a million that are sampled, of those that no sampled parent has.
    pub per_million: u32,
    /// Sent with everything; from variables of the environment.
    pub headers: CollectorHeaders,
}

/// Validates them; `None`: no spans. The text of a refusal names the flag and the remedy.
pub(in crate::server) fn tracing(
    flags: &Flags,
    warnings: &mut Vec<String>,
) -> Result<Option<Tracing>, String> {
    if !flags.bool("enable-distributed-tracing") {
        let given = DEPENDENT.iter().filter(|name| flags.is_given(name));
        warnings
            .extend(given.map(|name| {
                format!("--{name} has no effect without --enable-distributed-tracing")
            }));
        return Ok(None);
    }
    let service_name = flags.text("distributed-tracing-service-name");
    if service_name.is_empty() {
        return Err(
            "--distributed-tracing-service-name must not be empty: leave it out for etcd"
                .to_owned(),
        );
    }
    Ok(Some(Tracing {
        address: address(flags.text("distributed-tracing-address"))?,
        service_name: service_name.to_owned(),
        instance_id: flags
            .optional("distributed-tracing-instance-id")
            .map(str::to_owned),
        per_million: rate(flags.signed("distributed-tracing-sampling-rate"))?,
        headers: CollectorHeaders::default(),
    }))
}

fn rate(asked: i64) -> Result<u32, String> {
    let rate = Some(asked).filter(|rate| (0..=MILLION).contains(rate));
    rate.and_then(|rate| u32::try_from(rate).ok()).ok_or_else(|| {
        format!(
            "--distributed-tracing-sampling-rate is {asked}: give 0 to {MILLION}, the number of samples per million requests; 0 samples only what the caller has sampled"
        )
    })
}

fn address(text: &str) -> Result<String, String> {
    let refused = |why: &str| {
        Err(format!(
            "--distributed-tracing-address is {text:?}: {why}; give host:port, such as localhost:4317, of a collector that takes OTLP by gRPC without TLS"
        ))
    };
    if text.contains("://") {
        return refused("it must have no scheme");
    }
    let Ok(authority) = text.parse::<http::uri::Authority>() else {
        return refused("that is no host and port");
    };
    match authority.port_u16() {
        None | Some(0) => refused("the port is missing"),
        Some(_) if authority.host().is_empty() || text.contains('@') => {
            refused("the host is missing")
        }
        Some(_) => Ok(text.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn judged(arguments: &[&str]) -> (Result<Option<Tracing>, String>, Vec<String>) {
        let arguments: Vec<String> = arguments.iter().map(|text| (*text).to_owned()).collect();
        let flags = Flags::parse(&arguments, &BTreeMap::new()).expect("each by itself is valid");
        let mut warnings = Vec::new();
        (tracing(&flags, &mut warnings), warnings)
    }

    #[test]
    fn defaults_are_etcds() {
        let (enabled, warnings) = judged(&["--enable-distributed-tracing"]);
        let want = Tracing {
            address: "localhost:4317".to_owned(),
            service_name: "etcd".to_owned(),
            instance_id: None,
            per_million: 0,
            headers: CollectorHeaders::default(),
        };
        assert_eq!((enabled, warnings.len()), (Ok(Some(want)), 0));
        assert_eq!(judged(&[]), (Ok(None), Vec::new()));
    }

    #[test]
    fn settings_without_tracing_are_warned_of() {
        let (off, warnings) = judged(&[
            "--distributed-tracing-sampling-rate=-1",
            "--distributed-tracing-instance-id=a",
        ]);
        assert_eq!((off, warnings.len()), (Ok(None), 2));
        assert_eq!(
            warnings[0],
            "--distributed-tracing-instance-id has no effect without --enable-distributed-tracing"
        );
    }

    #[test]
    fn what_cannot_work_is_refused_with_a_remedy() {
        for (argument, text) in [
            (
                "--distributed-tracing-sampling-rate=-1",
                "is -1: give 0 to 1000000",
            ),
            (
                "--distributed-tracing-sampling-rate=1000001",
                "is 1000001: give 0 to 1000000",
            ),
            ("--distributed-tracing-service-name=", "must not be empty"),
            (
                "--distributed-tracing-address=http://c:4317",
                "it must have no scheme; give host:port",
            ),
            ("--distributed-tracing-address=c", "the port is missing"),
            ("--distributed-tracing-address=", "that is no host and port"),
            ("--distributed-tracing-address=:4317", "the host is missing"),
            (
                "--distributed-tracing-address=u@c:4317",
                "the host is missing",
            ),
            ("--distributed-tracing-address=c:0", "the port is missing"),
            (
                "--distributed-tracing-address=c:70000",
                "the port is missing",
            ),
        ] {
            let (refused, _) = judged(&["--enable-distributed-tracing", argument]);
            let refused = refused.expect_err(argument);
            assert!(refused.contains(text), "{argument}: {refused}");
        }
        for address in ["c:1", "10.0.0.1:4317", "[::1]:4317"] {
            let argument = format!("--distributed-tracing-address={address}");
            let (taken, _) = judged(&["--enable-distributed-tracing", &argument]);
            assert_eq!(taken.expect("valid").expect("on").address, address);
        }
    }
}
