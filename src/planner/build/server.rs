//! `spec.server` as flags of a member's server, and the flags with which a pod's server was started.

use k8s_openapi::api::core::v1::PodSpec;
use serde_json::{Map, Value, json};

use super::pod::CONTAINER;
use crate::crd::{CompactionMode, Server, Timings, bytes_of, means_true};
use crate::plan::ServerFacts;

const HEARTBEAT: &str = "heartbeat-interval";
const ELECTION: &str = "election-timeout";

/// The settings that differ from the server's own, in one form whatever way they are written;
/// `None` where all of them are its own: the inputs of members made before there were any stay what
/// they were.
pub(super) fn inputs(server: &Server) -> Option<Value> {
    let mut inputs = Map::new();
    for (name, value) in settings(server) {
        inputs.insert(name, json!(value));
    }
    (!inputs.is_empty()).then_some(Value::Object(inputs))
}

/// Names of flags and their values, of whatever differs from the server's own.
fn settings(server: &Server) -> Vec<(String, String)> {
    let mut settings = Vec::new();
    let mut set = |name: &str, value: String| settings.push((name.to_owned(), value));
    if let Some(bytes) = server.quota.as_deref().and_then(|text| bytes_of(text).ok()) {
        set("quota-backend-bytes", bytes.to_string());
    }
    let compaction = &server.auto_compaction;
    if !compaction.is_off() {
        let mode = match compaction.mode {
            CompactionMode::Periodic => "periodic",
            CompactionMode::Revision => "revision",
        };
        set("auto-compaction-mode", mode.to_owned());
        set("auto-compaction-retention", compaction.retention.clone());
    }
    let (asked, own) = (server.timings(), Timings::default());
    if asked.heartbeat_ms != own.heartbeat_ms {
        set(HEARTBEAT, asked.heartbeat_ms.to_string());
    }
    if asked.election_ms != own.election_ms {
        set(ELECTION, asked.election_ms.to_string());
    }
    for flag in &server.extra_args {
        set(&flag.name, flag.value.clone());
    }
    settings
}

/// Arguments of a server's command line. Values are literal: the kubelet expands `$(NAME)`, which the caller prevents.
pub fn server_flags(server: &Server) -> Vec<String> {
    let flag = |(name, value): (String, String)| format!("--{name}={value}");
    settings(server).into_iter().map(flag).collect()
}

/// As [`server_flags`], for a container.
pub(super) fn container_flags(server: &Server) -> impl Iterator<Item = String> {
    let flags = server_flags(server).into_iter();
    flags.map(|flag| flag.replace("$(", "$$("))
}

/// Arguments of a pod's server, and of no other container.
pub fn container_arguments(pod: Option<&PodSpec>) -> impl Iterator<Item = &str> + Clone {
    let containers = pod.into_iter().flat_map(|spec| &spec.containers);
    let containers = containers.filter(|container| container.name == CONTAINER);
    let arguments = containers.flat_map(|container| container.args.iter().flatten());
    arguments.map(String::as_str)
}

/// The image of a pod's server.
pub fn container_image(pod: Option<&PodSpec>) -> Option<&str> {
    let mut containers = pod?.containers.iter();
    let container = containers.find(|container| container.name == CONTAINER)?;
    container.image.as_deref()
}

/// The settings of a server with these arguments.
pub fn server_facts<'a>(arguments: impl Iterator<Item = &'a str> + Clone) -> ServerFacts {
    let value = |name: &str| {
        arguments.clone().find_map(|argument| {
            let (known, value) = argument.strip_prefix("--")?.split_once('=')?;
            (known == name).then_some(value)
        })
    };
    let own = Timings::default();
    let number = |name: &str, own| {
        let asked = value(name).and_then(|text| text.parse().ok());
        asked.unwrap_or(own)
    };
    ServerFacts {
        unsynced: value(Server::NO_FSYNC).is_some_and(means_true),
        timings: Timings {
            heartbeat_ms: number(HEARTBEAT, own.heartbeat_ms),
            election_ms: number(ELECTION, own.election_ms),
        },
    }
}
