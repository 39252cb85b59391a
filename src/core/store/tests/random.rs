//! Random operations: the store must answer and refuse as the model does, whatever has been
//! reclaimed, exported, moved to files or frozen in between. `SEEDS` and `OPS` make it longer, `SEED` runs one.

use std::sync::Arc;

use super::generator::Generator;
use super::model::Model;
use super::values::{Files, whole};
use super::watch_model::Audience;
use crate::store::*;

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name)
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(default)
}

struct Run {
    generator: Generator,
    store: Store,
    model: Model,
    audience: Audience,
    frozen: Vec<(Arc<View>, Model)>,
    files: Files,
    term: u64,
}

#[test]
fn store_equals_a_naive_model() {
    let ops = setting("OPS", 700);
    let first = setting("SEED", 0);
    let seeds = if std::env::var("SEED").is_ok() {
        1
    } else {
        setting("SEEDS", 8)
    };
    for seed in first..first + seeds {
        let store = Store::new();
        let audience = Audience::new(&store.publish());
        let (generator, model) = (Generator::new(seed), Model::new());
        let mut run = Run {
            generator,
            store,
            model,
            audience,
            frozen: Vec::new(),
            files: Files::default(),
            term: 1,
        };
        for op in 0..ops {
            run.step(&format!("seed {seed}, operation {op}"));
        }
        run.check_frozen(&format!("seed {seed}"));
        let (files, read) = run.files.counts();
        assert!(
            files > 3 && read > 100,
            "seed {seed}: {files} files, {read} reads"
        );
        run.audience.finish(&run.store.publish(), &run.model);
    }
}

impl Run {
    fn step(&mut self, at: &str) {
        let (low, high) = (self.model.compacted.max(0), self.model.revision);
        let operation = match self.generator.below(41) {
            0..=14 => Operation::Put(self.generator.put()),
            15..=18 => Operation::DeleteRange(self.generator.delete()),
            19..=29 => Operation::Txn(self.generator.txn(2, low, high)),
            30..=32 => {
                let id = self.generator.between(1, 6);
                Operation::LeaseGrant(LeaseGrant {
                    id,
                    ttl: self.generator.between(1, 9),
                })
            }
            33 => Operation::LeaseRevoke(LeaseRevoke {
                id: self.generator.between(1, 6),
            }),
            34 => {
                let ids = vec![self.generator.between(1, 6), self.generator.between(1, 6)];
                Operation::LeaseExpire(LeaseExpire {
                    ids,
                    term: self.generator.below(2) + 1,
                })
            }
            35 => {
                let revision = self.generator.between(low - 1, high + 1);
                Operation::Compact(Compact { revision })
            }
            36 => {
                self.store.reclaim(self.generator.below(40) as usize);
                return;
            }
            37 if self.generator.one_in(4) => return self.rebuild(at),
            38 => return self.freeze(),
            39 => return self.move_values(at),
            _ => return self.watch(at),
        };
        let command = Command::from(operation);
        let overview = self.store.overview();
        if check(
            &command,
            &Limits {
                max_txn_ops: 6,
                quota_bytes: 0,
            },
            &overview,
        )
        .is_ok()
        {
            self.apply(&command, at);
        }
        self.read(at);
    }

    /// What only reads, a view answers as the log would.
    fn read_txn(&self, command: &Command, expected: &Result<Response, Error>, at: &str) {
        let Some(Operation::Txn(txn)) = &command.operation else {
            return;
        };
        let answer = self.store.publish().txn(txn).map(Response::Txn);
        if txn.is_read_only() {
            assert_eq!(&answer, expected, "{at}: {txn:?}");
        } else {
            assert_eq!(answer, Err(Error::NotReadOnly), "{at}: {txn:?}");
        }
    }

    fn apply(&mut self, command: &Command, at: &str) {
        let size = self.store.publish().db_size();
        let position = Position {
            index: 0,
            term: self.term,
        };
        let expected = self.model.apply(command, self.term);
        self.read_txn(command, &expected, at);
        assert_eq!(
            self.store.apply(command, position),
            expected,
            "{at}: {command:?}"
        );
        let view = self.store.publish();
        assert_eq!(
            view.db_size(),
            self.model.db_size(),
            "{at}: size after {command:?}"
        );
        if expected.is_err() {
            assert_eq!(
                view.db_size(),
                size,
                "{at}: a refused command changes nothing"
            );
        }
    }

    fn read(&mut self, at: &str) {
        let view = self.store.publish();
        let (low, high) = (self.model.compacted.max(0), self.model.revision);
        assert_eq!(
            (view.revision(), view.compacted()),
            (high, self.model.compacted),
            "{at}"
        );
        for _ in 0..3 {
            let range = self.generator.range(low, high);
            assert_eq!(
                view.range(&range),
                self.model.range(&range),
                "{at}: {range:?}"
            );
        }
        let revision = self.generator.between(low.max(1), high);
        let hash = view.hash_kv(revision).map(|hash| hash.hash);
        assert_eq!(
            hash,
            Ok(self.model.hash_kv(revision)),
            "{at}: hash at {revision}"
        );
        let id = self.generator.between(1, 6);
        let ttl = view.lease(id).map(|lease| lease.ttl);
        assert_eq!(ttl, self.model.leases.get(&id).copied(), "{at}: lease {id}");
        assert_eq!(
            view.lease_keys(id),
            self.model.lease_keys(id),
            "{at}: lease {id}"
        );
    }

    /// Moves values to a file, as a checkpoint does, and empties worn ones.
    fn move_values(&mut self, at: &str) {
        let view = self.store.publish();
        let from = self.generator.between(1, 4) as usize;
        self.files
            .take(&view, from)
            .unwrap_or_else(|error| panic!("{at}: {error}"));
    }

    /// Goes on with a store made from an export: with the values in it, or with places of them.
    fn rebuild(&mut self, at: &str) {
        let view = self.store.publish();
        let placed = view.export().placed().collect::<Vec<_>>();
        let files = self.files.all();
        let store =
            Store::import_with(files, &placed).unwrap_or_else(|error| panic!("{at}: {error}"));
        let again = store.publish();
        assert_eq!(again.hash_kv(0), view.hash_kv(0), "{at}");
        assert!(
            again.export().eq(view.export()),
            "{at}: the same bytes again"
        );
        assert_eq!(self.files.inline(&placed), whole(&view), "{at}");
        if self.generator.between(0, 1) == 0 {
            self.store = store;
            return;
        }
        let chunks: Vec<_> = view.export().collect();
        let store = Store::import(&chunks).unwrap_or_else(|error| panic!("{at}: {error}"));
        let rebuilt = store.publish();
        assert_eq!(rebuilt.hash_kv(0), view.hash_kv(0), "{at}");
        assert_eq!(rebuilt.db_size(), view.db_size(), "{at}");
        assert_eq!(rebuilt.leases(), view.leases(), "{at}");
        assert_eq!(
            rebuilt.export().collect::<Vec<_>>(),
            chunks,
            "{at}: the same bytes again"
        );
        self.store = store;
    }

    fn freeze(&mut self) {
        self.frozen.push((self.store.publish(), self.model.clone()));
        if self.frozen.len() > 4 {
            self.frozen.remove(0);
        }
    }

    /// Views show what they showed when they were published.
    fn check_frozen(&mut self, at: &str) {
        for (view, model) in &self.frozen {
            let (low, high) = (model.compacted.max(0), model.revision);
            for _ in 0..50 {
                let range = self.generator.range(low, high);
                assert_eq!(view.range(&range), model.range(&range), "{at}: {range:?}");
            }
            assert_eq!(
                view.hash_kv(0).map(|hash| hash.hash),
                Ok(model.hash_kv(high)),
                "{at}"
            );
            assert_eq!(view.db_size(), model.db_size(), "{at}");
        }
    }

    fn watch(&mut self, at: &str) {
        let view = self.store.publish();
        self.audience
            .step(&mut self.generator, &view, &self.model, at);
    }
}
