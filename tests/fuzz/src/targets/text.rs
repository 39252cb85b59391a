//! Text from users: flags, variables, the configuration file, the resource and the records of `quorate local`, keys
//! and certificates; and tokens and signatures from callers.

use std::collections::BTreeMap;

use quorate::crd::{EtcdClusterStatus, parse, validate};
use quorate::operator::local::home::{PvcRecord, State};
use quorate::plan::status_memory;
use quorate::server::HostFacts;
use quorate::server::decoders;
use quorate::server::flags::Flags;
use quorate::server::flags::config::Config;
use quorate::server::flags::file;
use quorate::server::flags::url::Endpoint;
use quorate::server::tls::certificates::{Certificate, Chain};

use super::choice;

/// Arguments, one per line; lines that begin with `ETCD_` are environment variables.
pub(crate) fn flags(bytes: &[u8]) {
    let Ok(text) = str::from_utf8(bytes) else {
        return;
    };
    let mut arguments = Vec::new();
    let mut environment = BTreeMap::new();
    for line in text.lines() {
        match line.split_once('=') {
            Some((name, value)) if name.starts_with("ETCD_") => {
                environment.insert(name.to_owned(), value.to_owned());
            }
            _ => arguments.push(line.to_owned()),
        }
        if let Ok(url) = Endpoint::parse(line) {
            assert_eq!(Endpoint::parse(&url.to_string()), Ok(url));
        }
    }
    if let Ok(flags) = Flags::parse(&arguments, &environment) {
        judge(&flags);
    }
}

/// The content of the file given by `--config-file`.
pub(crate) fn config_file(bytes: &[u8]) {
    if let Ok(text) = str::from_utf8(bytes)
        && let Ok(flags) = file::parse("a file", text)
    {
        judge(&flags);
    }
}

fn judge(flags: &Flags) {
    let machine = HostFacts {
        memory_limit: Some(1 << 30),
    };
    if let Ok(config) = Config::from_flags(flags, machine) {
        let _ = config.check_initial_cluster();
        let _ = (config.election_ticks(), config.request_timeout());
    }
}

/// The YAML of an `EtcdCluster`.
pub(crate) fn cluster(bytes: &[u8]) {
    let Ok(text) = str::from_utf8(bytes) else {
        return;
    };
    if let Ok(mut cluster) = parse(text) {
        cluster.metadata.name = Some("name".to_owned());
        cluster.metadata.namespace = Some("namespace".to_owned());
        cluster.metadata.uid = Some("uid".to_owned());
        let _ = validate(&cluster);
    }
}

/// The first byte selects a token, claims to be signed, a key, the signature of a call, or its parts.
pub(crate) fn tokens(bytes: &[u8]) {
    let Some((mode, bytes)) = choice(bytes) else {
        return;
    };
    let (kind, sealed) = (mode & 3, mode & 4 != 0);
    if kind == 2 {
        let _ = decoders::key(mode >> 3, sealed, bytes);
        return;
    }
    let Ok(text) = str::from_utf8(bytes) else {
        return;
    };
    if kind == 3 {
        let _ = decoders::proof(sealed, text);
    } else {
        let _ = decoders::token(sealed, text);
    }
}

/// The first byte selects one certificate, which is displayed, or a file of several. What is decoded is encoded, and
/// decoded to the same value.
pub(crate) fn certificates(bytes: &[u8]) {
    let Some((mode, bytes)) = choice(bytes) else {
        return;
    };
    let read: Vec<Certificate> = match (mode & 1, str::from_utf8(bytes)) {
        (0, _) => Certificate::of_der(bytes).into_iter().collect(),
        (_, Ok(text)) => Certificate::all(text).unwrap_or_default(),
        (_, Err(_)) => return,
    };
    if read.is_empty() {
        return;
    }
    let text: String = read.iter().map(Certificate::pem).collect();
    assert_eq!(Certificate::all(&text).unwrap(), read);
    let chain = Chain::read(&text).unwrap();
    assert_eq!(chain.leaf, read[0]);
    let _ = chain.leads_to(&read);
    assert!(!chain.fits("no key"));
}

/// Records of a local cluster; they contain the resource and its status.
pub(crate) fn records(bytes: &[u8]) {
    let Some((mode, bytes)) = choice(bytes) else {
        return;
    };
    if mode & 1 == 0 {
        if let Ok(claim) = PvcRecord::read(bytes) {
            let again = serde_json::to_vec(&claim).unwrap();
            assert_eq!(PvcRecord::read(&again).unwrap(), claim);
        }
        return;
    }
    let Ok(mut state) = State::read(bytes) else {
        return;
    };
    let status: EtcdClusterStatus = serde_json::from_value(state.status.take()).unwrap_or_default();
    let _ = status_memory::of_status(&status);
    // Fractions may be rounded; neither a specification nor a status contains any.
    state.spec.take();
    let again = serde_json::to_vec(&state).unwrap();
    assert_eq!(State::read(&again).unwrap(), state);
}
