#!/usr/bin/env bash
# Cargo's RUSTC_WRAPPER for the fuzzer's build: only the packages under test get libFuzzer's counters, so that
# dependencies are shared with other builds and no build script needs libFuzzer. Their generic code is compiled
# with the crate that uses it, and is counted with it. The flags are stable ones.
case " $* " in
# tests/layering.rs checks that every package is listed
*" --crate-name quorate "* | *" --crate-name quorate_core "* | *" --crate-name quorate_planner "*)
  exec "$@" -C passes=sancov-module \
    -C llvm-args=-sanitizer-coverage-level=4 \
    -C llvm-args=-sanitizer-coverage-inline-8bit-counters \
    -C llvm-args=-sanitizer-coverage-pc-table \
    -C llvm-args=-sanitizer-coverage-trace-compares
  ;;
esac
exec "$@"
