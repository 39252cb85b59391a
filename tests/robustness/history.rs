//! What clients did and the answers that they received: each operation with its start and end, and each answer of each
//! watch. Times are nanoseconds since the start of the run, of one monotonic clock. Stored as lines of JSON, which
//! porcupine reads too. Never judges.

use std::io::Write as _;
use std::path::Path;
use std::sync::Mutex;
use std::time::Instant;

use serde::{Deserialize, Serialize};

/// Nanoseconds since the run began.
pub(crate) type Nanos = u64;

/// A key with all its metadata.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Kv {
    pub(crate) key: String,
    pub(crate) value: String,
    pub(crate) created: i64,
    pub(crate) modified: i64,
    pub(crate) version: i64,
    pub(crate) lease: i64,
}

/// What must hold of a key for a transaction to take its first branch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Compare {
    pub(crate) key: String,
    /// The revision that the key must have been changed last at, 0: absent. `None`: it is the
    /// value that is compared.
    pub(crate) modified: Option<i64>,
    /// The value at that revision, which its writer alone gives; empty: absent.
    pub(crate) value: String,
}

/// One act of an operation, or of a transaction's branch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub(crate) enum Act {
    Put {
        key: String,
        /// Unique in a run: it identifies the operation that wrote it.
        value: String,
        lease: i64,
        prev: bool,
    },
    Delete {
        key: String,
        /// Empty: the one key.
        end: String,
        prev: bool,
    },
    Range {
        key: String,
        /// Empty: the one key.
        end: String,
        limit: i64,
        /// 0: as it is now.
        revision: i64,
        keys_only: bool,
        count_only: bool,
    },
}

/// What an act gave.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub(crate) enum Given {
    Put {
        prev: Option<Kv>,
    },
    Delete {
        deleted: i64,
        prev: Vec<Kv>,
    },
    Range {
        kvs: Vec<Kv>,
        count: i64,
        more: bool,
    },
}

/// What a client asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "lowercase")]
pub(crate) enum Request {
    /// Everything with keys: a single act is a transaction of one branch.
    Txn {
        compares: Vec<Compare>,
        then: Vec<Act>,
        or_else: Vec<Act>,
        serializable: bool,
    },
    Compact {
        revision: i64,
    },
    Grant {
        id: i64,
        ttl: i64,
    },
    KeepAlive {
        id: i64,
    },
    Revoke {
        id: i64,
    },
}

/// What became of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "lowercase")]
pub(crate) enum Outcome {
    /// Answered.
    Done {
        revision: i64,
        succeeded: bool,
        given: Vec<Given>,
        /// Seconds that a lease got; 0: there is none.
        ttl: i64,
    },
    /// Refused with an error that guarantees that it was not applied.
    Refused { code: String, text: String },
    /// It may have been carried out, or be carried out yet.
    Unknown { text: String },
}

/// One operation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Operation {
    pub(crate) client: u64,
    /// The member that was asked.
    pub(crate) member: String,
    pub(crate) began: Nanos,
    /// When the answer was there, or was not waited for any longer.
    pub(crate) ended: Nanos,
    pub(crate) request: Request,
    pub(crate) outcome: Outcome,
}

impl Operation {
    /// The revision of its answer.
    pub(crate) fn revision(&self) -> Option<i64> {
        match self.outcome {
            Outcome::Done { revision, .. } => Some(revision),
            _ => None,
        }
    }

    pub(crate) fn is_unknown(&self) -> bool {
        matches!(self.outcome, Outcome::Unknown { .. })
    }
}

/// One change that a watcher was shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Event {
    pub(crate) deleted: bool,
    pub(crate) kv: Kv,
    pub(crate) prev: Option<Kv>,
}

/// One answer on a watch stream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Shown {
    pub(crate) at: Nanos,
    /// Of the header.
    pub(crate) revision: i64,
    pub(crate) events: Vec<Event>,
    /// It is a sign of life without events: nothing up to `revision` is still to come.
    pub(crate) bookmark: bool,
    /// Greater than 0: cancelled, since the history up to here is gone.
    pub(crate) compacted: i64,
}

/// A watch from its creation to its end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Watch {
    pub(crate) watcher: String,
    pub(crate) member: String,
    pub(crate) key: String,
    /// Empty: the one key; one zero byte: everything from `key` on.
    pub(crate) end: String,
    /// The first revision that it wants; 0: whatever comes.
    pub(crate) start: i64,
    pub(crate) no_put: bool,
    pub(crate) no_delete: bool,
    pub(crate) prev: bool,
    pub(crate) shown: Vec<Shown>,
}

/// What was found at rest, on one member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AtRest {
    pub(crate) member: String,
    pub(crate) revision: i64,
    pub(crate) hash: u32,
    pub(crate) compacted: i64,
    pub(crate) kvs: Vec<Kv>,
    /// Leases that there are.
    pub(crate) leases: Vec<i64>,
}

/// Everything that a run recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct History {
    pub(crate) operations: Vec<Operation>,
    pub(crate) watches: Vec<Watch>,
    pub(crate) rest: Vec<AtRest>,
}

impl History {
    /// Writes `operations.jsonl`, `watches.jsonl` and `rest.jsonl` into a folder.
    pub(crate) fn write(&self, folder: &Path) -> std::io::Result<()> {
        lines(&folder.join("operations.jsonl"), &self.operations)?;
        lines(&folder.join("watches.jsonl"), &self.watches)?;
        lines(&folder.join("rest.jsonl"), &self.rest)
    }

    /// Reads what [`History::write`] wrote.
    pub(crate) fn read(folder: &Path) -> std::io::Result<History> {
        Ok(History {
            operations: parse(&folder.join("operations.jsonl"))?,
            watches: parse(&folder.join("watches.jsonl"))?,
            rest: parse(&folder.join("rest.jsonl"))?,
        })
    }
}

fn lines<T: Serialize>(path: &Path, all: &[T]) -> std::io::Result<()> {
    let mut file = std::io::BufWriter::new(std::fs::File::create(path)?);
    for one in all {
        serde_json::to_writer(&mut file, one)?;
        file.write_all(b"\n")?;
    }
    file.flush()
}

fn parse<T: for<'a> Deserialize<'a>>(path: &Path) -> std::io::Result<Vec<T>> {
    let text = std::fs::read_to_string(path)?;
    let all = text.lines().map(serde_json::from_str::<T>);
    Ok(all.collect::<Result<_, _>>()?)
}

/// Where all clients write what they see.
#[derive(Debug)]
pub(crate) struct Recorder {
    began: Instant,
    history: Mutex<History>,
}

impl Recorder {
    pub(crate) fn new() -> Recorder {
        Recorder {
            began: Instant::now(),
            history: Mutex::default(),
        }
    }

    /// Now.
    pub(crate) fn now(&self) -> Nanos {
        u64::try_from(self.began.elapsed().as_nanos()).expect("a run ends within centuries")
    }

    pub(crate) fn operation(&self, operation: Operation) {
        self.with(|history| history.operations.push(operation));
    }

    pub(crate) fn watch(&self, watch: Watch) {
        self.with(|history| history.watches.push(watch));
    }

    pub(crate) fn rest(&self, rest: AtRest) {
        self.with(|history| history.rest.push(rest));
    }

    /// Takes what was recorded.
    pub(crate) fn finish(&self) -> History {
        self.with(std::mem::take)
    }

    /// Looks at what is recorded so far.
    pub(crate) fn with<T>(&self, look: impl FnOnce(&mut History) -> T) -> T {
        look(&mut self.history.lock().expect("nobody panics in here"))
    }
}
