//! The store as rows in order of revision, as etcd's backend keeps them, and a store rebuilt
//! from such rows. Independent of how rows are stored.

use std::ops::ControlFlow;
use std::sync::Arc;

use crate::mutants::mutant;
use bytes::Bytes;

use super::checkpoint::base;
use super::history::KeyEntry;
use super::lease::LeaseInfo;
use super::recents::Recents;
use super::record::{Details, Record};
use super::span::Span;
use super::state::State;
use super::state_machine::Store;
use super::tree::Item as _;
use super::value::{Place, Value, ValueFile, sum};
use super::view::View;
use super::{Alarm, AuthState, DamagedValue, Error, KeyValue, Revision, SetAlarm};

/// The largest accepted revision: no store reaches it, and none may overflow from it.
pub(super) const MOST: Revision = 1 << 60;
/// The largest number of a change within its revision: there is always a next one. A transaction has far fewer.
pub(super) const MOST_SUB: u32 = u32::MAX - 1;

/// One revision of one key.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Its revision.
    pub main: Revision,
    /// Its place within the revision.
    pub sub: u32,
    /// Whether it deletes the key.
    pub tombstone: bool,
    /// The key as it is then; of a tombstone the key alone.
    pub kv: KeyValue,
}

/// Puts the name of a row in etcd's backend behind what is in a buffer.
pub(super) fn put_row_key(main: Revision, sub: u32, tombstone: bool, into: &mut Vec<u8>) {
    into.extend_from_slice(&main.to_be_bytes());
    into.push(b'_');
    into.extend_from_slice(&u64::from(sub).to_be_bytes());
    if tombstone {
        into.push(b't');
    }
}

impl Row {
    pub(super) fn new(record: &Record) -> Result<Row, DamagedValue> {
        Ok(Row {
            main: record.main,
            sub: record.sub,
            tombstone: record.tombstone,
            kv: match record.tombstone {
                false => record.to_kv()?,
                true => KeyValue {
                    key: Bytes::copy_from_slice(record.key()),
                    ..KeyValue::default()
                },
            },
        })
    }

    /// The row's name in etcd's backend: revision, `_`, place, and `t` for a tombstone.
    #[must_use]
    pub fn name(&self) -> Vec<u8> {
        let mut name = Vec::with_capacity(18);
        put_row_key(self.main, self.sub, self.tombstone, &mut name);
        name
    }

    /// Whether it may follow a row of this revision and place in a store.
    ///
    /// # Errors
    /// [`Error::Checkpoint`] if it is out of order or contradicts itself.
    pub fn check(&self, last: (Revision, u32)) -> Result<(), Error> {
        if (self.main, self.sub) <= last {
            return Err(damaged(self, "it is out of order"));
        }
        if self.main > MOST {
            return Err(damaged(self, "its revision is too large"));
        }
        if self.sub > MOST_SUB {
            return Err(damaged(self, "its number is too large"));
        }
        let kv = &self.kv;
        let sound = kv.key.is_empty()
            || self.tombstone
            || (kv.mod_revision == self.main
                && (1..=self.main).contains(&kv.create_revision)
                && (1..=MOST).contains(&kv.version));
        match sound {
            true => Ok(()),
            false => Err(damaged(self, "its revisions contradict each other")),
        }
    }

    /// Revision, place and whether it is a tombstone, from a row's name. `None` for what is
    /// none.
    #[must_use]
    pub fn parse_name(name: &[u8]) -> Option<(Revision, u32, bool)> {
        let tombstone = match name.len() {
            17 => false,
            18 if name[17] == b't' => true,
            _ => return None,
        };
        let main = Revision::from_be_bytes(name[..8].try_into().ok()?);
        let sub = u64::from_be_bytes(name[9..17].try_into().ok()?);
        let sub = u32::try_from(sub).ok()?;
        (name[8] == b'_' && main > 0).then_some((main, sub, tombstone))
    }
}

impl View {
    /// Every row that etcd's backend would hold after the last compaction is done, in order of
    /// revision. Needs a pointer for each key that was last written before that compaction.
    ///
    /// # Errors
    /// In the place of a row whose value cannot be read.
    pub fn rows(&self) -> impl Iterator<Item = Result<Row, DamagedValue>> + '_ {
        let state = &self.state;
        let compacted = state.compacted;
        let mut old: Vec<Record> = Vec::new();
        if compacted >= 0 {
            state.keys.visit(Span::ALL, &mut |entry| {
                // Of deleted keys only those deleted by the compacted revision itself are included.
                let kept = base(entry, compacted);
                old.extend(kept.map(|found| Record::clone(&state.seen(entry, found))));
                ControlFlow::Continue(())
            });
            old.sort_unstable_by_key(|record| record.place());
        }
        let log = &state.log;
        let new = log.iter_from(log.position(compacted.saturating_add(1)));
        old.into_iter()
            .map(|record| Row::new(&record))
            .chain(new.map(|entry| Row::new(&entry.record)))
    }
}

/// A store that is being rebuilt from rows.
#[derive(Debug)]
pub struct Rebuild {
    state: State,
    recent: Recents,
    /// Place of the last row.
    last: (Revision, u32),
}

impl Rebuild {
    /// Begins; `compacted` is the revision of the last compaction, -1 without one. Rows that it
    /// has forgotten are left out.
    #[must_use]
    pub fn new(compacted: Revision) -> Rebuild {
        let state = State {
            compacted: compacted.max(-1),
            floor: compacted.max(-1),
            ..State::default()
        };
        Rebuild {
            state,
            recent: Recents::default(),
            last: (0, 0),
        }
    }

    /// Adds a lease.
    pub fn lease(&mut self, lease: LeaseInfo) {
        self.state.leases.grant(lease);
    }

    /// Raises an alarm; false if it is of no kind.
    pub fn alarm(&mut self, alarm: Alarm) -> bool {
        let Alarm { kind, member } = alarm;
        let set = SetAlarm {
            kind: kind.into(),
            member,
            on: true,
        };
        matches!(self.state.alarms.set(&set), Ok(Some(_)))
    }

    /// Sets users, roles and permissions.
    pub fn auth(&mut self, auth: AuthState) {
        self.state.auth = Arc::new(auth);
    }

    /// Adds the next row, in order of revision. One without a key only moves the revision, as
    /// etcd's tool does to raise it.
    ///
    /// # Errors
    /// [`Error::Checkpoint`] if it is out of order or contradicts itself.
    pub fn row(&mut self, row: &Row) -> Result<(), Error> {
        self.placed_row(row, |_| Ok(None))
    }

    /// The same with its value in a file: `place` writes it there and says where, or leaves it in memory. The file need
    /// not be readable before the store is finished.
    ///
    /// # Errors
    /// As [`Rebuild::row`], and those of `place`.
    pub fn placed_row<E: From<Error>>(
        &mut self,
        row: &Row,
        place: impl FnOnce(&[u8]) -> Result<Option<(Arc<ValueFile>, u64)>, E>,
    ) -> Result<(), E> {
        row.check(self.last)?;
        self.last = (row.main, row.sub);
        if row.kv.key.is_empty() {
            return Ok(());
        }
        let kv = &row.kv;
        let at = (row.main, row.sub);
        let record = match row.tombstone {
            true => Record::tombstone(&kv.key, at),
            false => {
                let value = match place(&kv.value)? {
                    Some((file, offset)) => Value::placed(Place {
                        file,
                        offset,
                        // Its length came from a request, which has a limit far below this.
                        length: u32::try_from(kv.value.len()).unwrap_or(u32::MAX),
                        sum: sum(&kv.value),
                    }),
                    None => Value::new(Bytes::copy_from_slice(&kv.value)),
                };
                let details = Details {
                    create: kv.create_revision,
                    version: kv.version,
                    lease: kv.lease,
                };
                Record::new(&kv.key, value, details, at)
            }
        };
        self.add(&record);
        Ok(())
    }

    fn add(&mut self, record: &Record) {
        let state = &mut self.state;
        let compacted = state.compacted;
        // At the compacted revision and before it only the last record of a key counts.
        let known = state.keys.get(record.key());
        let replaced = known.map(|entry| entry.newest().main);
        if replaced.is_some_and(|main| main < compacted && record.main <= compacted)
            && let Some(old) = state.keys.remove(record.key())
        {
            state.added -= old.newest().size();
        }
        if record.main >= compacted {
            state.added += record.size();
            let before = state.keys.get(record.key());
            let before = before.map(KeyEntry::newest);
            let replaces = before.filter(|before| !before.tombstone);
            let replaces = replaces.map_or(0, |before| before.size());
            self.recent.push(record, replaces);
            let pushed = state.keys.modify(record.key(), |entry| {
                let logged = entry.newest().main >= compacted;
                entry.push(record.clone(), logged);
            });
            if pushed.is_none() {
                state.keys.insert(KeyEntry::new(record.clone()));
            }
            return;
        }
        if !record.tombstone {
            state.added += record.size();
            state.keys.insert(KeyEntry::new(record.clone()));
        }
    }

    /// Ends and gives the store. Its revision is that of the last row, or the compacted one if that is higher; with
    /// `bump` it is raised by that number and everything before is compacted, so that no client mistakes it for the
    /// past.
    ///
    /// # Errors
    /// [`Error::Checkpoint`] if the revision does not fit.
    pub fn finish(mut self, bump: u64) -> Result<Store, Error> {
        let state = &mut self.state;
        std::mem::take(&mut self.recent).index(state)?;
        let mut attached = Vec::new();
        state.keys.visit(Span::ALL, &mut |entry| {
            let newest = entry.newest();
            let Details { lease, .. } = newest.details();
            if entry.live() && lease != 0 {
                attached.push((lease, newest.clone()));
            }
            ControlFlow::Continue(())
        });
        for (lease, newest) in attached {
            state.leases.attach(lease, newest.key());
        }
        let newest =
            mutant!(RevisionFromRows => self.last.0, else self.last.0.max(state.compacted));
        state.revision = newest.max(1);
        if bump > 0 {
            let raised = i64::try_from(bump)
                .ok()
                .and_then(|bump| state.revision.checked_add(bump))
                .filter(|raised| *raised <= MOST);
            state.revision =
                raised.ok_or_else(|| Error::Checkpoint("the revision is too large".to_owned()))?;
            state.compact(state.revision)?;
        }
        Ok(Store { state: self.state })
    }
}

fn damaged(row: &Row, what: &str) -> Error {
    let Row { main, sub, .. } = row;
    Error::Checkpoint(format!("row {main}.{sub}: {what}"))
}
