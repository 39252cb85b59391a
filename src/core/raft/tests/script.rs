//! Script tests: `tests/raft/*.txt` hold commands and, after `----`, the trace of what each
//! member did. `UPDATE_GOLDEN=1` rewrites the traces.
//!
//! Members stand for themselves in hexadecimal. Commands:
//! `cluster voters=1,2,3 [learners=4] [setting=value …]`, `join ID` (an empty member),
//! `campaign ID`, `tick ID N`, `propose ID DATA…`, `propose-size ID BYTES`,
//! `change ID add-voter|add-learner|promote|remove MEMBER`, `read ID REQUEST`,
//! `transfer ID TO`, `ready ID`, `persist ID`, `apply ID`, `fetch ID`, `lazy-disk ID on|off`,
//! `lazy-apply ID on|off`, `deliver [from=ID] [to=ID] [kind=NAME] [count=N]`, `drop …`,
//! `hold …` and `release` (keep parcels back and let them go again), `stabilize [cut=ID,…]`,
//! `compact ID INDEX`, `crash ID`, `restart ID`, `unreachable ID PEER`, `gone ID PEER`,
//! `status ID`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use bytes::Bytes;

use super::harness::{Cluster, Parcel};
use crate::raft::*;

#[derive(Default)]
struct Script {
    cluster: Cluster,
    held: Vec<Parcel>,
}

/// The arguments of a command: positional and named ones.
struct Words<'a> {
    plain: Vec<&'a str>,
    named: BTreeMap<&'a str, &'a str>,
}

impl<'a> Words<'a> {
    fn parse(line: &'a str) -> Self {
        let mut words = Self {
            plain: Vec::new(),
            named: BTreeMap::new(),
        };
        for word in line.split_whitespace() {
            match word.split_once('=') {
                Some((name, value)) => {
                    words.named.insert(name, value);
                }
                None => words.plain.push(word),
            }
        }
        words
    }

    fn id(&self, at: usize) -> MemberId {
        let word = self
            .plain
            .get(at)
            .unwrap_or_else(|| panic!("word {at} is missing"));
        u64::from_str_radix(word, 16).unwrap_or_else(|_| panic!("{word} is no member"))
    }

    fn number(&self, at: usize) -> u64 {
        self.plain
            .get(at)
            .and_then(|word| word.parse().ok())
            .expect("a number")
    }

    fn on(&self, at: usize) -> bool {
        self.plain.get(at) == Some(&"on")
    }

    fn ids(&self, name: &str) -> Vec<MemberId> {
        let list = self.named.get(name).copied().unwrap_or("");
        list.split(',')
            .filter(|word| !word.is_empty())
            .map(|word| u64::from_str_radix(word, 16).expect("a member"))
            .collect()
    }

    fn picks(&self, parcel: &Parcel) -> bool {
        let is = |name: &str, id: MemberId| {
            let ids = self.ids(name);
            ids.is_empty() || ids.contains(&id)
        };
        let kind = match parcel {
            Parcel::Message(message) => message.body.as_ref().map_or("?", Body::name),
            Parcel::Snapshot { .. } => "Snapshot",
        };
        is("from", parcel.from())
            && is("to", parcel.to())
            && self.named.get("kind").is_none_or(|wanted| *wanted == kind)
    }
}

impl Script {
    fn run(&mut self, line: &str) -> String {
        self.cluster.trace.clear();
        if let Err(error) = self.command(line) {
            self.cluster.record(format!("error: {error}"));
        }
        let trace = std::mem::take(&mut self.cluster.trace);
        if trace.is_empty() {
            "ok\n".to_owned()
        } else {
            trace
        }
    }

    fn command(&mut self, line: &str) -> Result<(), String> {
        let (name, rest) = line.split_once(' ').unwrap_or((line, ""));
        let words = Words::parse(rest);
        let text = |error: Error| error.to_string();
        match name {
            "cluster" => self.make(&words),
            "join" => self
                .cluster
                .add(words.id(0), Configuration::default(), |_| {}),
            "campaign" => {
                let stepped = self.cluster.raft(words.id(0)).campaign().map_err(text)?;
                if let Stepped::Ignored(reason) = stepped {
                    self.cluster.record(format!("ignored: {reason}"));
                }
            }
            "tick" => {
                for _ in 0..words.number(1) {
                    self.cluster.raft(words.id(0)).tick().map_err(text)?;
                }
            }
            "propose" => {
                let items = words.plain[1..]
                    .iter()
                    .map(|word| Bytes::from(word.to_string()));
                self.propose(words.id(0), items.collect())?;
            }
            "propose-size" => {
                let item = Bytes::from(vec![b'x'; words.number(1) as usize]);
                self.propose(words.id(0), vec![item])?;
            }
            "change" => self.change(&words)?,
            "read" => self.cluster.raft(words.id(0)).read_index(words.number(1)),
            "ask-all" => self.cluster.raft(words.id(0)).ask_all_for_reads(),
            "transfer" => {
                let raft = self.cluster.raft(words.id(0));
                raft.transfer_leadership(words.id(1))
                    .map_err(|error| error.to_string())?;
            }
            "ready" => {
                if !self.cluster.ready(words.id(0)).map_err(text)? {
                    self.cluster.record("nothing");
                }
            }
            "persist" => {
                self.cluster.persist(words.id(0)).map_err(text)?;
            }
            "apply" => self.cluster.apply(words.id(0), usize::MAX).map_err(text)?,
            "fetch" => self.cluster.answer_reads(words.id(0)).map_err(text)?,
            "lazy-disk" => self.cluster.node(words.id(0)).lazy_disk = words.on(1),
            "lazy-apply" => self.cluster.node(words.id(0)).lazy_apply = words.on(1),
            "deliver" | "drop" | "hold" => self.move_parcels(name, &words)?,
            "release" => {
                let held = std::mem::take(&mut self.held);
                self.cluster.network.extend(held);
            }
            "stabilize" => self.cluster.stabilize(&words.ids("cut")).map_err(text)?,
            "compact" => {
                self.cluster
                    .compact(words.id(0), words.number(1))
                    .map_err(text)?;
            }
            "crash" => self.cluster.crash(words.id(0)),
            "restart" => self.cluster.restart(words.id(0)).map_err(text)?,
            "unreachable" => self
                .cluster
                .raft(words.id(0))
                .report_unreachable(words.id(1)),
            "gone" => {
                let stepped = self.cluster.raft(words.id(0)).report_gone(words.id(1));
                if let Stepped::Ignored(reason) = stepped.map_err(text)? {
                    self.cluster.record(format!("ignored: {reason}"));
                }
            }
            "status" => self.status(words.id(0)),
            other => panic!("unknown command {other}"),
        }
        Ok(())
    }

    fn make(&mut self, words: &Words<'_>) {
        let conf = Configuration::new(words.ids("voters"), words.ids("learners"));
        let set = |config: &mut Config| {
            for (name, value) in &words.named {
                let number = value.parse::<u64>().unwrap_or(0);
                match *name {
                    "voters" | "learners" => {}
                    "pre-vote" => config.pre_vote = *value == "true",
                    "check-quorum" => config.check_quorum = *value == "true",
                    "max-message" => config.max_message_bytes = number,
                    "inflight" => config.max_inflight_messages = number as usize,
                    "inflight-bytes" => config.max_inflight_bytes = number,
                    "uncommitted" => config.max_uncommitted_bytes = number,
                    "max-entry" => config.max_entry_bytes = number,
                    "cache" => config.cache_bytes = number,
                    "matched-cache" => config.matched_cache_bytes = number,
                    "max-apply" => config.max_apply_bytes = number,
                    other => panic!("unknown setting {other}"),
                }
            }
        };
        for id in conf.members() {
            self.cluster.add(id, conf.clone(), set);
        }
    }

    fn propose(&mut self, id: MemberId, items: Vec<Bytes>) -> Result<(), String> {
        let raft = self.cluster.raft(id);
        let Position { index, term } = raft.propose(items).map_err(|error| error.to_string())?;
        self.cluster.record(format!("appended at {term}/{index}"));
        Ok(())
    }

    fn change(&mut self, words: &Words<'_>) -> Result<(), String> {
        let member = words.id(2);
        let change = match words.plain[1] {
            "add-voter" => ConfigurationChange::AddVoter(member),
            "add-learner" => ConfigurationChange::AddLearner(member),
            "promote" => ConfigurationChange::Promote(member),
            "remove" => ConfigurationChange::Remove(member),
            other => panic!("unknown change {other}"),
        };
        let raft = self.cluster.raft(words.id(0));
        let Position { index, term } = raft
            .propose_configuration(change, Bytes::new())
            .map_err(|error| error.to_string())?;
        self.cluster.record(format!("appended at {term}/{index}"));
        Ok(())
    }

    fn move_parcels(&mut self, action: &str, words: &Words<'_>) -> Result<(), String> {
        let mut left = words
            .named
            .get("count")
            .map_or(usize::MAX, |n| n.parse().expect("a count"));
        for parcel in std::mem::take(&mut self.cluster.network) {
            if left == 0 || !words.picks(&parcel) {
                self.cluster.network.push(parcel);
                continue;
            }
            left -= 1;
            match action {
                "deliver" => {
                    self.cluster
                        .receive(parcel)
                        .map_err(|error| error.to_string())?;
                }
                "hold" => {
                    self.cluster
                        .record(format!("held     {}", parcel.describe()));
                    self.held.push(parcel);
                }
                _ => {
                    self.cluster
                        .record(format!("lost     {}", parcel.describe()));
                    self.cluster.stream_failed(&parcel);
                }
            }
        }
        Ok(())
    }

    fn status(&mut self, id: MemberId) {
        let status = self.cluster.raft(id).status();
        let text = |id: Option<MemberId>| id.map_or("none".to_owned(), |id| format!("{id:x}"));
        self.cluster.record(format!(
            "{:?} term={} vote={} leader={} commit={} applied={} log={}..{} {}",
            status.role,
            status.term,
            text(status.vote),
            text(status.leader),
            status.commit,
            status.applied,
            status.floor_index + 1,
            status.last_index,
            status.configuration,
        ));
        for (id, it) in status.progress {
            let mut line = format!(
                "  {id:x} {:?} matched={} next={}",
                it.state, it.matched, it.next
            );
            if it.learner {
                line += " learner";
            }
            if !it.recent_active {
                line += " silent";
            }
            if let Some(index) = it.pending_snapshot {
                line += &format!(" pending={index}");
            }
            if it.inflight_messages > 0 {
                line += &format!(" inflight={}/{}", it.inflight_messages, it.inflight_bytes);
            }
            self.cluster.record(line);
        }
    }
}

/// Runs a script: comment and blank lines stay, `----` and the trace after a command are new.
fn replay(text: &str) -> String {
    let mut script = Script::default();
    let mut out = String::new();
    let mut in_trace = false;
    for line in text.lines() {
        if in_trace {
            in_trace = !line.is_empty();
            if line.is_empty() {
                out += "\n";
            }
            continue;
        }
        if line == "----" {
            in_trace = true;
            continue;
        }
        out += line;
        out += "\n";
        if !line.is_empty() && !line.starts_with('#') {
            out += "----\n";
            out += &script.run(line);
        }
    }
    out
}

#[test]
fn scripts_give_their_golden_traces() {
    let dir = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).join("tests/raft");
    let mut files: Vec<PathBuf> = std::fs::read_dir(&dir)
        .expect("tests/raft is there")
        .map(|entry| entry.expect("a readable directory").path())
        .filter(|path| path.extension().is_some_and(|ext| ext == "txt"))
        .collect();
    files.sort();
    assert!(files.len() >= 12, "scripts are missing");
    let update = std::env::var_os("UPDATE_GOLDEN").is_some();
    let mut wrong = Vec::new();
    for path in files {
        let text = std::fs::read_to_string(&path).expect("a readable script");
        let got = replay(&text);
        if got == text {
            continue;
        }
        if update {
            std::fs::write(&path, &got).expect("a writable script");
            continue;
        }
        let at = got.lines().zip(text.lines()).position(|(a, b)| a != b);
        let at = at.unwrap_or(got.lines().count().min(text.lines().count()));
        wrong.push(format!(
            "{}:{}\n  is  {}\n  was {}",
            path.display(),
            at + 1,
            got.lines().nth(at).unwrap_or("<end>"),
            text.lines().nth(at).unwrap_or("<end>"),
        ));
    }
    assert!(
        wrong.is_empty(),
        "traces differ (UPDATE_GOLDEN=1 rewrites):\n{}",
        wrong.join("\n")
    );
}
