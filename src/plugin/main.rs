//! The thin binary of kubectl's plugin: hands the arguments to the library.

fn main() -> std::process::ExitCode {
    quorate_plugin::called(std::env::args_os())
}
