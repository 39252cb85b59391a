//! The loop of `quorate local`: reconciles of one cluster until it is stopped. Reads the file
//! again when it changes; keeps processes running; stops them in order at the end.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;

use super::console::table;
use super::home::{self, Home};
use super::platform::Local;
use super::shown::Shown;
use crate::crd::{EtcdCluster, MemberRole, ParseError, parse};
use crate::operator::console;
use crate::operator::queue::Ended;
use crate::operator::reconcile::{Rules, reconcile};

/// The longest wait between two reconciles at rest: an edit of the file is seen within it.
const WATCH: Duration = Duration::from_millis(500);
/// The same while something is under way.
const BUSY: Duration = Duration::from_millis(150);
/// Pause after a failed reconcile.
const FAILED: Duration = Duration::from_secs(1);

/// What went wrong before anything ran.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// A file cannot be written.
    #[error("cannot write {}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The file is no valid resource.
    #[error("{}", path.display())]
    Parse {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        #[source]
        source: ParseError,
    },
    /// The resource has no name.
    #[error("{} has no metadata.name: give the cluster a name", .0.display())]
    NoName(PathBuf),
    /// The directory cannot be used.
    #[error("cannot keep the cluster's directory")]
    Home(#[from] home::Error),
    /// The running program cannot be found.
    #[error("cannot find this program's own file, which runs the members")]
    Program(#[source] std::io::Error),
    /// There can be no console.
    #[error(transparent)]
    Console(#[from] console::Error),
    /// Signals cannot be received.
    #[error("cannot listen for signals")]
    Signals(#[source] std::io::Error),
}

/// How often to look again whether a port is free, and the time in between.
const PORT_LOOKS: u32 = 20;
const PORT_PAUSE: Duration = Duration::from_millis(100);

/// What to run and where.
#[derive(Clone, Debug)]
pub struct Options {
    /// The file with the resource.
    pub file: PathBuf,
    /// Where data and records are kept.
    pub directory: PathBuf,
    /// Where the search for free ports begins.
    pub base_port: u16,
    /// The client port of the member with the number 1; those of the others follow. `None`: they are searched for too.
    pub client_port: Option<u16>,
    /// Where the console is served, if it is: a loopback address.
    pub console: Option<SocketAddr>,
}

/// A cluster with what the loop needs around it.
#[derive(Debug)]
pub struct Runner {
    /// The cluster.
    pub local: Local,
    changed: Arc<Notify>,
    /// The text of the file as last read.
    text: String,
    file: PathBuf,
}

impl Runner {
    /// Opens the directory and reads the file. Starts nothing yet.
    pub fn open(options: &Options) -> Result<Self, Error> {
        let (text, cluster) = read(&options.file)?;
        let name = cluster.metadata.name.clone().unwrap_or_default();
        if name.is_empty() {
            return Err(Error::NoName(options.file.clone()));
        }
        // Before anything is made.
        let console = options.console.map(Shown::serve).transpose()?;
        let mut home = Home::open(&options.directory, &name, options.base_port)?;
        if let Some(first) = options.client_port {
            home.fix_client_ports(first);
        }
        let program = std::env::current_exe().map_err(Error::Program)?;
        let changed = Arc::new(Notify::new());
        let mut local = Local::new(home, program, cluster, changed.clone())?;
        if let Some((shown, address)) = console {
            local.console.print(&format!("console: http://{address}/"));
            local.shown = Some(shown);
        }
        Ok(Self {
            local,
            changed,
            text,
            file: options.file.clone(),
        })
    }

    /// One reconcile, then a wait until the next is due or something changed.
    pub async fn turn(&mut self) -> Result<(), home::Error> {
        self.follow_file()?;
        let entropy = uuid::Uuid::new_v4().simple().to_string();
        let ended = reconcile(&mut self.local, Rules::SHIPPED, &entropy).await;
        self.local.show();
        let wait = match ended {
            Ended::After(wait_ms) => {
                Duration::from_millis(wait_ms).min(if self.local.at_rest { WATCH } else { BUSY })
            }
            Ended::Failed | Ended::Gone => FAILED,
        };
        let _ = tokio::time::timeout(wait, self.changed.notified()).await;
        Ok(())
    }

    /// Passes until nothing is left to do. The caller bounds the time.
    pub async fn settle(&mut self) -> Result<(), home::Error> {
        self.local.at_rest = false;
        while !self.local.at_rest {
            self.turn().await?;
        }
        Ok(())
    }

    /// Applies an edit of the file; an invalid one is reported, and the last valid one stays in effect.
    fn follow_file(&mut self) -> Result<(), home::Error> {
        // A file that is just being replaced is read again in the next round.
        let Ok(text) = std::fs::read_to_string(&self.file) else {
            return Ok(());
        };
        if text == self.text {
            return Ok(());
        }
        self.text = text;
        match parsed(&self.text) {
            Ok(cluster) if cluster.metadata.name == self.local.name() => {
                if self.local.edit(cluster)? {
                    self.local
                        .console
                        .print("the file was edited: the cluster follows");
                }
            }
            Ok(_) => self
                .local
                .console
                .print("! the file names another cluster now: ignored"),
            Err(error) => self
                .local
                .console
                .print(&format!("! the edited file is ignored: {error}")),
        }
        Ok(())
    }
}

/// Runs until Ctrl-C or SIGTERM; then stops the processes, the leader last, and leaves the data.
pub async fn run(options: &Options) -> Result<(), Error> {
    let mut signals = Signals::new()?;
    let mut runner = Runner::open(options)?;
    runner.local.check_ports().await?;
    let from = options.directory.display();
    runner.local.console.print(&format!(
        "data and logs are in {from}; Ctrl-C stops the cluster and keeps them"
    ));
    let mut printed = String::new();
    let outcome = loop {
        tokio::select! {
            biased;
            () = signals.stop() => break Ok(()),
            turned = runner.turn() => if let Err(error) = turned { break Err(Error::from(error)) },
        }
        // The table, whenever the cluster comes to rest in another shape.
        if runner.local.at_rest {
            let now = runner.local.table();
            if now != printed {
                runner.local.console.print(
                    runner
                        .local
                        .status()
                        .summary
                        .clone()
                        .unwrap_or_default()
                        .as_str(),
                );
                print!("{now}{}", runner.local.hint());
                printed = now;
            }
        }
    };
    runner.local.console.print("stopping, the leader last");
    runner.local.stop().await;
    runner
        .local
        .console
        .print("stopped; the same command goes on from here");
    outcome
}

/// Ctrl-C and SIGTERM.
#[derive(Debug)]
pub struct Signals {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
}

impl Signals {
    /// Begins to listen; from now on the signals end nothing by themselves.
    pub fn new() -> Result<Self, Error> {
        use tokio::signal::unix::{SignalKind, signal};
        let interrupt = signal(SignalKind::interrupt()).map_err(Error::Signals)?;
        let terminate = signal(SignalKind::terminate()).map_err(Error::Signals)?;
        Ok(Self {
            interrupt,
            terminate,
        })
    }

    /// Waits for one of them.
    pub async fn stop(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

/// A resource that can be run here.
fn parsed(text: &str) -> Result<EtcdCluster, ParseError> {
    let cluster = parse(text)?;
    if cluster.spec.tls.is_some() {
        let why = "spec.tls: members on this machine have no TLS: take the field out";
        return Err(ParseError::Invalid(vec![why.to_owned()]));
    }
    if cluster.spec.deletion_protection {
        let why = "spec.deletionProtection: nothing on this machine refuses to delete its directory: take the field out";
        return Err(ParseError::Invalid(vec![why.to_owned()]));
    }
    if cluster.spec.backup_before_deletion.is_some() {
        let why = "spec.backupBeforeDeletion: a cluster on this machine is saved with `quorate backup save`: take the field out";
        return Err(ParseError::Invalid(vec![why.to_owned()]));
    }
    if cluster.spec.storage.autogrow.is_some() {
        let why =
            "spec.storage.autogrow: a directory on this machine has no size: take the field out";
        return Err(ParseError::Invalid(vec![why.to_owned()]));
    }
    if cluster.spec.replica_of.is_some() {
        let why = "spec.replicaOf: a standby follows its source by Jobs of Kubernetes: take the field out, or run `quorate follow` beside `quorate server`";
        return Err(ParseError::Invalid(vec![why.to_owned()]));
    }
    if cluster.spec.bootstrap.is_some() {
        let why = "spec.bootstrap: a cluster on this machine starts empty: take the field out, or restore a backup with `quorate backup fetch` and `quorate restore`, and run the members with `quorate server`";
        return Err(ParseError::Invalid(vec![why.to_owned()]));
    }
    Ok(cluster)
}

fn read(path: &Path) -> Result<(String, EtcdCluster), Error> {
    let text = std::fs::read_to_string(path).map_err(|source| Error::Read {
        path: path.to_owned(),
        source,
    })?;
    let cluster = parsed(&text).map_err(|source| Error::Parse {
        path: path.to_owned(),
        source,
    })?;
    Ok((text, cluster))
}

impl Local {
    /// Whether the members' ports are theirs. Those of a process that was killed may be in use for a moment longer.
    async fn check_ports(&mut self) -> Result<(), home::Error> {
        let state = self.home.state();
        let members: Vec<String> = match state.sets.is_empty() {
            true => vec![crate::crd::member_name(&state.cluster, 1)],
            false => state.sets.keys().cloned().collect(),
        };
        let mut checked = self.home.check_ports(&members);
        for _ in 0..PORT_LOOKS {
            if !matches!(checked, Err(home::Error::Taken { .. })) {
                break;
            }
            tokio::time::sleep(PORT_PAUSE).await;
            checked = self.home.check_ports(&members);
        }
        checked
    }

    /// The members as a table.
    pub fn table(&self) -> String {
        let heading = [
            "MEMBER",
            "ROLE",
            "HEALTH",
            "ID",
            "CLIENT URL",
            "PID",
            "VERSION",
        ];
        let mut rows = vec![heading.map(str::to_owned).to_vec()];
        let pods = self.pods.view();
        for member in &self.status().members {
            let role = match member.role {
                MemberRole::Voter if member.leader => "Leader".to_owned(),
                role => format!("{role:?}"),
            };
            let ports = self.home.state().ports.get(&member.name);
            let pod = pods.iter().find(|pod| pod.member == member.name);
            let pid = pod.and_then(|pod| pod.process.as_ref()?.pid);
            rows.push(vec![
                member.name.clone(),
                role,
                format!("{:?}", member.health),
                member.id.clone().unwrap_or_default(),
                ports.map(|ports| ports.client_url()).unwrap_or_default(),
                pid.map(|pid| pid.to_string()).unwrap_or_default(),
                member.version.clone().unwrap_or_default(),
            ]);
        }
        table(&rows)
    }

    /// A line to try.
    pub fn hint(&self) -> String {
        let endpoints = self.endpoints().join(",");
        if endpoints.is_empty() {
            return String::new();
        }
        format!("try: etcdctl --endpoints={endpoints} endpoint status -w table\n")
    }
}
