//! The initial membership of a cluster, with identical bytes on every member, and how IDs are
//! computed.

use sha1::{Digest, Sha1};

use crate::raft::MemberId;

use super::change::MembershipError;
use super::membership::{ChangeKind, FORMAT, MemberRecord, Membership};

/// The index and term of the state that a cluster starts with, as if the first entry had created
/// the initial membership.
pub const FOUNDING_INDEX: u64 = 1;

/// One member of a cluster that is to be bootstrapped.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InitialMember {
    /// Its name.
    pub name: String,
    /// Its peer URLs as in `--initial-cluster`.
    pub peer_urls: Vec<String>,
    /// Its client URLs, if all members know them; else empty.
    pub client_urls: Vec<String>,
    /// Its disk, if all members know it; else empty.
    pub disk_uuid: String,
}

/// A member's ID as etcd computes it: the first 8 bytes of SHA-1 over the sorted peer URLs and
/// the token. `seconds` (Unix time, chosen by the proposer) is mixed in for members added at
/// run time, so that an address that comes back gets a new ID.
pub fn member_id(peer_urls: &[String], token: &str, seconds: Option<u64>) -> MemberId {
    let mut sorted: Vec<&str> = peer_urls.iter().map(String::as_str).collect();
    sorted.sort_unstable();
    let mut hash = Sha1::new();
    for url in sorted {
        hash.update(url.as_bytes());
    }
    hash.update(token.as_bytes());
    if let Some(seconds) = seconds {
        hash.update(seconds.to_string().as_bytes());
    }
    first_eight(&hash.finalize())
}

/// A cluster's ID as etcd computes it: the first 8 bytes of SHA-1 over the sorted member IDs.
pub fn cluster_id(members: impl IntoIterator<Item = MemberId>) -> u64 {
    let mut sorted: Vec<MemberId> = members.into_iter().collect();
    sorted.sort_unstable();
    let mut hash = Sha1::new();
    for id in sorted {
        hash.update(id.to_be_bytes());
    }
    first_eight(&hash.finalize())
}

fn first_eight(digest: &[u8]) -> u64 {
    let first = digest.iter().take(8);
    first.fold(0, |number, byte| (number << 8) | u64::from(*byte))
}

impl Membership {
    /// The membership that a cluster starts with: every member a voter. `token` is etcd's
    /// `--initial-cluster-token`; an operator's cluster uses its UID and incarnation. The order
    /// of `initial` does not matter.
    ///
    /// # Errors
    /// Members without peer URLs, or with the same peer URLs, name or disk.
    pub fn bootstrap(
        cluster_uid: &str,
        incarnation: u64,
        token: &str,
        initial: &[InitialMember],
    ) -> Result<Self, MembershipError> {
        let members = initial.iter().map(|member| MemberRecord {
            id: member_id(&member.peer_urls, token, None),
            name: member.name.clone(),
            peer_urls: member.peer_urls.clone(),
            client_urls: member.client_urls.clone(),
            learner: false,
            disk_uuid: member.disk_uuid.clone(),
            started: true,
        });
        let members: Vec<MemberRecord> = members.collect();
        let cluster_id = cluster_id(members.iter().map(|member| member.id));
        Self::found(cluster_id, cluster_uid, incarnation, members)
    }

    /// As [`Membership::bootstrap`], from members whose IDs are already chosen.
    ///
    /// # Errors
    /// As [`Membership::bootstrap`], and IDs that are zero or occur twice.
    pub fn found(
        cluster_id: u64,
        cluster_uid: &str,
        incarnation: u64,
        members: Vec<MemberRecord>,
    ) -> Result<Self, MembershipError> {
        let mut sorted = members;
        sorted.sort_by_key(|member| member.id);
        let mut founded = Self {
            cluster_id,
            cluster_uid: cluster_uid.to_owned(),
            incarnation,
            format: FORMAT,
            configuration_index: FOUNDING_INDEX,
            settled_index: FOUNDING_INDEX,
            ..Self::default()
        };
        for mut member in sorted {
            member.peer_urls.sort_unstable();
            founded.check_new(&member)?;
            let id = member.id;
            founded.members.insert(id, member);
            founded.remember(FOUNDING_INDEX, ChangeKind::Bootstrap, id);
        }
        Ok(founded)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn urls(url: &str) -> Vec<String> {
        vec![url.to_owned()]
    }

    fn initial(names: &[&str]) -> Vec<InitialMember> {
        let member = |name: &&str| InitialMember {
            name: (*name).to_owned(),
            peer_urls: urls(&format!("http://{name}:2380")),
            ..InitialMember::default()
        };
        names.iter().map(member).collect()
    }

    /// The numbers are those of etcd's own test of member IDs.
    #[test]
    fn member_ids_equal_those_of_etcd() {
        let peer = urls("http://10.0.0.8:2379");
        assert_eq!(member_id(&peer, "", None), 14_544_069_596_553_697_298);
        let seconds = Some(472_662_245); // 1984-12-23T15:04:05Z
        assert_eq!(member_id(&peer, "", seconds), 2_448_790_162_483_548_276);
    }

    #[test]
    fn first_membership_ignores_member_order() {
        let one = Membership::bootstrap("", 0, "token", &initial(&["a", "b", "c"])).unwrap();
        let two = Membership::bootstrap("", 0, "token", &initial(&["c", "a", "b"])).unwrap();
        assert_eq!(one, two);
        assert_eq!(one.configuration_index, FOUNDING_INDEX);
        assert_eq!(one.changes.len(), 3);
        let other = Membership::bootstrap("", 0, "other", &initial(&["a", "b", "c"])).unwrap();
        assert_ne!(one.cluster_id, other.cluster_id);
    }

    #[test]
    fn members_that_share_an_address_are_refused() {
        let mut members = initial(&["a", "b"]);
        members[1].peer_urls = members[0].peer_urls.clone();
        let refused = Membership::bootstrap("", 0, "token", &members);
        assert!(refused.is_err());
    }
}
