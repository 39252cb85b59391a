//! What is drawn, and what keys and lists change.

use k8s_openapi::jiff::Timestamp;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use serde_json::{Value, json};

use super::clusters::{Clusters, Level};
use super::{Message, draw};
use crate::screen_test::{self, NOW, compare_wide};

fn cluster(name: &str, status: Value) -> Value {
    let mut cluster = screen_test::cluster(json!({"replicas": 3, "version": "0.1.0"}), status);
    cluster["metadata"]["name"] = json!(name);
    cluster
}

fn condition(type_: &str, status: &str, reason: &str) -> Value {
    json!({
        "type": type_, "status": status, "reason": reason, "message": "so it was seen",
        "lastTransitionTime": "2026-05-01T11:00:00Z",
    })
}

fn good() -> Value {
    let member = |number: u64| {
        json!({
            "name": format!("demo-{number}"), "role": "Voter", "health": "Healthy", "updated": true,
            "leader": number == 2, "lagEntries": 0, "version": "0.1.0", "nodeName": format!("node-{number}"),
        })
    };
    json!({
        "observedGeneration": 3, "readyReplicas": 3, "leader": "demo-2", "version": "0.1.0", "summary": "3 of 3 voters are ready",
        "members": [member(1), member(2), member(3)], "conditions": [condition("Ready", "True", "AtRest")],
    })
}

fn bad() -> Value {
    json!({
        "observedGeneration": 3, "readyReplicas": 1, "version": "0.1.0", "summary": "no leader with a quorum was seen",
        "members": [{
            "name": "lost-1", "role": "Voter", "health": "Unknown", "lagEntries": 17,
            "updated": true, "reason": "it does not answer",
        }],
        "step": {
            "action": "Wait", "state": "Waiting", "reason": "NoQuorum",
            "waitingFor": "a leader that holds a quorum to answer", "startTime": "2026-05-01T11:58:00Z",
        },
        "conditions": [condition("Quorate", "False", "NoLeader"), condition("Degraded", "True", "NoQuorum")],
    })
}

fn key(code: KeyCode) -> Message {
    Message::Key(KeyEvent::new(code, KeyModifiers::NONE))
}

fn drawn(clusters: &Clusters, height: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(110, height)).expect("a screen");
    let now: Timestamp = NOW.parse().expect("a time");
    let frame = terminal.draw(|frame| draw::screen(frame, clusters, now));
    frame.expect("drawn");
    let text = terminal.backend().to_string();
    let lines = text.lines().map(|line| line.trim_matches('"').trim_end());
    lines.collect::<Vec<_>>().join("\n") + "\n"
}

fn both() -> Clusters {
    let mut clusters = Clusters::default();
    see(&mut clusters, &[("lost", bad()), ("demo", good())]);
    clusters
}

fn see(clusters: &mut Clusters, all: &[(&str, Value)]) {
    let all = all
        .iter()
        .map(|(name, status)| cluster(name, status.clone()));
    assert!(clusters.take(Message::Seen(all.collect())));
}

#[test]
fn list_with_the_details_of_the_chosen_one() {
    let mut clusters = both();
    let mut text = drawn(&clusters, 24);
    clusters.take(key(KeyCode::Down));
    text += "----\n";
    text += &drawn(&clusters, 28);
    compare_wide("top", &text);
}

#[test]
fn what_is_not_well_stands_out() {
    let levels = |clusters: &Clusters| -> Vec<Level> {
        let rows = clusters.rows().into_iter();
        rows.map(|row| row.level).collect()
    };
    let mut clusters = both();
    let sleeps = json!({"conditions": [condition("Quorate", "False", "Hibernated")]});
    let is_made = json!({"conditions": [condition("Quorate", "False", "NotFormed"), condition("Degraded", "True", "TooFew")]});
    let stalled = json!({"conditions": [condition("Ready", "True", "AtRest"), condition("Stalled", "True", "InvalidSpec")]});
    see(
        &mut clusters,
        &[
            ("a", good()),
            ("b", bad()),
            ("c", json!({})),
            ("d", sleeps),
            ("e", is_made),
            ("f", stalled),
        ],
    );
    use Level::{Bad, Good, Moving};
    assert_eq!(levels(&clusters), [Good, Bad, Moving, Moving, Moving, Bad]);
}

#[test]
fn keys_choose_and_end() {
    let mut clusters = both();
    for (code, at) in [
        (KeyCode::Up, 0),
        (KeyCode::Down, 1),
        (KeyCode::Down, 1),
        (KeyCode::Home, 0),
        (KeyCode::End, 1),
        (KeyCode::Char('k'), 0),
        (KeyCode::Char('j'), 1),
    ] {
        assert!(clusters.take(key(code)));
        assert_eq!(clusters.at(), at, "{code}");
    }
    assert!(!clusters.take(key(KeyCode::Char('q'))));
    assert!(!clusters.take(key(KeyCode::Esc)));
    let interrupt = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
    assert!(!clusters.take(Message::Key(interrupt)));
    assert!(clusters.take(key(KeyCode::Char('c'))));
    assert!(!clusters.take(Message::Ends));
}

/// The chosen one stays so while others come and go.
#[test]
fn chosen_one_stays() {
    let mut clusters = both();
    clusters.take(key(KeyCode::End));
    see(
        &mut clusters,
        &[("demo", good()), ("another", json!({})), ("lost", bad())],
    );
    assert_eq!(clusters.at(), 2);
    see(&mut clusters, &[("lost", bad())]);
    assert_eq!(
        clusters.chosen().map(|one| &one["metadata"]["name"]),
        Some(&json!("lost"))
    );
    clusters.take(Message::Broken("forbidden".to_owned()));
    assert!(drawn(&clusters, 12).ends_with("forbidden\n"));
    see(&mut clusters, &[("demo", good())]);
    assert_eq!((clusters.rows().len(), clusters.at()), (1, 0));
    assert!(!drawn(&clusters, 12).contains("forbidden"));
}

/// A small screen, many clusters, and details that are longer than what is left.
#[test]
fn little_room() {
    let mut clusters = Clusters::default();
    let names: Vec<String> = (0..50).map(|number| format!("more-{number:02}")).collect();
    let all: Vec<(&str, Value)> = names.iter().map(|name| (name.as_str(), good())).collect();
    see(&mut clusters, &all);
    clusters.take(key(KeyCode::End));
    assert!(drawn(&clusters, 10).contains("more-49"));
    for _ in 0..5 {
        clusters.take(key(KeyCode::PageDown));
    }
    let text = drawn(&clusters, 12);
    assert!(text.contains("Ready"), "the last of the details: {text}");
    drawn(&clusters, 1);
    assert!(!drawn(&Clusters::default(), 9).contains("-A shows all"));
    see(&mut clusters, &[]);
    assert!(drawn(&clusters, 9).contains("-A shows all"));
}
