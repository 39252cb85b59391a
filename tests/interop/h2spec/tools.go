// Package h2spec pins, through the tool line of go.mod, the conformance suite of HTTP/2. The version is that of its
// release 2.6.0, whose own number is none of a Go module. It contains no code.
package h2spec
