// Package peers pins, through the tool lines of go.mod, the real etcd, etcdctl and etcdutl with
// which the tests of Quorate compare. It contains no code.
package peers
