//! Certificates that users create themselves and put into Secrets: a CA of their own, real
//! certificates, and every now and then the wrong ones.

use std::collections::BTreeSet;

use base64::Engine as _;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::api::{Kind, Patch, object};
use super::harness::containers::NAMESPACE;
use super::harness::world::World;
use crate::server::tls::issue::{Authority, Issued, Purpose, Validity};

const ACTOR: &str = "user";
const DAY_MS: u64 = 86_400_000;

/// Interval at which an operator at rest reads a Secret of the user, in milliseconds.
pub(crate) const READ_EVERY_MS: u64 = 30_000;

/// Number of Secrets that a resource names and the operator does not create, of Certificates that it requests, and of
/// ClusterTrustBundles that it asks for, and a list of what kubelets request: what is in no cache.
pub(crate) fn read_live(resource: &Value) -> usize {
    let name = |port: &str, field: &str| {
        let path = ["spec", "tls", port, field, "name"];
        Some(object::text(resource, &path).to_owned()).filter(|name| !name.is_empty())
    };
    let ports = ["client", "peer"].into_iter();
    let cert_manager =
        |port: &str| object::text(resource, &["spec", "tls", port, "source"]) == "CertManager";
    let asked = 2 * ports.clone().filter(|port| cert_manager(port)).count();
    let source = |port: &str| object::text(resource, &["spec", "tls", port, "source"]);
    let requests = ports.clone().any(|port| source(port) == "PodCertificate");
    let names = ports
        .flat_map(|port| ["certificateSecretRef", "caSecretRef"].map(|field| name(port, field)));
    let bundle = object::text(resource, &["spec", "tls", "publishCAs"]) == "ClusterTrustBundle";
    names.flatten().collect::<BTreeSet<String>>().len()
        + asked
        + BUNDLE_READS * usize::from(bundle)
        + usize::from(requests)
}

/// A ClusterTrustBundle is asked for in two versions, of which the first one is not served.
const BUNDLE_READS: usize = 2;

/// A user's own authority.
pub(crate) struct UserAuthority {
    authority: Authority,
    cluster: String,
    /// Its certificate, PEM.
    pub(crate) root: String,
}

impl UserAuthority {
    /// A new one, for this cluster.
    pub(crate) fn new(world: &World, cluster: &str) -> Self {
        let validity = validity(world, 3_650);
        let authority = Authority::new("their authority", validity, None);
        let authority = authority.expect("an authority of a plain name");
        let root = authority.issued().expect("its own certificate");
        Self {
            authority,
            cluster: cluster.to_owned(),
            root: root.certificate,
        }
    }

    /// A certificate for whatever member of the cluster, on both ports, for so many days from now.
    pub(crate) fn signed(&self, world: &World, days: u64) -> Issued {
        let cluster = &self.cluster;
        let mut names = vec![format!("*.{cluster}-peers"), format!("{cluster}-peers")];
        names.push(format!("{cluster}-client"));
        names.extend((0..9).map(|slot| format!("{cluster}-client-{slot}")));
        self.signed_for(world, days, &names)
    }

    /// Does cert-manager's work once: what every `Certificate` asks for goes into its Secret.
    pub(crate) fn issue(&self, world: &World, days: u64) {
        let asked: Vec<Value> = {
            let api = world.api.lock();
            let all = api.all(Kind::Certificate);
            all.map(|one| one["spec"].clone()).collect()
        };
        for spec in asked {
            let lists = ["dnsNames", "ipAddresses"].map(|list| spec[list].as_array());
            let names = lists.into_iter().flatten().flatten();
            let names: Vec<String> = names
                .filter_map(|one| Some(one.as_str()?.to_owned()))
                .collect();
            let signed = self.issued_for(world, days, &names);
            put_certificate(
                world,
                object::text(&spec, &["secretName"]),
                &signed,
                &self.root,
            );
        }
    }

    /// A certificate for these hosts of the namespace.
    pub(crate) fn signed_for(&self, world: &World, days: u64, names: &[String]) -> Issued {
        let full = |name: &String| format!("{name}.{NAMESPACE}.svc");
        let names: Vec<String> = names.iter().map(full).collect();
        self.issued_for(world, days, &names)
    }

    fn issued_for(&self, world: &World, days: u64, names: &[String]) -> Issued {
        let validity = validity(world, days);
        let signed = (self.authority).issue("members", names, Purpose::Member, validity);
        signed.expect("a certificate of plain names")
    }
}

fn validity(world: &World, days: u64) -> Validity {
    let at = |ms: u64| {
        let ms = i64::try_from(ms).unwrap_or(0);
        Timestamp::from_millisecond(ms).unwrap_or_default()
    };
    Validity {
        not_before: at(world.now_ms().saturating_sub(3_600_000)),
        not_after: at(world.now_ms() + days * DAY_MS),
    }
}

/// Puts a certificate, its key and those who are trusted into a Secret, there before or not.
pub(crate) fn put_certificate(world: &World, secret: &str, issued: &Issued, trusted: &str) {
    let texts = [
        ("tls.crt", issued.certificate.as_str()),
        ("tls.key", issued.key.as_str()),
        ("ca.crt", trusted),
    ];
    put(world, secret, "kubernetes.io/tls", &texts);
}

/// Puts those who are trusted alone into a Secret, there before or not.
pub(crate) fn put_trusted(world: &World, secret: &str, trusted: &str) {
    put(world, secret, "Opaque", &[("ca.crt", trusted)]);
}

fn put(world: &World, secret: &str, type_: &str, texts: &[(&str, &str)]) {
    let encoded = |text: &str| base64::engine::general_purpose::STANDARD.encode(text);
    let data: serde_json::Map<String, Value> = (texts.iter())
        .map(|(key, text)| ((*key).to_owned(), json!(encoded(text))))
        .collect();
    let mut api = world.api.lock();
    let id = (NAMESPACE, secret);
    let done = match api.get(Kind::Secret, NAMESPACE, secret) {
        Some(_) => api
            .patch(ACTOR, Kind::Secret, id, Patch::Merge(json!({"data": data})))
            .map(drop),
        None => {
            let object = json!({"apiVersion": "v1", "kind": "Secret", "type": type_,
                "metadata": {"name": secret, "namespace": NAMESPACE}, "data": data});
            api.create(ACTOR, Kind::Secret, object).map(drop)
        }
    };
    debug_assert!(done.is_ok(), "{done:?}");
}
