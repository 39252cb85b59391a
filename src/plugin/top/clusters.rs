//! The clusters that are shown, by what the API server lists, and which one is chosen. Pure; reads no field strictly, since
//! a newer operator may report what is not known here.

use std::collections::BTreeMap;

use ratatui::crossterm::event::KeyCode;
use serde_json::Value;

use super::{Message, is_end};

/// The columns.
pub(super) const TITLES: [&str; 7] = [
    "NAMESPACE",
    "NAME",
    "READY",
    "LEADER",
    "VERSION",
    "BEHIND",
    "STATUS",
];
/// Lines by which the details move at a time.
const PAGE: u16 = 10;

/// All of them.
#[derive(Default)]
pub(super) struct Clusters {
    all: BTreeMap<(String, String), Value>,
    chosen: Option<(String, String)>,
    /// Lines of the chosen one's details that are above the screen.
    pub(super) above: u16,
    /// Whether they were listed once.
    pub(super) heard: bool,
    /// Why nothing is heard now.
    pub(super) problem: Option<String>,
}

/// How a cluster is, as far as its conditions say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Level {
    Good,
    /// A change is under way, or nothing is known.
    Moving,
    Bad,
}

/// One line of the list.
pub(super) struct Row {
    pub(super) cells: [String; 7],
    pub(super) level: Level,
}

impl Clusters {
    /// What follows from a message. Returns false when it is the last one.
    pub(super) fn take(&mut self, message: Message) -> bool {
        match message {
            Message::Seen(all) => {
                self.all = all.into_iter().map(|one| (key(&one), one)).collect();
                (self.heard, self.problem) = (true, None);
            }
            Message::Broken(why) => self.problem = Some(why),
            Message::Resized => {}
            Message::Key(key) if is_end(&key) => return false,
            Message::Key(key) => self.pressed(key.code),
            Message::Ends => return false,
        }
        true
    }

    fn pressed(&mut self, key: KeyCode) {
        let at = self.at();
        match key {
            KeyCode::Up | KeyCode::Char('k') => self.choose(at.saturating_sub(1)),
            KeyCode::Down | KeyCode::Char('j') => self.choose(at + 1),
            KeyCode::Home => self.choose(0),
            KeyCode::End => self.choose(usize::MAX),
            KeyCode::PageUp => self.above = self.above.saturating_sub(PAGE),
            KeyCode::PageDown => self.above = self.above.saturating_add(PAGE),
            _ => {}
        }
    }

    fn choose(&mut self, at: usize) {
        let last = self.all.len().saturating_sub(1);
        self.chosen = self.all.keys().nth(at.min(last)).cloned();
        self.above = 0;
    }

    /// Where in the list the chosen one is; the first one where none is chosen, or it is gone.
    pub(super) fn at(&self) -> usize {
        let chosen = self.chosen.as_ref();
        let at = chosen.and_then(|chosen| self.all.keys().position(|key| key == chosen));
        at.unwrap_or(0)
    }

    /// The chosen one.
    pub(super) fn chosen(&self) -> Option<&Value> {
        self.all.values().nth(self.at())
    }

    /// The resources, by namespace and name.
    pub(super) fn all(&self) -> impl Iterator<Item = &Value> {
        self.all.values()
    }

    /// The list.
    pub(super) fn rows(&self) -> Vec<Row> {
        self.all.values().map(row).collect()
    }
}

fn key(cluster: &Value) -> (String, String) {
    let text = |field: &str| {
        cluster["metadata"][field]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    (text("namespace"), text("name"))
}

fn row(cluster: &Value) -> Row {
    let (metadata, spec, status) = (&cluster["metadata"], &cluster["spec"], &cluster["status"]);
    let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
    let number = |value: &Value| value.as_i64().unwrap_or(0);
    let members = status["members"].as_array();
    let lags = members
        .into_iter()
        .flatten()
        .map(|member| number(&member["lagEntries"]));
    let ready = format!(
        "{}/{}",
        number(&status["readyReplicas"]),
        number(&spec["replicas"])
    );
    let nothing = "no operator has reported on it yet";
    let cells = [
        text(&metadata["namespace"]),
        text(&metadata["name"]),
        ready,
        text(&status["leader"]),
        text(&status["version"]),
        lags.max().unwrap_or(0).to_string(),
        status["summary"].as_str().unwrap_or(nothing).to_owned(),
    ];
    Row {
        cells,
        level: level(status),
    }
}

fn level(status: &Value) -> Level {
    let conditions = status["conditions"].as_array();
    let any = |matches: &dyn Fn(&Value) -> bool| conditions.into_iter().flatten().any(matches);
    let is = |type_: &str, value: &str| any(&|one| one["type"] == type_ && one["status"] == value);
    // Asked for, or on its way.
    let calm = ["Hibernated", "Hibernating", "NotFormed"];
    let calm = any(&|one| calm.iter().any(|reason| one["reason"] == *reason));
    let lost = is("Available", "False") || is("Quorate", "False") || is("Degraded", "True");
    if is("Stalled", "True") || lost && !calm {
        Level::Bad
    } else if is("Ready", "True") {
        Level::Good
    } else {
        Level::Moving
    }
}
