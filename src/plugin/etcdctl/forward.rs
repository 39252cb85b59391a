//! A `kubectl port-forward` to the client port of one member's pod: a child process that ends when the value is dropped.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, ChildStderr, ChildStdout, Command, Stdio};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use super::Event;
use crate::build::CLIENT_PORT;
use crate::error::Error;
use crate::system;

/// Of what kubectl says, this much is kept, in bytes.
const KEPT: usize = 2048;

/// The child.
pub(super) struct Forward {
    child: Child,
    /// The pod.
    pub(super) pod: String,
    /// What kubectl said on standard error.
    said: Arc<Mutex<String>>,
}

impl Forward {
    /// Starts one. Events with this number tell its port, and its end.
    pub(super) fn start(
        mut kubectl: Command,
        pod: &str,
        number: usize,
        events: &Sender<Event>,
    ) -> Result<Forward, Error> {
        kubectl.arg("--address=127.0.0.1");
        kubectl.args([&format!("pod/{pod}"), &format!(":{CLIENT_PORT}")]);
        kubectl.stdin(Stdio::null());
        kubectl.stdout(Stdio::piped()).stderr(Stdio::piped());
        system::apart(&mut kubectl);
        let mut child = kubectl.spawn().map_err(Error::NoKubectl)?;
        let said = Arc::new(Mutex::new(String::new()));
        let errors = child.stderr.take().map(|errors| {
            let said = Arc::clone(&said);
            thread::spawn(move || keep(errors, &said))
        });
        if let Some(lines) = child.stdout.take() {
            let events = events.clone();
            thread::spawn(move || {
                tell(lines, number, &events);
                // Its last words are there before its end is told.
                errors.map(thread::JoinHandle::join);
                let _ = events.send(Event::Ended(number));
            });
        }
        let pod = pod.to_owned();
        Ok(Forward { child, pod, said })
    }

    /// What kubectl said about it.
    pub(super) fn words(&self) -> String {
        let said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        said.trim().to_owned()
    }
}

impl Drop for Forward {
    fn drop(&mut self) {
        system::end_group(&mut self.child);
    }
}

/// Reads to the end, since kubectl says something at each connection and would wait otherwise.
fn tell(lines: ChildStdout, number: usize, events: &Sender<Event>) {
    // Whoever receives may have ended.
    for line in BufReader::new(lines).lines().map_while(Result::ok) {
        if let Some(port) = port_of(&line) {
            let _ = events.send(Event::Listens(number, port));
        }
    }
}

/// The local port of a line such as `Forwarding from 127.0.0.1:43211 -> 2379`.
fn port_of(line: &str) -> Option<u16> {
    let (from, to) = line.strip_prefix("Forwarding from ")?.split_once(" -> ")?;
    let ours = to.trim() == CLIENT_PORT.to_string();
    let port = from.rsplit_once(':')?.1.parse().ok();
    port.filter(|_| ours)
}

fn keep(mut errors: ChildStderr, said: &Mutex<String>) {
    let mut piece = [0; 512];
    while let Ok(count @ 1..) = errors.read(&mut piece) {
        let words = String::from_utf8_lossy(&piece[..count]).into_owned();
        let mut said = said.lock().unwrap_or_else(PoisonError::into_inner);
        if said.len() + words.len() <= KEPT {
            said.push_str(&words);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::port_of;

    #[test]
    fn port_is_read_from_kubectls_line() {
        assert_eq!(
            port_of("Forwarding from 127.0.0.1:43211 -> 2379"),
            Some(43211)
        );
        assert_eq!(port_of("Forwarding from [::1]:43211 -> 2379"), Some(43211));
        assert_eq!(port_of("Forwarding from 127.0.0.1:43211 -> 2380"), None);
        assert_eq!(port_of("Handling connection for 43211"), None);
    }
}
