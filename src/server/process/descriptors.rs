//! File descriptors: how many this process may have, and how they are divided.
//!
//! Every connection uses one, and so do files of the log and of checkpoints. A server that accepts
//! until none is left cannot create the next file of its log, and ends. So each port has a share of
//! its own, and the rest belongs to the disk and to the links that this member dials. Never counts
//! the open ones: see [`crate::server::listen::seats`].

use std::io;

use crate::server::listen::seats::{LEAST_GOAWAYS, goaways};

/// Fewer are not enough for a member and a few clients.
pub(crate) const LEAST: u64 = 128;
/// The limit is not raised beyond this: the kernel's default maximum (`fs.nr_open`), and macOS refuses more than its `OPEN_MAX`.
const MOST: u64 = if cfg!(target_os = "macos") {
    10_240
} else {
    1 << 20
};
/// Client connections if no memory limit is known.
const MOST_CLIENTS: u64 = 1 << 16;
/// Client connections however small the memory limit: an API server holds one for each kind of
/// object to every member.
const LEAST_CLIENTS: u64 = 1024;
/// Memory reserved for a connection that a client holds open.
const CONNECTION_BYTES: u64 = 64 << 10;

/// Descriptors of a client thread, for its event loop.
const THREAD: u64 = 4;
/// Client threads that are covered by the reserve for the disk.
const FEW_THREADS: u64 = 4;

/// The connections that each kind of port may hold open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shares {
    /// The limit on open files that they divide.
    pub(crate) limit: u64,
    /// `--listen-client-urls` and `--listen-client-http-urls` together.
    pub(crate) clients: u64,
    /// `--listen-metrics-urls`.
    pub(crate) probes: u64,
    /// `--listen-peer-urls`: unauthenticated connections.
    pub(crate) peers: u64,
    /// Client threads, each with descriptors of its own.
    pub(crate) threads: usize,
}

/// The limit is too low.
#[derive(Debug, thiserror::Error)]
#[error(
    "this process may have {limit} open files, and a member needs {LEAST}: raise the hard limit (`ulimit -Hn`, LimitNOFILE= of a systemd unit)"
)]
pub(crate) struct TooFew {
    limit: u64,
}

impl Shares {
    /// Divides a limit on open files, for a process with this memory limit and number of cores.
    ///
    /// The reserve outside of all ports is three eighths of a small limit and at most 192: segments
    /// of the log, two checkpoints, four snapshots being sent, two links to each peer, the
    /// runtimes; and the client threads of a machine with many cores, one per core unless those
    /// would use more than a sixteenth. The reserve also covers the connections that are closing,
    /// up to the minimum of every port; the further ones of a port with many seats are part of its
    /// own share.
    pub(crate) fn of(limit: u64, memory: Option<u64>, cores: usize) -> Result<Shares, TooFew> {
        if limit < LEAST {
            return Err(TooFew { limit });
        }
        let threads = (cores.max(1) as u64).min((limit / 16 / THREAD).max(1));
        let kept = (limit * 3 / 8).min(192) + THREAD * threads.saturating_sub(FEW_THREADS);
        let peers = (limit / 8).clamp(16, 256);
        let probes = (limit / 16).clamp(8, 128);
        let by_memory = memory.map_or(MOST_CLIENTS, |bytes| {
            (bytes / 4 / CONNECTION_BYTES).clamp(LEAST_CLIENTS, MOST_CLIENTS)
        });
        let left = limit - kept - peers - probes;
        let leaving = goaways(left.min(by_memory)) - LEAST_GOAWAYS;
        Ok(Shares {
            limit,
            clients: (left - leaving).min(by_memory),
            probes,
            peers,
            threads: usize::try_from(threads).unwrap_or(usize::MAX),
        })
    }
}

/// Raises the soft limit as far as the hard one allows, and returns the new limit.
///
/// systemd and shells start a process with 1024, for old programs that use `select`; this one does
/// not.
#[expect(
    unsafe_code,
    reason = "getrlimit and setrlimit have no safe wrapper in the standard library"
)]
pub(crate) fn raise() -> io::Result<u64> {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: `limit` is a writable rlimit that outlives the call.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let wanted = limit.rlim_max.min(MOST);
    if limit.rlim_cur >= wanted {
        return Ok(limit.rlim_cur);
    }
    let raised = libc::rlimit {
        rlim_cur: wanted,
        rlim_max: limit.rlim_max,
    };
    // SAFETY: `raised` is a readable rlimit that outlives the call.
    if unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const raised) } != 0 {
        let error = io::Error::last_os_error();
        tracing::warn!(%error, limit = limit.rlim_cur, wanted, "cannot raise the limit of open files");
        return Ok(limit.rlim_cur);
    }
    Ok(wanted)
}

#[cfg(test)]
mod tests {
    use super::{LEAST, LEAST_GOAWAYS, Shares, goaways, raise};

    #[test]
    fn ports_and_disk_share_the_descriptors() {
        let limits = [LEAST, 200, 256, 1024, 4096, 1 << 20];
        for (limit, cores) in limits
            .into_iter()
            .flat_map(|limit| [1, 2, 8, 192].map(|cores| (limit, cores)))
        {
            let shares = Shares::of(limit, None, cores).expect("enough");
            assert!((1..=cores).contains(&shares.threads), "{shares:?}");
            let leaving = goaways(shares.clients) - LEAST_GOAWAYS;
            let given = shares.clients + leaving + shares.probes + shares.peers;
            let of_threads = 4 * (shares.threads as u64).saturating_sub(4);
            assert!(limit - given >= 48 + of_threads, "{shares:?}");
            assert!(
                shares.clients >= limit / 3 || shares.clients == 1 << 16,
                "{shares:?}"
            );
            assert!(shares.peers >= 16 && shares.probes >= 8, "{shares:?}");
        }
        // On a machine with many cores nothing was left for the disk: each thread has its own
        // descriptors.
        assert_eq!(Shares::of(1024, None, 192).expect("enough").threads, 16);
        assert_eq!(Shares::of(1 << 20, None, 192).expect("enough").threads, 192);
        let refused = Shares::of(LEAST - 1, None, 1).expect_err("too few");
        assert!(refused.to_string().contains("LimitNOFILE="), "{refused}");
    }

    #[test]
    fn memory_bounds_connections_first() {
        let of = |memory| Shares::of(1 << 20, memory, 2).expect("enough").clients;
        assert_eq!(of(None), 65_536);
        assert_eq!(of(Some(512 << 20)), 2048);
        assert_eq!(of(Some(64 << 20)), 1024);
    }

    #[test]
    fn soft_limit_is_raised_to_the_hard_limit() {
        let limit = raise().expect("a limit");
        assert_eq!(raise().expect("a limit"), limit);
        let text = std::fs::read_to_string("/proc/self/limits").expect("limits");
        let line = text.lines().find(|line| line.starts_with("Max open files"));
        let soft = line.and_then(|line| line.split_whitespace().nth(3));
        assert_eq!(soft, Some(&*limit.to_string()));
    }
}
