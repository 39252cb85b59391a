//! The network between the members: every member advertises the address of a proxy in this process, so every message
//! to it passes through here, where it can be held, delayed or dropped for each pair of members and each direction.
//! Unlike packet filters and namespaces, this needs no privileges, and it works on messages: a message dropped here is
//! lost, while TCP would retransmit it.
//!
//! A partitioned direction holds its bytes, as a failed switch does: connections neither close nor fail, and what was
//! in transit arrives late, when the partition ends.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use prost::Message as _;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng as _, SeedableRng as _};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, sleep_until};

/// The first bytes of a link between members; the bytes of any other connection are forwarded as they are.
const PREFACE: &[u8; 8] = b"QUORATE\n";
/// Length and checksum of a frame.
const HEAD: usize = 8;
/// The purpose of a link that carries messages, as opposed to snapshots and queries.
const MESSAGES: i32 = 1;
/// The number of pieces in transit on one connection.
const UNDER_WAY: usize = 1024;

/// The fields of a hello that identify the peer and its purpose.
#[derive(Clone, PartialEq, prost::Message)]
struct Hello {
    #[prost(string, tag = "5")]
    name: String,
    #[prost(int32, tag = "7")]
    purpose: i32,
}

/// What happens to the bytes from one member to another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Way {
    pub(crate) cut: bool,
    /// The delay of each piece, and its variation.
    pub(crate) delay: Duration,
    pub(crate) jitter: Duration,
    /// Dropped messages per thousand.
    pub(crate) loss: u64,
}

/// Counters of the forwarded and dropped messages.
#[derive(Debug, Default)]
pub(crate) struct Passed {
    pub(crate) messages: AtomicU64,
    pub(crate) lost: AtomicU64,
    pub(crate) delayed: AtomicU64,
    pub(crate) held: AtomicU64,
}

/// The directions between all members.
#[derive(Debug)]
pub(crate) struct Network {
    ways: Mutex<BTreeMap<(String, String), Way>>,
    changed: watch::Sender<()>,
    random: Mutex<Xoshiro256PlusPlus>,
    pub(crate) passed: Passed,
}

impl Network {
    pub(crate) fn new(seed: u64) -> Arc<Network> {
        Arc::new(Network {
            ways: Mutex::default(),
            changed: watch::channel(()).0,
            random: Mutex::new(Xoshiro256PlusPlus::seed_from_u64(seed)),
            passed: Passed::default(),
        })
    }

    /// Changes one direction; the opposite one stays as it is.
    pub(crate) fn change(&self, from: &str, to: &str, change: impl FnOnce(&mut Way)) {
        let mut ways = self.ways.lock().expect("unpoisoned");
        change(ways.entry((from.to_owned(), to.to_owned())).or_default());
        drop(ways);
        self.changed.send_replace(());
    }

    /// Changes all directions.
    pub(crate) fn change_all(&self, names: &[String], change: impl Fn(&mut Way)) {
        for from in names {
            for to in names.iter().filter(|to| *to != from) {
                self.change(from, to, &change);
            }
        }
    }

    fn way(&self, from: &str, to: &str) -> Way {
        let ways = self.ways.lock().expect("unpoisoned");
        let way = ways.get(&(from.to_owned(), to.to_owned()));
        way.copied().unwrap_or_default()
    }

    fn below(&self, sides: u64) -> u64 {
        let mut random = self.random.lock().expect("unpoisoned");
        random.next_u64() % sides.max(1)
    }

    async fn open(&self, from: &str, to: &str) {
        let mut changed = self.changed.subscribe();
        if self.way(from, to).cut {
            self.passed.held.fetch_add(1, Ordering::Relaxed);
        }
        while self.way(from, to).cut {
            let _ = changed.changed().await;
        }
    }

    /// When a piece that arrives now is to be forwarded; `None` if it is dropped.
    fn leaves(&self, from: &str, to: &str, message: bool) -> Option<Instant> {
        let way = self.way(from, to);
        if message {
            self.passed.messages.fetch_add(1, Ordering::Relaxed);
            if way.loss > 0 && self.below(1000) < way.loss {
                self.passed.lost.fetch_add(1, Ordering::Relaxed);
                return None;
            }
        }
        let mut delay = way.delay;
        if !delay.is_zero() {
            self.passed.delayed.fetch_add(1, Ordering::Relaxed);
            let jitter = u64::try_from(way.jitter.as_micros()).unwrap_or(0);
            delay += Duration::from_micros(self.below(jitter + 1));
        }
        Some(Instant::now() + delay)
    }
}

/// Accepts connections for a member and forwards them to its real address.
pub(crate) async fn serve(
    network: Arc<Network>,
    listener: TcpListener,
    to: String,
    target: String,
) {
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            sleep(Duration::from_millis(10)).await;
            continue;
        };
        let (network, to, target) = (Arc::clone(&network), to.clone(), target.clone());
        tokio::spawn(async move {
            // An error closes both sides, which is all that is needed.
            let _ = connection(&network, stream, &to, &target).await;
        });
    }
}

async fn connection(
    network: &Arc<Network>,
    mut dialled: TcpStream,
    to: &str,
    target: &str,
) -> std::io::Result<()> {
    dialled.set_nodelay(true)?;
    let mut first = vec![0; PREFACE.len()];
    dialled.read_exact(&mut first).await?;
    let mut hello = Hello::default();
    if first == PREFACE {
        let frame = frame(&mut dialled).await?;
        hello = Hello::decode(&frame[HEAD..]).unwrap_or_default();
        first.extend_from_slice(&frame);
    }
    let from = hello.name.clone();
    network.open(&from, to).await;
    network.open(to, &from).await;
    // A peer that has disconnected meanwhile is treated as never connected.
    if let Ok(Ok(0)) = tokio::time::timeout(Duration::ZERO, dialled.peek(&mut [0])).await {
        return Ok(());
    }
    let mut reached = TcpStream::connect(target).await?;
    reached.set_nodelay(true)?;
    reached.write_all(&first).await?;
    let (dialled_reader, dialled_writer) = dialled.into_split();
    let (reached_reader, reached_writer) = reached.into_split();
    let there = Carrier {
        network: Arc::clone(network),
        from: from.clone(),
        to: to.to_owned(),
        messages: hello.purpose == MESSAGES,
    };
    let back = Carrier {
        network: Arc::clone(network),
        from: to.to_owned(),
        to: from,
        messages: false,
    };
    tokio::join!(
        there.carry(dialled_reader, reached_writer),
        back.carry(reached_reader, dialled_writer)
    );
    Ok(())
}

/// A whole frame, header and body.
async fn frame(from: &mut (impl AsyncRead + Unpin)) -> std::io::Result<Bytes> {
    let mut frame = vec![0; HEAD];
    from.read_exact(&mut frame).await?;
    let length = u32::from_be_bytes([frame[0], frame[1], frame[2], frame[3]]) as usize;
    frame.resize(HEAD + length, 0);
    from.read_exact(&mut frame[HEAD..]).await?;
    Ok(frame.into())
}

/// One direction of one connection.
struct Carrier {
    network: Arc<Network>,
    from: String,
    to: String,
    /// Frames may be dropped individually.
    messages: bool,
}

impl Carrier {
    async fn carry(&self, reader: impl AsyncRead + Unpin, writer: impl AsyncWrite + Unpin) {
        let (sender, receiver) = mpsc::channel(UNDER_WAY);
        tokio::join!(self.take(reader, sender), self.give(writer, receiver));
    }

    async fn take(
        &self,
        mut reader: impl AsyncRead + Unpin,
        under_way: mpsc::Sender<(Instant, Bytes)>,
    ) {
        let mut last = Instant::now();
        loop {
            let piece = tokio::select! {
                piece = self.piece(&mut reader) => piece,
                () = under_way.closed() => return,
            };
            let Ok(piece) = piece else { return };
            let message = self.messages && piece.len() > HEAD;
            let Some(leaves) = self.network.leaves(&self.from, &self.to, message) else {
                continue;
            };
            last = last.max(leaves);
            if under_way.send((last, piece)).await.is_err() {
                return;
            }
        }
    }

    async fn piece(&self, reader: &mut (impl AsyncRead + Unpin)) -> std::io::Result<Bytes> {
        if self.messages {
            return frame(reader).await;
        }
        let mut piece = BytesMut::with_capacity(64 << 10);
        match reader.read_buf(&mut piece).await? {
            0 => Err(std::io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(piece.freeze()),
        }
    }

    async fn give(
        &self,
        mut writer: impl AsyncWrite + Unpin,
        mut under_way: mpsc::Receiver<(Instant, Bytes)>,
    ) {
        while let Some((leaves, piece)) = under_way.recv().await {
            sleep_until(leaves).await;
            self.network.open(&self.from, &self.to).await;
            if writer.write_all(&piece).await.is_err() {
                return;
            }
        }
        self.network.open(&self.from, &self.to).await;
        let _ = writer.shutdown().await;
    }
}
