//! What a `kubectl get --watch` prints, sent to whoever draws it; begun again when the API server has ended it.

use std::io::{BufReader, Read as _};
use std::process::{Child, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::{Deserializer, Value};

use super::Message;
use crate::Which;
use crate::child::limited;
use crate::system;

/// Before a watch that has ended is begun again.
const PAUSE: Duration = Duration::from_secs(2);

/// A watch on a thread of its own.
pub(super) struct Feed {
    child: Arc<Mutex<Option<Child>>>,
    /// Dropped, or used, when it is to end.
    end: Sender<()>,
}

impl Feed {
    /// Begins to watch what this request asks of kubectl.
    pub(super) fn start(which: &Which, request: Vec<String>, sender: Sender<Message>) -> Self {
        let child = Arc::default();
        let (end, ended) = mpsc::channel();
        let watch = Watch {
            which: which.clone(),
            request,
            sender,
            child: Arc::clone(&child),
            ended,
        };
        std::thread::spawn(move || watch.run());
        Self { child, end }
    }

    /// Ends kubectl.
    pub(super) fn end(self) {
        drop(self.end);
        let mut child = self.child.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(child) = &mut *child {
            system::end_group(child);
        }
    }
}

struct Watch {
    which: Which,
    request: Vec<String>,
    sender: Sender<Message>,
    child: Arc<Mutex<Option<Child>>>,
    ended: Receiver<()>,
}

impl Watch {
    fn run(self) {
        loop {
            let why = self
                .once()
                .unwrap_or_else(|error| format!("cannot run kubectl: {error}"));
            if self.sender.send(Message::Broken(why)).is_err() {
                return;
            }
            match self.ended.recv_timeout(PAUSE) {
                Err(RecvTimeoutError::Timeout) => {}
                Ok(()) | Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// One watch, until it ends. Returns why.
    fn once(&self) -> std::io::Result<String> {
        let mut command = limited(&self.which, "get", "0");
        command.args(["--output=json", "--watch", "--output-watch-events"]);
        command.args(
            self.which
                .namespace
                .as_ref()
                .map(|name| format!("--namespace={name}")),
        );
        command.args(&self.request);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        // Ctrl-C ends this program, and by it kubectl.
        system::apart(&mut command);
        let mut child = command.spawn()?;
        let (output, errors) = (child.stdout.take(), child.stderr.take());
        *self.child.lock().unwrap_or_else(PoisonError::into_inner) = Some(child);
        let mut begun = false;
        if let Some(output) = output {
            for event in Deserializer::from_reader(BufReader::new(output)).into_iter::<Value>() {
                let Ok(event) = event else { break };
                if !std::mem::replace(&mut begun, true) {
                    let _ = self.sender.send(Message::Begun);
                }
                let _ = self.sender.send(Message::Changed(event));
            }
        }
        let mut said = String::new();
        if let Some(mut errors) = errors {
            errors.read_to_string(&mut said)?;
        }
        let child = self
            .child
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(mut child) = child {
            child.wait()?;
        }
        let words = said
            .lines()
            .last()
            .unwrap_or("the API server has ended the watch");
        Ok(format!("{words}: it is begun again"))
    }
}
