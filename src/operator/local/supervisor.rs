//! Keeps one child process alive: starts it, restarts it with a back-off when it exits, stops it gracefully on request.
//! It never decides whether a member should run, and never touches its data.
//!
//! On Linux children die with this process (`PR_SET_PDEATHSIG`), so a killed `quorate local` leaves nothing
//! running. That signal follows the *thread* that started the child: start supervisors from a
//! current-thread runtime on the main thread only.

use std::fs::{File, OpenOptions};
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::process::{Child, Command};
use tokio::sync::{Notify, watch};

/// The first pause before a restart; each further one is twice as long.
const RESTART_PAUSE: Duration = Duration::from_millis(250);
/// The longest pause before a restart.
const RESTART_PAUSE_MAX: Duration = Duration::from_secs(8);
/// A process that lived this long starts again without the grown pause.
const STEADY: Duration = Duration::from_secs(10);

/// What to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// The executable.
    pub path: PathBuf,
    /// Its arguments, without the program's name.
    pub arguments: Vec<String>,
    /// Environment variables set for it.
    pub environment: Vec<(String, String)>,
    /// Where its standard output and error are appended.
    pub log: PathBuf,
    /// How long it may take to stop after SIGTERM before SIGKILL.
    pub grace: Duration,
}

/// How a process ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Exit code, where it exited.
    pub code: Option<i32>,
    /// Signal, where it was killed.
    pub signal: Option<i32>,
}

/// What is known of the child right now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcessState {
    /// Process ID while it runs.
    pub pid: Option<u32>,
    /// Times it was started again.
    pub restarts: u32,
    /// How it ended the last time.
    pub last_end: Option<Ended>,
    /// Why it could not be started the last time.
    pub start_error: Option<String>,
    /// True once the supervisor has ended for good.
    pub stopped: bool,
}

/// A running supervisor of one child.
#[derive(Debug)]
pub struct Supervisor {
    state: Arc<Mutex<ProcessState>>,
    stop: watch::Sender<bool>,
    task: tokio::task::JoinHandle<()>,
}

impl Supervisor {
    /// Starts supervising. `changed` is notified after every start and end of the child.
    pub fn start(program: Program, changed: Arc<Notify>) -> Self {
        let state = Arc::new(Mutex::new(ProcessState::default()));
        let (stop, stopping) = watch::channel(false);
        let task = tokio::spawn(supervise(program, state.clone(), stopping, changed));
        Self { state, stop, task }
    }

    /// What is known of the child.
    pub fn state(&self) -> ProcessState {
        lock(&self.state).clone()
    }

    /// Asks the child to stop and not to come back. Returns at once; see [`Supervisor::state`].
    pub fn request_stop(&self) {
        let _ = self.stop.send(true);
    }

    /// Kills the child at once (SIGKILL), as a power loss would; the supervisor starts it again.
    pub fn kill(&self) -> bool {
        let pid = lock(&self.state).pid;
        pid.is_some_and(|pid| signal(pid, libc::SIGKILL))
    }

    /// Waits until the child has ended after [`Supervisor::request_stop`].
    pub async fn stopped(self) {
        let _ = self.task.await;
    }
}

async fn supervise(
    program: Program,
    state: Arc<Mutex<ProcessState>>,
    mut stopping: watch::Receiver<bool>,
    changed: Arc<Notify>,
) {
    let mut pause = RESTART_PAUSE;
    let mut first = true;
    while !*stopping.borrow() {
        match spawn(&program) {
            Ok(child) => {
                {
                    let mut state = lock(&state);
                    state.pid = child.id();
                    state.start_error = None;
                    state.restarts += u32::from(!first);
                }
                first = false;
                changed.notify_one();
                let started = Instant::now();
                let ended = attend(child, program.grace, &mut stopping).await;
                if started.elapsed() >= STEADY {
                    pause = RESTART_PAUSE;
                }
                let mut state = lock(&state);
                state.pid = None;
                state.last_end = ended;
            }
            Err(error) => {
                lock(&state).start_error =
                    Some(format!("cannot start {}: {error}", program.path.display()));
            }
        }
        changed.notify_one();
        tokio::select! {
            biased;
            _ = wait_for_stop(&mut stopping) => {}
            () = tokio::time::sleep(pause) => {}
        }
        pause = (pause * 2).min(RESTART_PAUSE_MAX);
    }
    lock(&state).stopped = true;
    changed.notify_one();
}

/// Waits for the child to exit, or stops it on request.
async fn attend(
    mut child: Child,
    grace: Duration,
    stopping: &mut watch::Receiver<bool>,
) -> Option<Ended> {
    let status = tokio::select! {
        biased;
        _ = wait_for_stop(stopping) => None,
        status = child.wait() => Some(status),
    };
    let status = match status {
        Some(status) => status,
        None => {
            if let Some(pid) = child.id() {
                signal(pid, libc::SIGTERM);
            }
            match tokio::time::timeout(grace, child.wait()).await {
                Ok(status) => status,
                Err(_) => {
                    let _ = child.start_kill();
                    child.wait().await
                }
            }
        }
    };
    status.ok().map(|status| Ended {
        code: status.code(),
        signal: std::os::unix::process::ExitStatusExt::signal(&status),
    })
}

/// Resolves once the sender requested a stop, or was dropped.
async fn wait_for_stop(stopping: &mut watch::Receiver<bool>) {
    let _ = stopping.wait_for(|stop| *stop).await;
}

fn spawn(program: &Program) -> std::io::Result<Child> {
    let log = open_log(&program.log)?;
    let mut command = Command::new(&program.path);
    command
        .args(&program.arguments)
        .envs(
            program
                .environment
                .iter()
                .map(|(name, value)| (name, value)),
        )
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .kill_on_drop(true);
    die_with_parent(&mut command);
    command.spawn()
}

fn open_log(path: &std::path::Path) -> std::io::Result<File> {
    OpenOptions::new().create(true).append(true).open(path)
}

/// The kernel kills the child when this thread ends, and Ctrl-C on the terminal does not reach
/// it (its own process group): it is stopped in order, by us.
fn die_with_parent(command: &mut Command) {
    command.process_group(0);
    #[allow(unsafe_code)]
    // SAFETY: between fork and exec only prctl is called, which is async-signal-safe and
    // touches no memory of this process.
    #[cfg(target_os = "linux")]
    unsafe {
        command.pre_exec(|| {
            if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) == 0 {
                Ok(())
            } else {
                Err(std::io::Error::last_os_error())
            }
        });
    }
}

/// Sends a signal to our child that has not been reaped yet.
fn signal(pid: u32, number: i32) -> bool {
    let Ok(pid) = i32::try_from(pid) else {
        return false;
    };
    #[allow(unsafe_code)]
    // SAFETY: kill has no memory effects; the pid is a child not yet reaped, so it is not reused.
    let answer = unsafe { libc::kill(pid, number) };
    answer == 0
}

/// A poisoned lock only means that a reader panicked; the plain data inside is still good.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, directory: &std::path::Path) -> Program {
        Program {
            path: "/bin/sh".into(),
            arguments: vec!["-c".into(), script.into()],
            environment: vec![],
            log: directory.join("log"),
            grace: Duration::from_secs(5),
        }
    }

    async fn until(
        supervisor: &Supervisor,
        changed: &Notify,
        done: impl Fn(&ProcessState) -> bool,
    ) {
        tokio::time::timeout(Duration::from_secs(10), async {
            while !done(&supervisor.state()) {
                let _ = tokio::time::timeout(Duration::from_millis(50), changed.notified()).await;
            }
        })
        .await
        .expect("the state was not reached in time");
    }

    #[tokio::test]
    async fn killed_child_restarts() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let changed = Arc::new(Notify::new());
        let supervisor =
            Supervisor::start(shell("exec sleep 60", directory.path()), changed.clone());
        until(&supervisor, &changed, |state| state.pid.is_some()).await;
        let first = supervisor.state().pid;
        assert!(supervisor.kill());
        until(&supervisor, &changed, |state| {
            state.pid.is_some() && state.pid != first
        })
        .await;
        assert_eq!(supervisor.state().restarts, 1);
        assert_eq!(
            supervisor.state().last_end.and_then(|end| end.signal),
            Some(libc::SIGKILL)
        );
        supervisor.request_stop();
        until(&supervisor, &changed, |state| state.stopped).await;
        assert_eq!(
            supervisor.state().last_end.and_then(|end| end.signal),
            Some(libc::SIGTERM)
        );
        supervisor.stopped().await;
    }

    #[tokio::test]
    async fn exit_code_and_missing_program_are_reported() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let changed = Arc::new(Notify::new());
        let supervisor = Supervisor::start(shell("exit 7", directory.path()), changed.clone());
        until(&supervisor, &changed, |state| state.last_end.is_some()).await;
        assert_eq!(
            supervisor.state().last_end.and_then(|end| end.code),
            Some(7)
        );
        supervisor.request_stop();
        supervisor.stopped().await;

        let mut missing = shell("", directory.path());
        missing.path = "/nowhere/quorate".into();
        let supervisor = Supervisor::start(missing, changed.clone());
        until(&supervisor, &changed, |state| state.start_error.is_some()).await;
        let error = supervisor.state().start_error.unwrap_or_default();
        assert!(error.contains("/nowhere/quorate"), "{error}");
        supervisor.request_stop();
        supervisor.stopped().await;
    }
}
