//! `quorate certs`: a CA and the certificates of a cluster's members and clients, for hosts outside Kubernetes. Writes
//! new files only: existing files are never overwritten.

use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;

use crate::server::tls::issue::{Authority, Issued, Purpose, Validity};

/// Creates a certificate authority and certificates for a cluster's members and clients.
///
/// Writes ca.crt and ca.key, and for each --member NAME=HOST,... the files NAME/server.crt,
/// NAME/server.key, NAME/peer.crt, NAME/peer.key, and for each --client NAME the files
/// NAME.crt and NAME.key. Existing ca.crt and ca.key are used to sign new certificates.
#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// Directory for the files; created if it does not exist.
    #[arg(long, default_value = "certs")]
    out: PathBuf,
    /// A member and the host names and addresses at which it is dialled: NAME=HOST[,HOST...].
    #[arg(long = "member", value_name = "NAME=HOST,...")]
    members: Vec<String>,
    /// A client; the name is the certificate's common name, and thus the user name.
    #[arg(long = "client", value_name = "NAME")]
    clients: Vec<String>,
    /// Validity of the certificates in days.
    #[arg(long, default_value_t = 365, value_parser = clap::value_parser!(u32).range(1..))]
    days: u32,
    /// Validity of a new CA in days.
    #[arg(long, default_value_t = 3650, value_parser = clap::value_parser!(u32).range(1..))]
    ca_days: u32,
}

/// The CA's common name. It is in every certificate, so it never changes.
const AUTHORITY: &str = "quorate";
/// Local programs connect to a member here.
const LOOPBACK: [&str; 3] = ["localhost", "127.0.0.1", "::1"];

/// Runs the subcommand.
pub(super) fn run(arguments: &Arguments) -> ExitCode {
    match issue(arguments) {
        Ok(written) => {
            for path in written {
                println!("{}", path.display());
            }
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("quorate certs: {error}");
            ExitCode::FAILURE
        }
    }
}

fn issue(arguments: &Arguments) -> Result<Vec<PathBuf>, String> {
    if arguments.members.is_empty() && arguments.clients.is_empty() {
        return Err("nothing to make: give --member NAME=HOST,... or --client NAME".to_owned());
    }
    let members: Vec<(&str, Vec<String>)> = arguments
        .members
        .iter()
        .map(|text| member(text))
        .collect::<Result<_, _>>()?;
    for name in &arguments.clients {
        check_name(name)?;
    }
    let out = &arguments.out;
    // Clocks may differ by hours, and time zones by a day.
    let today = jiff::Timestamp::now()
        .to_zoned(jiff::tz::TimeZone::UTC)
        .date();
    let from = today.yesterday().map_err(|error| error.to_string())?;
    let validity =
        |days: u32| Validity::days(from, days.saturating_add(1)).map_err(|error| error.to_string());
    let (authority, mut files) = authority(out, validity(arguments.ca_days)?)?;
    let validity = validity(arguments.days)?;
    let issue = |name: &str, hosts: &[String], purpose| {
        let issued = authority.issue(name, hosts, purpose, validity);
        issued.map_err(|error| error.to_string())
    };
    for (name, hosts) in &members {
        let mut near = hosts.clone();
        near.extend(LOOPBACK.map(str::to_owned));
        near.dedup();
        let folder = out.join(name);
        files.push((folder.join("server"), issue(name, &near, Purpose::Member)?));
        files.push((folder.join("peer"), issue(name, hosts, Purpose::Member)?));
    }
    for name in &arguments.clients {
        files.push((out.join(name), issue(name, &[], Purpose::Client)?));
    }
    write_all(&files)
}

/// `NAME=HOST,...`.
fn member(text: &str) -> Result<(&str, Vec<String>), String> {
    let wrong = || format!("--member {text:?} must have the form NAME=HOST[,HOST...]");
    let (name, hosts) = text.split_once('=').ok_or_else(wrong)?;
    check_name(name)?;
    let hosts: Vec<String> = hosts
        .split(',')
        .map(|host| host.trim().to_owned())
        .filter(|host| !host.is_empty())
        .collect();
    if hosts.is_empty() {
        return Err(wrong());
    }
    if let Some(host) = hosts.iter().find(|host| host.contains(['/', ' '])) {
        return Err(format!(
            "--member {text:?}: {host:?} is no host name and no address: leave scheme and path out"
        ));
    }
    Ok((name, hosts))
}

/// A name is also a file name.
fn check_name(name: &str) -> Result<(), String> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    if name.is_empty() || name.starts_with('.') || !name.bytes().all(plain) || name == "ca" {
        return Err(format!(
            "{name:?} cannot be a name here: give letters, digits, '-', '_' and '.', and not \"ca\""
        ));
    }
    Ok(())
}

/// The CA in the directory, or a new one with the files to write for it.
fn authority(
    out: &Path,
    validity: Validity,
) -> Result<(Authority, Vec<(PathBuf, Issued)>), String> {
    let base = out.join("ca");
    let (certificate, key) = (base.with_extension("crt"), base.with_extension("key"));
    let made = |key: Option<&str>| {
        Authority::new(AUTHORITY, validity, key).map_err(|error| error.to_string())
    };
    match (certificate.exists(), key.exists()) {
        (false, false) => {
            let authority = made(None)?;
            let issued = authority.issued().map_err(|error| error.to_string())?;
            Ok((authority, vec![(base, issued)]))
        }
        (true, true) => {
            let text = std::fs::read_to_string(&key)
                .map_err(|error| format!("cannot read {}: {error}", key.display()))?;
            let authority = made(Some(&text))?;
            check_fits(&authority, &certificate)?;
            Ok((authority, Vec::new()))
        }
        _ => Err(format!(
            "{} and {} belong together and one is missing: put it back, or give another --out",
            certificate.display(),
            key.display()
        )),
    }
}

/// What the key signs must verify against the existing certificate.
fn check_fits(authority: &Authority, certificate: &Path) -> Result<(), String> {
    use rustls_pki_types::CertificateDer;
    use rustls_pki_types::pem::PemObject as _;
    let read = |error: String| format!("cannot read {}: {error}", certificate.display());
    let there = CertificateDer::from_pem_file(certificate).map_err(|e| read(e.to_string()))?;
    let own = authority.issued().map_err(|error| error.to_string())?;
    let own = CertificateDer::from_pem_slice(own.certificate.as_bytes())
        .map_err(|error| error.to_string())?;
    let anchor = |der: &CertificateDer<'_>| {
        let mut roots = rustls::RootCertStore::empty();
        roots
            .add(der.clone().into_owned())
            .map_err(|error| read(error.to_string()))?;
        let root = roots
            .roots
            .first()
            .ok_or_else(|| read("it is no root".to_owned()))?;
        Ok::<_, String>((root.subject.to_vec(), root.subject_public_key_info.to_vec()))
    };
    if anchor(&there)? == anchor(&own)? {
        return Ok(());
    }
    Err(format!(
        "{} was not created with the ca.key next to it: choose another --out",
        certificate.display()
    ))
}

/// Writes every pair, or nothing if one of the files exists.
fn write_all(files: &[(PathBuf, Issued)]) -> Result<Vec<PathBuf>, String> {
    let named = |base: &Path, end: &str| {
        let mut name = base.as_os_str().to_owned();
        name.push(end);
        PathBuf::from(name)
    };
    let all: Vec<(PathBuf, &str, u32)> = files
        .iter()
        .flat_map(|(base, issued)| {
            [
                (named(base, ".crt"), issued.certificate.as_str(), 0o644),
                (named(base, ".key"), issued.key.as_str(), 0o600),
            ]
        })
        .collect();
    if let Some((there, _, _)) = all.iter().find(|(path, _, _)| path.exists()) {
        return Err(format!(
            "{} exists and is not overwritten: move it away, or give another --out",
            there.display()
        ));
    }
    for (path, text, mode) in &all {
        let failed = |error| format!("cannot write {}: {error}", path.display());
        if let Some(folder) = path.parent() {
            let mut builder = std::fs::DirBuilder::new();
            builder.recursive(true).mode(0o755);
            builder.create(folder).map_err(failed)?;
        }
        let mut options = std::fs::OpenOptions::new();
        options.write(true).create_new(true).mode(*mode);
        let mut file = options.open(path).map_err(failed)?;
        file.write_all(text.as_bytes()).map_err(failed)?;
    }
    Ok(all.into_iter().map(|(path, _, _)| path).collect())
}
