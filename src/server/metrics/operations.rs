//! Operations on keys and leases, under etcd's names: what this member has applied since its start, and the ranges that it has
//! read for its clients. What its checkpoint held when it started does not count.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use super::{Histogram, Text};
use crate::node::Outcome;
use crate::server::process::clock;
use crate::store::{Response, ResponseOp, TxnResponse};

/// Upper bounds of the buckets for the time that leases are granted, in seconds; etcd's.
const TTL_BUCKETS: &[f64] = &[
    1.0,
    2.0,
    4.0,
    8.0,
    16.0,
    32.0,
    64.0,
    128.0,
    256.0,
    512.0,
    1024.0,
    2048.0,
    4096.0,
    8192.0,
    16384.0,
    32768.0,
    65536.0,
    131_072.0,
    262_144.0,
    524_288.0,
    1_048_576.0,
    2_097_152.0,
    4_194_304.0,
    8_388_608.0,
];

/// The counters.
#[derive(Debug)]
pub struct Operations {
    puts: AtomicU64,
    deletes: AtomicU64,
    ranges: AtomicU64,
    txns: AtomicU64,
    granted: AtomicU64,
    revoked: AtomicU64,
    expired: AtomicU64,
    /// Of the leases that were granted.
    ttls: Histogram,
    /// When a compaction was last applied, in Unix seconds; 0: not in this start.
    compacted: AtomicU64,
}

impl Default for Operations {
    fn default() -> Self {
        Operations {
            puts: AtomicU64::new(0),
            deletes: AtomicU64::new(0),
            ranges: AtomicU64::new(0),
            txns: AtomicU64::new(0),
            granted: AtomicU64::new(0),
            revoked: AtomicU64::new(0),
            expired: AtomicU64::new(0),
            ttls: Histogram::of_whole_seconds(TTL_BUCKETS),
            compacted: AtomicU64::new(0),
        }
    }
}

/// What is added at once: counters that are written by one thread and read by another cost least if they are written seldom.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sum {
    puts: u64,
    deletes: u64,
    ranges: u64,
    txns: u64,
    granted: u64,
    revoked: u64,
    expired: u64,
}

impl Operations {
    /// These entries were applied. What was refused changed nothing, and counts for nothing.
    pub fn applied<'a>(&self, outcomes: impl Iterator<Item = &'a Outcome>) {
        let mut sum = Sum::default();
        for outcome in outcomes {
            if let Outcome::Store(Ok(response)) = outcome {
                sum.add(response);
                self.note(response);
            }
        }
        for (counter, number) in [
            (&self.puts, sum.puts),
            (&self.deletes, sum.deletes),
            (&self.ranges, sum.ranges),
            (&self.txns, sum.txns),
            (&self.granted, sum.granted),
            (&self.revoked, sum.revoked),
            (&self.expired, sum.expired),
        ] {
            if number > 0 {
                counter.fetch_add(number, Relaxed);
            }
        }
    }

    /// What is more than a number of such operations.
    fn note(&self, response: &Response) {
        match response {
            Response::LeaseGrant(granted) => {
                let seconds = u64::try_from(granted.ttl).unwrap_or(0);
                self.ttls.observe(Duration::from_secs(seconds));
            }
            Response::Compact(_) => self.compacted.store(clock::unix_ms() / 1000, Relaxed),
            _ => {}
        }
    }

    /// A range was read for a client.
    pub fn read_range(&self) {
        self.ranges.fetch_add(1, Relaxed);
    }

    /// A transaction that only reads was carried out for a client.
    pub fn read_txn(&self, response: &TxnResponse) {
        let mut sum = Sum::default();
        sum.add_txn(response);
        self.ranges.fetch_add(sum.ranges, Relaxed);
        self.txns.fetch_add(sum.txns, Relaxed);
    }

    pub(super) fn write(&self, text: &mut Text) {
        for (name, help, counter) in [
            (
                "etcd_mvcc_put_total",
                "Puts that this member applied, those in transactions included.",
                &self.puts,
            ),
            (
                "etcd_mvcc_delete_total",
                "Deletes that this member applied, those in transactions included.",
                &self.deletes,
            ),
            (
                "etcd_mvcc_range_total",
                "Ranges that this member read for clients and in transactions.",
                &self.ranges,
            ),
            (
                "etcd_mvcc_txn_total",
                "Transactions of more than one operation.",
                &self.txns,
            ),
            (
                "etcd_debugging_lease_granted_total",
                "Leases granted.",
                &self.granted,
            ),
            (
                "etcd_debugging_lease_revoked_total",
                "Leases that ended, expired ones included.",
                &self.revoked,
            ),
            (
                "etcd_debugging_server_lease_expired_total",
                "Leases that expired. Every member counts them, not only the leader as in etcd.",
                &self.expired,
            ),
        ] {
            text.single(name, "counter", help, counter.load(Relaxed));
        }
        let name = "etcd_debugging_lease_ttl_total";
        let help = "Seconds for which leases were granted.";
        text.head(name, "histogram", help);
        self.ttls.write(text, name, "");
        text.single(
            "etcd_debugging_mvcc_db_compaction_last",
            "gauge",
            "When this member last applied a compaction, in Unix seconds; 0: not since its start.",
            self.compacted.load(Relaxed),
        );
    }
}

impl Sum {
    fn add(&mut self, response: &Response) {
        match response {
            Response::Put(_) => self.puts += 1,
            Response::DeleteRange(_) => self.deletes += 1,
            Response::Txn(response) => self.add_txn(response),
            Response::LeaseGrant(_) => self.granted += 1,
            Response::LeaseRevoke(_) => self.revoked += 1,
            Response::LeaseExpire(response) => {
                let expired = response.expired.len() as u64;
                self.expired += expired;
                self.revoked += expired;
            }
            Response::Compact(_)
            | Response::SetAlarm(_)
            | Response::LeaseCheckpoint(_)
            | Response::Auth(_)
            | Response::Follow(_) => {}
        }
    }

    /// One transaction however many are nested in it, as in etcd.
    fn add_txn(&mut self, response: &TxnResponse) {
        let before = self.on_keys();
        self.add_operations(response);
        self.txns += u64::from(self.on_keys() - before > 1);
    }

    fn add_operations(&mut self, response: &TxnResponse) {
        for one in &response.responses {
            match one {
                ResponseOp::Range(_) => self.ranges += 1,
                ResponseOp::Put(_) => self.puts += 1,
                ResponseOp::DeleteRange(_) => self.deletes += 1,
                ResponseOp::Txn(nested) => self.add_operations(nested),
            }
        }
    }

    fn on_keys(&self) -> u64 {
        self.puts + self.deletes + self.ranges
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{
        DeleteRangeResponse, Error, LeaseExpireResponse, LeaseGrantResponse, MAX_LEASE_TTL,
        PutResponse, RangeResponse,
    };

    fn txn(responses: Vec<ResponseOp>) -> Outcome {
        let response = TxnResponse {
            responses,
            ..TxnResponse::default()
        };
        Outcome::Store(Ok(Response::Txn(response)))
    }

    fn values(operations: &Operations) -> Vec<u64> {
        let Operations {
            puts,
            deletes,
            ranges,
            txns,
            granted,
            revoked,
            expired,
            ..
        } = operations;
        let all = [puts, deletes, ranges, txns, granted, revoked, expired];
        all.map(|counter| counter.load(Relaxed)).to_vec()
    }

    #[test]
    fn operations_of_transactions_count_each() {
        let put = || ResponseOp::Put(PutResponse::default());
        let range = || ResponseOp::Range(RangeResponse::default());
        let delete = ResponseOp::DeleteRange(DeleteRangeResponse::default());
        let nested = TxnResponse {
            responses: vec![delete, put()],
            ..TxnResponse::default()
        };
        let operations = Operations::default();
        operations.applied(
            [
                Outcome::Started,
                Outcome::Store(Ok(Response::Put(PutResponse::default()))),
                // One operation is no transaction in etcd's sense.
                txn(vec![put()]),
                txn(vec![put(), range(), ResponseOp::Txn(nested)]),
                Outcome::Store(Err(Error::LeaseNotFound)),
            ]
            .iter(),
        );
        operations.read_range();
        operations.read_txn(&TxnResponse {
            responses: vec![range(), range()],
            ..TxnResponse::default()
        });
        assert_eq!(values(&operations), [4, 1, 4, 2, 0, 0, 0]);
    }

    #[test]
    fn leases_are_counted_by_how_they_end() {
        let expired = LeaseExpireResponse {
            expired: vec![7, 8],
            ..LeaseExpireResponse::default()
        };
        let operations = Operations::default();
        operations.applied(
            [
                Outcome::Store(Ok(Response::LeaseGrant(Default::default()))),
                Outcome::Store(Ok(Response::LeaseRevoke(Default::default()))),
                Outcome::Store(Ok(Response::LeaseExpire(expired))),
            ]
            .iter(),
        );
        assert_eq!(values(&operations), [0, 0, 0, 0, 1, 3, 2]);
        assert!(!operations.ttls.is_empty());
    }

    /// Three leases of the longest time were enough for a sum in nanoseconds to begin again at zero.
    #[test]
    fn longest_leases_are_summed() {
        let response = LeaseGrantResponse {
            ttl: MAX_LEASE_TTL,
            ..LeaseGrantResponse::default()
        };
        let granted = Outcome::Store(Ok(Response::LeaseGrant(response)));
        let operations = Operations::default();
        operations.applied([&granted, &granted, &granted].into_iter());
        let mut text = Text::default();
        operations.write(&mut text);
        let text = text.finish();
        for line in [
            "etcd_debugging_lease_ttl_total_sum 27000000000\n",
            "etcd_debugging_lease_ttl_total_count 3\n",
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
    }
}
