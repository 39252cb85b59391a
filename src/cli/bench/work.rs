//! What one request is: its key, its value, and what counts as its answer. Asks once, repeats
//! nothing.

use bytes::Bytes;
use rand::{Rng as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;
use tonic::transport::Channel;

use super::Error;
use crate::wire::etcd::kv_client::KvClient;
use crate::wire::etcd::{PutRequest, RangeRequest, RequestOp, TxnRequest, request_op};

/// Random choices of one client.
pub(super) type Generator = Xoshiro256PlusPlus;

/// The keys that are asked for: a prefix and a decimal number of fixed width.
#[derive(Clone, Debug)]
pub(super) struct Keys {
    prefix: String,
    digits: usize,
    /// How many there are.
    pub(super) count: u64,
}

impl Keys {
    /// `count` keys of `size` bytes each.
    pub(super) fn new(prefix: &str, size: usize, count: u64) -> Result<Keys, Error> {
        let least = (count - 1).to_string().len();
        let digits = size.saturating_sub(prefix.len());
        if digits < least {
            return Err(Error::Argument(format!(
                "--key-size: {count} keys that begin with {prefix:?} need {} bytes each, not {size}",
                prefix.len() + least
            )));
        }
        Ok(Keys {
            prefix: prefix.to_owned(),
            digits,
            count,
        })
    }

    /// A key; numbers beyond the last begin again at the first.
    pub(super) fn key(&self, number: u64) -> Bytes {
        let number = number % self.count;
        Bytes::from(format!(
            "{}{number:0width$}",
            self.prefix,
            width = self.digits
        ))
    }

    /// The end of the range of all keys: `:` follows the digits.
    fn end(&self) -> Bytes {
        Bytes::from(format!("{}:", self.prefix))
    }
}

/// The kind of request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// One key a request.
    Put {
        /// Keys in order.
        sequential: bool,
    },
    /// One key a request.
    Get {
        /// Without asking the leader.
        serializable: bool,
    },
    /// A page of keys and the number of all.
    List {
        /// Keys of the page.
        limit: i64,
        /// Begin anywhere.
        random_start: bool,
        /// Without asking the leader.
        serializable: bool,
    },
    /// Puts and gets.
    Mixed {
        /// Percentage of gets.
        reads: u32,
        /// Gets without asking the leader.
        serializable: bool,
    },
    /// Many keys a request, in order.
    Fill {
        /// Keys of one request.
        batch: u64,
    },
}

/// What clients ask.
#[derive(Clone, Debug)]
pub(super) struct Work {
    /// The kind of request.
    pub(super) mode: Mode,
    /// The keys.
    pub(super) keys: Keys,
    /// The value of every put.
    pub(super) value: Bytes,
}

impl Work {
    /// Work on these keys, with a value of random bytes.
    pub(super) fn new(mode: Mode, keys: Keys, value_size: usize, seed: u64) -> Work {
        let mut value = vec![0; value_size];
        Generator::seed_from_u64(seed).fill_bytes(&mut value);
        Work {
            mode,
            keys,
            value: value.into(),
        }
    }

    /// Asks once. `number` counts the requests of a phase. The error is what to count it under.
    pub(super) async fn ask(
        &self,
        kv: &mut KvClient<Channel>,
        number: u64,
        generator: &mut Generator,
    ) -> Result<(), String> {
        match self.mode {
            Mode::Put { sequential } => {
                let number = if sequential {
                    number
                } else {
                    self.any(generator)
                };
                let answer = kv.put(self.put(number)).await;
                answer.map(drop).map_err(|status| text(&status))
            }
            Mode::Get { serializable } => self.get(kv, serializable, generator).await,
            Mode::Mixed {
                reads,
                serializable,
            } => {
                if generator.next_u64() % 100 < u64::from(reads) {
                    return self.get(kv, serializable, generator).await;
                }
                let answer = kv.put(self.put(self.any(generator))).await;
                answer.map(drop).map_err(|status| text(&status))
            }
            Mode::List {
                limit,
                random_start,
                serializable,
            } => {
                let first = if random_start { self.any(generator) } else { 0 };
                self.list(kv, first, limit, serializable).await
            }
            Mode::Fill { batch } => {
                let from = number * batch;
                let to = (from + batch).min(self.keys.count);
                let put = |number| RequestOp {
                    request: Some(request_op::Request::RequestPut(self.put(number))),
                };
                let txn = TxnRequest {
                    success: (from..to).map(put).collect(),
                    ..TxnRequest::default()
                };
                let answer = kv.txn(txn).await;
                answer.map(drop).map_err(|status| text(&status))
            }
        }
    }

    async fn get(
        &self,
        kv: &mut KvClient<Channel>,
        serializable: bool,
        generator: &mut Generator,
    ) -> Result<(), String> {
        let request = RangeRequest {
            key: self.keys.key(self.any(generator)),
            serializable,
            ..RangeRequest::default()
        };
        let answer = kv.range(request).await.map_err(|status| text(&status))?;
        match answer.into_inner().kvs.len() {
            1 => Ok(()),
            _ => Err("the key is not there: fill the key space first".to_owned()),
        }
    }

    async fn list(
        &self,
        kv: &mut KvClient<Channel>,
        first: u64,
        limit: i64,
        serializable: bool,
    ) -> Result<(), String> {
        let request = RangeRequest {
            key: self.keys.key(first),
            range_end: self.keys.end(),
            limit,
            serializable,
            ..RangeRequest::default()
        };
        let answer = kv.range(request).await.map_err(|status| text(&status))?;
        let answer = answer.into_inner();
        let wanted = self.keys.count - first;
        let page = u64::try_from(limit).unwrap_or(0).min(wanted);
        if answer.count as u64 == wanted && answer.kvs.len() as u64 == page {
            return Ok(());
        }
        Err(format!(
            "the list has {} of {} keys, not {page} of {wanted}: fill an empty key space first",
            answer.kvs.len(),
            answer.count
        ))
    }

    fn any(&self, generator: &mut Generator) -> u64 {
        generator.next_u64() % self.keys.count
    }

    fn put(&self, number: u64) -> PutRequest {
        PutRequest {
            key: self.keys.key(number),
            value: self.value.clone(),
            ..PutRequest::default()
        }
    }
}

/// A failure as it is counted.
pub(super) fn text(status: &tonic::Status) -> String {
    format!("{:?}: {}", status.code(), status.message())
}
