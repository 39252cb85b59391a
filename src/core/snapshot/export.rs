//! From a frozen state to a database, front to back, with memory for a few pages and a pointer a
//! key.

use std::io;
use std::sync::Arc;

use prost::Message as _;

use super::schema::{self, AlarmMember, ConfState, Lease, Member};
use super::{Error, STORAGE_VERSION};
use crate::bolt::{PAGE_BYTES, Writer};
use crate::node::Membership;
use crate::store::{Row, View};

/// Bytes handed on at once.
const BATCH: usize = 1 << 20;
/// Level of the cluster as etcd stores it.
const CLUSTER_LEVEL: &str = "3.7.0";

/// What goes into a database, frozen at one index of the log.
#[derive(Clone, Debug)]
pub struct Contents {
    /// The store.
    pub view: Arc<View>,
    /// The membership.
    pub membership: Arc<Membership>,
    /// The last applied index.
    pub index: u64,
    /// Its term.
    pub term: u64,
}

/// An upper bound of the length of the database, in bytes: a page that overflows or ends with a
/// gap holds at least half of what it could.
#[must_use]
pub fn estimate(view: &View) -> u64 {
    let auth = view.auth();
    let users = auth.users().map(prost::Message::encoded_len).sum::<usize>();
    let roles = auth.roles().map(prost::Message::encoded_len).sum::<usize>();
    2 * (view.db_size() + (users + roles) as u64) + 64 * PAGE_BYTES as u64
}

/// Makes the database: `append` gets its bytes in order, from [`HEAD_BYTES`] on. Gives the bytes
/// that belong in front of them, and the length of all.
///
/// [`HEAD_BYTES`]: crate::bolt::HEAD_BYTES
///
/// # Errors
/// Those of `append`; data that the format cannot represent.
pub fn export(
    contents: &Contents,
    mut append: impl FnMut(&[u8]) -> io::Result<()>,
) -> Result<(Vec<u8>, u64), Error> {
    let mut writer = Writer::new();
    let view = &contents.view;
    bucket(&mut writer, schema::ALARM, alarms(view))?;
    auth(&mut writer, view)?;
    cluster(&mut writer)?;
    rows(&mut writer, view, &mut append)?;
    let leases = view.leases().into_iter().map(|lease| {
        let id = lease.id.cast_unsigned().to_be_bytes().to_vec();
        let lease = Lease {
            id: lease.id,
            ttl: lease.ttl,
            remaining_ttl: lease.remaining,
        };
        (id, lease.encode_to_vec())
    });
    bucket(&mut writer, schema::LEASE, leases)?;
    membership(&mut writer, &contents.membership)?;
    meta(&mut writer, contents)?;
    let finished = writer.finish();
    append(&finished.rest)?;
    Ok((finished.head, finished.length))
}

type Pair = (Vec<u8>, Vec<u8>);

/// Writes a bucket of few pairs, which it sorts.
fn bucket(
    writer: &mut Writer,
    name: &str,
    pairs: impl IntoIterator<Item = Pair>,
) -> Result<(), Error> {
    let mut pairs: Vec<Pair> = pairs.into_iter().collect();
    pairs.sort_unstable();
    writer.bucket(name.as_bytes())?;
    for (key, value) in pairs {
        writer.put(&key, &value)?;
    }
    Ok(())
}

fn rows(
    writer: &mut Writer,
    view: &View,
    append: &mut impl FnMut(&[u8]) -> io::Result<()>,
) -> Result<(), Error> {
    writer.bucket(schema::KEY.as_bytes())?;
    let mut value = Vec::new();
    let mut last = 1;
    for row in view.rows() {
        let row = row.map_err(crate::store::Error::Value)?;
        value.clear();
        // A vector grows, so encoding into it cannot fail.
        let _ = row.kv.encode(&mut value);
        writer.put(&row.name(), &value)?;
        last = row.main;
        if writer.pending() >= BATCH {
            append(&writer.take())?;
        }
    }
    if last.max(view.compacted()) < view.revision() {
        // The revision was raised by hand and nothing is written at it: etcd's own tool marks this with such a row
        // without a key.
        let row = Row {
            main: view.revision(),
            sub: 0,
            tombstone: false,
            kv: crate::store::KeyValue::default(),
        };
        writer.put(&row.name(), &[])?;
    }
    append(&writer.take())?;
    Ok(())
}

fn alarms(view: &View) -> Vec<Pair> {
    let alarms = view.alarms().into_iter().map(|alarm| {
        let member = AlarmMember {
            member: alarm.member,
            alarm: alarm.kind.into(),
        };
        (member.encode_to_vec(), Vec::new())
    });
    alarms.collect()
}

fn auth(writer: &mut Writer, view: &View) -> Result<(), Error> {
    let auth = view.auth();
    let state = [
        (
            schema::AUTH_ENABLED.to_vec(),
            vec![u8::from(auth.is_enabled())],
        ),
        (
            schema::AUTH_REVISION.to_vec(),
            auth.revision().to_be_bytes().to_vec(),
        ),
    ];
    bucket(writer, schema::AUTH, state)?;
    let roles = auth
        .roles()
        .map(|role| (role.name.clone().into(), role.encode_to_vec()));
    bucket(writer, schema::AUTH_ROLES, roles)?;
    let users = auth
        .users()
        .map(|user| (user.name.clone().into(), user.encode_to_vec()));
    bucket(writer, schema::AUTH_USERS, users)
}

fn cluster(writer: &mut Writer) -> Result<(), Error> {
    let downgrade = br#"{"target-version":"","enabled":false}"#;
    let pairs = [
        (
            schema::CLUSTER_VERSION.to_vec(),
            CLUSTER_LEVEL.as_bytes().to_vec(),
        ),
        (schema::DOWNGRADE.to_vec(), downgrade.to_vec()),
    ];
    bucket(writer, schema::CLUSTER, pairs)
}

fn membership(writer: &mut Writer, membership: &Membership) -> Result<(), Error> {
    let mut members = Vec::new();
    for member in membership.members.values() {
        let value = Member {
            id: member.id,
            peer_urls: &member.peer_urls,
            learner: member.learner,
            name: &member.name,
            client_urls: &member.client_urls,
        };
        members.push((member_key(member.id), json(&value)?));
    }
    bucket(writer, schema::MEMBERS, members)?;
    let removed = membership
        .tombstones
        .iter()
        .map(|stone| (member_key(stone.id), b"removed".to_vec()));
    bucket(writer, schema::MEMBERS_REMOVED, removed)
}

fn meta(writer: &mut Writer, contents: &Contents) -> Result<(), Error> {
    let membership = &contents.membership;
    let ids = |learner| {
        let members = membership.members.values();
        let these = members.filter(move |member| member.learner == learner);
        these.map(|member| member.id).collect()
    };
    let configuration = ConfState {
        voters: ids(false),
        learners: ids(true),
        auto_leave: false,
    };
    let mut pairs = vec![
        (schema::CONF_STATE.to_vec(), json(&configuration)?),
        (
            schema::CONSISTENT_INDEX.to_vec(),
            contents.index.to_be_bytes().to_vec(),
        ),
        (
            schema::STORAGE_VERSION.to_vec(),
            STORAGE_VERSION.as_bytes().to_vec(),
        ),
        (schema::TERM.to_vec(), contents.term.to_be_bytes().to_vec()),
    ];
    let compacted = contents.view.compacted();
    if compacted >= 0 {
        let row = Row {
            main: compacted,
            sub: 0,
            tombstone: false,
            kv: crate::store::KeyValue::default(),
        };
        for key in [schema::FINISHED_COMPACT, schema::SCHEDULED_COMPACT] {
            pairs.push((key.to_vec(), row.name()));
        }
    }
    bucket(writer, schema::META, pairs)
}

/// A member's ID as etcd writes it.
fn member_key(id: u64) -> Vec<u8> {
    format!("{id:x}").into_bytes()
}

fn json(value: &impl serde::Serialize) -> Result<Vec<u8>, Error> {
    serde_json::to_vec(value).map_err(|error| Error::Unknown(error.to_string()))
}
