module quorate.dev/tests/kubernetes/pause

go 1.25.0
