//! The table against the texts and code numbers that etcd's clients look for.

use super::EtcdError;
use std::collections::BTreeSet;

/// gRPC's code number and the whole text, written out a second time on purpose: a change of
/// the table must be made twice to pass.
const WIRE: &[(i32, &str)] = &[
    (3, "etcdserver: key is not provided"),
    (3, "etcdserver: key not found"),
    (3, "etcdserver: value is provided"),
    (3, "etcdserver: lease is provided"),
    (3, "etcdserver: too many operations in txn request"),
    (3, "etcdserver: duplicate key given in txn request"),
    (3, "etcdserver: invalid client api version"),
    (3, "etcdserver: invalid sort option"),
    (11, "etcdserver: mvcc: required revision has been compacted"),
    (
        11,
        "etcdserver: mvcc: required revision is a future revision",
    ),
    (8, "etcdserver: mvcc: database space exceeded"),
    (5, "etcdserver: requested lease not found"),
    (9, "etcdserver: lease already exists"),
    (11, "etcdserver: too large lease TTL"),
    (1, "etcdserver: watch canceled"),
    (9, "etcdserver: member ID already exist"),
    (9, "etcdserver: Peer URLs already exists"),
    (
        9,
        "etcdserver: re-configuration failed due to not enough started members",
    ),
    (3, "etcdserver: given member URLs are invalid"),
    (5, "etcdserver: member not found"),
    (9, "etcdserver: can only promote a learner member"),
    (
        9,
        "etcdserver: can only promote a learner member which is in sync with leader",
    ),
    (9, "etcdserver: too many learner members in cluster"),
    (9, "etcdserver: cluster ID mismatch"),
    (3, "etcdserver: request is too large"),
    (8, "etcdserver: too many requests"),
    (9, "etcdserver: root user does not exist"),
    (9, "etcdserver: root user does not have root role"),
    (9, "etcdserver: user name already exists"),
    (3, "etcdserver: user name is empty"),
    (9, "etcdserver: user name not found"),
    (9, "etcdserver: role name already exists"),
    (9, "etcdserver: role name not found"),
    (3, "etcdserver: role name is empty"),
    (
        3,
        "etcdserver: authentication failed, invalid user ID or password",
    ),
    (3, "etcdserver: permission not given"),
    (7, "etcdserver: permission denied"),
    (9, "etcdserver: role is not granted to the user"),
    (9, "etcdserver: permission is not granted to the role"),
    (9, "etcdserver: authentication is not enabled"),
    (16, "etcdserver: invalid auth token"),
    (3, "etcdserver: invalid auth management"),
    (3, "etcdserver: revision of auth store is old"),
    (14, "etcdserver: no leader"),
    (9, "etcdserver: not leader"),
    (14, "etcdserver: leader changed"),
    (9, "etcdserver: not capable"),
    (14, "etcdserver: server stopped"),
    (14, "etcdserver: request timed out"),
    (
        14,
        "etcdserver: request timed out, possibly due to previous leader failure",
    ),
    (
        14,
        "etcdserver: request timed out, possibly due to connection lost",
    ),
    (
        14,
        "etcdserver: request timed out, waiting for the applied index took too long",
    ),
    (14, "etcdserver: unhealthy cluster"),
    (15, "etcdserver: corrupt cluster"),
    (9, "etcdserver: rpc not supported for learner"),
    (9, "etcdserver: bad leader transferee"),
    (3, "etcdserver: wrong downgrade target version format"),
    (3, "etcdserver: invalid downgrade target version"),
    (9, "etcdserver: cluster version not found during downgrade"),
    (9, "etcdserver: cluster has a downgrade job in progress"),
    (9, "etcdserver: no inflight downgrade job"),
    (
        9,
        "etcdserver: this cluster follows another one and takes no writes before the cutover",
    ),
    (1, "etcdserver: request canceled"),
    (4, "etcdserver: context deadline exceeded"),
];

#[test]
fn codes_and_texts_are_those_of_etcd() {
    let ours: Vec<(i32, &str)> = EtcdError::ALL
        .iter()
        .map(|error| (error.code() as i32, error.text()))
        .collect();
    assert_eq!(ours, WIRE);
}

#[test]
fn no_text_is_used_twice() {
    let texts: BTreeSet<&str> = EtcdError::ALL.iter().map(|error| error.text()).collect();
    assert_eq!(texts.len(), EtcdError::ALL.len());
}

#[test]
fn a_status_carries_both() {
    let status = tonic::Status::from(EtcdError::Compacted);
    assert_eq!(status.code(), tonic::Code::OutOfRange);
    assert_eq!(
        status.message(),
        "etcdserver: mvcc: required revision has been compacted"
    );
    assert_eq!(
        EtcdError::Compacted.short(),
        "mvcc: required revision has been compacted"
    );
}
