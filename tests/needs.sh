#!/usr/bin/env bash
# Names what a command of CONTRIBUTING.md lacks on this machine and how to get it, before the command has worked
# for minutes. Installs nothing except the Rust target of the image, if rustup is available.
#
#   tests/needs.sh NAME...    of: rust cc c++ go deny musl promtool python yaml venv valgrind node chromium root
#                             curl jq openssl prometheus
set -euo pipefail
lacks=()
have() { command -v "$1" >/dev/null 2>&1; }

rust() { # the version in Cargo.toml
  local wanted found
  if ! have cargo || ! have rustc; then
    lacks+=("a Rust toolchain: https://rustup.rs")
    return
  fi
  wanted=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' "$(dirname "$0")/../Cargo.toml")
  found=$(rustc --version | cut -d' ' -f2)
  if [ "$(printf '%s\n' "$wanted" "${found%%-*}" | sort -V | head -1)" != "$wanted" ]; then
    lacks+=("Rust $wanted or newer, this is $found: rustup update")
  fi
}
musl() { # the image's binary is linked statically
  local target folder
  target=$(uname -m)-unknown-linux-musl
  have musl-gcc || lacks+=("musl-gcc: apt-get install musl-tools")
  have rustc || return 0 # `rust` reports it
  folder=$(rustc --print target-libdir --target "$target")
  if ! compgen -G "$folder/libcore-*.rlib" >/dev/null; then
    if ! have rustup || ! rustup target add "$target"; then
      lacks+=("Rust's standard library for $target: rustup target add $target")
    fi
  fi
}

for name in "$@"; do
  case $name in
    rust) rust ;;
    musl) musl ;;
    cc) have cc || lacks+=("cc, a C compiler: apt-get install gcc libc6-dev") ;;
    c++) have "${CXX:-c++}" || lacks+=("${CXX:-c++}, a C++ compiler: apt-get install g++") ;;
    go) have go || lacks+=("Go 1.25 or newer: https://go.dev/doc/install") ;;
    curl | jq | openssl | prometheus) have "$name" || lacks+=("$name: apt-get install $name") ;;
    promtool) have promtool || lacks+=("promtool: apt-get install prometheus") ;;
    python) have python3 || lacks+=("python3, 3.9 or newer: apt-get install python3") ;;
    venv) have python3 && python3 -c 'import ensurepip' 2>/dev/null || lacks+=("Python's venv: apt-get install python3-venv") ;;
    yaml) have python3 && python3 -c 'import yaml' 2>/dev/null || lacks+=("Python's yaml: apt-get install python3-yaml, or pip install pyyaml") ;;
    valgrind) have valgrind || lacks+=("valgrind: apt-get install valgrind") ;;
    deny) have cargo && cargo deny --version >/dev/null 2>&1 || lacks+=("cargo-deny: tests/supply-chain.sh --install") ;;
    node) have node && have npm || lacks+=("node and npm, 18 or newer: apt-get install nodejs npm") ;;
    chromium) [ -n "${CHROMIUM:-}" ] || have chromium || lacks+=("Chromium: apt-get install chromium, or CHROMIUM=path") ;;
    root) [ "$(uname -s)" = Linux ] && [ "$(id -u)" = 0 ] || lacks+=("root on Linux: it makes network namespaces and mounts") ;;
    *) echo "needs.sh: nothing is known of \"$name\"" >&2; exit 2 ;;
  esac
done
[ ${#lacks[@]} -eq 0 ] && exit 0
echo "this needs, and the machine lacks:" >&2
printf '  %s\n' "${lacks[@]}" >&2
exit 1
