//! Checks blocks of commands. Programs, subcommands and flags of Quorate are checked against the program's help, the
//! Makefile or the chart, and files of the repository must exist. Of other programs the name is checked, and for
//! kubectl, helm and etcdctl the command. Runs nothing.

use std::fs;

use serde_json::{Value, json};

use super::{helps, resources, root};

/// Programs of which only the name is checked.
const OTHERS: &[&str] = &[
    "base64",
    "cargo",
    "cat",
    "command",
    "cp",
    "curl",
    "diff",
    "docker",
    "etcd",
    "etcdutl",
    "export",
    "grep",
    "install",
    "journalctl",
    "jq",
    "head",
    "openssl",
    "kill",
    "kubeadm",
    "ln",
    "mkdir",
    "perf",
    "pgrep",
    "sed",
    "sort",
    "systemctl",
    "top",
    "useradd",
];
const KUBECTL: &[&str] = &[
    "annotate",
    "apply",
    "cordon",
    "create",
    "delete",
    "describe",
    "drain",
    "edit",
    "exec",
    "explain",
    "get",
    "logs",
    "patch",
    "port-forward",
    "scale",
    "uncordon",
];
const HELM: &[&str] = &["get", "install", "template", "uninstall", "upgrade"];
/// Flags of helm that the pages use.
const HELM_FLAGS: &[&str] = &[
    "--namespace",
    "-n",
    "--create-namespace",
    "--set",
    "--set-json",
    "--reuse-values",
    "--reset-then-reuse-values",
];
const ETCDCTL: &[&str] = &[
    "alarm disarm",
    "alarm list",
    "auth enable",
    "auth status",
    "compact",
    "del",
    "endpoint hashkv",
    "endpoint status",
    "get",
    "lease list",
    "make-mirror",
    "member add",
    "member list",
    "member promote",
    "member remove",
    "member update",
    "move-leader",
    "put",
    "snapshot save",
    "user add",
    "user grant-role",
    "user list",
    "watch",
];

/// The problems of a block.
pub(crate) fn problems(text: &str) -> Vec<String> {
    commands(text)
        .iter()
        .flat_map(|words| command(words))
        .collect()
}

/// The commands of a block, each split into words; also those in `$(...)`.
fn commands(text: &str) -> Vec<Vec<String>> {
    let mut all = Vec::new();
    let text = text.replace("\\\n", " ");
    let mut chars = text.chars().peekable();
    let (mut words, mut word, mut quote) = (Vec::new(), String::new(), None);
    let mut begun = false;
    while let Some(c) = chars.next() {
        match (quote, c) {
            (Some(mark), c) if c == mark => quote = None,
            (None, '"' | '\'') => (quote, begun) = (Some(c), true),
            (None | Some('"'), '$') if chars.peek() == Some(&'(') => {
                chars.next();
                all.extend(commands(&inside(&mut chars)));
                word += "X";
            }
            (None, '\\') => word.extend(chars.next()),
            (None, '#') if word.is_empty() && !begun => {
                while chars.next_if(|c| *c != '\n').is_some() {}
            }
            // `2>&1` is one word.
            (None, '&') if word.ends_with('>') => word.push('&'),
            (None, c) if c.is_whitespace() || ";|&".contains(c) => {
                if begun || !word.is_empty() {
                    words.push(std::mem::take(&mut word));
                }
                begun = false;
                if !" \t".contains(c) && !words.is_empty() {
                    all.push(std::mem::take(&mut words));
                }
            }
            (_, c) => word.push(c),
        }
    }
    if begun || !word.is_empty() {
        words.push(word);
    }
    all.push(words);
    all.retain(|words| !words.is_empty());
    all
}

/// The text up to the matching closing bracket.
fn inside(chars: &mut impl Iterator<Item = char>) -> String {
    let (mut depth, mut text) = (1, String::new());
    for c in chars {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            break;
        }
        text.push(c);
    }
    text
}

fn command(words: &[String]) -> Vec<String> {
    let words: Vec<&str> = words
        .iter()
        .map(String::as_str)
        .filter(|word| !word.contains('>'))
        .skip_while(|word| is_setting(word))
        .collect();
    let Some((program, rest)) = words.split_first() else {
        return Vec::new();
    };
    match *program {
        "quorate" | "/quorate" => quorate(rest),
        "kubectl" => kubectl(rest),
        "make" => make(rest),
        "helm" => helm(rest),
        "etcdctl" => etcdctl(rest),
        program if OTHERS.contains(&program) => Vec::new(),
        program if program.contains('/') => missing(program).into_iter().collect(),
        program => vec![format!(
            "{program} is not known here: a mistake, output (then mark it as text), or new to this test"
        )],
    }
}

/// Whether this is a `NAME=value` prefix of a command.
fn is_setting(word: &str) -> bool {
    let name = word.split_once('=').map(|(name, _)| name);
    name.is_some_and(|name| {
        !name.is_empty() && name.chars().all(|c| c.is_ascii_uppercase() || c == '_')
    })
}

fn missing(path: &str) -> Option<String> {
    (!root().join(path).exists()).then(|| format!("there is no {path}"))
}

/// Files of the repository that a command names and that do not exist.
fn missing_files(words: &[&str]) -> Vec<String> {
    let ours = words.iter().filter(|word| {
        let folders = ["deploy/", "charts/", "tests/", "docs/"];
        folders.iter().any(|folder| word.starts_with(folder))
    });
    ours.filter_map(|path| missing(path)).collect()
}

fn quorate(words: &[&str]) -> Vec<String> {
    let Some((name, rest)) = words.split_first() else {
        return Vec::new();
    };
    if matches!(*name, "version" | "help") {
        return Vec::new();
    }
    match rest.split_first() {
        Some((sub, rest)) if *name == "backup" => ours(&[*name, *sub], rest),
        _ => ours(&[*name], rest),
    }
}

/// Problems of a subcommand of `quorate` and its flags.
fn ours(name: &[&str], words: &[&str]) -> Vec<String> {
    let Some(known) = helps::flags(name) else {
        return vec![format!("there is no `quorate {}`", name.join(" "))];
    };
    let given = words
        .iter()
        .filter(|word| word.starts_with('-') && word.len() > 1);
    let names = given.map(|word| word.split('=').next().unwrap_or(word));
    let unknown = names.filter(|flag| !known.contains(*flag));
    let mut problems: Vec<String> = unknown
        .map(|flag| format!("`quorate {}` has no flag {flag}", name.join(" ")))
        .collect();
    problems.extend(missing_files(words));
    problems
}

fn make(words: &[&str]) -> Vec<String> {
    let makefile = fs::read_to_string(root().join("Makefile")).expect("the Makefile");
    let mut problems = Vec::new();
    for word in words {
        match word.split_once('=') {
            Some((name, _)) if !makefile.contains(&format!("$({name})")) => {
                problems.push(format!("the Makefile does not use {name}"));
            }
            Some(_) => {}
            None if !makefile
                .lines()
                .any(|line| line.starts_with(&format!("{word}:"))) =>
            {
                problems.push(format!("the Makefile has no target {word}"));
            }
            None => {}
        }
    }
    problems
}

fn helm(words: &[&str]) -> Vec<String> {
    let mut problems = missing_files(words);
    if !words.first().is_some_and(|verb| HELM.contains(verb)) {
        problems.push(format!("helm {} is not known here", words.join(" ")));
    }
    let text = fs::read_to_string(root().join("charts/quorate/values.yaml")).expect("values");
    let values: Value = serde_saphyr::from_str(&text).expect("YAML");
    for (at, word) in words.iter().enumerate() {
        if word.starts_with('-') && !HELM_FLAGS.contains(word) {
            problems.push(format!("helm's flag {word} is not known here"));
        }
        if !matches!(*word, "--set" | "--set-json") {
            continue;
        }
        let given = words.get(at + 1).copied().unwrap_or_default();
        let key = given.split('=').next().unwrap_or_default();
        let pointer = format!("/{}", key.replace('.', "/"));
        if values.pointer(&pointer).is_none() {
            problems.push(format!("the chart has no value {key}"));
        }
    }
    problems
}

fn etcdctl(words: &[&str]) -> Vec<String> {
    let plain: Vec<&str> = words
        .iter()
        .copied()
        .filter(|word| !word.starts_with('-'))
        .collect();
    let asked = |count: usize| {
        plain
            .iter()
            .take(count)
            .copied()
            .collect::<Vec<_>>()
            .join(" ")
    };
    if ETCDCTL.contains(&asked(1).as_str()) || ETCDCTL.contains(&asked(2).as_str()) {
        return Vec::new();
    }
    vec![format!("etcdctl {} is not known here", asked(2))]
}

fn kubectl(words: &[&str]) -> Vec<String> {
    // `-n NAMESPACE` may precede the verb.
    let words = match words {
        ["-n" | "--namespace", _, rest @ ..] => rest,
        words => words,
    };
    let Some((verb, rest)) = words.split_first() else {
        return Vec::new();
    };
    if *verb == "quorate" {
        let Some((question, rest)) = rest.split_first() else {
            return vec!["`kubectl quorate` wants a question".to_owned()];
        };
        // What follows `--` is etcdctl's.
        let end = rest.iter().position(|word| *word == "--");
        let (own, inner) = rest.split_at(end.unwrap_or(rest.len()));
        let mut problems = ours(&["kubectl", question], own);
        if let [_, inner @ ..] = inner {
            problems.extend(etcdctl(inner));
        }
        return problems;
    }
    if !KUBECTL.contains(verb) {
        return vec![format!("kubectl {verb} is not known here")];
    }
    let mut problems = missing_files(rest);
    problems.extend(match (*verb, rest) {
        ("exec", _) => inner(rest),
        ("explain", [path, ..]) => unknown_field(path).into_iter().collect(),
        ("patch", ["qec", ..]) => patch(rest),
        ("scale", ["qec", ..]) => scale(rest),
        ("annotate", _) => annotations(rest),
        _ => Vec::new(),
    });
    problems
}

/// The command after `--`, which is run in a pod.
fn inner(words: &[&str]) -> Vec<String> {
    let command = words.iter().skip_while(|word| **word != "--").skip(1);
    let command: Vec<String> = command.map(|word| (*word).to_owned()).collect();
    self::command(&command)
}

fn unknown_field(path: &str) -> Option<String> {
    let definition = fs::read_to_string(root().join("crds/quorate.dev_etcdclusters.yaml"));
    let definition: Value =
        serde_saphyr::from_str(&definition.expect("the definition")).expect("YAML");
    let mut schema = definition.pointer("/spec/versions/0/schema/openAPIV3Schema")?;
    for part in path.split('.').skip(1) {
        let of = schema.get("items").unwrap_or(schema);
        match of.pointer(&format!("/properties/{part}")) {
            Some(inner) => schema = inner,
            None => return Some(format!("{path}: there is no field {part}")),
        }
    }
    None
}

fn patch(words: &[&str]) -> Vec<String> {
    let given = words.iter().skip_while(|word| **word != "-p").nth(1);
    let value: Result<Value, _> = serde_json::from_str(given.copied().unwrap_or_default());
    match value {
        Ok(value) => resources::piece(&value["spec"]),
        Err(error) => vec![format!("the patch is not JSON: {error}")],
    }
}

fn scale(words: &[&str]) -> Vec<String> {
    let count = words
        .iter()
        .find_map(|word| word.strip_prefix("--replicas="));
    match count.and_then(|count| count.parse::<i64>().ok()) {
        Some(count) => resources::piece(&json!({"replicas": count})),
        None => vec!["kubectl scale wants --replicas=NUMBER".to_owned()],
    }
}

/// Annotations with our prefix must exist in the code.
fn annotations(words: &[&str]) -> Vec<String> {
    let code = fs::read_to_string(root().join("src/planner/crd/labels.rs")).expect("the labels");
    let keys = words.iter().filter_map(|word| word.split_once('='));
    let ours = keys.filter(|(key, _)| key.starts_with("quorate.dev/"));
    let unknown = ours.filter(|(key, _)| !code.contains(&format!("\"{key}\"")));
    unknown
        .map(|(key, _)| format!("there is no annotation {key}"))
        .collect()
}

#[test]
fn commands_are_split_as_a_shell_does() {
    let text = "a --b='c d' \\\n  e # f\nG=1 h | i \"$(j k)\" && l >m 2>&1 &\n# n\no '' p\n";
    let found: Vec<String> = commands(text).iter().map(|words| words.join("_")).collect();
    assert_eq!(
        found,
        ["a_--b=c d_e", "G=1_h", "j_k", "i_X", "l_>m_2>&1", "o__p"]
    );
}
