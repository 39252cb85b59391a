//! A secured cluster as its applications see it: three members under the names that the operator's Services have, with
//! certificates as the operator issues them, users, and connection Secrets in directories, as a kubelet mounts them.
//! What is in a Secret comes from the operator's own builder.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use quorate::build::{self, ConnectionContent};
use quorate::crd::access::{EtcdUser, UserConnection};
use quorate::crd::{TlsPort, ValidatedCluster, parse, validate};
use quorate::server::tls::issue::{Authority, Purpose, Validity};

use crate::address::address;
use crate::cluster::{Cluster, Kind};

/// The password before and after the Secret is renewed. Its whole content counts, whatever the characters.
pub(crate) const PASSWORDS: [&str; 2] = ["an \u{e4}: \"first\" one\n", "second"];

/// A cluster with authentication enabled, and what the operator knows of it.
pub(crate) struct World {
    pub(crate) cluster: Cluster,
    spec: ValidatedCluster,
    authority: Authority,
    home: tempfile::TempDir,
}

impl World {
    pub(crate) fn start(kind: Kind, peers: &Path) -> World {
        let home = tempfile::tempdir().expect("a directory");
        let mut cluster = Cluster::blank(kind, peers, 3);
        let addresses: Vec<String> = cluster.members.iter().map(|_| address()).collect();
        for (member, address) in cluster.members.iter_mut().zip(&addresses) {
            member.client = format!("{address}:2379");
        }
        let (spec, authority) = (spec(&addresses), authority());
        fs::write(home.path().join("hosts"), hosts(&spec, &addresses)).expect("written");
        let write = |folder: &Path| certificates(&spec, &authority, folder);
        // An election in the middle of a chapter would fail it on a busy machine: not every client retries.
        let flags = [
            "--client-cert-auth",
            "--bcrypt-cost=4",
            "--heartbeat-interval=200",
            "--election-timeout=2000",
            "--unsafe-no-fsync",
        ];
        let cluster = cluster.start_with_tls(write, &flags.map(str::to_owned));
        World {
            cluster,
            spec,
            authority,
            home,
        }
    }

    /// Adds a user who may do everything with keys below this one.
    pub(crate) fn add_user(&self, name: &str, password: Option<&str>, below: &str) {
        let password = match password {
            Some(password) => format!("--new-user-password={password}"),
            None => "--no-password".to_owned(),
        };
        for arguments in [
            &["user", "add", name, &password][..],
            &["role", "add", name],
            &[
                "role",
                "grant-permission",
                name,
                "readwrite",
                below,
                "--prefix",
            ],
            &["user", "grant-role", name, name],
        ] {
            self.cluster.must(0, arguments);
        }
    }

    /// Sets the password of a user that has one, as root; logins with the one before are worth nothing from then on.
    pub(crate) fn set_password(&self, name: &str, password: Option<&str>) {
        let Some(password) = password else { return };
        let arguments = ["user", "passwd", name, "--interactive=false"];
        let changed = self.cluster.ctl(0, &arguments, password);
        assert_eq!(changed.status, 0, "{changed:?}");
    }

    /// The members forget every login, as in a restart.
    pub(crate) fn forget_tokens(&self) {
        for arguments in [["auth", "disable"], ["auth", "enable"]] {
            self.cluster.must(0, &arguments);
        }
    }

    /// From then on requests need a user: root is one by its certificate.
    pub(crate) fn enable_authentication(&self) {
        for arguments in [
            &["user", "add", "root", "--no-password"][..],
            &["user", "grant-role", "root", "root"],
            &["auth", "enable"],
        ] {
            self.cluster.must(0, arguments);
        }
    }

    /// The file in which a program finds the names of the cluster's Services.
    pub(crate) fn hosts(&self) -> PathBuf {
        self.home.path().join("hosts")
    }

    /// Where a Secret is mounted.
    pub(crate) fn mount(&self, secret: &str) -> PathBuf {
        self.home.path().join(secret)
    }

    /// Mounts or updates the connection Secret of a user, with another certificate each time.
    pub(crate) fn write_secret(&self, secret: &str, user: &EtcdUser, password: Option<&str>) {
        self.write(secret, user, password, &self.authority);
    }

    /// The same with a CA that did not sign the members' certificates.
    pub(crate) fn write_other(&self, secret: &str, user: &EtcdUser, password: Option<&str>) {
        self.write(secret, user, password, &authority());
    }

    fn write(&self, secret: &str, user: &EtcdUser, password: Option<&str>, trusted: &Authority) {
        let name = user.spec.user_name.as_deref().expect("a name");
        let client = self.authority.issue(name, &[], Purpose::Client, validity());
        let client = client.expect("a certificate");
        let trusted = trusted.issued().expect("a certificate").certificate;
        let asked: Option<&UserConnection> = user.spec.connection.as_ref();
        let data = build::connection_data(ConnectionContent {
            cluster: &self.spec,
            user: name,
            secret,
            asked,
            authorities: Some(&trusted),
            password,
            certificate: Some((&client.certificate, &client.key)),
        });
        mount(&self.mount(secret), &data);
    }
}

/// Writes a Secret's data as a kubelet does: into a new folder, to which one link leads, and each name by that link.
fn mount(folder: &Path, data: &BTreeMap<String, String>) {
    fs::create_dir_all(folder).expect("a folder");
    let fresh = tempfile::Builder::new().prefix("..").tempdir_in(folder);
    let fresh = fresh.expect("a folder").keep();
    for (name, text) in data {
        fs::write(fresh.join(name), text).expect("written");
        if !folder.join(name).is_symlink() {
            symlink(Path::new("..data").join(name), folder.join(name)).expect("a link");
        }
    }
    let next = folder.join("..data_tmp");
    symlink(fresh.file_name().expect("a name"), &next).expect("a link");
    fs::rename(next, folder.join("..data")).expect("renamed");
}

/// A cluster whose certificates name these addresses too.
fn spec(addresses: &[String]) -> ValidatedCluster {
    let names = addresses.join(", ");
    let text = format!(
        "apiVersion: quorate.dev/v1alpha1\nkind: EtcdCluster\nmetadata: {{name: demo, namespace: prod, uid: u}}\n\
         spec: {{replicas: 3, storage: {{size: 1Gi}}, tls: {{client: {{extraSANs: [{names}]}}}}}}\n"
    );
    validate(&parse(&text).expect("it parses")).expect("it is valid")
}

/// The host of each Service, the client Service's at the first member and that of each slot at its own.
fn hosts(spec: &ValidatedCluster, addresses: &[String]) -> String {
    let host = |url: String| {
        let host = url.strip_prefix("https://").expect("TLS").to_owned();
        host.strip_suffix(":2379").expect("the port").to_owned()
    };
    let mut lines = vec![
        "127.0.0.1 localhost".to_owned(),
        format!("{} {}", addresses[0], host(build::client_endpoint(spec))),
    ];
    for (address, url) in addresses.iter().zip(build::slot_endpoints(spec)) {
        lines.push(format!("{address} {}", host(url)));
    }
    lines.join("\n") + "\n"
}

fn validity() -> Validity {
    Validity::days(
        jiff::Timestamp::now()
            .to_zoned(jiff::tz::TimeZone::UTC)
            .date(),
        90,
    )
    .expect("dates")
}

fn authority() -> Authority {
    Authority::new("demo client CA", validity(), None).expect("a CA")
}

/// Those of the members, and of root for etcdctl.
fn certificates(spec: &ValidatedCluster, authority: &Authority, folder: &Path) {
    let names = build::certificate_names(spec, "m0", TlsPort::Client);
    let member = authority.issue("demo", &names, Purpose::Member, validity());
    let root = authority.issue("root", &[], Purpose::Client, validity());
    let own = authority.issued().expect("a certificate");
    fs::write(folder.join("ca.crt"), own.certificate).expect("written");
    for (name, issued) in [("server", member), ("client", root)] {
        let issued = issued.expect("a certificate");
        fs::write(folder.join(format!("{name}.crt")), issued.certificate).expect("written");
        fs::write(folder.join(format!("{name}.key")), issued.key).expect("written");
    }
}
