//! The exchange of hello and reply with which a link begins, and the checks that refuse one.
//!
//! Pure: the checks take what is known and return a verdict. A member that has ever voted or
//! acknowledged from one disk is never accepted with another.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::disk::{Descent, Lineage, Start, Starts};

/// The format of links; increased with every change that older members cannot read.
pub(crate) const FORMAT: u32 = 1;

/// The purpose of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub(crate) enum Purpose {
    /// Unknown to this version.
    Unknown = 0,
    /// Messages from the dialling member, for as long as the link lives.
    Messages = 1,
    /// One checkpoint.
    Checkpoint = 2,
    /// Requests: of a server that is not a member yet, and of members for hashes and values.
    Requests = 3,
    /// Only the hello: initial members meet before any of them votes.
    Introduction = 4,
}

/// The hello of the dialling side.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct Hello {
    /// [`FORMAT`] of the dialling side.
    #[prost(uint32, tag = "1")]
    pub format: u32,
    /// 0 where it knows no cluster yet.
    #[prost(uint64, tag = "2")]
    pub cluster_id: u64,
    /// 0 where it is no member yet.
    #[prost(uint64, tag = "3")]
    pub member_id: u64,
    /// The UUID of its disk.
    #[prost(string, tag = "4")]
    pub disk_uuid: String,
    /// Its `--name`, for messages.
    #[prost(string, tag = "5")]
    pub name: String,
    /// The member that it dials; 0 for any.
    #[prost(uint64, tag = "6")]
    pub to: u64,
    /// The purpose.
    #[prost(enumeration = "Purpose", tag = "7")]
    pub purpose: i32,
    /// Its peer URLs: the other side's membership may be older than this member.
    #[prost(string, repeated, tag = "8")]
    pub peer_urls: Vec<String>,
    /// The starts of its disk. `None`: its release keeps none, or they are not needed for this
    /// purpose.
    #[prost(message, optional, tag = "9")]
    pub starts: Option<Lineage>,
}

/// The reply of the accepting side.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct Reply {
    /// [`FORMAT`] of the answering side.
    #[prost(uint32, tag = "1")]
    pub format: u32,
    /// 0 where it knows no cluster yet.
    #[prost(uint64, tag = "2")]
    pub cluster_id: u64,
    /// 0 where it is no member yet.
    #[prost(uint64, tag = "3")]
    pub member_id: u64,
    /// The UUID of its disk.
    #[prost(string, tag = "4")]
    pub disk_uuid: String,
    /// Its `--name`.
    #[prost(string, tag = "5")]
    pub name: String,
    /// [`Refusal`]; 0 for a welcome.
    #[prost(enumeration = "Refusal", tag = "6")]
    pub refusal: i32,
    /// The reason and the remedy, as text.
    #[prost(string, tag = "7")]
    pub reason: String,
    /// The starts of its disk, in a welcome to a member. `None`: its release keeps none.
    #[prost(message, optional, tag = "8")]
    pub starts: Option<Lineage>,
}

/// Why a link is refused. The numbers are sent on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub(crate) enum Refusal {
    /// Not refused.
    Welcome = 0,
    /// The two sides use different formats.
    Format = 1,
    /// The two sides belong to different clusters.
    Cluster = 2,
    /// Another member than the dialled one answers at this address.
    Member = 3,
    /// The member is bound to another disk.
    Disk = 4,
    /// The member was removed from the cluster for good.
    Removed = 5,
    /// The accepting server has no cluster yet, or does not know the member: retry.
    NotYet = 6,
    /// The accepting side is busy with something that it does once at a time: retry.
    Busy = 7,
    /// The dialling side presented no certificate: it may be given one without a restart.
    Certificate = 8,
    /// The disk is an older state or a copy of the one last seen as this member. Sent only to
    /// members that send their starts: others do not know the number.
    Copy = 9,
}

/// The remedy for a disk that is refused as a copy.
const COPY: &str = "stop that server, remove the member and add a new one with an empty data \
                    directory; where another copy of the disk runs as this member, stopping this one \
                    is enough";

/// The state against which a hello is checked.
#[derive(Clone, Debug, Default)]
pub(crate) struct Known {
    /// 0 where there is no cluster yet.
    pub cluster_id: u64,
    /// Its own ID, 0 where it has none yet.
    pub member_id: u64,
    /// Disks by member: bound through Raft, or else pinned at the first hello.
    pub disks: BTreeMap<u64, String>,
    /// Members that were removed.
    pub tombstones: std::collections::BTreeSet<u64>,
    /// The start of each member that was last seen where it is dialled.
    pub starts: Arc<Starts>,
    /// The present start of each member that has an established link.
    pub standing: BTreeMap<u64, Start>,
}

/// A refusal with its text.
pub(crate) type Verdict = Result<(), (Refusal, String)>;

impl Known {
    /// Whether the sender of this hello may have a link.
    pub(crate) fn judge(&self, hello: &Hello) -> Verdict {
        if hello.format != FORMAT {
            let text = format!(
                "links of format {} and {FORMAT} do not understand each other: run versions that \
                 are at most one release apart",
                hello.format
            );
            return Err((Refusal::Format, text));
        }
        match hello.purpose() {
            Purpose::Unknown => Err((Refusal::Format, "unknown purpose of a link".to_owned())),
            Purpose::Requests => self.judge_request(hello),
            Purpose::Messages | Purpose::Checkpoint | Purpose::Introduction => {
                self.judge_member(hello)
            }
        }
    }

    fn judge_request(&self, hello: &Hello) -> Verdict {
        if hello.cluster_id != 0 && hello.cluster_id != self.cluster_id && self.cluster_id != 0 {
            return Err(self.other_cluster(hello));
        }
        Ok(())
    }

    fn judge_member(&self, hello: &Hello) -> Verdict {
        if self.cluster_id == 0 {
            let text = "this server is a standby and belongs to no cluster yet".to_owned();
            return Err((Refusal::NotYet, text));
        }
        if hello.cluster_id != self.cluster_id {
            return Err(self.other_cluster(hello));
        }
        // Checked before `to`: a member that was away for long may dial the address of a member
        // that is gone.
        if self.tombstones.contains(&hello.member_id) {
            let text = format!(
                "member {:x} ({}) was removed from cluster {:x} for good",
                hello.member_id, hello.name, self.cluster_id
            );
            return Err((Refusal::Removed, text));
        }
        if hello.to != 0 && hello.to != self.member_id {
            let text = format!(
                "member {:x} was meant and {:x} answers: peer URLs point to the wrong server",
                hello.to, self.member_id
            );
            return Err((Refusal::Member, text));
        }
        if hello.member_id == self.member_id {
            let text = format!("{:x} is this very member's ID", hello.member_id);
            return Err((Refusal::Member, text));
        }
        let (id, name) = (hello.member_id, hello.name.as_str());
        self.judge_disk(id, name, &hello.disk_uuid)?;
        self.judge_start(id, name, &hello.disk_uuid, hello.starts.as_ref())?;
        self.judge_presence(id, name, hello.starts.as_ref())
    }

    /// Whether these starts continue those last seen of this member, so that the disk is not an
    /// older state or a copy. A hello without starts is accepted: the member may have been
    /// downgraded to a release that keeps none.
    pub(crate) fn judge_start(
        &self,
        id: u64,
        name: &str,
        disk_uuid: &str,
        shown: Option<&Lineage>,
    ) -> Verdict {
        if shown.is_some_and(|shown| shown.newest().is_none()) {
            let text = format!("the starts that member {id:x} ({name}) shows are of no server's");
            return Err((Refusal::Format, text));
        }
        match self.starts.judge(id, disk_uuid, shown) {
            Descent::Unknown | Descent::Continues | Descent::TooOld => Ok(()),
            Descent::Copy(seen) => {
                let text = format!(
                    "start {} of member {id:x} ({name}) was seen, and the disk {disk_uuid} that speaks \
                     now has none like it: its volume was set back to an older state, or copied, and \
                     the member may have voted since; {COPY}",
                    seen.number
                );
                Err((Refusal::Copy, text))
            }
        }
    }

    /// Whether the member has no link in another start. The links of a process end with it, so a
    /// restarted member is accepted at its next attempt.
    fn judge_presence(&self, id: u64, name: &str, shown: Option<&Lineage>) -> Verdict {
        let standing = self.standing.get(&id).copied();
        let newest = shown.and_then(Lineage::newest);
        match (standing, newest) {
            (Some(standing), Some(newest)) if standing != newest => {
                let text = format!(
                    "member {id:x} ({name}) is linked in its start {} and speaks in start {}: it is \
                     let in once that link has ended; if it stays, two copies of its disk run, and one \
                     has to be stopped for good",
                    standing.number, newest.number
                );
                Err((Refusal::NotYet, text))
            }
            _ => Ok(()),
        }
    }

    /// Whether the member may run on this disk. Any disk is accepted for an unknown member: this
    /// side may not have applied its addition yet.
    pub(crate) fn judge_disk(&self, id: u64, name: &str, disk_uuid: &str) -> Verdict {
        match self.disks.get(&id) {
            Some(bound) if bound != disk_uuid => {
                let text = format!(
                    "member {id:x} ({name}) is bound to disk {bound} and speaks from disk \
                     {disk_uuid}: its data directory was lost or exchanged; remove the member and \
                     add a new one with an empty data directory (where the cluster never formed: \
                     empty every member's data directory)"
                );
                Err((Refusal::Disk, text))
            }
            _ => Ok(()),
        }
    }

    fn other_cluster(&self, hello: &Hello) -> (Refusal, String) {
        let text = format!(
            "cluster ID mismatch: {} belongs to cluster {:x}, this server to {:x}; compare \
             --initial-cluster and --initial-cluster-token of both",
            hello.name, hello.cluster_id, self.cluster_id
        );
        (Refusal::Cluster, text)
    }
}

/// A request of a server that is not a member yet, or of a member that compares data or has lost a value.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct PeerRequest {
    /// What is requested.
    #[prost(oneof = "RequestKind", tags = "1, 2, 3, 4")]
    pub kind: Option<RequestKind>,
}

/// The kinds of requests.
#[derive(Clone, PartialEq, prost::Oneof)]
pub(crate) enum RequestKind {
    /// Asks for the members of the cluster.
    #[prost(message, tag = "1")]
    List(List),
    /// Asks to bind this disk to a member that was added.
    #[prost(message, tag = "2")]
    Join(Join),
    /// Asks for the hash of the keys.
    #[prost(message, tag = "3")]
    Hash(HashAt),
    /// Asks for a value that is damaged on the disk of the member that asks. Version 0.1.0 answers that it does not know the
    /// request.
    #[prost(message, tag = "4")]
    Value(ValueAt),
}

/// Asks for the members.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub(crate) struct List {}

/// Asks for the hash of the keys, to compare members' data.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub(crate) struct HashAt {
    /// The revision, for which the receiver waits a while.
    #[prost(int64, tag = "1")]
    pub revision: i64,
    /// The compaction that must have been applied; the receiver waits for that as well.
    #[prost(int64, tag = "2")]
    pub compacted: i64,
}

/// Asks for the value of one revision of a key.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct ValueAt {
    /// The key.
    #[prost(bytes = "bytes", tag = "1")]
    pub key: bytes::Bytes,
    /// The revision at which the value was written.
    #[prost(int64, tag = "2")]
    pub revision: i64,
    /// Its place within that revision.
    #[prost(uint32, tag = "3")]
    pub sub: u32,
}

/// Asks to bind a disk.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct Join {
    /// The member as it was added.
    #[prost(uint64, tag = "1")]
    pub id: u64,
    /// Its disk.
    #[prost(string, tag = "2")]
    pub disk_uuid: String,
    /// Its name.
    #[prost(string, tag = "3")]
    pub name: String,
    /// Its client URLs.
    #[prost(string, repeated, tag = "4")]
    pub client_urls: Vec<String>,
}

/// The first frame of a checkpoint.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct CheckpointHead {
    /// The sender's term.
    #[prost(uint64, tag = "1")]
    pub leader_term: u64,
    /// The last index in it.
    #[prost(uint64, tag = "2")]
    pub index: u64,
    /// The term there.
    #[prost(uint64, tag = "3")]
    pub term: u64,
    /// The metadata that the node wrote beside the chunks.
    #[prost(bytes = "bytes", tag = "4")]
    pub meta: bytes::Bytes,
}

/// Each further frame of a checkpoint.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct CheckpointPart {
    /// A chunk; empty in the last frame.
    #[prost(bytes = "bytes", tag = "1")]
    pub chunk: bytes::Bytes,
    /// In the last frame: how many chunks there were, plus one.
    #[prost(uint64, tag = "2")]
    pub end: u64,
}

/// The receiver's last frame about a checkpoint.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct CheckpointDone {
    /// It is durable on the receiver's disk.
    #[prost(bool, tag = "1")]
    pub ok: bool,
    /// Why not.
    #[prost(string, tag = "2")]
    pub error: String,
}

/// The response to a request.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct PeerResponse {
    /// Empty, or why there is no answer.
    #[prost(string, tag = "1")]
    pub error: String,
    /// 0 where the answering server knows no cluster.
    #[prost(uint64, tag = "2")]
    pub cluster_id: u64,
    /// The UID of the cluster's resource; empty outside an operator.
    #[prost(string, tag = "3")]
    pub cluster_uid: String,
    /// The members, as far as this server has applied the log.
    #[prost(message, repeated, tag = "4")]
    pub members: Vec<Listed>,
    /// The incarnation of the cluster.
    #[prost(uint64, tag = "5")]
    pub incarnation: u64,
    /// IDs of removed members.
    #[prost(uint64, repeated, tag = "6")]
    pub removed: Vec<u64>,
    /// The response to a request for a hash.
    #[prost(message, optional, tag = "7")]
    pub hash: Option<HashOf>,
    /// The response to a request for a value.
    #[prost(message, optional, tag = "8")]
    pub value: Option<ValueOf>,
}

/// One revision of a key, as a member has it.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct ValueOf {
    /// The revision at which it was written.
    #[prost(int64, tag = "1")]
    pub revision: i64,
    /// Its place within that revision.
    #[prost(uint32, tag = "2")]
    pub sub: u32,
    /// The revision at which the key was created.
    #[prost(int64, tag = "3")]
    pub create_revision: i64,
    /// The version of the key.
    #[prost(int64, tag = "4")]
    pub version: i64,
    /// The lease that the key is attached to; 0: none.
    #[prost(int64, tag = "5")]
    pub lease: i64,
    /// The value.
    #[prost(bytes = "bytes", tag = "6")]
    pub value: bytes::Bytes,
}

/// The hash of a member's keys, as etcd's `HashKV` counts it.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub(crate) struct HashOf {
    /// CRC32C.
    #[prost(uint32, tag = "1")]
    pub hash: u32,
    /// The compacted revision.
    #[prost(int64, tag = "2")]
    pub compacted: i64,
    /// The revision that was hashed.
    #[prost(int64, tag = "3")]
    pub revision: i64,
}

/// One member in a response.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct Listed {
    /// Its ID.
    #[prost(uint64, tag = "1")]
    pub id: u64,
    /// Its name; may be empty until it has joined.
    #[prost(string, tag = "2")]
    pub name: String,
    /// Its peer URLs.
    #[prost(string, repeated, tag = "3")]
    pub peer_urls: Vec<String>,
    /// The disk that it is bound to; empty until it has joined.
    #[prost(string, tag = "4")]
    pub disk_uuid: String,
    /// Whether it is a learner.
    #[prost(bool, tag = "5")]
    pub learner: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known() -> Known {
        Known {
            cluster_id: 7,
            member_id: 1,
            disks: BTreeMap::from([(2, "disk-2".to_owned())]),
            tombstones: [9].into(),
            ..Known::default()
        }
    }

    fn hello(member_id: u64, disk: &str) -> Hello {
        Hello {
            format: FORMAT,
            cluster_id: 7,
            member_id,
            disk_uuid: disk.to_owned(),
            name: "peer".to_owned(),
            to: 1,
            purpose: Purpose::Messages.into(),
            peer_urls: Vec::new(),
            starts: None,
        }
    }

    fn refusal(known: &Known, hello: &Hello) -> Option<Refusal> {
        known.judge(hello).err().map(|(refusal, _)| refusal)
    }

    #[test]
    fn only_the_bound_disk_is_welcome() {
        assert_eq!(refusal(&known(), &hello(2, "disk-2")), None);
        let refused = refusal(&known(), &hello(2, "disk-x"));
        assert_eq!(refused, Some(Refusal::Disk));
        let unknown = refusal(&known(), &hello(3, "disk-3"));
        assert_eq!(unknown, None, "our list of members may lag behind");
    }

    #[test]
    fn hello_of_a_wrong_cluster_is_refused() {
        let good = hello(2, "disk-2");
        let cluster = Hello {
            cluster_id: 8,
            ..good.clone()
        };
        assert_eq!(refusal(&known(), &cluster), Some(Refusal::Cluster));
        let to = Hello {
            to: 5,
            ..good.clone()
        };
        assert_eq!(refusal(&known(), &to), Some(Refusal::Member));
        let format = Hello {
            format: 99,
            ..good.clone()
        };
        assert_eq!(refusal(&known(), &format), Some(Refusal::Format));
        assert_eq!(refusal(&known(), &hello(1, "x")), Some(Refusal::Member));
        assert_eq!(refusal(&known(), &hello(9, "x")), Some(Refusal::Removed));
        let elsewhere = Hello {
            to: 5,
            ..hello(9, "x")
        };
        assert_eq!(refusal(&known(), &elsewhere), Some(Refusal::Removed));
    }

    #[test]
    fn standby_answers_requests_only() {
        let standby = Known::default();
        assert_eq!(refusal(&standby, &hello(2, "d")), Some(Refusal::NotYet));
        let request = Hello {
            cluster_id: 0,
            member_id: 0,
            purpose: Purpose::Requests.into(),
            ..hello(0, "d")
        };
        assert_eq!(refusal(&standby, &request), None);
        assert_eq!(refusal(&known(), &request), None);
    }
}
