//! The whole state as a stream of bytes in bounded chunks, and back. What compaction has
//! forgotten is left out, reclaimed or not; the rebuilt store answers everything alike, its
//! hash and logical size included.
//!
//! Never reads or writes a file: checksums of chunks are the disk's business, completeness is
//! checked here. A value that is in a file of values is read for a stream that leaves the member; a
//! checkpoint of its own has the place of it instead.
//!
//! What the stream consists of is in [`super::pieces`].

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use crate::mutants::mutant;
use bytes::{Bytes, BytesMut};
use prost::Message as _;

use super::history::{Found, KeyEntry};
use super::key_rows::KeyRows;
use super::lease::LeaseInfo;
use super::marked::Marked;
use super::pieces::{FORMAT, FORMAT_PLACED, Head, Kind, Lease, Piece, Row, Tail, damaged, place};
use super::recents::Recents;
use super::record::Details;
use super::row_bytes::{Items, RowBytes};
use super::rows::{MOST, MOST_SUB};
use super::span::{End, Span};
use super::state::State;
use super::state_machine::Store;
use super::tree::{Builder, Item as _};
use super::unkeyed::Unkeyed;
use super::view::View;
use super::written::{Counted, Imported, Origin, UsedFiles};
use super::{Alarm, AuthState, DamagedValue, Error, Revision, SetAlarm, ValueFile};

/// The largest chunk, in bytes.
pub const CHUNK_BYTES: usize = 1 << 20;

/// The chunks of a view's state, generated lazily.
#[derive(Debug)]
pub struct Export {
    view: Arc<View>,
    /// Whether values that are in files are named by their places.
    placed: bool,
    stage: Stage,
    marked: Marked,
    buffer: BytesMut,
    records: u64,
    leases: u64,
    failure: Option<DamagedValue>,
}

#[derive(Debug)]
enum Stage {
    Head,
    /// The last row written, if any.
    Rows(Option<Last>),
    Done,
}

/// A row that has been written.
#[derive(Clone, Debug, Default)]
struct Last {
    key: Vec<u8>,
    place: (Revision, u32),
}

impl View {
    /// The whole state in chunks of at most [`CHUNK_BYTES`]. The same state always gives the
    /// same bytes.
    #[must_use]
    pub fn export(self: &Arc<Self>) -> Export {
        Export {
            view: Arc::clone(self),
            placed: false,
            stage: Stage::Head,
            marked: Marked::default(),
            buffer: BytesMut::new(),
            records: 0,
            leases: 0,
            failure: None,
        }
    }
}

impl Export {
    /// The same with the places of those values that are in files: for a checkpoint that stays with these files.
    #[must_use]
    pub fn placed(mut self) -> Self {
        self.placed = true;
        self
    }

    /// The state that it is of.
    #[must_use]
    pub fn view(&self) -> &Arc<View> {
        &self.view
    }

    /// Why it ended before its end: a value could not be read. Whoever stores or sends the chunks asks
    /// after the last one; an import of what there is fails as well.
    #[must_use]
    pub fn failure(&self) -> Option<&DamagedValue> {
        self.failure.as_ref()
    }
}

impl Iterator for Export {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        while self.buffer.len() < CHUNK_BYTES {
            match &self.stage {
                Stage::Head => self.write_head(),
                Stage::Rows(last) => {
                    let last = last.clone();
                    self.write_rows(last);
                }
                Stage::Done => break,
            }
        }
        let size = self.buffer.len().min(CHUNK_BYTES);
        (size > 0).then(|| self.buffer.split_to(size).freeze())
    }
}

impl Export {
    fn write_head(&mut self) {
        self.leases = write_head(&self.view, self.placed, &mut self.buffer);
        self.stage = Stage::Rows(None);
    }

    /// Writes rows after `last` until the buffer holds a chunk.
    fn write_rows(&mut self, last: Option<Last>) {
        let view = Arc::clone(&self.view);
        let mut at = last.clone();
        let span = Span {
            from: last.as_ref().map_or(&[][..], |last| &last.key),
            end: End::Open,
        };
        view.state.keys.visit(span, &mut |entry| {
            let key = entry.key();
            for found in kept(entry, view.state.compacted) {
                if self.buffer.len() >= CHUNK_BYTES {
                    return ControlFlow::Break(());
                }
                let place = found.place();
                let known = at.as_ref().is_some_and(|last| last.key == key);
                let last = at.get_or_insert_default();
                if known && place <= last.place {
                    continue;
                }
                let revision = match found {
                    Found::Record(record) => Unkeyed::of(record),
                    Found::Mark(mark) => self.marked.next(&view.state, key, mark.place),
                };
                // It may have been healed since it was read.
                let again = || Unkeyed::of(&view.state.seen(entry, found));
                let placed = self.placed;
                let revision = match loaded(revision, placed).or_else(|_| loaded(again(), placed)) {
                    Ok(revision) => revision,
                    Err(damaged) => {
                        self.failure = Some(damaged);
                        return ControlFlow::Break(());
                    }
                };
                let named = match known {
                    true => Bytes::new(),
                    false => Bytes::copy_from_slice(key),
                };
                write(Kind::Row(row(revision, named)), &mut self.buffer);
                self.records += 1;
                last.place = place;
                if !known {
                    last.key.clear();
                    last.key.extend_from_slice(key);
                }
            }
            ControlFlow::Continue(())
        });
        if self.failure.is_some() {
            self.buffer.clear();
            self.stage = Stage::Done;
            return;
        }
        self.stage = Stage::Rows(at);
        if self.buffer.len() < CHUNK_BYTES {
            write_tail(&view, (self.records, self.leases), &mut self.buffer);
            self.stage = Stage::Done;
        }
    }
}

fn write(kind: Kind, out: &mut BytesMut) {
    // A buffer that grows cannot be too small.
    let _ = Piece { kind: Some(kind) }.encode_length_delimited(out);
}

/// Writes what comes before the rows. Returns the number of leases.
pub(super) fn write_head(view: &View, placed: bool, out: &mut BytesMut) -> u64 {
    let head = Head {
        format: if placed { FORMAT_PLACED } else { FORMAT },
        revision: view.revision(),
        compacted: view.compacted(),
    };
    write(Kind::Head(head), out);
    let mut leases = 0;
    for lease in view.leases() {
        mutant!(SnapshotNoLeases => break);
        leases += 1;
        let lease = Lease {
            id: lease.id,
            ttl: lease.ttl,
            remaining: lease.remaining,
        };
        write(Kind::Lease(lease), out);
    }
    for Alarm { kind, member } in view.alarms() {
        let alarm = SetAlarm {
            kind: kind.into(),
            member,
            on: true,
        };
        write(Kind::Alarm(alarm), out);
    }
    let auth = &view.state.auth;
    if **auth != AuthState::default() && !mutant!(SnapshotNoAuth) {
        write(Kind::Auth((&**auth).into()), out);
    }
    if let Some(following) = view.following() {
        write(Kind::Following(following), out);
    }
    for part in view.state.staged.parts() {
        write(Kind::Staged(part.clone()), out);
    }
    leases
}

/// Writes what comes behind them, of which there are so many, and so many leases.
pub(super) fn write_tail(view: &View, (records, leases): (u64, u64), out: &mut BytesMut) {
    let tail = Tail {
        records,
        leases,
        db_size: view.db_size(),
        alarms: view.alarms().len() as u64,
    };
    write(Kind::Tail(tail), out);
}

/// The records of a key that a compaction has not forgotten.
pub(super) fn kept(entry: &KeyEntry, compacted: Revision) -> impl Iterator<Item = Found<'_>> {
    let base = base(entry, compacted).map(|found| found.place());
    entry
        .records()
        .filter(move |found| found.main() > compacted || Some(found.place()) == base)
}

/// The one of these at a place. Does not go through all of them: there may be many.
pub(super) fn kept_at(
    entry: &KeyEntry,
    compacted: Revision,
    place: (Revision, u32),
) -> Option<Found<'_>> {
    if place.0 <= compacted {
        return base(entry, compacted).filter(|base| base.place() == place);
    }
    let found = entry.at(place.0)?;
    match found.place() == place {
        true => Some(found),
        // A transaction may write a key more than once.
        false if found.main() == place.0 => entry.records().find(|it| it.place() == place),
        false => None,
    }
}

/// Of these the one that is not above the compacted revision.
pub(super) fn base(entry: &KeyEntry, compacted: Revision) -> Option<Found<'_>> {
    // What the compacted revision itself superseded is forgotten too, its tombstones are not.
    entry
        .at(compacted)
        .filter(|found| !found.tombstone() || found.main() == compacted)
}

/// The same with its value, if not `placed` is asked for.
fn loaded(mut revision: Unkeyed, placed: bool) -> Result<Unkeyed, DamagedValue> {
    if let Err(place) = &revision.value
        && !placed
    {
        revision.value = Ok(place.read()?);
    }
    Ok(revision)
}

/// `key` is empty if the row before is of the same one.
pub(super) fn row(revision: Unkeyed, key: Bytes) -> Row {
    let (main, sub) = revision.place;
    let Details {
        create,
        version,
        lease,
    } = revision.details;
    let row = Row {
        key,
        create,
        main,
        version,
        lease,
        sub,
        tombstone: revision.tombstone,
        ..Row::default()
    };
    match revision.value {
        Ok(value) => Row { value, ..row },
        Err(place) => Row {
            file: place.file.number(),
            offset: place.offset,
            length: place.length,
            sum: place.sum,
            ..row
        },
    }
}

/// A store being rebuilt from chunks.
#[derive(Debug, Default)]
pub struct Import {
    state: State,
    started: bool,
    items: Items,
    /// The files that rows may name, by number.
    files: BTreeMap<u64, Arc<ValueFile>>,
    /// Bytes of values in them.
    used: Counted,
    /// Bytes of the longest value that is in no file.
    longest: usize,
    /// The keys whose rows have been read.
    keys: Builder<KeyEntry>,
    /// The key whose rows are being read.
    key: Option<KeyRows>,
    /// Records of the log, not yet in its order.
    recent: Recents,
    records: u64,
    leases: u64,
    tail: Option<Tail>,
}

impl Import {
    /// Begins.
    #[must_use]
    pub fn new() -> Self {
        Import::default()
    }

    /// Begins one of a checkpoint whose values are in these files.
    #[must_use]
    pub fn with_files(files: impl IntoIterator<Item = Arc<ValueFile>>) -> Self {
        let (mut all, mut used) = (BTreeMap::new(), UsedFiles::default());
        for file in files {
            used.add(&file, 0);
            all.insert(file.number(), file);
        }
        Import {
            files: all,
            used: Counted::new(used),
            ..Import::default()
        }
    }

    /// Takes the next chunk.
    ///
    /// # Errors
    /// [`Error::Checkpoint`] if it does not continue a stream of this format.
    pub fn push(&mut self, chunk: &[u8]) -> Result<(), Error> {
        let mut items = std::mem::take(&mut self.items);
        items.push(chunk);
        let taken = self.take_all(&mut items);
        self.items = items;
        taken
    }

    fn take_all(&mut self, items: &mut Items) -> Result<(), Error> {
        while let Some(item) = items.next()? {
            let item = items.get(item);
            match RowBytes::of(item).filter(|_| self.started) {
                Some(row) => self.take_row(row)?,
                None => {
                    let piece = Piece::decode(item);
                    self.take(piece.map_err(|error| damaged(&error.to_string()))?)?;
                }
            }
        }
        Ok(())
    }

    /// Finishes and returns the store.
    ///
    /// # Errors
    /// [`Error::Checkpoint`] if something is missing or does not add up.
    pub fn finish(mut self) -> Result<Store, Error> {
        let tail = self.tail.ok_or_else(|| damaged("it ends early"))?;
        if !self.items.is_empty() {
            return Err(damaged("there is more after its end"));
        }
        if (tail.records, tail.leases) != (self.records, self.leases) {
            return Err(damaged("the number of its records or leases is wrong"));
        }
        if tail.alarms != self.state.alarms.all().len() as u64 {
            return Err(damaged("the number of its alarms is wrong"));
        }
        self.state.keys = std::mem::take(&mut self.keys).finish();
        std::mem::take(&mut self.recent).index(&mut self.state)?;
        self.state.floor = self.state.compacted;
        self.state.origin = Arc::new(Origin::of(Imported {
            revision: self.state.revision,
            compacted: self.state.compacted,
            files: std::mem::take(&mut self.used).used(),
            longest: self.longest,
        }));
        if self.state.db_size() != tail.db_size {
            return Err(damaged("its size does not add up"));
        }
        Ok(Store { state: self.state })
    }

    fn take(&mut self, piece: Piece) -> Result<(), Error> {
        if self.tail.is_some() {
            return Err(damaged("there is more after its end"));
        }
        match piece
            .kind
            .ok_or_else(|| damaged("it holds a piece of an unknown kind"))?
        {
            Kind::Head(head) if !self.started => self.take_head(head),
            _ if !self.started => Err(damaged("it does not start with its head")),
            Kind::Head(_) => Err(damaged("it has two heads")),
            Kind::Lease(lease) => {
                self.leases += 1;
                self.state.leases.grant(LeaseInfo {
                    id: lease.id,
                    ttl: lease.ttl,
                    remaining: lease.remaining,
                });
                Ok(())
            }
            Kind::Alarm(alarm) => match self.state.alarms.set(&alarm) {
                Ok(Some(_)) if alarm.on => Ok(()),
                _ => Err(damaged("it holds an alarm of an unknown kind")),
            },
            Kind::Auth(auth) => {
                self.state.auth = Arc::new(auth.into());
                Ok(())
            }
            Kind::Following(following) => {
                self.state.following = Some(following);
                Ok(())
            }
            Kind::Staged(part) => match self.state.staged.push(part) {
                true => Ok(()),
                false => Err(damaged("the parts of a followed revision are out of order")),
            },
            Kind::Row(row) => self.take_row(RowBytes::decoded(&row)),
            Kind::Tail(tail) => {
                self.end_key();
                self.tail = Some(tail);
                Ok(())
            }
        }
    }

    fn take_head(&mut self, head: Head) -> Result<(), Error> {
        if head.format > FORMAT_PLACED {
            return Err(Error::CheckpointFormat(head.format));
        }
        if head.format < FORMAT {
            let text = format!(
                "its format is {}, there is none below {FORMAT}",
                head.format
            );
            return Err(damaged(&text));
        }
        // Nothing that is added to a revision from here on may overflow.
        let sound =
            (1..=MOST).contains(&head.revision) && (-1..=head.revision).contains(&head.compacted);
        if !sound {
            return Err(damaged("its revisions contradict each other"));
        }
        self.started = true;
        self.state.revision = head.revision;
        self.state.compacted = head.compacted;
        Ok(())
    }

    fn take_row(&mut self, row: RowBytes<'_>) -> Result<(), Error> {
        if self.tail.is_some() {
            return Err(damaged("there is more after its end"));
        }
        let place = (row.main, row.sub);
        let in_order = match (&self.key, row.key.is_empty()) {
            (Some(known), true) => known.place() < place,
            (Some(known), false) => *known.key < *row.key,
            (None, named) => !named,
        };
        if !in_order {
            return Err(damaged("its rows are out of order"));
        }
        if row.main > self.state.revision {
            return Err(damaged("it holds a row above its revision"));
        }
        if row.sub > MOST_SUB {
            return Err(damaged("the number of a row is too large"));
        }
        let sound = row.tombstone
            || ((1..=row.main).contains(&row.create) && (1..=MOST).contains(&row.version));
        if row.main < 1 || !sound {
            return Err(damaged("the revisions of a row contradict each other"));
        }
        let revision = self.revision(&row)?;
        self.records += 1;
        let compacted = self.state.compacted;
        match &mut self.key {
            Some(known) if row.key.is_empty() => {
                self.state.added += revision.size(known.key.len());
                known.push(revision, compacted, &mut self.recent);
            }
            _ => {
                self.state.added += revision.size(row.key.len());
                self.end_key();
                let key = Bytes::copy_from_slice(row.key);
                self.key = Some(KeyRows::new(key, revision));
            }
        }
        Ok(())
    }

    /// What a row has besides its key.
    fn revision(&mut self, row: &RowBytes<'_>) -> Result<Unkeyed, Error> {
        let value = match place(row, &self.files)? {
            Some(place) => {
                // It is one of them.
                self.used.add(row.file, place.length.into());
                Err(place)
            }
            None if row.tombstone => Ok(Bytes::new()),
            None => {
                self.longest = self.longest.max(row.value.len());
                Ok(Bytes::copy_from_slice(row.value))
            }
        };
        let details = Details {
            create: row.create,
            version: row.version,
            lease: row.lease,
        };
        Ok(Unkeyed {
            place: (row.main, row.sub),
            tombstone: row.tombstone,
            details: if row.tombstone {
                Details::default()
            } else {
                details
            },
            value,
        })
    }

    fn end_key(&mut self) {
        let Some(rows) = self.key.take() else {
            return;
        };
        let entry = rows.end(self.state.compacted, &mut self.recent);
        let newest = entry.newest();
        let Details { lease, .. } = newest.details();
        if entry.live() && lease != 0 && !mutant!(SnapshotNoAttachments) {
            self.state.leases.attach(lease, newest.key());
        }
        self.keys.push(entry);
    }
}

impl Store {
    /// Rebuilds a store from all chunks of an export.
    ///
    /// # Errors
    /// [`Error::Checkpoint`].
    pub fn import<C: AsRef<[u8]>>(chunks: impl IntoIterator<Item = C>) -> Result<Store, Error> {
        Self::import_with([], chunks)
    }

    /// The same of a checkpoint whose values are in these files.
    ///
    /// # Errors
    /// [`Error::Checkpoint`].
    pub fn import_with<C: AsRef<[u8]>>(
        files: impl IntoIterator<Item = Arc<ValueFile>>,
        chunks: impl IntoIterator<Item = C>,
    ) -> Result<Store, Error> {
        let mut import = Import::with_files(files);
        for chunk in chunks {
            import.push(chunk.as_ref())?;
        }
        import.finish()
    }
}
