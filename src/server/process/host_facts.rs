//! What the machine offers: the memory limit, the cores, the hostname, priorities of threads.

use std::path::Path;

use crate::server::HostFacts;
use crate::store::Pace;

/// Reads what start-up needs.
#[must_use]
pub fn look() -> HostFacts {
    let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    HostFacts {
        memory_limit: memory_limit(&groups, Path::new("/sys/fs/cgroup")),
    }
}

/// Threads for clients: one a core that this process may use.
#[must_use]
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// How far a thread for slow work steps back: it gets a tenth of a core that others want.
const NICE: libc::c_int = 10;

/// Lets the other threads of this process go before this one, for good.
#[expect(
    unsafe_code,
    reason = "setpriority has no safe wrapper in the standard library"
)]
pub(in crate::server) fn step_back() {
    // SAFETY: it takes three numbers and touches no memory of ours. Of a kernel that refuses,
    // nothing is worse than without it.
    let _ = unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, NICE) };
    set_slice(SLICE);
}

/// Has the memory of this process come in small pages: a huge one is filled with zeros when it is first
/// touched, 4 ms and more in some virtual machines, by whichever thread touches it, and whoever it
/// serves waits. Of a kernel that refuses, nothing is worse than without it.
#[expect(unsafe_code, reason = "prctl has no wrapper in the standard library")]
pub(in crate::server) fn small_pages() {
    let (on, unused): (libc::c_ulong, libc::c_ulong) = (1, 0);
    // SAFETY: it takes numbers alone and touches no memory of ours.
    let _ = unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, on, unused, unused, unused) };
}

/// Nanoseconds that such a thread goes on for while others want its core, the least that a kernel takes:
/// about as long as it works before it gives the core up by itself. Kernels from 6.16 on take from whoever does
/// that what is left of his turn, and a turn is some milliseconds where nobody asks for another one: a comparison
/// of passwords took a hundred turns for one turn's work.
const SLICE: u64 = 100_000;

/// Sets the slice of this thread's scheduling and leaves the rest of it as it is.
#[expect(
    unsafe_code,
    reason = "sched_setattr has no wrapper in the standard library"
)]
fn set_slice(nanoseconds: u64) {
    let size = u32::try_from(size_of::<libc::sched_attr>()).unwrap_or(0);
    // SAFETY: all fields are numbers, and of each 0 is one.
    let mut own: libc::sched_attr = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel writes at most `size` bytes into what we own, and keeps no pointer to it.
    let got = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut own, size, 0) };
    if got != 0 || own.sched_policy != NORMAL {
        // Somebody has chosen how this process is scheduled.
        return;
    }
    own.size = size;
    own.sched_runtime = nanoseconds;
    // SAFETY: the kernel reads `size` bytes of what we own, and keeps no pointer to it. Of one that
    // refuses, nothing is worse than without it.
    let _ = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const own, 0) };
}

/// `SCHED_OTHER`.
const NORMAL: u32 = 0;

/// The pace of long reads on such a thread: it gives its core up again and again, which costs less than
/// a microsecond where nobody else wants it. Otherwise a kernel that preempts lazily lets it go on until
/// the next tick, up to 4 ms, whatever its priority.
#[must_use]
pub(in crate::server) fn pace() -> Pace<'static> {
    Pace::new(&std::thread::yield_now)
}

/// The name that the kernel gives this machine or pod.
#[must_use]
pub fn hostname() -> Option<String> {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
    Some(name.trim().to_owned())
}

/// The smallest limit of this process's control group and its parents.
fn memory_limit(groups: &str, root: &Path) -> Option<u64> {
    let mut least = None;
    for line in groups.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else {
            continue;
        };
        let (folder, file) = match controllers {
            "" => (root.to_owned(), "memory.max"),
            names if names.split(',').any(|name| name == "memory") => {
                (root.join("memory"), "memory.limit_in_bytes")
            }
            _ => continue,
        };
        let own = folder.join(path.trim_start_matches('/'));
        for folder in own
            .ancestors()
            .take_while(|ancestor| ancestor.starts_with(root))
        {
            let limit = std::fs::read_to_string(folder.join(file))
                .ok()
                .and_then(|text| text.trim().parse::<u64>().ok())
                // Version 1 writes "no limit" as a number near the largest one.
                .filter(|limit| *limit < 1 << 60);
            least = match (least, limit) {
                (Some(least), Some(limit)) => Some(limit.min(least)),
                (least, limit) => least.or(limit),
            };
        }
    }
    least
}

#[cfg(test)]
mod tests {
    use super::memory_limit;
    use std::fs;

    #[test]
    fn the_smallest_limit_on_the_way_up_holds() {
        let root = tempfile::tempdir().expect("folder");
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().expect("parent")).expect("made");
            fs::write(path, text).expect("written");
        };
        write("a/b/memory.max", "max\n");
        write("a/memory.max", "4000\n");
        write("memory/c/memory.limit_in_bytes", "9223372036854771712\n");
        let limit = |groups: &str| memory_limit(groups, root.path());
        assert_eq!(limit("0::/a/b\n"), Some(4000));
        assert_eq!(limit("0::/a/b/gone\n"), Some(4000));
        assert_eq!(limit("5:cpu,memory:/c\n0::/x\n"), None);
        write("memory/c/memory.limit_in_bytes", "300\n");
        assert_eq!(limit("5:cpu,memory:/c\n0::/a\n"), Some(300));
        assert_eq!(limit(""), None);
    }
}
