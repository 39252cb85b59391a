//! Users identified by the common name of their client certificate.

use std::path::Path;
use std::thread;

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
};

use crate::cluster::{Cluster, Kind};
use crate::process::peers;
use crate::story::ours;

/// Writes a CA, a server certificate, and a client certificate for each of these names; `client` has the name root.
fn certificates(directory: &Path) {
    let write = |name: &str, text: String| {
        std::fs::write(directory.join(name), text).expect("written");
    };
    let key = KeyPair::generate().expect("a key");
    let mut parameters = CertificateParams::default();
    parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let root = parameters.self_signed(&key).expect("a root");
    write("ca.crt", root.pem());
    let issuer = Issuer::new(parameters, key);
    for (file, name) in [
        ("server", "server"),
        ("client", "root"),
        ("alice", "alice"),
        ("eve", "eve"),
    ] {
        let key = KeyPair::generate().expect("a key");
        let names = vec!["127.0.0.1".to_owned(), "localhost".to_owned()];
        let mut parameters = CertificateParams::new(names).expect("parameters");
        parameters.distinguished_name.push(DnType::CommonName, name);
        parameters.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        let certificate = parameters.signed_by(&key, &issuer).expect("signed");
        write(&format!("{file}.crt"), certificate.pem());
        write(&format!("{file}.key"), key.serialize_pem());
    }
}

fn run_story(kind: Kind, peers: &Path, extra: &[&str]) -> Vec<String> {
    let mut flags = vec!["--bcrypt-cost=4".to_owned()];
    flags.extend(extra.iter().map(|flag| (*flag).to_owned()));
    let cluster = Cluster::start_secured(kind, peers, certificates, &flags);
    for arguments in [
        &["user", "add", "root", "--no-password"][..],
        &["user", "grant-role", "root", "root"],
        &["user", "add", "alice:pw"],
        &["role", "add", "some"],
        &["role", "grant-permission", "some", "read", "a"],
        &["user", "grant-role", "alice", "some"],
        &["put", "a", "1"],
        &["put", "b", "1"],
        &["auth", "enable"],
    ] {
        cluster.must(0, arguments);
    }
    let mut notes = Vec::new();
    for who in ["client", "alice", "eve"] {
        let cert = format!("--cert={}", cluster.file(&format!("{who}.crt")));
        let key = format!("--key={}", cluster.file(&format!("{who}.key")));
        for arguments in [
            &["get", "a"][..],
            &["get", "b"],
            &["put", "a", "2"],
            &["user", "list"],
            &["user", "get", "alice"],
            &["--user=alice:pw", "get", "a"],
            &["--user=alice:pw", "get", "b"],
            &["--user=root:pw", "get", "b"],
        ] {
            let mut all = vec![cert.as_str(), key.as_str()];
            all.extend(arguments);
            let answer = cluster.ctl(0, &all, "");
            let error = answer.stderr.lines().last().unwrap_or_default();
            let result = format!("{} {:?} {error}", answer.status, answer.stdout);
            notes.push(format!("{who} {arguments:?}: {result}"));
        }
    }
    // No request follows, because the addition changes the quorum.
    for who in ["alice", "client"] {
        let cert = format!("--cert={}", cluster.file(&format!("{who}.crt")));
        let key = format!("--key={}", cluster.file(&format!("{who}.key")));
        let url = "--peer-urls=http://127.0.0.1:1";
        let add = [cert.as_str(), key.as_str(), "member", "add", "second", url];
        let answer = cluster.ctl(0, &add, "");
        let word = answer.stdout.split(' ').next().unwrap_or_default();
        let error = answer.stderr.lines().last().unwrap_or_default();
        notes.push(format!(
            "{who} adds a voter: {} {word} {error}",
            answer.status
        ));
    }
    notes
}

fn compare(test: &str, extra: &[&str]) {
    let Some(peers) = peers(test) else { return };
    let (ours, theirs) = thread::scope(|scope| {
        let theirs = scope.spawn(|| run_story(Kind::Etcd, &peers, extra));
        let ours = run_story(ours(), &peers, extra);
        (
            ours,
            theirs
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
        )
    });
    for (ours, theirs) in ours.iter().zip(&theirs) {
        assert_eq!(ours, theirs, "ours on the left, etcd's on the right");
    }
    assert_eq!(ours.len(), theirs.len());
}

#[test]
fn a_certificates_name_is_a_user() {
    compare("a_certificates_name_is_a_user", &["--client-cert-auth"]);
}
