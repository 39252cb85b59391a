//! Our `.proto` files are written by us and must define the same messages and calls as etcd's. `descriptors.txt`
//! contains etcd's descriptors, printed by the Go program in `descriptors` from etcd's module.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use crate::process::{peers, skip};

/// The packages of etcd in descriptors.txt.
const PACKAGES: &[&str] = &[
    "etcdserverpb",
    "mvccpb",
    "authpb",
    "v3electionpb",
    "v3lockpb",
    "grpc.health.v1",
];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn theirs() -> BTreeSet<String> {
    let text = std::fs::read_to_string(root().join("tests/interop/descriptors.txt"));
    text.expect("descriptors.txt")
        .lines()
        .map(str::to_owned)
        .collect()
}

/// The same lines for our files, by message, enum or service.
fn ours() -> BTreeMap<String, BTreeSet<String>> {
    let folder = root().join("src/wire/proto");
    let files: Vec<_> = std::fs::read_dir(&folder)
        .expect("a folder")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "proto")
        })
        .collect();
    let set = protox::compile(&files, [&folder]).expect("they compile");
    let mut facts = BTreeMap::new();
    for file in &set.file {
        let package = file.package();
        if !PACKAGES.contains(&package) {
            continue;
        }
        for service in &file.service {
            let name = format!("{package}.{}", service.name());
            let mut lines = BTreeSet::new();
            for call in &service.method {
                let stream = |yes| if yes { "stream " } else { "" };
                lines.insert(format!(
                    "rpc {name}.{} {}{} returns {}{}",
                    call.name(),
                    stream(call.client_streaming()),
                    call.input_type().trim_start_matches('.'),
                    stream(call.server_streaming()),
                    call.output_type().trim_start_matches('.'),
                ));
            }
            facts.insert(name, lines);
        }
        let mut open: Vec<_> = file
            .message_type
            .iter()
            .map(|message| (package.to_owned(), message))
            .collect();
        let mut enums: Vec<_> = file
            .enum_type
            .iter()
            .map(|one| (package.to_owned(), one))
            .collect();
        while let Some((outer, message)) = open.pop() {
            let name = format!("{outer}.{}", message.name());
            let mut lines = BTreeSet::from([format!("message {name}")]);
            for field in &message.field {
                let kind = match field.type_name() {
                    "" => field
                        .r#type()
                        .as_str_name()
                        .trim_start_matches("TYPE_")
                        .to_lowercase(),
                    named => named.trim_start_matches('.').to_owned(),
                };
                let label = field
                    .label()
                    .as_str_name()
                    .trim_start_matches("LABEL_")
                    .to_lowercase();
                let oneof = field
                    .oneof_index
                    .and_then(|at| message.oneof_decl.get(at as usize))
                    .map_or(String::new(), |oneof| format!(" in {}", oneof.name()));
                lines.insert(format!(
                    "field {name}.{} = {} {label} {kind}{oneof}",
                    field.name(),
                    field.number()
                ));
            }
            open.extend(
                message
                    .nested_type
                    .iter()
                    .map(|inner| (name.clone(), inner)),
            );
            enums.extend(message.enum_type.iter().map(|inner| (name.clone(), inner)));
            facts.insert(name, lines);
        }
        for (outer, one) in enums {
            let name = format!("{outer}.{}", one.name());
            let values = one.value.iter();
            let lines =
                values.map(|value| format!("enum {name}: {} = {}", value.name(), value.number()));
            facts.insert(name.clone(), lines.collect());
        }
    }
    facts
}

/// The lines of etcd's descriptors that belong to a message, an enum or a service.
fn of<'a>(theirs: &'a BTreeSet<String>, name: &str) -> BTreeSet<&'a str> {
    let member = |line: &str, kind: &str| {
        let rest = line
            .strip_prefix(kind)
            .and_then(|rest| rest.strip_prefix(name));
        let rest = rest.and_then(|rest| rest.strip_prefix('.'));
        rest.is_some_and(|rest| !rest.split(' ').next().unwrap_or_default().contains('.'))
    };
    let is_of = |line: &&str| {
        member(line, "rpc ")
            || member(line, "field ")
            || line.strip_prefix("message ") == Some(name)
            || line.starts_with(&format!("enum {name}: "))
    };
    // From a newer version of the health protocol; etcd does not serve it.
    let newer = |line: &&str| !line.starts_with("rpc grpc.health.v1.Health.List ");
    theirs
        .iter()
        .map(String::as_str)
        .filter(is_of)
        .filter(newer)
        .collect()
}

#[test]
fn our_messages_calls_and_numbers_are_etcds() {
    let theirs = theirs();
    let mut wrong = Vec::new();
    let ours = ours();
    for (name, lines) in &ours {
        let own: BTreeSet<&str> = lines.iter().map(String::as_str).collect();
        let other = of(&theirs, name);
        wrong.extend(
            own.difference(&other)
                .map(|line| format!("ours alone: {line}")),
        );
        wrong.extend(
            other
                .difference(&own)
                .map(|line| format!("etcd's alone: {line}")),
        );
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    for service in ["KV", "Watch", "Lease", "Cluster", "Maintenance"] {
        assert!(
            ours.contains_key(&format!("etcdserverpb.{service}")),
            "{service}"
        );
    }
}

#[test]
fn descriptors_match_the_pinned_module() {
    let test = "descriptors_match_the_pinned_module";
    let Some(peers) = peers(test) else { return };
    let program = peers.join("descriptors");
    if !program.is_file() {
        return skip(test, "no descriptors: run tests/interop/build.sh");
    }
    let output = Command::new(program).output().expect("it runs");
    let text = String::from_utf8(output.stdout).expect("text");
    let now: BTreeSet<String> = text.lines().map(str::to_owned).collect();
    assert_eq!(theirs(), now);
}
