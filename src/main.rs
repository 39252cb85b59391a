//! The thin binary: hands the arguments to `quorate::cli`.

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    quorate::cli::run(std::env::args_os())
}
