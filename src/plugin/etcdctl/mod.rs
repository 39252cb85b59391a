//! `kubectl quorate etcdctl`: the user's own etcdctl with a cluster's endpoints and certificates, by `kubectl port-forward`.
//! The members are verified as ever: their certificates have the name 127.0.0.1. What was started and written ends and
//! goes with this process, also after an error or a signal (but SIGKILL), and nothing is changed but by what etcdctl is told.

mod files;
mod forward;
mod reach;
#[cfg(test)]
mod reach_test;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::process::{Command, ExitCode, ExitStatus};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use k8s_openapi::api::core::v1::Secret;
use kube_core::ResourceExt as _;

use super::Which;
use super::ask;
use super::child::endless;
use super::error::Error;
use super::system;
use super::warn;
use crate::build::{CA_CERTIFICATES, CERTIFICATE, CERTIFICATE_KEY};
use files::{Certificates, Files};
use forward::Forward;
use reach::Trust;

/// How long kubectl may take until it listens.
const PATIENCE: Duration = Duration::from_secs(20);

/// Variables by which a user may have told etcdctl of another cluster, or not to verify one. ETCDCTL_USER and others that
/// say who asks, or how, stay.
const NOT_INHERITED: &[&str] = &[
    "ETCDCTL_CACERT",
    "ETCDCTL_CERT",
    "ETCDCTL_KEY",
    "ETCDCTL_DISCOVERY_SRV",
    "ETCDCTL_DISCOVERY_SRV_NAME",
    "ETCDCTL_INSECURE_DISCOVERY",
    "ETCDCTL_INSECURE_SKIP_TLS_VERIFY",
    "ETCDCTL_INSECURE_TRANSPORT",
];

/// Runs your etcdctl against a cluster, with its endpoints and certificates.
#[derive(Debug, Args)]
pub(super) struct Etcdctl {
    /// Name of the EtcdCluster.
    name: String,
    /// Use this member, ready or not; may be given several times. By default all ready voters. What is of one member
    /// alone, such as `snapshot save`, needs it.
    #[arg(long)]
    member: Vec<String>,
    /// The Secret with tls.crt and tls.key of the client, in the namespace of the cluster. By default the one that the
    /// operator made.
    #[arg(long, value_name = "SECRET")]
    client_secret: Option<String>,
    #[command(flatten)]
    which: Which,
    /// What etcdctl is given, after `--`.
    #[arg(last = true, required = true, value_name = "ARGUMENTS")]
    arguments: Vec<OsString>,
}

/// Flags of etcdctl that say where the cluster is and how it is verified: this sets their variables, and etcdctl refuses
/// both.
const SET_HERE: &[&str] = &["--endpoints", "--cacert", "--cert", "--key"];

/// What happens meanwhile.
enum Event {
    /// kubectl with this number listens at this port.
    Listens(usize, u16),
    /// kubectl with this number has ended.
    Ended(usize),
    /// etcdctl has ended.
    Done(std::io::Result<ExitStatus>),
    /// This process was asked to end.
    Stop,
}

/// Runs it, and returns etcdctl's exit code.
pub(super) fn run(asked: &Etcdctl) -> Result<ExitCode, Error> {
    if let Some(flag) = set_here(&asked.arguments) {
        return Err(Error::SetHere(flag));
    }
    let which = &asked.which;
    let cluster = ask::cluster(which, Some(&asked.name))?;
    let namespace = cluster.namespace().unwrap_or_default();
    let pods = ask::member_pods(which, &cluster)?;
    let reach = reach::reach(&cluster, &pods, &asked.member)?;
    let trust = reach::trust(&cluster, reach.tls, asked.client_secret.as_deref())?;
    // From here on a signal ends nothing by itself, so that what follows is cleaned up.
    let (sender, events) = channel();
    let stop = sender.clone();
    system::when_asked_to_end(move || drop(stop.send(Event::Stop))).map_err(Error::NoSignals)?;
    let certificates = trust.map(|trust| certificates(which, &namespace, &trust));
    let files = certificates.transpose()?;
    let files = files.as_ref().map(Files::of).transpose()?;
    let mut forwards = Vec::new();
    for (number, pod) in reach.pods.iter().enumerate() {
        let kubectl = endless(which, "port-forward", &namespace);
        forwards.push(Forward::start(kubectl, pod, number, &sender)?);
    }
    let ports = listening(&forwards, &events)?;
    let mut etcdctl = Command::new("etcdctl");
    etcdctl.args(&asked.arguments);
    prepare(&mut etcdctl, &ports, files.as_ref());
    let status = wait_for(etcdctl, sender, &events)?;
    Ok(ExitCode::from(system::code(status)))
}

/// The first of these flags; what follows another `--` is no flag.
fn set_here(arguments: &[OsString]) -> Option<&'static str> {
    let words = arguments.iter().filter_map(|word| word.to_str());
    let mut names = words
        .take_while(|word| *word != "--")
        .filter_map(|word| word.split('=').next());
    names.find_map(|name| SET_HERE.iter().copied().find(|flag| *flag == name))
}

/// The certificates of these Secrets.
fn certificates(which: &Which, namespace: &str, trust: &Trust) -> Result<Certificates, Error> {
    let secret = ask::secret(which, namespace, &trust.authorities)?;
    let authorities = part(&secret, CA_CERTIFICATES)?;
    let Some(name) = &trust.identity else {
        let identity = None;
        return Ok(Certificates {
            authorities,
            identity,
        });
    };
    let own = match *name == trust.authorities {
        true => secret,
        false => ask::secret(which, namespace, name)?,
    };
    let identity = Some((part(&own, CERTIFICATE)?, part(&own, CERTIFICATE_KEY)?));
    Ok(Certificates {
        authorities,
        identity,
    })
}

fn part(secret: &Secret, key: &str) -> Result<Vec<u8>, Error> {
    let data = secret.data.as_ref().and_then(|data| data.get(key));
    let data = data.filter(|bytes| !bytes.0.is_empty());
    let missing = || Error::IncompleteSecret(secret.name_any(), key.to_owned());
    Ok(data.ok_or_else(missing)?.0.clone())
}

/// Waits until every kubectl listens or has ended. Returns the ports; the user is told of members that are left out.
fn listening(forwards: &[Forward], events: &Receiver<Event>) -> Result<Vec<u16>, Error> {
    let mut ports: BTreeMap<usize, u16> = BTreeMap::new();
    let mut ended = Vec::new();
    let until = Instant::now() + PATIENCE;
    while ports.len() + ended.len() < forwards.len() {
        let left = until.saturating_duration_since(Instant::now());
        match events.recv_timeout(left) {
            Ok(Event::Listens(number, port)) => drop(ports.insert(number, port)),
            Ok(Event::Ended(number)) => {
                ports.remove(&number);
                ended.push(number);
            }
            Ok(Event::Stop) => return Err(Error::Stopped),
            Ok(Event::Done(_)) => {}
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => break,
        }
    }
    let silent = forwards.iter().enumerate();
    let silent = silent.filter(|(number, _)| !ports.contains_key(number));
    let silent: Vec<String> = silent.map(|(_, forward)| why(forward)).collect();
    if ports.is_empty() {
        return Err(Error::NoForward(silent.join("; ")));
    }
    for words in silent {
        warn(&format!("kubectl quorate: left out {words}\n"));
    }
    Ok(ports.into_values().collect())
}

fn why(forward: &Forward) -> String {
    let words = forward.words();
    let words = match words.is_empty() {
        true => "kubectl port-forward did not listen in time",
        false => &words,
    };
    format!("{}: {words}", forward.pod)
}

/// Tells etcdctl where to connect.
fn prepare(etcdctl: &mut Command, ports: &[u16], files: Option<&Files>) {
    for name in NOT_INHERITED {
        etcdctl.env_remove(name);
    }
    let scheme = if files.is_some() { "https" } else { "http" };
    let endpoint = |port: &u16| format!("{scheme}://127.0.0.1:{port}");
    let endpoints: Vec<String> = ports.iter().map(endpoint).collect();
    etcdctl.env("ETCDCTL_ENDPOINTS", endpoints.join(","));
    let Some(files) = files else {
        return;
    };
    etcdctl.env("ETCDCTL_CACERT", &files.authorities);
    if let Some((certificate, key)) = &files.identity {
        etcdctl.env("ETCDCTL_CERT", certificate);
        etcdctl.env("ETCDCTL_KEY", key);
    }
}

/// Runs etcdctl to its end. Asked to stop, it passes that on, since a signal may be to this process alone.
fn wait_for(
    mut etcdctl: Command,
    sender: Sender<Event>,
    events: &Receiver<Event>,
) -> Result<ExitStatus, Error> {
    let mut child = etcdctl.spawn().map_err(Error::NoEtcdctl)?;
    let process = child.id();
    thread::spawn(move || drop(sender.send(Event::Done(child.wait()))));
    loop {
        match events.recv() {
            Ok(Event::Done(status)) => return status.map_err(Error::NoEtcdctl),
            Ok(Event::Stop) => system::ask_to_end(process),
            // etcdctl itself says which endpoint it cannot reach any more.
            Ok(Event::Listens(..) | Event::Ended(_)) => {}
            Err(_) => return Err(Error::Stopped),
        }
    }
}
