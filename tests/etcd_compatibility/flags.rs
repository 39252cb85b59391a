//! Compares the flag table with real etcd: every flag of etcd is in it, with etcd's default.

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use quorate::server::HostFacts;
use quorate::server::flags::Flags;
use quorate::server::flags::config::Config;
use quorate::server::flags::table::{self, Class, FLAGS, Flag, Group, Kind};

use crate::node::peers;

/// Defaults that deliberately differ from etcd's.
const OTHER_DEFAULTS: &[(&str, &str)] = &[
    // etcd's help contains a shell variable, a Go constant or a computed value.
    ("data-dir", ""),
    ("max-concurrent-streams", "4294967295"),
    ("initial-cluster", ""),
    ("backend-batch-interval", "0"),
];

#[test]
fn every_flag_of_etcd_is_known_with_its_default() {
    let Some(peers) = peers("flags::every_flag_of_etcd_is_known_with_its_default") else {
        return;
    };
    let output = Command::new(peers.join("etcd"))
        .arg("--help")
        .env_clear()
        .output()
        .expect("etcd runs");
    let help = [output.stdout, output.stderr].concat();
    let help = String::from_utf8_lossy(&help);
    let mut flags = Vec::new();
    for line in help.lines() {
        let Some(text) = line.strip_prefix("  --") else {
            continue;
        };
        let (name, default) = text.split_once(' ').unwrap_or((text, ""));
        flags.push((name, default.trim_matches('\'')));
    }
    assert!(flags.len() > 100, "{} flags in\n{help}", flags.len());
    for (name, default) in flags {
        let flag = table::find(name).unwrap_or_else(|| panic!("--{name} is missing"));
        let by_choice = OTHER_DEFAULTS.iter().find(|(other, _)| *other == name);
        match by_choice {
            Some((_, ours)) => assert_eq!(flag.default, *ours, "--{name}"),
            // Some lines of etcd's help contain no default.
            None if default.is_empty() => {}
            None => assert_eq!(flag.default, default, "--{name}"),
        }
    }
}

#[test]
fn every_flag_can_be_given_as_one_argument() {
    for flag in table::FLAGS {
        let needs = matches!(flag.class, Class::Refused(_)) || flag.default.is_empty();
        if needs || flag.kind == Kind::Text || flag.name == "version" {
            continue;
        }
        for dashes in ["-", "--"] {
            let argument = format!("{dashes}{}={}", flag.name, flag.default);
            let flags = quorate::server::flags::Flags::parse(
                std::slice::from_ref(&argument),
                &std::collections::BTreeMap::new(),
            );
            let flags = flags.unwrap_or_else(|error| panic!("{argument}: {error}"));
            assert!(flags.is_given(flag.name), "{argument}");
        }
    }
}

/// Values that etcd accepts and Quorate deliberately refuses.
const REFUSED_HERE: &[(&str, &str)] = &[
    // etcd's arithmetic overflows to -1 s, which then selects the default.
    ("auth-token-ttl", "9223372036854775807"),
];

/// Values that etcd accepts but cannot run with: Quorate refuses them.
const NO_GOOD: &[(&str, &str)] = &[
    // No request fits into the limit, not even etcd's own first one: it never serves.
    ("max-request-bytes", "0"),
    ("max-request-bytes", "9223372036854775807"),
    // etcd panics.
    ("corrupt-check-time", "-1s"),
];

fn judged(argument: &str) -> Result<(), String> {
    let flags = Flags::parse(&[argument.to_owned()], &BTreeMap::new());
    let flags = flags.map_err(|error| error.to_string())?;
    let config = Config::from_flags(&flags, HostFacts::default());
    config.map(|_| ()).map_err(|error| error.to_string())
}

/// An etcd process with these flags and its own directory.
struct Tried {
    child: Child,
    folder: tempfile::TempDir,
}

impl Tried {
    fn start(peers: &Path, flags: &[String]) -> Tried {
        let folder = tempfile::tempdir().expect("a directory");
        let free = || {
            let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
            format!("http://{}", listener.local_addr().expect("an address"))
        };
        let (client, peer) = (free(), free());
        let log = std::fs::File::create(folder.path().join("log")).expect("a file");
        let child = Command::new(peers.join("etcd"))
            .arg(format!(
                "--data-dir={}",
                folder.path().join("data").display()
            ))
            .arg(format!("--listen-client-urls={client}"))
            .arg(format!("--advertise-client-urls={client}"))
            .arg(format!("--listen-peer-urls={peer}"))
            .arg(format!("--initial-advertise-peer-urls={peer}"))
            .arg(format!("--initial-cluster=default={peer}"))
            .args(flags)
            .env_clear()
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("etcd runs");
        Tried { child, folder }
    }

    fn printed(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    /// Waits until it serves clients or exits; returns whether it serves.
    fn serves(&mut self) -> bool {
        let until = Instant::now() + Duration::from_secs(30);
        while Instant::now() < until {
            if self.printed().contains("ready to serve client requests") {
                return true;
            }
            if let Ok(Some(_)) = self.child.try_wait() {
                return false;
            }
            thread::sleep(Duration::from_millis(20));
        }
        panic!("etcd neither serves nor exits:\n{}", self.printed());
    }
}

impl Drop for Tried {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// For every flag with a number or a duration, values at and beyond the limits: Quorate refuses those that etcd
/// refuses, and accepts those that etcd accepts, except for the ones listed above. The flags come from the table, so a
/// new one is tested too.
#[test]
fn numbers_and_durations_parse_as_etcd() {
    let Some(peers) = peers("flags::numbers_and_durations_parse_as_etcd") else {
        return;
    };
    let asked = |flag: &&Flag| {
        matches!(flag.kind, Kind::Number | Kind::Signed | Kind::Duration)
            && !matches!(flag.group, Group::Operator | Group::Removed)
    };
    let (numbers, durations): (Vec<&Flag>, Vec<&Flag>) = FLAGS
        .iter()
        .filter(asked)
        .partition(|flag| flag.kind != Kind::Duration);
    assert!(numbers.len() > 10 && durations.len() > 10);
    let mut values: Vec<(&[&Flag], &str)> = Vec::new();
    for value in ["0", "-1", "9223372036854775807", "18446744073709551616"] {
        values.push((&numbers, value));
    }
    for value in ["0", "-1s", "+1.5h", "2562047h", "2562048h", "1"] {
        values.push((&durations, value));
    }
    let by_choice = |list: &[(&str, &str)], flag: &Flag, value| {
        list.iter()
            .any(|(name, other)| *name == flag.name && *other == value)
    };
    for (flags, value) in values {
        let argument = |flag: &&&Flag| format!("--{}={value}", flag.name);
        let (taken, refused): (Vec<&&Flag>, Vec<&&Flag>) = flags
            .iter()
            .partition(|flag| judged(&argument(flag)).is_ok());
        // All accepted values are given to etcd in one command line; the others one by one.
        let taken: Vec<String> = taken.iter().map(argument).collect();
        if !taken.is_empty() {
            let mut etcd = Tried::start(&peers, &taken);
            assert!(etcd.serves(), "{taken:?}:\n{}", etcd.printed());
        }
        for flag in refused {
            let argument = argument(&flag);
            if by_choice(NO_GOOD, flag, value) {
                continue;
            }
            let mut etcd = Tried::start(&peers, std::slice::from_ref(&argument));
            let chosen = by_choice(REFUSED_HERE, flag, value);
            assert_eq!(etcd.serves(), chosen, "{argument}:\n{}", etcd.printed());
        }
    }
}
