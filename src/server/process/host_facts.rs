//! Facts about the machine: the memory limit, the cores, the hostname, and the priorities of
//! threads.

use std::path::Path;

use crate::server::HostFacts;
use crate::store::Pace;

/// Collects the facts that start-up needs.
#[must_use]
pub fn read() -> HostFacts {
    let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    HostFacts {
        memory_limit: memory_limit(&groups, Path::new("/sys/fs/cgroup")),
    }
}

/// Client threads: one per core that this process may use.
#[must_use]
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// The niceness of a thread for slow work: it gets a tenth of a core that others want.
#[cfg(target_os = "linux")]
const NICE: libc::c_int = 10;

/// Lowers the priority of this thread below the others of this process, permanently. On Linux alone: elsewhere niceness is of the
/// whole process.
#[cfg(target_os = "linux")]
#[expect(
    unsafe_code,
    reason = "nice has no safe wrapper in the standard library"
)]
pub(in crate::server) fn step_back() {
    // SAFETY: it takes a number and touches no memory of ours. On Linux it is of the calling thread alone. If the kernel refuses,
    // nothing is lost.
    let _ = unsafe { libc::nice(NICE) };
    set_slice(SLICE);
}

#[cfg(not(target_os = "linux"))]
pub(in crate::server) fn step_back() {}

/// Disables transparent huge pages for this process, which Linux alone has: a huge page is filled with zeros when it is
/// first touched, which takes 4 ms and more in some virtual machines and delays the touching thread
/// and its clients. If the kernel refuses, nothing is lost.
#[cfg(target_os = "linux")]
#[expect(unsafe_code, reason = "prctl has no wrapper in the standard library")]
pub(in crate::server) fn small_pages() {
    let (on, unused): (libc::c_ulong, libc::c_ulong) = (1, 0);
    // SAFETY: it takes numbers alone and touches no memory of ours.
    let _ = unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, on, unused, unused, unused) };
}

#[cfg(not(target_os = "linux"))]
pub(in crate::server) fn small_pages() {}

/// Time slice in nanoseconds of such a thread while others want its core, the shortest that a
/// kernel accepts: about as long as it works before it yields by itself. From 6.16 on, kernels take
/// the rest of its slice from a thread that yields, and the default slice is some milliseconds: a
/// comparison of passwords needed a hundred slices for the work of one.
#[cfg(target_os = "linux")]
const SLICE: u64 = 100_000;

/// Sets the time slice of this thread and leaves its other scheduling attributes unchanged.
#[cfg(target_os = "linux")]
#[expect(
    unsafe_code,
    reason = "sched_setattr has no wrapper in the standard library"
)]
fn set_slice(nanoseconds: u64) {
    let size = u32::try_from(size_of::<libc::sched_attr>()).unwrap_or(0);
    // SAFETY: all fields are numbers, for which 0 is valid.
    let mut own: libc::sched_attr = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel writes at most `size` bytes into what we own, and keeps no pointer to it.
    let got = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut own, size, 0) };
    if got != 0 || own.sched_policy != NORMAL {
        // The scheduling of this process was configured from outside.
        return;
    }
    own.size = size;
    own.sched_runtime = nanoseconds;
    // SAFETY: the kernel reads `size` bytes of what we own, and keeps no pointer to it. If it
    // refuses, nothing is lost.
    let _ = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const own, 0) };
}

/// `SCHED_OTHER`.
#[cfg(target_os = "linux")]
const NORMAL: u32 = 0;

/// The pace of long reads on such a thread: it yields its core again and again, which costs less
/// than a microsecond if no other thread wants it. Otherwise a kernel with lazy preemption lets it
/// run until the next tick, up to 4 ms, whatever its priority.
#[must_use]
pub(in crate::server) fn pace() -> Pace<'static> {
    Pace::new(&std::thread::yield_now)
}

/// The kernel's hostname of this machine or pod.
#[must_use]
#[expect(
    unsafe_code,
    reason = "gethostname has no wrapper in the standard library"
)]
pub fn hostname() -> Option<String> {
    // One byte more than the longest name of POSIX: the kernel's text ends with a zero.
    let mut name = [0_u8; 256];
    // SAFETY: it writes at most `len` bytes into what we own, and keeps no pointer to it.
    let failed = unsafe { libc::gethostname(name.as_mut_ptr().cast(), name.len()) } != 0;
    let name = std::ffi::CStr::from_bytes_until_nul(&name).ok()?;
    let name = name.to_str().ok().filter(|_| !failed)?;
    Some(name.to_owned())
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
    use super::{hostname, memory_limit};
    use std::fs;

    #[test]
    #[cfg(target_os = "linux")]
    fn hostname_is_the_kernels() {
        let kernels = fs::read_to_string("/proc/sys/kernel/hostname").expect("Linux has it");
        assert_eq!(hostname().as_deref(), Some(kernels.trim()));
    }

    #[test]
    fn smallest_cgroup_limit_applies() {
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
