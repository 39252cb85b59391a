// Package benchmark pins, through the tool line of go.mod, etcd's own load generator. It is a
// separate module: 3.6.8 is its newest version on module proxies, and it does not build with the
// libraries of the newer etcd that ../go.mod pins. It contains no code.
package benchmark
