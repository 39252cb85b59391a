//! The record of a run: each operation of a client with its start, end and response, and each response on each watch.
//! Times are nanoseconds since the start of the run, on one monotonic clock. It is stored as lines of JSON, which
//! porcupine reads too. Contains no checks.

use std::io::Write as _;
use std::path::Path;
use std::sync::Mutex;
use std::time::Instant;

use serde::{Deserialize, Serialize};

/// Nanoseconds since the run began.
pub(crate) type Nanos = u64;

/// A key with its value and metadata.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Kv {
    pub(crate) key: String,
    pub(crate) value: String,
    pub(crate) created: i64,
    pub(crate) modified: i64,
    pub(crate) version: i64,
    pub(crate) lease: i64,
}

/// A condition on a key for a transaction to take its first branch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Compare {
    pub(crate) key: String,
    /// The key's mod revision must equal this; 0: the key does not exist. `None`: the value is compared instead.
    pub(crate) modified: Option<i64>,
    /// The value at that revision, unique to its writer; empty: the key does not exist.
    pub(crate) value: String,
}

/// One act of an operation, or of a branch of a transaction.
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
        /// Empty: a single key.
        end: String,
        prev: bool,
    },
    Range {
        key: String,
        /// Empty: a single key.
        end: String,
        limit: i64,
        /// 0: the newest revision.
        revision: i64,
        keys_only: bool,
        count_only: bool,
    },
}

/// The result of an act.
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

/// The request of a client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "lowercase")]
pub(crate) enum Request {
    /// Any operation on keys: a single act is a transaction with one branch.
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

/// The outcome of an operation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "lowercase")]
pub(crate) enum Outcome {
    /// It was answered.
    Done {
        revision: i64,
        succeeded: bool,
        given: Vec<Given>,
        /// The TTL of a lease in seconds; 0: there is no lease.
        ttl: i64,
    },
    /// Refused with an error that guarantees that it was not applied.
    Refused { code: String, text: String },
    /// It may have been applied, or may still be.
    Unknown { text: String },
}

/// One operation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Operation {
    pub(crate) client: u64,
    /// The member that received the request.
    pub(crate) member: String,
    pub(crate) began: Nanos,
    /// When the response arrived, or the client stopped waiting.
    pub(crate) ended: Nanos,
    pub(crate) request: Request,
    pub(crate) outcome: Outcome,
}

impl Operation {
    /// The revision of its response.
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

/// One event that a watcher received.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Event {
    pub(crate) deleted: bool,
    pub(crate) kv: Kv,
    pub(crate) prev: Option<Kv>,
}

/// One response on a watch stream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Shown {
    pub(crate) at: Nanos,
    /// The revision in the header.
    pub(crate) revision: i64,
    pub(crate) events: Vec<Event>,
    /// It is a progress notification without events: no event up to `revision` follows.
    pub(crate) bookmark: bool,
    /// If greater than 0, the watch was cancelled, and the history before this revision is compacted.
    pub(crate) compacted: i64,
}

/// A watch from its creation to its end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Watch {
    pub(crate) watcher: String,
    pub(crate) member: String,
    pub(crate) key: String,
    /// Empty: a single key; one zero byte: all keys from `key` on.
    pub(crate) end: String,
    /// The first revision that it wants; 0: from now on.
    pub(crate) start: i64,
    pub(crate) no_put: bool,
    pub(crate) no_delete: bool,
    pub(crate) prev: bool,
    pub(crate) shown: Vec<Shown>,
}

/// The state of one member at rest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AtRest {
    pub(crate) member: String,
    pub(crate) revision: i64,
    pub(crate) hash: u32,
    pub(crate) compacted: i64,
    pub(crate) kvs: Vec<Kv>,
    /// The IDs of all leases.
    pub(crate) leases: Vec<i64>,
}

/// The whole record of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct History {
    pub(crate) operations: Vec<Operation>,
    pub(crate) watches: Vec<Watch>,
    pub(crate) rest: Vec<AtRest>,
}

impl History {
    /// Writes `operations.jsonl`, `watches.jsonl` and `rest.jsonl` to a folder.
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

/// Collects the records of all clients.
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

    /// The time since the start of the run.
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

    /// Takes the record.
    pub(crate) fn finish(&self) -> History {
        self.with(std::mem::take)
    }

    /// Accesses the record so far.
    pub(crate) fn with<T>(&self, look: impl FnOnce(&mut History) -> T) -> T {
        look(&mut self.history.lock().expect("no thread panics with the lock"))
    }
}
