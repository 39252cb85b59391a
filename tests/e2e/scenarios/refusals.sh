# shellcheck shell=bash
# an invalid resource is refused with a message that says what to do
refused() { # refused WHAT MESSAGE-PART: the resource on standard input must be refused, with that in the message
  local message
  if message=$(kubectl -n "$ns" apply --validate=strict -f - 2>&1); then die "$1 was accepted"; fi
  grep -qiE "$2" <<<"$message" || die "$1: the message does not say \"$2\": $message"
  say "refused: $1: $(tail -1 <<<"$message")"
}
resource() { printf 'apiVersion: quorate.dev/v1alpha1\nkind: EtcdCluster\nmetadata: {name: %s}\nspec: %s\n' "$1" "$2"; }
operator_kill # what is invalid is refused by the definition itself, with no operator there
resource demo '{replicas: 10}' | refused "too many replicas" 'replicas'
resource demo '{replicas: -1}' | refused "a negative size" 'replicas'
resource demo '{replicas: 3, storage: {size: 1Gi}, colour: blue}' | refused "an unknown field" 'unknown field.*colour'
resource 1demo '{replicas: 3, storage: {size: 1Gi}}' | refused "a name that cannot be a host name" 'name'
resource "$(printf 'a%.0s' {1..41})" '{replicas: 3, storage: {size: 1Gi}}' | refused "a name too long" '40'

apply_cluster demo 1
ready demo 1
patched() { kubectl -n "$ns" patch qec demo --type=merge -p "$1" 2>&1; }
if message=$(patched '{"spec":{"storage":{"size":"512Mi"}}}'); then die "a shrinking volume was accepted"; fi
grep -qi 'grow' <<<"$message" || die "the message about a shrinking volume does not say that it only grows: $message"
if message=$(patched '{"spec":{"storage":{"storageClassName":"local"}}}'); then die "another storage class was accepted"; fi
say "refused: $(tail -1 <<<"$message")"
drop_cluster demo
