#!/usr/bin/env bash
# Runs h2spec, the conformance suite of HTTP/2 and HPACK, at the client port of a member: without and with TLS, and at a
# path that reads no body and one that does. Fails if it reports anything other than h2spec/expected.txt.
#
#   [VERBOSE=1] tests/interop/h2spec.sh [QUORATE]
#
# Twice: by this server's own HTTP/2, and by the library (--feature-gates=OwnHTTP2=false). VERBOSE=1 prints what each
# failure expected.
# QUORATE is target/debug/quorate by default. Everything is on loopback and below a directory of its own, which it
# removes. The version of h2spec is pinned in h2spec/go.mod and go.sum; it is built if those have changed.
set -euo pipefail
quorate=$(realpath "${1:-$(dirname "$0")/../../target/debug/quorate}")
here=$(cd "$(dirname "$0")" && pwd)
[ -x "$quorate" ] || { echo "h2spec.sh: $quorate is missing: make h2spec builds it" >&2; exit 1; }
out=${PEERS_OUT:-$here/../../target/interop/bin}
mkdir -p "$out"
out=$(cd "$out" && pwd)

stamp=$(cd "$here/h2spec" && cat go.mod go.sum "$here/h2spec.sh" | sha256sum | cut -d' ' -f1)
if [ ! -x "$out/h2spec" ] || [ "$(cat "$out/.h2spec-stamp" 2>/dev/null)" != "$stamp" ]; then
  command -v go >/dev/null || { echo "peers: Go is not installed, so h2spec cannot be built" >&2; exit 1; }
  echo "peers: building h2spec" >&2
  rm -f "$out/.h2spec-stamp"
  (cd "$here/h2spec" && GOFLAGS="-mod=readonly -buildvcs=false" CGO_ENABLED=0 \
    go build -trimpath -ldflags "-s -w" -o "$out/h2spec" github.com/summerwind/h2spec/cmd/h2spec)
  echo "$stamp" > "$out/.h2spec-stamp"
fi

dir=$(mktemp -d)
member=
end() {
  if [ -n "$member" ]; then
    kill "$member" 2>/dev/null || true
    wait "$member" 2>/dev/null || true
    member=
  fi
}
trap 'end; rm -rf "$dir"' EXIT
plain=21391 tls=21392 peers=http://127.0.0.1:21393

healthy() {
  (exec 3<>"/dev/tcp/127.0.0.1/$plain" && printf 'GET /health HTTP/1.0\r\n\r\n' >&3 && grep -q '"health":"true"' <&3) 2>/dev/null
}

start() { # start [FLAG...]: a member alone, with a new data directory
  rm -rf "$dir/data"
  # A limit of streams, because the test of it is skipped without one.
  "$quorate" server --name=m1 --data-dir="$dir/data" --initial-cluster="m1=$peers" --listen-peer-urls=$peers \
    --initial-advertise-peer-urls=$peers --auto-tls --max-concurrent-streams=100 \
    --listen-client-urls="http://127.0.0.1:$plain,https://127.0.0.1:$tls" \
    --advertise-client-urls="http://127.0.0.1:$plain,https://127.0.0.1:$tls" "$@" >"$dir/log" 2>&1 &
  member=$!
  local tries=0
  until healthy; do
    tries=$((tries + 1))
    if [ $tries -gt 300 ] || ! kill -0 "$member" 2>/dev/null; then
      echo "h2spec.sh: the member does not serve:" >&2; tail -n 20 "$dir/log" >&2; exit 1
    fi
    sleep 0.1
  done
}

check() { # check NAME FLAG...: one run of h2spec, whose other outcomes than "passed" are added to the list
  local name=$1; shift
  rm -f "$dir/report.xml"
  "$out/h2spec" --strict --timeout 5 --junit-report "$dir/report.xml" "$@" >"$dir/out" 2>&1 || true
  local tests
  tests=$(grep -c '<testcase ' "$dir/report.xml" 2>/dev/null || true)
  if [ "${tests:-0}" -lt 140 ]; then
    echo "h2spec.sh: $name: only ${tests:-0} tests ran" >&2; tail -n 20 "$dir/out" >&2; exit 1
  fi
  echo "$name: $(tail -n 1 "$dir/out")"
  [ -z "${VERBOSE:-}" ] || sed -n '/^Failures:/,/^Finished/p' "$dir/out" | sed '1d; /^Finished/d; /^$/d'
  sed 's/&#34;/"/g; s/&#39;/'\''/g; s/&lt;/</g; s/&gt;/>/g; s/&amp;/\&/g' "$dir/report.xml" | awk '
    /<testcase / {
      section = title = $0
      sub(/.* package="/, "", section); sub(/" classname=.*/, "", section)
      sub(/.* classname="/, "", title); sub(/" time=.*/, "", title)
    }
    /<(error|failure)>/ { print "failed", section, title }
    /<skipped>/ { print "skipped", section, title }' >>"$dir/found"
  healthy || { echo "h2spec.sh: $name: the member no longer serves:" >&2; tail -n 20 "$dir/log" >&2; exit 1; }
}

checks() { # checks NAME [FLAG...]: every run at one member, and whether their outcomes are those that are expected
  local name=$1 runs=4; shift
  : >"$dir/found"
  start "$@"
  check "$name, /health" --port $plain --path /health
  check "$name, /v3/kv/range" --port $plain --path /v3/kv/range
  check "$name, TLS, /health" --port $tls --path /health --tls --insecure
  check "$name, TLS, /v3/kv/range" --port $tls --path /v3/kv/range --tls --insecure
  end
  awk -v name="$name" -v runs=$runs '
    FNR == 1 { file++ }
    /^#/ || /^$/ { next }
    { outcome = $1; test = substr($0, length($1) + 2) }
    file == 1 { expected[test] = outcome; next }
    { reported[test]++; how[test] = outcome }
    END {
      for (test in reported) {
        if (expected[test] == how[test]) continue
        if (expected[test] == "sometimes" && reported[test] < runs) continue
        print name ": not expected in " reported[test] " of " runs " runs: " how[test], test; wrong = 1
      }
      for (test in expected) {
        if (expected[test] == "sometimes" || test in reported) continue
        print name ": expected, and not reported: " expected[test], test; wrong = 1
      }
      exit wrong
    }' "$here/h2spec/expected.txt" "$dir/found" >&2
}

checks own
checks library --feature-gates=OwnHTTP2=false
echo "as expected by tests/interop/h2spec/expected.txt"
