//! `kubectl quorate top`: clusters as they change, on the whole terminal, until a key ends it. Reads only.

mod clusters;
mod draw;
mod feed;
#[cfg(test)]
mod top_test;

use std::io::{self, IsTerminal as _};
use std::process::ExitCode;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::time::Duration;

use clap::Args;
use k8s_openapi::jiff::Timestamp;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use serde_json::Value;

use super::Which;
use super::child::get;
use super::document::{self, Format};
use super::error::Error;
use super::{shown, system, table};
use clusters::Clusters;

/// The ages on the screen are drawn again this often.
const TICK: Duration = Duration::from_secs(1);

/// Shows clusters as they change: ready voters, leader, entries behind, what is done, and the members and conditions of one.
#[derive(Debug, Args)]
pub(super) struct Top {
    /// Name of one EtcdCluster; without it all of the namespace.
    #[arg(conflicts_with = "all_namespaces")]
    name: Option<String>,
    /// Those of all namespaces.
    #[arg(long, short = 'A', conflicts_with = "namespace")]
    all_namespaces: bool,
    /// Print the list once, and end.
    #[arg(long)]
    once: bool,
    /// Print that list as a document for programs.
    #[arg(long, short, requires = "once")]
    output: Option<Format>,
    #[command(flatten)]
    which: Which,
}

impl Top {
    /// What kubectl is asked for.
    fn request(&self) -> Vec<String> {
        let all = self.all_namespaces.then(|| "--all-namespaces".to_owned());
        let resource = ["etcdclusters.quorate.dev".to_owned()].into_iter();
        resource.chain(self.name.clone()).chain(all).collect()
    }
}

/// What happens.
pub(super) enum Message {
    /// These clusters are there.
    Seen(Vec<Value>),
    /// They cannot be listed now; why.
    Broken(String),
    Key(KeyEvent),
    /// The size of the terminal has changed.
    Resized,
    /// The user or the system asks it to end.
    Ends,
}

/// Shows them until it is ended.
pub(super) fn run(asked: &Top) -> Result<ExitCode, Error> {
    if asked.once {
        return shown(&once(asked)?);
    }
    if !io::stdout().is_terminal() {
        return Err(Error::NoTerminal);
    }
    let (sender, messages) = mpsc::channel();
    let ends = sender.clone();
    let end = move || drop(ends.send(Message::Ends));
    system::when_asked_to_end(end).map_err(Error::NoSignals)?;
    let mut terminal = ratatui::try_init().map_err(|error| {
        // It may have been changed in part.
        let _ = ratatui::try_restore();
        Error::Unprinted(error)
    })?;
    feed::start(asked.which.clone(), asked.request(), sender.clone());
    read_keys(sender);
    let mut clusters = Clusters::default();
    let drawn = loop {
        let now = Timestamp::now();
        if let Err(error) = terminal.draw(|frame| draw::screen(frame, &clusters, now)) {
            break Err(Error::Unprinted(error));
        }
        let goes_on = match messages.recv_timeout(TICK) {
            Ok(message) => clusters.take(message),
            Err(RecvTimeoutError::Timeout) => true,
            Err(RecvTimeoutError::Disconnected) => false,
        };
        if !goes_on {
            break Ok(ExitCode::SUCCESS);
        }
    };
    // The terminal may be gone.
    let _ = ratatui::try_restore();
    drawn
}

/// The list as text.
fn once(asked: &Top) -> Result<String, Error> {
    let found: Value = get(&asked.which, asked.request())?;
    let mut clusters = Clusters::default();
    clusters.take(Message::Seen(feed::listed(found)));
    if let Some(format) = asked.output {
        return document::written(&document::clusters(clusters.all()), format);
    }
    let rows: Vec<Vec<String>> = clusters
        .rows()
        .into_iter()
        .map(|row| row.cells.to_vec())
        .collect();
    let titles = vec![clusters::TITLES.map(str::to_owned).to_vec()];
    Ok(table::table(&[titles, rows].concat()).join("\n") + "\n")
}

/// Sends keys for as long as anybody takes them.
fn read_keys(sender: Sender<Message>) {
    std::thread::spawn(move || {
        while let Ok(event) = event::read() {
            let message = match event {
                Event::Key(key) if key.kind != KeyEventKind::Release => Message::Key(key),
                Event::Resize(..) => Message::Resized,
                _ => continue,
            };
            if sender.send(message).is_err() {
                return;
            }
        }
        // Without keys nothing else could end it.
        let _ = sender.send(Message::Ends);
    });
}

/// Whether a key ends the program.
fn is_end(key: &KeyEvent) -> bool {
    let interrupts =
        key.modifiers.contains(KeyModifiers::CONTROL) && key.code == KeyCode::Char('c');
    interrupts || matches!(key.code, KeyCode::Char('q') | KeyCode::Esc)
}
