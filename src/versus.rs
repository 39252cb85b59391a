//! The binary of `make bench`: hands the arguments to the comparison with etcd, and is in no release.

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    quorate::cli::versus(std::env::args_os())
}
