// Package peers pins, through the tool lines of go.mod, the real etcd, etcdctl
// and etcdutl that the tests of Quorate compare against. It holds no code.
package peers
