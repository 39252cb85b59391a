//! From a database to a store. Members, Raft's position and a downgrade that was under way are
//! left behind: they belong to the cluster that was saved, not to the one that begins.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use bytes::Bytes;
use prost::Message as _;

use super::schema::{self, AlarmMember, Lease};
use super::{Error, STORAGE_VERSION};
use crate::bolt::{Bucket, Reader, Source};
use crate::store::{
    Alarm, AlarmKind, AuthState, KeyValue, LeaseInfo, MAX_LEASE_TTL, Rebuild, Revision, Role, Row,
    Store, User, ValueFile,
};

/// Bytes of a bucket that is read whole: leases, users and roles are rows of their own, the rest
/// are a few numbers.
const SMALL_BUCKET: usize = 64 << 20;

/// What came out of a database.
#[derive(Debug)]
pub struct Imported {
    /// The store.
    pub store: Store,
    /// Level of etcd that wrote it; empty before 3.6.
    pub version: String,
    /// Buckets that are no part of etcd's schema and were left out.
    pub unknown: Vec<String>,
}

/// Reads a database. `bump` raises its revision by so much and marks everything before as
/// compacted; 0 leaves it.
///
/// # Errors
/// Whatever keeps any part of it from being read: nothing is left out silently but what
/// [`Imported::unknown`] names.
pub fn import<S: Source>(source: S, bump: u64) -> Result<Imported, Error> {
    let changes = Changes {
        bump_revision: bump,
        disable_auth: false,
    };
    import_changed(source, &changes)
}

/// The users and roles of a database, and nothing else of it.
///
/// # Errors
/// As [`import`], as far as they are concerned.
pub fn users<S: Source>(source: S) -> Result<AuthState, Error> {
    Buckets::open(source)?.auth()
}

/// What a restored store has otherwise than the database.
#[derive(Clone, Copy, Debug, Default)]
pub struct Changes {
    /// Raise the revision by so much and mark everything before as compacted; 0 leaves it.
    pub bump_revision: u64,
    /// Disable authentication; users and roles stay.
    pub disable_auth: bool,
}

/// Reads a database like [`import`], with these changes.
///
/// # Errors
/// As [`import`].
pub fn import_changed<S: Source>(source: S, changes: &Changes) -> Result<Imported, Error> {
    import_placed(source, changes, |_| Ok(None))
}

/// Reads a database like [`import_changed`], with one value in memory at a time of those that `place` writes to a file: it
/// says where, or leaves a value in memory. The file has to be readable from when the store is used.
///
/// # Errors
/// As [`import`]; [`Error::Write`] with those of `place`.
pub fn import_placed<S: Source>(
    source: S,
    changes: &Changes,
    mut place: impl FnMut(&[u8]) -> io::Result<Option<(Arc<ValueFile>, u64)>>,
) -> Result<Imported, Error> {
    let buckets = Buckets::open(source)?;
    let meta = buckets.meta()?;
    let mut rebuild = Rebuild::new(meta.compacted);
    for lease in buckets.leases()? {
        rebuild.lease(lease);
    }
    buckets.alarms(&mut rebuild)?;
    let auth = buckets.auth()?;
    rebuild.auth(match changes.disable_auth {
        true => auth.disabled(),
        false => auth,
    });
    buckets.rows(|row| rebuild.placed_row(row, |value| place(value).map_err(Error::from)))?;
    Ok(Imported {
        store: rebuild.finish(changes.bump_revision)?,
        version: meta.version,
        unknown: buckets.unknown(),
    })
}

/// The buckets of a database.
pub(super) struct Buckets<S> {
    reader: Reader<S>,
    buckets: BTreeMap<String, Bucket>,
}

/// The numbers in the bucket `meta`.
pub(super) struct Meta {
    /// Level of etcd that wrote it; empty before 3.6.
    pub(super) version: String,
    /// The revision of the last compaction, -1 without one.
    pub(super) compacted: Revision,
    /// The last applied index of the log.
    pub(super) index: u64,
    /// Its term; 0 before etcd 3.5.
    pub(super) term: u64,
}

impl<S: Source> Buckets<S> {
    pub(super) fn open(source: S) -> Result<Self, Error> {
        let reader = Reader::open(source)?;
        let mut buckets = BTreeMap::new();
        for bucket in reader.buckets()? {
            let name = String::from_utf8_lossy(&bucket.name).into_owned();
            buckets.insert(name, bucket);
        }
        if !buckets.contains_key(schema::KEY) {
            return Err(Error::Unknown(
                "this is a bbolt file, but none of etcd's: it has no bucket \"key\"".to_owned(),
            ));
        }
        Ok(Self { reader, buckets })
    }

    pub(super) fn meta(&self) -> Result<Meta, Error> {
        let pairs = self.all(schema::META)?;
        let version = version(pairs.get(schema::STORAGE_VERSION))?;
        let finished = compaction(&pairs, schema::FINISHED_COMPACT)?;
        // One that was scheduled counts: etcd resumes it when it starts.
        let scheduled = compaction(&pairs, schema::SCHEDULED_COMPACT)?;
        Ok(Meta {
            version,
            compacted: finished.max(scheduled),
            index: number(&pairs, schema::CONSISTENT_INDEX)?,
            term: number(&pairs, schema::TERM)?,
        })
    }

    /// Hands every row over, in order of revision.
    pub(super) fn rows(
        &self,
        mut each: impl FnMut(&Row) -> Result<(), Error>,
    ) -> Result<(), Error> {
        // `open` has seen the bucket.
        let Some(keys) = self.buckets.get(schema::KEY) else {
            return Ok(());
        };
        let mut cursor = self.reader.cursor(keys)?;
        while let Some((name, value)) = cursor.next_pair()? {
            each(&row(&name, value)?)?;
        }
        Ok(())
    }

    /// Everything in a bucket; nothing if it is not there, as older levels of etcd lack some.
    fn all(&self, name: &'static str) -> Result<BTreeMap<Vec<u8>, Bytes>, Error> {
        let mut pairs = BTreeMap::new();
        let Some(bucket) = self.buckets.get(name) else {
            return Ok(pairs);
        };
        let mut cursor = self.reader.cursor(bucket)?;
        let mut bytes = 0;
        while let Some((key, value)) = cursor.next_pair()? {
            bytes += key.len() + value.len();
            if bytes > SMALL_BUCKET {
                return Err(damaged(name, &key, "the bucket is too large"));
            }
            // Copied: a slice would keep its whole page.
            pairs.insert(key.to_vec(), Bytes::copy_from_slice(&value));
        }
        Ok(pairs)
    }

    pub(super) fn leases(&self) -> Result<Vec<LeaseInfo>, Error> {
        let mut leases = Vec::new();
        let Some(bucket) = self.buckets.get(schema::LEASE) else {
            return Ok(leases);
        };
        let mut cursor = self.reader.cursor(bucket)?;
        while let Some((key, value)) = cursor.next_pair()? {
            let lease = Lease::decode(value)
                .map_err(|error| damaged(schema::LEASE, &key, &error.to_string()))?;
            if key[..] != lease.id.cast_unsigned().to_be_bytes() || lease.id == 0 {
                return Err(damaged(schema::LEASE, &key, "it holds another lease"));
            }
            if lease.ttl > MAX_LEASE_TTL {
                return Err(damaged(schema::LEASE, &key, "it lasts too long"));
            }
            leases.push(LeaseInfo {
                id: lease.id,
                ttl: lease.ttl.max(1),
                remaining: lease.remaining_ttl.clamp(0, lease.ttl.max(1)),
            });
        }
        Ok(leases)
    }

    pub(super) fn alarms(&self, rebuild: &mut Rebuild) -> Result<(), Error> {
        for key in self.all(schema::ALARM)?.keys() {
            let damaged = |what: &str| damaged(schema::ALARM, key, what);
            let member =
                AlarmMember::decode(&key[..]).map_err(|error| damaged(&error.to_string()))?;
            let kind = AlarmKind::try_from(member.alarm)
                .map_err(|_| damaged("an alarm of an unknown kind"))?;
            let member = member.member;
            if !rebuild.alarm(Alarm { kind, member }) {
                return Err(damaged("an alarm of no kind"));
            }
        }
        Ok(())
    }

    pub(super) fn auth(&self) -> Result<AuthState, Error> {
        let auth = self.all(schema::AUTH)?;
        let enabled = match auth.get(schema::AUTH_ENABLED).map(|value| &value[..]) {
            None | Some([] | [0]) => false,
            Some([1]) => true,
            Some(_) => {
                let key = schema::AUTH_ENABLED;
                return Err(damaged(schema::AUTH, key, "neither 0 nor 1"));
            }
        };
        let revision = match auth.get(schema::AUTH_REVISION) {
            None => 0,
            Some(value) => {
                let bytes = <[u8; 8]>::try_from(&value[..]);
                let key = schema::AUTH_REVISION;
                u64::from_be_bytes(bytes.map_err(|_| damaged(schema::AUTH, key, "no number"))?)
            }
        };
        let mut users = Vec::new();
        for (key, value) in self.all(schema::AUTH_USERS)? {
            let damaged = |what: &str| damaged(schema::AUTH_USERS, &key, what);
            let user = User::decode(value).map_err(|error| damaged(&error.to_string()))?;
            if user.name.as_bytes() != &key[..] {
                return Err(damaged("it holds another user"));
            }
            users.push(user);
        }
        let mut roles = Vec::new();
        for (key, value) in self.all(schema::AUTH_ROLES)? {
            let damaged = |what: &str| damaged(schema::AUTH_ROLES, &key, what);
            let role = Role::decode(value).map_err(|error| damaged(&error.to_string()))?;
            if role.name.as_bytes() != &key[..] {
                return Err(damaged("it holds another role"));
            }
            roles.push(role);
        }
        if !auth.contains_key(schema::AUTH_REVISION) && users.is_empty() && roles.is_empty() {
            return Ok(AuthState::default());
        }
        Ok(AuthState::new(enabled, revision, users, roles))
    }

    fn unknown(&self) -> Vec<String> {
        const KNOWN: [&str; 10] = [
            schema::ALARM,
            schema::AUTH,
            schema::AUTH_ROLES,
            schema::AUTH_USERS,
            schema::CLUSTER,
            schema::KEY,
            schema::LEASE,
            schema::MEMBERS,
            schema::MEMBERS_REMOVED,
            schema::META,
        ];
        let names = self.buckets.keys();
        names
            .filter(|name| !KNOWN.contains(&name.as_str()))
            .cloned()
            .collect()
    }
}

fn row(name: &[u8], value: Bytes) -> Result<Row, Error> {
    let damaged = |what: &str| damaged(schema::KEY, name, what);
    let (main, sub, tombstone) =
        Row::parse_name(name).ok_or_else(|| damaged("this is no revision"))?;
    let kv = KeyValue::decode(value).map_err(|error| damaged(&error.to_string()))?;
    Ok(Row {
        main,
        sub,
        tombstone,
        kv,
    })
}

/// A revision in `meta`; -1 without one.
fn compaction(meta: &BTreeMap<Vec<u8>, Bytes>, key: &[u8]) -> Result<Revision, Error> {
    let Some(value) = meta.get(key) else {
        return Ok(-1);
    };
    // The main revision comes first and is all that counts.
    match value.get(..8).and_then(|main| main.try_into().ok()) {
        Some(main) if Revision::from_be_bytes(main) <= 1 << 60 => {
            Ok(Revision::from_be_bytes(main).max(-1))
        }
        _ => Err(damaged(schema::META, key, "this is no revision")),
    }
}

/// A number in `meta`; 0 without one.
fn number(meta: &BTreeMap<Vec<u8>, Bytes>, key: &[u8]) -> Result<u64, Error> {
    let Some(value) = meta.get(key) else {
        return Ok(0);
    };
    let bytes = <[u8; 8]>::try_from(&value[..]);
    let bytes = bytes.map_err(|_| damaged(schema::META, key, "this is no number"))?;
    Ok(u64::from_be_bytes(bytes))
}

/// The level that wrote it, unless that is newer than this one.
fn version(value: Option<&Bytes>) -> Result<String, Error> {
    let Some(value) = value else {
        return Ok(String::new());
    };
    let text = String::from_utf8_lossy(value).into_owned();
    let number = |text: &str| {
        let mut parts = text.split('.').map(str::parse::<u32>);
        Some((parts.next()?.ok()?, parts.next()?.ok()?))
    };
    match (number(&text), number(STORAGE_VERSION)) {
        (Some(found), known) if Some(found) <= known => Ok(text),
        _ => Err(Error::Unknown(format!(
            "it was written at the level {text:?} of etcd's storage; this version reads up to {STORAGE_VERSION}"
        ))),
    }
}

fn damaged(bucket: &'static str, key: &[u8], what: &str) -> Error {
    Error::Damaged {
        bucket,
        key: key.escape_ascii().to_string(),
        what: what.to_owned(),
    }
}
