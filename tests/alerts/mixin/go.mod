module quorate.dev/tests/alerts/mixin

go 1.26

tool github.com/google/go-jsonnet/cmd/jsonnet

// Nothing is compiled of it: it has the mixin.
require go.etcd.io/etcd/v3 v3.7.0

require (
	github.com/fatih/color v1.19.0 // indirect
	github.com/google/go-jsonnet v0.21.0 // indirect
	github.com/mattn/go-colorable v0.1.14 // indirect
	github.com/mattn/go-isatty v0.0.20 // indirect
	go.yaml.in/yaml/v2 v2.4.3 // indirect
	golang.org/x/crypto v0.52.0 // indirect
	golang.org/x/sys v0.45.0 // indirect
	sigs.k8s.io/yaml v1.6.0 // indirect
)
