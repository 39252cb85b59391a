//! Start and end of the server process: settings, log, sockets, the member, services, signals.
//!
//! Ports are bound before the disk is touched, so that a second server on the same machine is not
//! taken for a damaged disk. Never looks into a request.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tokio::sync::watch;

use super::descriptors::{self, Shares};
use super::exit::Stop;
use super::host_facts;
use super::log_outputs::log_to;
use super::ready;
use super::stop_signals::StopSignals;
use crate::server::auth::Issuer;
use crate::server::core::handle::MemberHandle;
use crate::server::etcd::{self, Services, VERSION};
use crate::server::flags::collector_headers::CollectorHeaders;
use crate::server::flags::config::Config;
use crate::server::flags::file::{self, FileError};
use crate::server::flags::{Flags, table};
use crate::server::gateway;
use crate::server::http::{self, access};
use crate::server::listen::all_seats::AllSeats;
use crate::server::listen::bodies::{self, Bodies};
use crate::server::listen::serving::Front;
use crate::server::listen::{self, AllBound, ClientRuntimes, Serve};
use crate::server::member_runtime::{self, RunningServer};
use crate::server::metrics::client::ClientMetrics;
use crate::server::tls::{auto, ports};
use crate::server::traces::Exporter;
use crate::server::traces::tracer::Tracer;

/// Time for connections to finish their pending requests.
const DRAIN: Duration = Duration::from_secs(3);
/// How long a pod still serves after it became unready, until every node has updated its endpoints.
const PROPAGATE: Duration = Duration::from_secs(5);

/// Concurrent client requests and streams if no memory limit is known.
const CALLS: u64 = 1 << 17;
/// Memory reserved for each.
const CALL_BYTES: u64 = 16 << 10;

/// Runs the server with these arguments (without the program's name) and this environment.
pub fn run(arguments: &[String], environment: &BTreeMap<String, String>) -> ExitCode {
    let flags = match Flags::parse(arguments, environment) {
        Ok(flags) => flags,
        Err(error) => return Stop::usage(error).report(None),
    };
    if flags.help {
        print!("{}", table::help());
        return ExitCode::SUCCESS;
    }
    if flags.bool("version") {
        print!("{}", version());
        return ExitCode::SUCCESS;
    }
    let flags = match read_config_file(flags) {
        Ok(flags) => flags,
        Err(error) => return Stop::usage(error).report(None),
    };
    let message_file = flags.optional("termination-message-file").map(Path::new);
    let mut config = match Config::from_flags(&flags, host_facts::read()) {
        Ok(config) => config,
        Err(error) => return Stop::usage(error).report(message_file),
    };
    // Whoever sends no spans does not read them: they may be set for another program.
    if let Some(tracing) = &mut config.tracing {
        tracing.headers = match CollectorHeaders::of(environment) {
            Ok(headers) => headers,
            Err(error) => return Stop::usage(error).report(message_file),
        };
    }
    match serve(&config) {
        Ok(()) => ExitCode::SUCCESS,
        Err(stop) => stop.report(message_file),
    }
}

/// The settings of `--config-file`, if it is given.
fn read_config_file(flags: Flags) -> Result<Flags, FileError> {
    let Some(path) = flags.optional("config-file") else {
        return Ok(flags);
    };
    let text = std::fs::read_to_string(path).map_err(|error| FileError::Unreadable {
        path: path.to_owned(),
        reason: error.to_string(),
    })?;
    let mut read = file::parse(path, &text)?;
    read.warnings.insert(
        0,
        format!("settings are those of {path}; other flags and variables are ignored"),
    );
    Ok(read)
}

/// etcd's four lines, of which tools parse the first, and our own.
fn version() -> String {
    let own = env!("CARGO_PKG_VERSION");
    let rust = env!("CARGO_PKG_RUST_VERSION");
    // Go's name of the processor architecture.
    let processor = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    format!(
        "etcd Version: {VERSION}\nGit SHA: Not provided (Quorate {own})\nGo Version: none (Rust {rust} or newer)\nGo OS/Arch: {}/{processor}\nQuorate Version: {own}\n",
        std::env::consts::OS
    )
}

fn serve(config: &Config) -> Result<(), Stop> {
    let signals = StopSignals::hear().map_err(|error| Stop {
        code: crate::server::process::exit::OTHER,
        class: "io",
        message: format!("cannot wait for signals: {error}"),
    })?;
    log_to(&config.log)?;
    for warning in &config.warnings {
        tracing::warn!("{warning}");
    }
    check_surroundings(config)?;
    let (seats, strangers, threads) = seats()?;
    let issuer = Issuer::open(&config.auth).map_err(Stop::usage)?;
    auto::make_missing(config).map_err(Stop::listen)?;
    let bound = listen::bind(config).map_err(Stop::listen)?;
    let runtimes = ClientRuntimes::start(threads).map_err(|error| Stop {
        code: crate::server::process::exit::OTHER,
        class: "io",
        message: format!("cannot start threads: {error}"),
    })?;
    let (tracer, exporter) = traces(config)?;
    let client = ports::client(config, bound.tls.clone());
    let (member, server) = member_runtime::start(config, client, strangers)?;
    let _ = member.ports().seats.set(seats.clone());
    let doors = Listeners::open(config, member, (issuer, tracer), bound, &runtimes, &seats);
    let result = live(server, &doors, signals);
    runtimes.shutdown();
    if let Some(exporter) = exporter {
        exporter.shutdown();
    }
    result
}

/// What decides of which requests spans are told, and the thread that sends them.
fn traces(config: &Config) -> Result<(Option<Arc<Tracer>>, Option<Exporter>), Stop> {
    let Some(tracing) = &config.tracing else {
        return Ok((None, None));
    };
    let (tracer, exporter) = Exporter::start(tracing).map_err(|error| Stop {
        code: crate::server::process::exit::OTHER,
        class: "io",
        message: format!("cannot start the thread that sends traces: {error}"),
    })?;
    tracing::info!(
        address = tracing.address,
        "spans of requests go to a collector"
    );
    Ok((Some(tracer), Some(exporter)))
}

/// The limits on connections to each port: from the limit on open files, which is raised as far as
/// possible, and the memory limit. Also returns the number of unauthenticated connections to the
/// peer port, and the number of client threads.
fn seats() -> Result<(AllSeats, usize, usize), Stop> {
    let limit = descriptors::raise().map_err(|error| Stop {
        code: crate::server::process::exit::OTHER,
        class: "io",
        message: format!("cannot ask for the limit of open files: {error}"),
    })?;
    let memory = host_facts::read().memory_limit;
    let shares = Shares::of(limit, memory, host_facts::cores()).map_err(Stop::usage)?;
    tracing::info!(
        limit,
        clients = shares.clients,
        metrics = shares.probes,
        peers = shares.peers,
        threads = shares.threads,
        "connections that may be open"
    );
    let calls = memory.map_or(CALLS, |bytes| (bytes / 4 / CALL_BYTES).clamp(4096, CALLS));
    let number = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
    let seats = AllSeats::of(shares, number(calls));
    Ok((seats, number(shares.peers), shares.threads))
}

/// The conditions that must hold before anything is touched.
fn check_surroundings(config: &Config) -> Result<(), Stop> {
    if let Some(expected) = &config.expected_hostname {
        let hostname = host_facts::hostname().unwrap_or_default();
        if hostname != *expected {
            return Err(Stop {
                code: crate::disk::Class::Identity.exit_code(),
                class: crate::disk::Class::Identity.name(),
                message: format!(
                    "--expected-hostname is {expected:?} and this host is {hostname:?}: this data directory belongs to another pod; start it there"
                ),
            });
        }
    }
    // Only a disk that is still empty reads the flag, as in etcd.
    let empty = std::fs::read_dir(&config.data_dir).is_ok_and(|files| {
        // A start that failed may have created the certificates already.
        files.flatten().all(|file| file.file_name() == "fixtures")
    });
    if empty || !config.data_dir.exists() {
        config.check_initial_cluster().map_err(Stop::usage)?;
    }
    if let Some(path) = &config.termination_message_file
        && let Err(error) = OpenOptions::new().append(true).create(true).open(path)
    {
        return Err(Stop::usage(format!(
            "--termination-message-file: cannot write {}: {error}; give a file in a directory that this user may write",
            path.display()
        )));
    }
    Ok(())
}

/// The open ports.
struct Listeners {
    open: Arc<AtomicU64>,
    drain: watch::Sender<bool>,
}

impl Listeners {
    fn open(
        config: &Config,
        member: MemberHandle,
        (issuer, tracer): (Issuer, Option<Arc<Tracer>>),
        bound: AllBound,
        runtimes: &ClientRuntimes,
        seats: &AllSeats,
    ) -> Listeners {
        let (drain, draining) = watch::channel(false);
        let open = Arc::new(AtomicU64::new(0));
        let metrics = Arc::new(ClientMetrics::new(config.client.extensive_metrics));
        let hang_ups = member.hang_ups();
        let memory = host_facts::read().memory_limit;
        let bodies = Bodies::new(Bodies::share(memory), bodies::WHOLE_WITHIN);
        let inbox = member.inbox();
        let services = Services::new(
            member,
            config,
            metrics.clone(),
            issuer,
            tracer,
            bodies.clone(),
            draining.clone(),
        );
        if let Some(runtime) = runtimes.handles().first() {
            runtime.spawn(ready::announce(services.clone()));
        }
        let probes = http::router(services.clone());
        let grpc = etcd::router(&services);
        let direct = etcd::DirectCalls::new(services.clone());
        let gateway = match config.client.json_gateway {
            true => gateway::router(grpc.clone(), etcd::message_limit(&services), bodies.clone()),
            false => axum::Router::new(),
        };
        let http = probes.clone().merge(gateway);
        let own_http = !bound.http.is_empty();
        let serve = |front: Front, counted: bool| Serve {
            front,
            plain: None,
            port: config.client.clone(),
            handshake: listen::HANDSHAKE,
            unused: listen::UNUSED,
            seats: match counted {
                true => seats.clients.clone(),
                false => seats.probes.clone(),
            },
            bodies: bodies.clone(),
            metrics: counted.then(|| metrics.clone()),
            draining: draining.clone(),
            hang_ups: hang_ups.clone(),
            open: open.clone(),
            probes: !counted,
            inbox: inbox.clone(),
        };
        let guarded = |router, tls| access::guarded(router, &config.client.access, tls);
        for bound in bound.clients {
            tracing::info!(address = %bound.address, "serving clients");
            let front = |tls| {
                let router = match own_http {
                    true => grpc.clone(),
                    false => guarded(grpc.clone().merge(http.clone()), tls),
                };
                Front::new(router, Some(direct.clone()))
            };
            let serve = Serve {
                plain: config.client_plaintext.then(|| front(false)),
                ..serve(front(bound.is_secure()), true)
            };
            listen::accept(bound, runtimes.handles(), serve);
        }
        for bound in bound.http {
            tracing::info!(address = %bound.address, "serving clients by HTTP alone");
            let front = |tls| {
                let router = guarded(http.clone().fallback(etcd::not_found), tls);
                Front::new(router, None)
            };
            let serve = Serve {
                plain: config.client_plaintext.then(|| front(false)),
                ..serve(front(bound.is_secure()), true)
            };
            listen::accept(bound, runtimes.handles(), serve);
        }
        for bound in bound.probes {
            tracing::info!(address = %bound.address, "serving metrics and probes");
            let router = probes.clone().fallback(etcd::not_found);
            let front = Front::new(router, None);
            listen::accept(bound, runtimes.handles(), serve(front, false));
        }
        Listeners { open, drain }
    }

    /// Lets connections finish their pending requests, for a limited time.
    async fn close(&self) {
        // An error means that no connection is left.
        let _ = self.drain.send(true);
        let deadline = tokio::time::Instant::now() + DRAIN;
        while self.open.load(Relaxed) > 0 && tokio::time::Instant::now() < deadline {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

/// Waits for the reason to end, and carries it out.
fn live(mut server: RunningServer, doors: &Listeners, signals: StopSignals) -> Result<(), Stop> {
    let (runtime, came) = signals.split();
    let result = runtime.block_on(async {
        let name = tokio::select! {
            biased;
            stop = server.stopped() => {
                match stop.code {
                    0 => tracing::info!(class = stop.class, "{}", stop.message),
                    _ => tracing::error!(class = stop.class, "{}", stop.message),
                }
                doors.close().await;
                return Err(stop);
            }
            name = came => name,
        };
        tracing::info!(signal = name, "stopping: leadership is handed over first");
        server.retire().await;
        endpoints_are_withdrawn().await;
        doors.close().await;
        Ok(())
    });
    server.shutdown();
    tracing::info!("stopped");
    result
}

/// Waits until no Service sends clients here, after this server became unready; returns at once if
/// there are no Services.
pub(in crate::server) async fn endpoints_are_withdrawn() {
    if std::env::var_os("KUBERNETES_SERVICE_HOST").is_some() {
        tokio::time::sleep(PROPAGATE).await;
    }
}
