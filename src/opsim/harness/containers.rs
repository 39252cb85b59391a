//! Between the simulated Kubernetes and the simulated servers: notifies servers which containers run,
//! and kubelets what the servers in them do.

use base64::Engine as _;

use crate::crd::{LABEL_CLUSTER_UID, TlsPort, bytes_of};
use crate::opsim::api::{self, Kind, object};
use crate::opsim::kube::{Class, Kube, Process, Running};
use crate::opsim::servers::{Container, Health, Servers, Texts};
use crate::opsim::work::Work;

/// The namespace that everything lives in.
pub(crate) const NAMESPACE: &str = "default";

/// Nodes and controllers, with three nodes and two classes of volumes.
pub(crate) struct Containers {
    pub(crate) kube: Kube,
    /// The API server's revision and the kubelets' turn that servers were last notified of.
    notified: (u64, u64),
    /// The Secrets that servers were last notified of, with their versions.
    mounted: Vec<(String, String)>,
}

impl Containers {
    pub(crate) fn new(api: &api::SharedApiServer, tie: u64) -> Self {
        let mut kube = Kube::new(api.clone());
        kube.set_tie(tie);
        let network = Class {
            default: true,
            grows: true,
            ..Class::default()
        };
        let local = Class {
            node_bound: true,
            grows: true,
            ..Class::default()
        };
        kube.add_class("standard", network);
        kube.add_class("local", local);
        for node in ["node-a", "node-b", "node-c"] {
            kube.add_node(node, "zone-1");
        }
        Self {
            kube,
            notified: (0, 0),
            mounted: Vec::new(),
        }
    }

    /// Everything that can be done now. Returns whether anything changed.
    pub(crate) fn step(&mut self, servers: &mut Servers, work: &mut Work) -> bool {
        let changed = self.kube.step() | self.work(servers, work);
        for (uid, starts, health) in servers.health() {
            let process = match health {
                Health::Runs(ready) => Process::Ready(ready),
                Health::Ended(code, message) => Process::Exited { code, message },
            };
            // Nothing is reported of an earlier start.
            if self.kube.starts(&uid) == Some(starts) {
                self.kube.report(&uid, &process);
            }
        }
        let now = (self.kube.api().lock().revision(), self.kube.turn());
        if now == self.notified {
            return changed;
        }
        self.notified = now;
        self.mount_keys(servers);
        self.mount_certificates(servers);
        let running = self.kube.running();
        // A server ends at once in a pod that is not its member's.
        let own = running.iter().filter(|one| {
            let expected = format!("--expected-hostname={}", one.pod);
            one.args.contains(&expected)
        });
        servers.run(own.map(container).collect());
        let api = self.kube.api().lock();
        let volumes = || api.all(Kind::PersistentVolume);
        servers.keep_only(&volumes().map(|one| object::name(one).to_owned()).collect());
        let size = |volume: &std::sync::Arc<serde_json::Value>| {
            let bytes = bytes_of(object::text(volume, &["spec", "capacity", "storage"]));
            (object::name(volume).to_owned(), bytes.unwrap_or(0))
        };
        servers.sizes = volumes().map(size).collect();
        changed
    }

    /// What runs in the containers of Jobs goes on. Returns whether anything runs.
    fn work(&mut self, servers: &mut Servers, work: &mut Work) -> bool {
        let any = self.kube.api().lock().all(Kind::Job).next().is_some();
        if !any && !work.is_busy() {
            return false;
        }
        let running = self.kube.running();
        let ended = work.step(&running, &self.kube.api().lock(), servers);
        for (uid, process) in &ended {
            self.kube.report(uid, process);
        }
        work.is_busy()
    }

    fn mount_certificates(&mut self, servers: &mut Servers) {
        let api = self.kube.api().lock();
        let version = |secret: &std::sync::Arc<serde_json::Value>| {
            let version = object::text(secret, &["metadata", "resourceVersion"]);
            (object::name(secret).to_owned(), version.to_owned())
        };
        let signed = self.kube.pod_certificates();
        let signed = signed.map(|(name, (chain, trusted))| (name, format!("{chain}{trusted}")));
        let now: Vec<_> = (api.all(Kind::Secret).map(version)).chain(signed).collect();
        if now == self.mounted {
            return;
        }
        let of = |secret: &std::sync::Arc<serde_json::Value>| {
            let texts = Texts {
                certificate: text(secret, "tls.crt"),
                trusted: text(secret, "ca.crt"),
            };
            (object::name(secret).to_owned(), texts)
        };
        let signed = self
            .kube
            .pod_certificates()
            .map(|(name, (chain, trusted))| {
                let (certificate, trusted) = (chain.to_owned(), trusted.to_owned());
                let texts = Texts {
                    certificate,
                    trusted,
                };
                (name, texts)
            });
        let all = api.all(Kind::Secret).map(of).chain(signed);
        servers.mount(
            all.filter(|(_, texts)| *texts != Texts::default())
                .collect(),
        );
        drop(api);
        self.mounted = now;
    }

    /// Members read the operator's key from a mounted Secret, which changes with it.
    fn mount_keys(&self, servers: &mut Servers) {
        let api = self.kube.api().lock();
        for secret in api.all(Kind::Secret) {
            let uid = object::label(secret, LABEL_CLUSTER_UID);
            let key = object::text(secret, &["data", "key"]);
            if let (Some(uid), false) = (uid, key.is_empty()) {
                let engine = base64::engine::general_purpose::STANDARD;
                let key = engine.decode(key).unwrap_or_default();
                servers.keys.insert(uid.to_owned(), key);
            }
        }
    }
}

/// A text of a Secret.
pub(crate) fn text(secret: &serde_json::Value, key: &str) -> String {
    let encoded = object::text(secret, &["data", key]);
    let engine = base64::engine::general_purpose::STANDARD;
    let bytes = engine.decode(encoded).unwrap_or_default();
    String::from_utf8(bytes).unwrap_or_default()
}

/// A server's container, as its arguments describe it.
fn container(one: &Running) -> Container {
    let argument = |name: &str| {
        let mut found = one.args.iter().filter_map(|text| {
            let value = text.strip_prefix(name)?.strip_prefix('=')?;
            Some(value.to_owned())
        });
        found.next().unwrap_or_default()
    };
    let version = one.image.rsplit_once(':').map_or("", |(_, tag)| tag);
    Container {
        name: argument("--name"),
        pod_uid: one.uid.clone(),
        ip: one.address.clone(),
        node: one.node.clone(),
        volume: one.volume.clone(),
        cluster_uid: argument("--cluster-uid"),
        peer_url: argument("--initial-advertise-peer-urls"),
        client_url: argument("--advertise-client-urls"),
        version: version.to_owned(),
        starts: one.starts,
        stopping: one.stops_at_ms.is_some(),
        connected: one.connected,
        plaintext_peers: one.args.iter().any(|text| text == "--peer-tls-transition"),
        tls: argument("--listen-peer-urls").starts_with("https://"),
        secrets: TlsPort::ALL
            .into_iter()
            .filter_map(|port| {
                let all = one.secrets.get(&format!("{}-tls", port.as_str()))?;
                Some((port, (all.first()?.clone(), all.last()?.clone())))
            })
            .collect(),
    }
}
