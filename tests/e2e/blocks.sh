# shellcheck shell=bash
# Runs the commands of the pages for users: they are read from the page (tests/docs/block.py) and run in a folder with the samples, for
# the namespace of the scenario. tests/docs/ran.rs knows which blocks are run so, by the lines that begin with "block". Sourced, never run.
work=$(mktemp -d) top=$PWD docs=docs/tasks
ln -s "$top/deploy" "$top/charts" "$work"
mkdir "$work/bin"
for name in quorate kubectl-quorate; do ln -s "$top/target/image/context/out/quorate" "$work/bin/$name"; done
cp "$KUBECONFIG" "$work/kubeconfig"
KUBECONFIG=$work/kubeconfig kubectl config set-context --current --namespace="$ns" >/dev/null
blocks_end() {
  [ -z "${shell:-}" ] || kill -- "-$shell" 2>/dev/null || true
  rm -rf "$work"
}

# block PAGE FIRST [OLD NEW]...: runs the commands as its reader would, in a folder that stays; what they leave in the background ends with them
block() {
  local page=$1 text status=0; shift
  text=$(tests/docs/block.py "$page" "$@") || die "the block of $page cannot be read"
  log "$page: $(head -n 1 <<<"$text")"
  (
    cd "$work"
    export KUBECONFIG=$work/kubeconfig PATH=$work/bin:$top/target/interop/bin:$PATH
    exec setsid timeout 300 bash -euo pipefail -c 'ended() { [ "$1" = 124 ] || { echo "it ended by itself, with status $1"; return 1; }; }
endless() { local status=0; timeout 8 "$@" || status=$?; ended $status; }
on_screen() { local status=0; script -qec "stty cols 120 rows 30; timeout 8 $*" /dev/null || status=$?; ended $status; }
'"$text"
  ) >"$work/output" 2>&1 &
  shell=$!
  wait $shell || status=$?
  kill -- "-$shell" 2>/dev/null || true
  shell=
  [ $status = 0 ] || die "$page: status $status of
$text
$(cat "$work/output")"
}
said() { contains "$(cat "$work/output")" "$@"; } # what the last block printed
