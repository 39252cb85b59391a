// Package benchmark pins, through the tool line of go.mod, etcd's own load generator. It is a
// module of its own: 3.6.8 is the newest version of it that module proxies have, and it does not
// build with the libraries of the newer etcd that ../go.mod pins. It holds no code.
package benchmark
