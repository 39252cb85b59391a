//! `--auto-tls` and `--peer-auto-tls`: self-signed certificates, created at the first start and
//! kept in the data directory, in etcd's paths.
//!
//! Never replaces a file: to get a new one, remove the old one.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;

use super::issue::{Validity, self_signed};
use crate::server::flags::config::{Config, TlsFiles};
use crate::server::flags::url::{ClientUrl, Endpoint};

/// Creates the missing certificates. The error names the file.
pub(in crate::server) fn make_missing(config: &Config) -> Result<(), String> {
    let clients = [
        &config.listen_client_urls,
        &config.listen_client_http_urls,
        &config.listen_metrics_urls,
    ];
    let clients = clients.into_iter().flatten().filter_map(ClientUrl::host);
    let peers = config.listen_peer_urls.iter().map(|url| url.host.as_str());
    for (files, listens, advertised) in [
        (
            &config.client_tls,
            clients.collect::<Vec<_>>(),
            &config.advertise_client_urls,
        ),
        (
            &config.peer_tls,
            peers.collect(),
            &config.advertise_peer_urls,
        ),
    ] {
        if let Some(files) = files
            && let Some(years) = files.self_signed_years
        {
            // A Unix socket has no host.
            let advertised = advertised
                .iter()
                .filter_map(|url| Some(Endpoint::parse(url).ok()?.host));
            let hosts: BTreeSet<String> = listens
                .into_iter()
                .map(str::to_owned)
                .chain(advertised)
                .filter(|host| !host.is_empty())
                .collect();
            make(files, hosts.into_iter().collect(), years)?;
        }
    }
    Ok(())
}

fn make(files: &TlsFiles, hosts: Vec<String>, years: u32) -> Result<(), String> {
    match (files.certificate.exists(), files.key.exists()) {
        (true, true) => return Ok(()),
        (false, false) => {}
        _ => {
            return Err(format!(
                "{} and {} belong together and one is missing: remove the other, and both are created again",
                files.certificate.display(),
                files.key.display()
            ));
        }
    }
    let failed = |error: &dyn std::fmt::Display| {
        format!("cannot make {}: {error}", files.certificate.display())
    };
    let now = jiff::Timestamp::try_from(
        std::time::UNIX_EPOCH + crate::server::process::clock::since_1970(),
    );
    let today = now.map_err(|error| failed(&error))?;
    let today = today.to_zoned(jiff::tz::TimeZone::UTC).date();
    // Clocks differ by hours, and time zones by a day.
    let from = today.yesterday().map_err(|error| failed(&error))?;
    let days = years.saturating_mul(365).saturating_add(1);
    let validity = Validity::days(from, days).map_err(|error| failed(&error))?;
    let issued = self_signed("quorate", &hosts, validity).map_err(|error| failed(&error))?;
    if let Some(folder) = files.certificate.parent() {
        let mut builder = std::fs::DirBuilder::new();
        builder.recursive(true).mode(0o700);
        builder.create(folder).map_err(|error| failed(&error))?;
    }
    write(&files.key, &issued.key, 0o600).map_err(|error| failed(&error))?;
    write(&files.certificate, &issued.certificate, 0o644).map_err(|error| failed(&error))?;
    tracing::info!(certificate = %files.certificate.display(), ?hosts, "made a certificate that vouches for itself");
    Ok(())
}

fn write(path: &Path, text: &str, mode: u32) -> std::io::Result<()> {
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create_new(true).mode(mode);
    options.open(path)?.write_all(text.as_bytes())
}
