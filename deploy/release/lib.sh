# shellcheck shell=bash
# What the scripts of a release share. Sourced, with the working directory at the top of the repository; does nothing by
# itself.
export LC_ALL=C TZ=UTC
umask 022
tools=$PWD/target/release-tools
# shellcheck disable=SC2034 # its users source this file
version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)
die() { echo "${0##*/}: $*" >&2; exit 1; }

# The same commit gives the same bytes: every time in a file of the release is the commit's.
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH

# archive FILE FOLDER NAME...: these of the folder, compressed if FILE ends in gz; nothing in it tells who made it, or when.
archive() {
  local file=$1 folder=$2; shift 2
  tar --create --sort=name --owner=0 --group=0 --numeric-owner --mode=u+rwX,go+rX,go-w --mtime="@$SOURCE_DATE_EPOCH" \
    --pax-option=exthdr.name=%d/PaxHeaders/%f,delete=atime,delete=ctime -C "$folder" "$@" |
    case $file in *gz) gzip --no-name --best ;; *) cat ;; esac >"$file"
}

# The names of an architecture elsewhere: of Rust's targets, and of Debian, Go and container images.
# shellcheck disable=SC2034
architectures="x86_64 aarch64"
customary() { case $1 in x86_64) echo amd64 ;; aarch64) echo arm64 ;; *) die "no other name of $1 is known" ;; esac; }

plugin_of() { case $1 in *windows*) echo kubectl-quorate.exe ;; *) echo kubectl-quorate ;; esac; } # plugin_of TARGET: its binary

# The targets of the server, and of the plugin, which a laptop runs as well.
# shellcheck disable=SC2034
targets=(x86_64-unknown-linux-musl aarch64-unknown-linux-musl x86_64-apple-darwin aarch64-apple-darwin x86_64-pc-windows-gnu)
