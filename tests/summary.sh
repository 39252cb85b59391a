#!/usr/bin/env bash
# Runs a test command and, whatever its outcome, ends with one line that summarises the tests that could not run:
# each prints "skipped: SUITE::TEST (REASON)". Returns the command's status.
#
#   tests/summary.sh cargo test --locked
set -uo pipefail
kept=$(mktemp); trap 'rm -f "$kept"' EXIT
# only standard error: what a passing test prints to standard output is captured
{ "$@" 2>&1 >&3 | tee "$kept" >&2; } 3>&1
status=${PIPESTATUS[0]}
awk '
  match($0, /skipped: [A-Za-z_0-9:]+ \(.*\)$/) {
    reason = substr($0, RSTART, RLENGTH); sub(/^[^(]*\(/, "", reason); sub(/\)$/, "", reason)
    if (!(reason in count)) order[++reasons] = reason
    count[reason]++; all++
  }
  END {
    if (!all) { print "every test ran"; exit }
    printf "%d %s did not run:", all, (all == 1 ? "test" : "tests")
    for (i = 1; i <= reasons; i++) printf "%s %d (%s)", (i > 1 ? "," : ""), count[order[i]], order[i]
    print ""
  }' "$kept" >&2
exit "$status"
