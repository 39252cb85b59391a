//! What people write: flags, variables, the configuration file, the resource of `quorate local`.

use std::collections::BTreeMap;

use quorate::crd::{parse, validate};
use quorate::server::config::Config;
use quorate::server::flags::Flags;
use quorate::server::url::Endpoint;
use quorate::server::{Machine, config_file};

/// Arguments, a line each; those that begin with `ETCD_` are variables.
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

/// The text of `--config-file`.
pub(crate) fn config_file(bytes: &[u8]) {
    if let Ok(text) = str::from_utf8(bytes)
        && let Ok(flags) = config_file::parse("a file", text)
    {
        judge(&flags);
    }
}

fn judge(flags: &Flags) {
    let machine = Machine {
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
