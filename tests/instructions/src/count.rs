//! Runs a case under valgrind's callgrind, and reads how many instructions it counted. Never judges a count.

use std::process::Command;

use crate::cases::Case;

/// glibc chooses by the processor and the size of its caches how it copies memory, and valgrind counts some ways by the
/// byte: everywhere the plainest one. Without this the counts of processors differ by up to a third.
const TUNABLES: &str = "glibc.cpu.hwcaps=-AVX2,-AVX512F,-AVX512VL,-EVEX,-AVX_Fast_Unaligned_Load,-ERMS,-FSRM,-SSSE3:\
                        glibc.cpu.x86_non_temporal_threshold=0x1000000";

/// Instructions of one operation: of twice as many operations, less those of once as many.
///
/// # Errors
/// valgrind is missing or failed, or its output has no count.
pub(crate) fn instructions(case: &Case) -> Result<u64, String> {
    let once = collected(case.name, case.count)?;
    let twice = collected(case.name, 2 * case.count)?;
    let all = twice.checked_sub(once);
    let all = all.ok_or_else(|| format!("{}: more operations took less", case.name))?;
    Ok(all / case.count)
}

fn collected(name: &str, count: u64) -> Result<u64, String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(program)
        .args(["run", name, &count.to_string()])
        .env_clear()
        .envs(std::env::var_os("PATH").map(|path| ("PATH", path)))
        // Memory is otherwise given back after a time, which a loaded machine reaches earlier.
        .env("MIMALLOC_PURGE_DELAY", "-1")
        .env("GLIBC_TUNABLES", TUNABLES)
        .output()
        .map_err(|error| format!("cannot start valgrind (apt-get install valgrind): {error}"))?;
    let text = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        return Err(format!("{name}: {}\n{text}", output.status));
    }
    read(&text).ok_or_else(|| format!("{name}: valgrind printed no count:\n{text}"))
}

/// The number behind "Collected :".
fn read(text: &str) -> Option<u64> {
    let (_, rest) = text.split_once("Collected :")?;
    rest.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::read;

    #[test]
    fn the_count_is_read() {
        let text = "==1== Events    : Ir\n==1== Collected : 184102\n==1== \n";
        assert_eq!(read(text), Some(184_102));
        assert_eq!(read("==1== Events    : Ir\n"), None);
    }
}
