//! Flags that say which cluster is saved, and how its members are reached.

use std::path::{Path, PathBuf};

use clap::Args;

use crate::backup::Error;
use crate::backup::source::{Access, Clients, Members, Source};
use crate::server::operator_api::auth::Key;

/// The cluster.
#[derive(Debug, Args)]
pub(super) struct Cluster {
    /// Client endpoints of the cluster, comma-separated.
    #[arg(
        long,
        env = "ETCDCTL_ENDPOINTS",
        value_delimiter = ',',
        default_value = "http://127.0.0.1:2379"
    )]
    endpoints: Vec<String>,
    /// PEM roots of the servers' certificates; by default those that this machine trusts.
    #[arg(long, env = "ETCDCTL_CACERT", value_name = "FILE")]
    cacert: Option<PathBuf>,
    /// PEM certificate of this client.
    #[arg(long, env = "ETCDCTL_CERT", value_name = "FILE", requires = "key")]
    cert: Option<PathBuf>,
    /// PEM key of this client.
    #[arg(long, env = "ETCDCTL_KEY", value_name = "FILE", requires = "cert")]
    key: Option<PathBuf>,
    /// User with the role root, as NAME:PASSWORD or with --password, if authentication is enabled.
    #[arg(long, env = "ETCDCTL_USER", hide_env_values = true)]
    user: Option<String>,
    /// Password of the user.
    #[arg(
        long,
        env = "ETCDCTL_PASSWORD",
        hide_env_values = true,
        requires = "user"
    )]
    password: Option<String>,
    /// Instead of client endpoints: HOST:PORT of peer ports, comma-separated, where an operator runs the members.
    /// Every address of a host is a member.
    #[arg(
        long,
        value_name = "HOST:PORT",
        value_delimiter = ',',
        requires = "member_key_file",
        conflicts_with_all = ["endpoints", "cacert", "cert", "key", "user", "password"]
    )]
    members: Vec<String>,
    /// File with the key of backups, which the operator makes for its Jobs.
    #[arg(long, value_name = "FILE", requires = "members")]
    member_key_file: Option<PathBuf>,
    /// PEM roots of the certificates of peer ports; without them no TLS is used.
    #[arg(long, value_name = "FILE", requires = "members")]
    member_cacert: Option<PathBuf>,
    /// MiB a second at most that the member writes to its disk for this, and then that are read from it: its clients wait
    /// for the same disk. By default it is as fast as it can be.
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u64).range(1..))]
    rate: Option<u64>,
}

/// The cluster, where only its peer ports will do.
#[derive(Debug, Args)]
pub(in crate::cli) struct MemberFlags {
    /// HOST:PORT of the members' peer ports, comma-separated. Every address of a host is a member.
    #[arg(long, value_name = "HOST:PORT", value_delimiter = ',', required = true)]
    members: Vec<String>,
    /// File with the key of these calls, which the operator makes for its Jobs.
    #[arg(long, value_name = "FILE")]
    member_key_file: PathBuf,
    /// PEM roots of the certificates of peer ports; without them no TLS is used.
    #[arg(long, value_name = "FILE")]
    member_cacert: Option<PathBuf>,
}

impl MemberFlags {
    pub(in crate::cli) fn members(self) -> Result<Members, Error> {
        members(self.members, &self.member_key_file, self.member_cacert)
    }
}

fn members(hosts: Vec<String>, key: &Path, roots: Option<PathBuf>) -> Result<Members, Error> {
    let roots = roots.map(|file| {
        std::fs::read_to_string(&file).map_err(|source| Error::File { path: file, source })
    });
    Ok(Members {
        hosts,
        key: Key::read(key).map_err(|error| Error::Key(error.to_string()))?,
        roots: roots.transpose()?,
    })
}

impl Cluster {
    pub(super) fn source(self) -> Result<Source, Error> {
        let rate = self.rate.map(|rate| rate << 20);
        let access = match self.members.is_empty() {
            true => Access::Clients(self.clients()?),
            false => Access::Members(self.members()?),
        };
        Ok(Source { access, rate })
    }

    fn members(self) -> Result<Members, Error> {
        // Required with them.
        let file = self.member_key_file.unwrap_or_default();
        members(self.members, &file, self.member_cacert)
    }

    fn clients(self) -> Result<Clients, Error> {
        let identity = match (&self.cert, &self.key) {
            (Some(certificate), Some(key)) => Some((read(certificate)?, read(key)?)),
            _ => None,
        };
        let user = match (self.user, self.password) {
            (Some(name), Some(password)) => Some((name, password)),
            (Some(both), None) => {
                let split = both.split_once(':');
                let (name, password) = split.ok_or_else(|| {
                    Error::Usage(
                        "--user without a password: give NAME:PASSWORD, or --password".to_owned(),
                    )
                })?;
                Some((name.to_owned(), password.to_owned()))
            }
            (None, _) => None,
        };
        Ok(Clients {
            endpoints: self.endpoints,
            ca: self.cacert.as_ref().map(read).transpose()?,
            identity,
            user,
            under_corrupt: false,
        })
    }
}

fn read(file: &PathBuf) -> Result<Vec<u8>, Error> {
    std::fs::read(file).map_err(|source| Error::File {
        path: file.clone(),
        source,
    })
}
