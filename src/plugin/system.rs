//! What differs between systems: groups of processes, signals to them, and who may read a file. Every function has a form
//! for each system, so that no other file asks which one it is.

use std::fs::OpenOptions;
use std::process::{Child, Command, ExitStatus};

/// Puts a child in a process group of its own: what is typed at the terminal, such as Ctrl-C, does not end it.
pub(crate) fn apart(command: &mut Command) {
    own::apart(command);
}

/// Ends a child that was started [`apart`], and what it has started itself.
pub(crate) fn end_group(child: &mut Child) {
    own::end_group(child);
    // It may have ended already.
    let _ = child.kill();
    let _ = child.wait();
}

/// Calls this, on a thread of its own, each time that the user or the system asks this process to end (SIGINT, SIGTERM,
/// SIGHUP and SIGQUIT; Ctrl-C on Windows), which does not end it any more.
pub(crate) fn when_asked_to_end(act: impl Fn() + Send + 'static) -> std::io::Result<()> {
    own::when_asked_to_end(act)
}

/// Asks a process to end.
pub(crate) fn ask_to_end(process: u32) {
    own::ask_to_end(process);
}

/// The exit code of a child as a shell gives it.
pub(crate) fn code(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| own::signal_code(status));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}

/// The permissions of a new file that its owner alone may read.
pub(crate) fn private_file(options: &mut OpenOptions) {
    own::private_file(options);
}

/// The permissions of a folder that its owner alone may read.
pub(crate) fn private(builder: &mut tempfile::Builder<'_, '_>) {
    own::private(builder);
}

#[cfg(unix)]
mod own {
    use std::fs::{OpenOptions, Permissions};
    use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
    use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
    use std::process::{Child, Command, ExitStatus};

    use nix::sys::signal::{Signal, kill, killpg};
    use nix::unistd::Pid;
    use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
    use signal_hook::iterator::Signals;

    pub(super) fn apart(command: &mut Command) {
        command.process_group(0);
    }

    pub(super) fn end_group(child: &mut Child) {
        if let Some(group) = pid(child.id()) {
            let _ = killpg(group, Signal::SIGTERM);
        }
    }

    pub(super) fn when_asked_to_end(act: impl Fn() + Send + 'static) -> std::io::Result<()> {
        let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP, SIGQUIT])?;
        std::thread::spawn(move || signals.forever().for_each(|_| act()));
        Ok(())
    }

    pub(super) fn ask_to_end(process: u32) {
        if let Some(process) = pid(process) {
            let _ = kill(process, Signal::SIGTERM);
        }
    }

    pub(super) fn signal_code(status: ExitStatus) -> Option<i32> {
        status.signal().map(|signal| 128 + signal)
    }

    pub(super) fn private(builder: &mut tempfile::Builder<'_, '_>) {
        builder.permissions(Permissions::from_mode(0o700));
    }

    pub(super) fn private_file(options: &mut OpenOptions) {
        options.mode(0o600);
    }

    fn pid(number: u32) -> Option<Pid> {
        i32::try_from(number).ok().map(Pid::from_raw)
    }
}

/// On Windows the console gives Ctrl-C to every program on it, and the folder for temporary files is the user's own.
#[cfg(not(unix))]
mod own {
    use std::fs::OpenOptions;
    use std::process::{Child, Command, ExitStatus};

    pub(super) fn apart(command: &mut Command) {
        #[cfg(windows)]
        {
            use std::os::windows::process::CommandExt as _;
            const CREATE_NEW_PROCESS_GROUP: u32 = 0x200;
            command.creation_flags(CREATE_NEW_PROCESS_GROUP);
        }
        #[cfg(not(windows))]
        let _ = command;
    }

    pub(super) fn end_group(_: &mut Child) {}

    pub(super) fn when_asked_to_end(act: impl Fn() + Send + 'static) -> std::io::Result<()> {
        #[cfg(windows)]
        return ctrlc::set_handler(act).map_err(std::io::Error::other);
        #[cfg(not(windows))]
        {
            drop(act);
            Ok(())
        }
    }

    pub(super) fn ask_to_end(_: u32) {}

    pub(super) fn signal_code(_: ExitStatus) -> Option<i32> {
        None
    }

    pub(super) fn private(_: &mut tempfile::Builder<'_, '_>) {}

    pub(super) fn private_file(_: &mut OpenOptions) {}
}
