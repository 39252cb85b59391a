#!/usr/bin/env bash
# Cargo's RUSTC_WRAPPER for the fuzzer's build: the crate under test gets libFuzzer's counters, and no
# other, so that dependencies are those of any other build and no build script wants libFuzzer. What is
# generic in them is compiled with the crate that uses it, and counts with it. The flags are stable ones.
case " $* " in
*" --crate-name quorate "*)
  exec "$@" -C passes=sancov-module \
    -C llvm-args=-sanitizer-coverage-level=4 \
    -C llvm-args=-sanitizer-coverage-inline-8bit-counters \
    -C llvm-args=-sanitizer-coverage-pc-table \
    -C llvm-args=-sanitizer-coverage-trace-compares
  ;;
esac
exec "$@"
