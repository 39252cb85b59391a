//! From flags to a [`Config`]: defaults, conflicts and limits, each refusal with its remedy.
//!
//! Reads only its arguments: the facts about the machine come in as [`HostFacts`].

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use super::Flags;
use super::config::{
    AllowedNames, ClientPort, ClusterState, Config, Formation, Limits, Operated, TlsFiles,
    TlsPolicy, ValuesOnDisk,
};
use super::feature_gates::Gates;
use super::log::log;
use super::maintenance;
use super::tracing::tracing;
use super::url::{ClientUrl, Endpoint, UrlError};
use crate::server::auth::settings::AuthSettings;
use crate::server::http::access::Access;

/// Facts about the machine, collected at start-up.
#[derive(Clone, Copy, Debug, Default)]
pub struct HostFacts {
    /// Memory in bytes that the process may use before it is killed.
    pub memory_limit: Option<u64>,
}

/// Why the settings are refused. Each text names the flag and the remedy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// A URL that does not parse.
    #[error("--{flag}: {source}")]
    Url {
        /// The flag.
        flag: &'static str,
        /// What is wrong.
        #[source]
        source: UrlError,
    },
    /// Any other refusal.
    #[error("{0}")]
    Refused(String),
}

const GIB: u64 = 1 << 30;
/// etcd's default quota.
const DEFAULT_QUOTA: u64 = 2 * GIB;
/// etcd's longest election timeout, in milliseconds.
const MAX_ELECTION_MS: u64 = 50_000;
/// etcd's number of entries between two snapshots, also used for 0.
const SNAPSHOT_COUNT: u64 = 10_000;
/// etcd's progress interval of watchers, also used for 0 or less, and the minimum.
const WATCH_PROGRESS: Duration = Duration::from_secs(600);
const LEAST_WATCH_PROGRESS: Duration = Duration::from_millis(100);
/// etcd's threshold for slow requests, also used for 0.
const SLOW_REQUEST: Duration = Duration::from_millis(300);
/// The longest duration, in seconds, that Go can represent.
const LONGEST: u64 = i64::MAX.unsigned_abs() / 1_000_000_000;
/// Larger requests work, but slow down all clients.
const LARGE_REQUEST: u64 = 10 << 20;

impl Config {
    /// Validates the flags as a whole.
    pub fn from_flags(flags: &Flags, machine: HostFacts) -> Result<Config, ConfigError> {
        let mut warnings = flags.warnings.clone();
        let advertise_peer_urls = advertised(flags, "initial-advertise-peer-urls")?;
        let formation = formation(flags, &advertise_peer_urls)?;
        let (heartbeat, election) = times(flags)?;
        let listen_peer_urls = listened(flags, "listen-peer-urls")?;
        let listen_client_urls = listened_for_clients(flags, "listen-client-urls")?;
        let listen_client_http_urls = listened_for_clients(flags, "listen-client-http-urls")?;
        let listen_metrics_urls = listened_for_clients(flags, "listen-metrics-urls")?;
        let secure = listen_peer_urls.iter().any(|url| url.tls);
        let peer_tls = tls_files(flags, "peer-", secure.then_some("listen-peer-urls"))?;
        let secure = [
            ("listen-client-urls", &listen_client_urls),
            ("listen-client-http-urls", &listen_client_http_urls),
            ("listen-metrics-urls", &listen_metrics_urls),
        ];
        let secure = secure
            .into_iter()
            .find(|(_, urls)| urls.iter().any(ClientUrl::tls));
        let client_tls = tls_files(flags, "", secure.map(|(flag, _)| flag))?;
        warn_about_schemes(flags, &mut warnings, &listen_peer_urls, &listen_client_urls);
        let awaits = matches!(formation, Formation::AwaitMembership { .. });
        let gates = Gates::of(flags, &mut warnings).map_err(ConfigError::Refused)?;
        let maintenance =
            maintenance::maintenance(flags, &gates, &mut warnings).map_err(ConfigError::Refused)?;
        let on_disk = maintenance.values_on_disk == ValuesOnDisk::Always;
        let config = Config {
            name: name(flags, awaits, &mut warnings)?,
            data_dir: data_dir(flags),
            advertise_client_urls: advertised_to_clients(flags, &mut warnings)?,
            operated: operated(flags, awaits)?,
            hurry_first_election: flags.bool("initial-election-tick-advance"),
            pre_vote: flags.bool("pre-vote"),
            strict_reconfig_check: flags.bool("strict-reconfig-check"),
            snapshot_count: match flags.number("snapshot-count") {
                0 => SNAPSHOT_COUNT,
                entries => entries,
            },
            unsafe_no_fsync: flags.bool("unsafe-no-fsync"),
            limits: limits(flags, machine, (awaits, on_disk), &mut warnings)?,
            auth: AuthSettings::new(
                flags.text("auth-token"),
                token_ttl(flags)?,
                flags.number("bcrypt-cost"),
                flags.bool("client-cert-auth"),
                &mut warnings,
            )
            .map_err(ConfigError::Refused)?,
            maintenance,
            tls_policy: tls_policy(flags)?,
            client: client_port(flags, &gates)?,
            log: log(flags, &mut warnings).map_err(ConfigError::Refused)?,
            tracing: tracing(flags, &mut warnings).map_err(ConfigError::Refused)?,
            termination_message_file: path(flags, "termination-message-file"),
            expected_hostname: flags.optional("expected-hostname").map(str::to_owned),
            advertise_peer_urls,
            formation,
            heartbeat,
            election,
            peer_tls_transition: peer_tls_transition(flags, &listen_peer_urls)?,
            client_plaintext: client_plaintext(
                flags,
                &listen_client_urls,
                &listen_client_http_urls,
            )?,
            listen_peer_urls,
            listen_client_urls,
            listen_client_http_urls,
            listen_metrics_urls,
            client_tls,
            peer_tls,
            warnings,
        };
        Ok(config)
    }

    /// Checks of `--initial-cluster` that only an empty disk needs: it names this member, with
    /// exactly the peer URLs that it advertises. A member with data no longer reads the flag.
    pub fn check_initial_cluster(&self) -> Result<(), ConfigError> {
        let Formation::InitialCluster { members, .. } = &self.formation else {
            return Ok(());
        };
        let Some(urls) = members.get(&self.name) else {
            let names: Vec<&str> = members.keys().map(String::as_str).collect();
            return refused(format!(
                "--initial-cluster does not name this member: --name is {:?} and it has {}; add {}={}",
                self.name,
                names.join(", "),
                self.name,
                self.advertise_peer_urls.join(",")
            ));
        };
        if *urls != self.advertise_peer_urls {
            return refused(format!(
                "--initial-cluster has {} for {:?} and --initial-advertise-peer-urls has {}: they must be the same",
                urls.join(","),
                self.name,
                self.advertise_peer_urls.join(",")
            ));
        }
        Ok(())
    }
}

fn refused<T>(text: String) -> Result<T, ConfigError> {
    Err(ConfigError::Refused(text))
}

fn path(flags: &Flags, name: &str) -> Option<PathBuf> {
    flags.optional(name).map(PathBuf::from)
}

fn name(flags: &Flags, awaits: bool, warnings: &mut Vec<String>) -> Result<String, ConfigError> {
    let name = flags.text("name");
    if name.is_empty() {
        return refused("--name must not be empty: give the member a name".to_owned());
    }
    if name.contains([',', '=']) {
        return refused(format!("--name {name:?} must not contain ',' or '='"));
    }
    if awaits && !flags.is_given("name") {
        return refused(
            "--await-membership needs --name: the name by which the cluster will know this member"
                .to_owned(),
        );
    }
    if name == "default" {
        warnings.push(
            "the member has the name \"default\": give each member its own with --name".to_owned(),
        );
    }
    Ok(name.to_owned())
}

fn data_dir(flags: &Flags) -> PathBuf {
    path(flags, "data-dir").unwrap_or_else(|| PathBuf::from(format!("{}.etcd", flags.text("name"))))
}

fn urls(flags: &Flags, flag: &'static str) -> Result<BTreeSet<Endpoint>, ConfigError> {
    flags
        .list(flag)
        .into_iter()
        .map(|text| Endpoint::parse(text).map_err(|source| ConfigError::Url { flag, source }))
        .collect()
}

fn client_urls(flags: &Flags, flag: &'static str) -> Result<BTreeSet<ClientUrl>, ConfigError> {
    flags
        .list(flag)
        .into_iter()
        .map(|text| ClientUrl::parse(text).map_err(|source| ConfigError::Url { flag, source }))
        .collect()
}

/// URLs to bind for peers.
fn listened(flags: &Flags, flag: &'static str) -> Result<Vec<Endpoint>, ConfigError> {
    let urls = urls(flags, flag)?;
    for url in &urls {
        bindable(flag, &url.host, url)?;
    }
    not_empty(flag, urls.is_empty())?;
    Ok(urls.into_iter().collect())
}

/// URLs to bind for clients and probes.
fn listened_for_clients(flags: &Flags, flag: &'static str) -> Result<Vec<ClientUrl>, ConfigError> {
    let urls = client_urls(flags, flag)?;
    for url in &urls {
        if let Some(host) = url.host() {
            bindable(flag, host, url)?;
        }
    }
    if flag == "listen-client-urls" {
        not_empty(flag, urls.is_empty())?;
    }
    Ok(urls.into_iter().collect())
}

/// Addresses and `localhost` can be bound; a name could refer to another machine.
fn bindable(flag: &str, host: &str, url: &dyn std::fmt::Display) -> Result<(), ConfigError> {
    let address = host.parse::<std::net::IpAddr>().is_ok();
    if !address && host != "localhost" && !host.is_empty() {
        return refused(format!(
            "--{flag}: {url} names a host; give an IP address to listen on (0.0.0.0 for all)"
        ));
    }
    Ok(())
}

fn not_empty(flag: &str, empty: bool) -> Result<(), ConfigError> {
    match empty {
        true => refused(format!("--{flag} must not be empty: give at least one URL")),
        false => Ok(()),
    }
}

fn advertised(flags: &Flags, flag: &'static str) -> Result<Vec<String>, ConfigError> {
    let urls = urls(flags, flag)?;
    for url in &urls {
        dialable(flag, &url.host, url)?;
    }
    not_empty(flag, urls.is_empty())?;
    Ok(urls.iter().map(Endpoint::to_string).collect())
}

fn dialable(flag: &str, host: &str, url: &dyn std::fmt::Display) -> Result<(), ConfigError> {
    match host.is_empty() {
        true => refused(format!(
            "--{flag}: {url} has no host; give the one that others dial"
        )),
        false => Ok(()),
    }
}

fn advertised_to_clients(
    flags: &Flags,
    warnings: &mut Vec<String>,
) -> Result<Vec<String>, ConfigError> {
    if flags.is_given("listen-client-urls") && !flags.is_given("advertise-client-urls") {
        if !flags.from_file {
            return refused(
                "--advertise-client-urls is required when --listen-client-urls is set: give the URLs that clients dial"
                    .to_owned(),
            );
        }
        // etcd requires this only of flags.
        warnings.push(format!(
            "advertise-client-urls is not in the file: clients learn {}, which may not be the address of this member",
            flags.text("advertise-client-urls")
        ));
    }
    let flag = "advertise-client-urls";
    let urls = client_urls(flags, flag)?;
    for url in &urls {
        if let Some(host) = url.host() {
            dialable(flag, host, url)?;
        }
    }
    not_empty(flag, urls.is_empty())?;
    Ok(urls.iter().map(ClientUrl::to_string).collect())
}

fn formation(flags: &Flags, advertised: &[String]) -> Result<Formation, ConfigError> {
    if flags.bool("await-membership") {
        for flag in [
            "initial-cluster",
            "initial-cluster-state",
            "initial-cluster-token",
        ] {
            if flags.is_given(flag) {
                return refused(format!(
                    "--{flag} and --await-membership exclude each other: a standby learns its cluster by being added; leave one out"
                ));
            }
        }
        let join_from = flags
            .list("join-from")
            .into_iter()
            .map(str::to_owned)
            .collect();
        return Ok(Formation::AwaitMembership { join_from });
    }
    if flags.is_given("join-from") {
        return refused(
            "--join-from needs --await-membership: without it, --initial-cluster names the members"
                .to_owned(),
        );
    }
    let state = match flags.text("initial-cluster-state") {
        "existing" => ClusterState::Existing,
        _ => ClusterState::New,
    };
    let members = match flags.optional("initial-cluster") {
        Some(text) => initial_cluster(text)?,
        None => BTreeMap::from([(flags.text("name").to_owned(), advertised.to_vec())]),
    };
    let token = flags.text("initial-cluster-token").to_owned();
    Ok(Formation::InitialCluster {
        members,
        state,
        token,
    })
}

/// `a=http://1,a=http://2,b=http://3`.
fn initial_cluster(text: &str) -> Result<BTreeMap<String, Vec<String>>, ConfigError> {
    let flag = "initial-cluster";
    let mut members: BTreeMap<String, BTreeSet<Endpoint>> = BTreeMap::new();
    let mut seen: BTreeMap<Endpoint, String> = BTreeMap::new();
    for part in text
        .split(',')
        .map(str::trim)
        .filter(|part| !part.is_empty())
    {
        let Some((name, url)) = part.split_once('=').filter(|(name, _)| !name.is_empty()) else {
            return refused(format!(
                "--{flag}: {part:?} must have the form name=http://host:port"
            ));
        };
        let url = Endpoint::parse(url).map_err(|source| ConfigError::Url { flag, source })?;
        if let Some(other) = seen.insert(url.clone(), name.to_owned()) {
            return refused(format!(
                "--{flag} has {url} for {other:?} and for {name:?}: each member needs URLs of its own"
            ));
        }
        members.entry(name.to_owned()).or_default().insert(url);
    }
    if members.is_empty() {
        return refused(format!(
            "--{flag} names no member: give name=http://host:port"
        ));
    }
    let texts = |urls: BTreeSet<Endpoint>| urls.iter().map(Endpoint::to_string).collect();
    Ok(members
        .into_iter()
        .map(|(name, urls)| (name, texts(urls)))
        .collect())
}

fn times(flags: &Flags) -> Result<(Duration, Duration), ConfigError> {
    let heartbeat = flags.number("heartbeat-interval");
    let election = flags.number("election-timeout");
    if heartbeat == 0 || election == 0 {
        return refused(
            "--heartbeat-interval and --election-timeout must be greater than 0 milliseconds"
                .to_owned(),
        );
    }
    if election < heartbeat.saturating_mul(5) {
        return refused(format!(
            "--election-timeout is {election} ms: it must be at least five times --heartbeat-interval, which is {heartbeat} ms"
        ));
    }
    if election > MAX_ELECTION_MS {
        return refused(format!(
            "--election-timeout is {election} ms: the longest is {MAX_ELECTION_MS} ms"
        ));
    }
    Ok((
        Duration::from_millis(heartbeat),
        Duration::from_millis(election),
    ))
}

fn file_of_operator(flags: &Flags) -> Option<PathBuf> {
    path(flags, "operator-secret-file")
}

fn operated(flags: &Flags, awaits: bool) -> Result<Operated, ConfigError> {
    let operated = Operated {
        secret_file: file_of_operator(flags),
        cluster_uid: flags.optional("cluster-uid").map(str::to_owned),
        pod_uid: flags.optional("pod-uid").map(str::to_owned),
    };
    if !awaits && operated.cluster_uid.is_some() {
        return refused(
            "--cluster-uid needs --await-membership: a cluster of --initial-cluster belongs to no resource"
                .to_owned(),
        );
    }
    Ok(operated)
}

fn limits(
    flags: &Flags,
    machine: HostFacts,
    (awaits, on_disk): (bool, bool),
    warnings: &mut Vec<String>,
) -> Result<Limits, ConfigError> {
    let max_request_bytes = flags.number("max-request-bytes");
    if max_request_bytes == 0 || max_request_bytes > u64::from(u32::MAX) / 2 {
        return refused(format!(
            "--max-request-bytes is {max_request_bytes}: give 1 to {}",
            u32::MAX / 2
        ));
    }
    if max_request_bytes > LARGE_REQUEST {
        warnings.push(format!(
            "--max-request-bytes is {max_request_bytes}: requests above {LARGE_REQUEST} bytes slow every client down"
        ));
    }
    let max_txn_ops = flags.number("max-txn-ops");
    let max_learners = match u64::try_from(flags.signed("max-learners")) {
        Err(_) => return refused("--max-learners must not be negative".to_owned()),
        Ok(0) if awaits => {
            return refused(
                "--max-learners is 0: with --await-membership every member joins as a learner; give at least 1"
                    .to_owned(),
            );
        }
        Ok(_) if awaits && !flags.is_given("max-learners") => 3,
        Ok(learners) => learners,
    };
    let asked = flags.signed("quota-backend-bytes");
    let (quota_bytes, in_memory_bytes) = match on_disk {
        false => (quota(asked, machine, warnings)?, None),
        true => (
            quota(asked, HostFacts { memory_limit: None }, warnings)?,
            machine.memory_limit.map(|limit| limit / 10 * 3),
        ),
    };
    Ok(Limits {
        max_request_bytes,
        max_txn_ops,
        max_learners,
        quota_bytes,
        in_memory_bytes,
    })
}

/// With all values in memory a member needs about 2.5 times the size of its store at worst, so the quota is
/// derived from the memory limit: members hold equal data and must not be killed together. With values in files from the
/// start it says nothing of memory; what stays there is limited by itself.
fn quota(
    asked: i64,
    machine: HostFacts,
    warnings: &mut Vec<String>,
) -> Result<Option<u64>, ConfigError> {
    let fits = machine.memory_limit.map(|limit| limit / 5 * 2);
    let Ok(asked) = u64::try_from(asked) else {
        if let Some(limit) = machine.memory_limit {
            warnings.push(format!(
                "--quota-backend-bytes turns the quota off, but the memory limit is {limit} bytes: a full store would stop every member"
            ));
        }
        return Ok(None);
    };
    if asked == 0 {
        return Ok(Some(
            fits.map_or(DEFAULT_QUOTA, |fits| fits.min(DEFAULT_QUOTA)),
        ));
    }
    match (fits, machine.memory_limit) {
        (Some(fits), Some(limit)) if asked > fits => refused(format!(
            "--quota-backend-bytes is {asked}, but the memory limit is {limit} bytes and a member needs 2.5 times its data: give at most {fits}, or raise the memory limit to {}",
            asked.saturating_mul(5) / 2
        )),
        _ => Ok(Some(asked)),
    }
}

/// The TLS files of one port; `secure` is a flag with a URL that needs them.
fn tls_files(
    flags: &Flags,
    prefix: &str,
    secure: Option<&str>,
) -> Result<Option<TlsFiles>, ConfigError> {
    let client = if prefix.is_empty() { "client" } else { "peer" };
    let file = |name: &str| path(flags, &format!("{prefix}{name}"));
    let auth_flag = format!("{prefix}client-cert-auth");
    let (certificate, key) = match (file("cert-file"), file("key-file")) {
        (Some(certificate), Some(key)) => (certificate, key),
        (None, None) if flags.bool(&format!("{prefix}auto-tls")) => {
            return auto_tls(flags, prefix, client).map(Some);
        }
        (None, None) => {
            if let Some(flag) = secure {
                return refused(format!(
                    "--{flag} has an https or unixs URL: give --{prefix}cert-file and --{prefix}key-file"
                ));
            }
            if flags.bool(&auth_flag) {
                return refused(format!(
                    "--{auth_flag} needs TLS: give --{prefix}cert-file, --{prefix}key-file and --{prefix}trusted-ca-file"
                ));
            }
            if !allowed_names(flags, client)?.is_empty() {
                return refused(format!(
                    "--{client}-cert-allowed-cn and --{client}-cert-allowed-hostname need TLS: give --{prefix}cert-file, --{prefix}key-file and --{prefix}trusted-ca-file"
                ));
            }
            return Ok(None);
        }
        (Some(_), None) => {
            return refused(format!(
                "--{prefix}cert-file is given without --{prefix}key-file"
            ));
        }
        (None, Some(_)) => {
            return refused(format!(
                "--{prefix}key-file is given without --{prefix}cert-file"
            ));
        }
    };
    let trusted_ca = file("trusted-ca-file");
    if flags.bool(&auth_flag) && trusted_ca.is_none() {
        return refused(format!(
            "--{auth_flag} needs --{prefix}trusted-ca-file: the roots that certificates must lead to"
        ));
    }
    let (client_certificate, client_key) = match client {
        "peer" => (file("client-cert-file"), file("client-key-file")),
        _ => (None, None),
    };
    if client_certificate.is_some() != client_key.is_some() {
        return refused(
            "--peer-client-cert-file and --peer-client-key-file must be given together".to_owned(),
        );
    }
    let allowed = allowed_names(flags, client)?;
    if !allowed.is_empty() && trusted_ca.is_none() {
        return refused(format!(
            "--{client}-cert-allowed-cn and --{client}-cert-allowed-hostname need --{prefix}trusted-ca-file: names count in certificates that are checked"
        ));
    }
    Ok(Some(TlsFiles {
        certificate,
        key,
        // As in etcd, a CA file alone makes client certificates required.
        client_auth: trusted_ca.is_some(),
        // An operator signs its calls, and must be able to connect when certificates have to be
        // renewed.
        calls_without: client == "peer" && file_of_operator(flags).is_some(),
        self_signed_years: None,
        allowed,
        trusted_ca,
        revoked: path(
            flags,
            if client == "peer" {
                "peer-crl-file"
            } else {
                "client-crl-file"
            },
        ),
        client_certificate,
        client_key,
    }))
}

/// Certificates in etcd's paths in the data directory.
fn auto_tls(flags: &Flags, prefix: &str, port: &str) -> Result<TlsFiles, ConfigError> {
    for flag in ["client-cert-auth", "trusted-ca-file"] {
        let flag = format!("{prefix}{flag}");
        if flags.is_given(&flag) && !matches!(flags.text(&flag), "" | "false") {
            return refused(format!(
                "--{flag} and --{prefix}auto-tls exclude each other: certificates that vouch for themselves lead to no root; give --{prefix}cert-file and --{prefix}key-file"
            ));
        }
    }
    if !allowed_names(flags, port)?.is_empty() {
        return refused(format!(
            "--{port}-cert-allowed-cn and --{port}-cert-allowed-hostname need --{prefix}trusted-ca-file, which --{prefix}auto-tls excludes"
        ));
    }
    let years = flags.number("self-signed-cert-validity");
    let years = u32::try_from(years)
        .ok()
        .filter(|years| (1..=1000).contains(years));
    let Some(years) = years else {
        return refused("--self-signed-cert-validity must be 1 to 1000 years".to_owned());
    };
    let folder = data_dir(flags).join("fixtures").join(port);
    Ok(TlsFiles {
        certificate: folder.join("cert.pem"),
        key: folder.join("key.pem"),
        self_signed_years: Some(years),
        allowed: AllowedNames::default(),
        client_auth: false,
        calls_without: false,
        trusted_ca: None,
        revoked: None,
        client_certificate: None,
        client_key: None,
    })
}

/// Names that certificates of a port's other side must contain.
fn allowed_names(flags: &Flags, port: &str) -> Result<AllowedNames, ConfigError> {
    let list = |kind: &str| {
        let texts = flags.list(&format!("{port}-cert-allowed-{kind}"));
        texts.into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    let allowed = AllowedNames {
        common_names: list("cn"),
        hosts: list("hostname"),
    };
    if !allowed.common_names.is_empty() && !allowed.hosts.is_empty() {
        return refused(format!(
            "--{port}-cert-allowed-cn and --{port}-cert-allowed-hostname exclude each other: give one"
        ));
    }
    if let Some(host) = allowed
        .hosts
        .iter()
        .find(|host| rustls_pki_types::ServerName::try_from(host.as_str()).is_err())
    {
        return refused(format!(
            "--{port}-cert-allowed-hostname: {host:?} is no host name and no address"
        ));
    }
    Ok(allowed)
}

fn peer_tls_transition(flags: &Flags, listen: &[Endpoint]) -> Result<bool, ConfigError> {
    let asked = flags.bool("peer-tls-transition");
    if asked && let Some(url) = listen.iter().find(|url| !url.tls) {
        return refused(format!(
            "--peer-tls-transition is for a port that speaks TLS, and --listen-peer-urls has {url}: write https://, and give --peer-cert-file and --peer-key-file"
        ));
    }
    Ok(asked)
}

fn client_plaintext(
    flags: &Flags,
    listen: &[ClientUrl],
    http: &[ClientUrl],
) -> Result<bool, ConfigError> {
    let asked = flags.bool("client-plaintext");
    if asked && !listen.iter().chain(http).any(ClientUrl::tls) {
        return refused(
            "--client-plaintext is for ports that speak TLS, and neither --listen-client-urls nor --listen-client-http-urls has an https or unixs URL"
                .to_owned(),
        );
    }
    Ok(asked)
}

fn warn_about_schemes(
    flags: &Flags,
    warnings: &mut Vec<String>,
    peer: &[Endpoint],
    client: &[ClientUrl],
) {
    let peer = peer.iter().find(|url| !url.tls).map(Endpoint::to_string);
    let client = client.iter().find(|url| !url.tls());
    for (flag, prefix, plain) in [
        ("listen-peer-urls", "peer-", peer),
        ("listen-client-urls", "", client.map(ClientUrl::to_string)),
    ] {
        if let Some(url) = plain
            && flags.is_given(&format!("{prefix}cert-file"))
        {
            warnings.push(format!(
                "--{flag}: {url} is plain text although --{prefix}cert-file is given; write https:// (unixs:// for a file) to use it"
            ));
        }
    }
}

fn tls_policy(flags: &Flags) -> Result<TlsPolicy, ConfigError> {
    let only_tls13 = flags.text("tls-min-version") == "TLS1.3";
    let only_tls12 = flags.text("tls-max-version") == "TLS1.2";
    if only_tls13 && only_tls12 {
        return refused(
            "--tls-min-version is TLS1.3 and --tls-max-version is TLS1.2: no version is left"
                .to_owned(),
        );
    }
    let cipher_suites: Vec<String> = flags
        .list("cipher-suites")
        .into_iter()
        .map(str::to_owned)
        .collect();
    if only_tls13 && !cipher_suites.is_empty() {
        return refused(
            "--cipher-suites names suites of TLS 1.2 and --tls-min-version is TLS1.3: leave one out"
                .to_owned(),
        );
    }
    Ok(TlsPolicy {
        cipher_suites,
        only_tls13,
        only_tls12,
    })
}

fn token_ttl(flags: &Flags) -> Result<u64, ConfigError> {
    match flags.number("auth-token-ttl") {
        seconds if seconds > LONGEST => refused(format!(
            "--auth-token-ttl is {seconds}: give at most {LONGEST} seconds"
        )),
        seconds => Ok(seconds),
    }
}

fn client_port(flags: &Flags, gates: &Gates) -> Result<ClientPort, ConfigError> {
    let set = |name: &str| flags.list(name).into_iter().map(str::to_owned).collect();
    let streams = flags.number("max-concurrent-streams");
    let Ok(streams) = u32::try_from(streams) else {
        return refused(format!(
            "--max-concurrent-streams is {streams}: give at most {}",
            u32::MAX
        ));
    };
    let (interval, timeout) = ("grpc-keepalive-interval", "grpc-keepalive-timeout");
    let slow = "warning-unary-request-duration";
    Ok(ClientPort {
        max_concurrent_streams: Some(streams)
            .filter(|streams| *streams != u32::MAX && *streams != 0),
        // Either of the two disables both, as in etcd.
        keepalive: flags.duration(interval).zip(flags.duration(timeout)),
        watch_progress_interval: flags
            .duration("watch-progress-notify-interval")
            .unwrap_or(WATCH_PROGRESS)
            .max(LEAST_WATCH_PROGRESS),
        warn_unary: match flags.duration(slow) {
            Some(duration) => duration,
            None if flags.is_negative(slow) => Duration::ZERO,
            None => SLOW_REQUEST,
        },
        json_gateway: flags.bool("enable-grpc-gateway"),
        access: Access {
            hosts: set("host-whitelist"),
            origins: set("cors"),
        },
        extensive_metrics: flags.text("metrics") == "extensive",
        own_http2: gates.is_on("OwnHTTP2"),
        gates: gates.clone(),
    })
}

#[cfg(test)]
#[path = "config_test.rs"]
mod tests;
