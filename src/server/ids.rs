//! IDs of members and clusters, computed as etcd does, so that both sides of a comparison agree.
//!
//! A member's ID is the first eight bytes of SHA-1 over its sorted peer URLs and the token (and
//! the time, for one added to a running cluster); a cluster's ID the same over its members' IDs.

use sha1::{Digest, Sha1};

/// The ID of a member. `added` is the time in Unix seconds of `member add`, `None` for an
/// initial member.
#[must_use]
pub fn member_id(peer_urls: &[String], token: &str, added: Option<u64>) -> u64 {
    let mut urls = peer_urls.to_vec();
    urls.sort();
    let mut text = urls.concat();
    text.push_str(token);
    if let Some(seconds) = added {
        text.push_str(&seconds.to_string());
    }
    first_eight(text.as_bytes())
}

/// The ID of a cluster with these initial members.
#[must_use]
pub fn cluster_id(members: impl IntoIterator<Item = u64>) -> u64 {
    let mut ids: Vec<u64> = members.into_iter().collect();
    ids.sort_unstable();
    let bytes: Vec<u8> = ids.into_iter().flat_map(u64::to_be_bytes).collect();
    first_eight(&bytes)
}

fn first_eight(bytes: &[u8]) -> u64 {
    let digest = Sha1::digest(bytes);
    let mut first = [0; 8];
    first.copy_from_slice(&digest[..8]);
    // 0 means "none" everywhere; a hash that gives it has never been seen.
    u64::from_be_bytes(first).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_etcds() {
        // The IDs that `etcd` with all flags left out is known for.
        let member = member_id(&["http://localhost:2380".to_owned()], "etcd-cluster", None);
        assert_eq!(format!("{member:x}"), "8e9e05c52164694d");
        assert_eq!(format!("{:x}", cluster_id([member])), "cdf818194e3a8c32");
    }
}
