# One list of every habit. `make check` never writes; `make fix` and `make generate` do.

SEEDS ?= 200
SEED_BASE ?= 1
# the profile of the simulator's build: `sim` is fastest for many seeds, `dev` needs no build after `make test`
SIM_PROFILE ?= sim
SCENARIO ?=

SCALE ?= 100
.PHONY: help demo test check lint files chart fix generate sim sim-operator scale raft mutants robustness differential fuzz soak attack topology kubeadm e2e interop h2spec kubernetes image release release-tools bench bench-growth instructions alerts console alerts-live

help: ## this list
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

demo: ## the life of a cluster on this machine, without Kubernetes, in a minute; KEEP=1 leaves it running
	@tests/needs.sh rust cc
	cargo build --locked --bin quorate
	target/debug/quorate demo

# most tests wait for servers: two a core
TEST_THREADS ?= $(shell echo $$((2 * $$(getconf _NPROCESSORS_ONLN))))
test: ## everything that needs only the Rust toolchain; sums up at its end what it could not run
	@tests/needs.sh rust cc
	RUST_TEST_THREADS=$(TEST_THREADS) tests/summary.sh cargo test --locked

check: ## formatting, lints, layering, links, generated files, supply chain: writes nothing
	@tests/needs.sh rust cc deny python yaml
	@$(MAKE) --no-print-directory lint files

lint: ## clippy over the tests' build and over the release's own, and rustdoc
	@tests/needs.sh rust cc
	cargo clippy --locked --all-targets -- -D warnings
	cargo clippy --locked --bin quorate --bin kubectl-quorate -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --locked --no-deps --lib --document-private-items --features mutants,simulators,versus

files: ## the rest of `make check`: formatting, layering, links, blocks of the pages, generated files, the chart, supply chain
	@tests/needs.sh rust cc deny python yaml
	cargo fmt --all --check
	cargo fmt --check --manifest-path tests/interop/rust/Cargo.toml
	cargo fmt --check --manifest-path tests/fuzz/Cargo.toml
	cargo test --locked --test layering --test conformance --test links --test docs --test messages
	tests/generated.sh
	tests/chart/check.py
	tests/supply-chain.sh

chart: ## the chart: what it renders and refuses, its values against their schema and its README, kubeconform with every Kubernetes, kube-score, checkov; needs Go and python3
	@tests/needs.sh go python yaml venv
	tests/kubernetes/build.sh helm
	cd tests/kubernetes/kube && go mod download k8s.io/kubernetes
	QUORATE_REQUIRE_HELM=1 tests/chart/check.py $(ONLY)
	$(if $(ONLY),,tests/chart/tools/run.sh)

fix: ## formats and applies the lints' suggestions
	cargo fmt --all
	cargo fmt --manifest-path tests/interop/rust/Cargo.toml
	cargo fmt --manifest-path tests/fuzz/Cargo.toml
	cargo clippy --fix --allow-dirty --allow-staged --all-targets

alerts: ## the rules of deploy/monitoring, and what fires when, by Prometheus' promtool
	@tests/needs.sh promtool
	promtool check rules deploy/monitoring/rules.yaml
	promtool test rules deploy/monitoring/rules-test.yaml
	tests/docs/dashboards.py

alerts-live: ## alerts under a real Prometheus by real faults: six between an operator and a kube-apiserver without nodes, and those of etcd's mixin, beside etcd; needs Go, prometheus, jq, curl and openssl
	@tests/needs.sh rust cc go prometheus jq curl openssl
	tests/kubernetes/build.sh kube
	cargo build --locked --bin quorate
	tests/alerts/live.sh
	tests/interop/build.sh
	tests/alerts/mixin.sh

generate: ## CRD, rights, references, images, the chart's README and the one-file install, from the code, the chart and docs/data
	@tests/needs.sh rust cc go python yaml
	cargo run --locked --quiet --bin quorate -- generate --write
	CONFORMANCE_WRITE=1 cargo test --locked --quiet --test conformance
	MESSAGES_WRITE=1 cargo test --locked --quiet --test messages
	METRICS_WRITE=1 cargo test --locked --quiet --test server metrics::
	tests/docs/images.py
	tests/chart/readme.py
	tests/kubernetes/build.sh helm
	tests/chart/check.py --write
	tests/kubernetes/install-yaml.sh

sim: ## seeded simulation: SEEDS=n runs n seeds from SEED_BASE, SEED=x replays one with its trace
	@tests/needs.sh rust cc
	SEEDS=$(SEEDS) SEED_BASE=$(SEED_BASE) $(if $(SEED),SEED=$(SEED)) cargo test --locked --profile $(SIM_PROFILE) --test sim -- --nocapture

MINUTES ?= 5
robustness: ## real servers under faults and load, their record checked twice: MINUTES=n, SEED=x, MEMBERS=3 to 5; needs cc, and Go for porcupine
	@tests/needs.sh rust cc
	@if command -v go >/dev/null; then tests/interop/porcupine/build.sh; fi
	MINUTES=$(MINUTES) $(if $(SEED),SEED=$(SEED)) $(if $(MEMBERS),MEMBERS=$(MEMBERS)) cargo test --locked --test robustness -- --nocapture

raft: interop ## random schedules to the Raft core and to etcd's, equal state after each event; SEEDS=n, or SEED=x for one
	@tests/needs.sh rust cc go
	SEEDS=$(SEEDS) SEED_BASE=$(SEED_BASE) QUORATE_REQUIRE_INTEROP=1 $(if $(SEED),SEED=$(SEED)) cargo test --locked --profile $(SIM_PROFILE) -p quorate-core --lib -- --nocapture raft::tests::differential

# the profile of the build with planted faults: `dev` needs no build of what we depend on after `make test`
MUTANTS_PROFILE ?= dev
mutants: ## planted faults, each must be noticed: prints which test notices which; MUTANT=name for one, WRITE=1 into docs/mutants.md
	@tests/needs.sh rust cc
	$(if $(MUTANT),MUTANT=$(MUTANT)) $(if $(SEED),SEED=$(SEED)) $(if $(WRITE),WRITE=1) cargo test --locked --profile $(MUTANTS_PROFILE) --lib mutants_test:: -- --include-ignored --nocapture

sim-operator: ## the operator over a simulated Kubernetes: every scenario, each write of it disturbed in every way; every field edited; SEEDS=n, SCENARIO=name or EDITS=path; SEED=x CRASH=12:After replays
	@tests/needs.sh rust cc
	$(if $(SEED),SEED=$(SEED),SEEDS=$(if $(filter file,$(origin SEEDS)),1,$(SEEDS))) SEED_BASE=$(SEED_BASE) $(if $(SCENARIO),SCENARIO=$(SCENARIO)) $(if $(CRASH),CRASH=$(CRASH)) $(if $(LAG),LAG=$(LAG)) $(if $(LATE),LATE=$(LATE)) $(if $(SECOND_LEADER),SECOND_LEADER=$(SECOND_LEADER)) $(if $(EDITS),EDITS=$(EDITS)) cargo test --locked --profile $(SIM_PROFILE) $(if $(EDITS),,--test sim_operator) $(if $(SCENARIO),,--test sim_edits) -- --nocapture

scale: ## one operator with many clusters at rest: its memory, its processor time, its requests; CLUSTERS=n; and of ROLLED=n that are all rolled
	@tests/needs.sh rust cc
	CLUSTERS=$(or $(CLUSTERS),1000) ROLLED=$(or $(ROLLED),30) cargo test --locked --profile sim --test sim_scale --test sim_rolled -- --nocapture

fuzz: ## every decoder under libFuzzer, on the stable toolchain; SECONDS=n in all (600), TARGET=name one; needs a C++ compiler
	@tests/needs.sh rust cc c++
	$(if $(TARGET),TARGET=$(TARGET)) $(if $(KEEP),KEEP=$(KEEP)) tests/fuzz.sh $(if $(filter command line,$(origin SECONDS)),$(SECONDS),600)

attack: ## what a stranger with a thousand connections costs clients, attack by attack: ROUNDS=n, SECONDS=n, ONLY=name; needs two quiet cores
	@tests/needs.sh rust cc
	cargo test --locked --release --test server --no-run
	chrt --fifo 1 taskset -c 1 cargo test --locked --release --test server -- --ignored --exact --nocapture attacks::cost_of_an_attacker

soak: ## the seeded tests for hours, what CI has no time for; SCALE=10 for a tenth, ONLY=part; docs/soak.md keeps the results
	@tests/needs.sh rust cc c++ go python yaml
	SCALE=$(SCALE) $(if $(ONLY),ONLY=$(ONLY)) tests/soak.sh

differential: interop ## the same random requests to Quorate and to real etcd; SEEDS=n, or SEED=n REQUESTS=n for one
	@tests/needs.sh rust cc go
	SEEDS=$(if $(filter file,$(origin SEEDS)),20,$(SEEDS)) SEED_BASE=$(SEED_BASE) QUORATE_REQUIRE_INTEROP=1 $(if $(SEED),SEED=$(SEED)) $(if $(REQUESTS),REQUESTS=$(REQUESTS)) cargo test --locked --test differential

interop: ## real etcd, etcdctl and etcdutl, and object stores, below target; the Rust client's programs; needs Go, and the tests Node and Python
	@tests/needs.sh rust cc go
	tests/interop/build.sh
	tests/stores/build.sh
	tests/interop/rust/build.sh

h2spec: ## h2spec, the conformance suite of HTTP/2 and HPACK, at the client port, with and without TLS: nothing but what is expected
	@tests/needs.sh rust cc go
	cargo build --locked --bin quorate
	tests/interop/h2spec.sh

kubernetes: ## Kubernetes, CoreDNS and helm, built from Go modules into target/kubernetes/bin
	@tests/needs.sh go
	tests/kubernetes/build.sh

image: ## the container image as target/image/quorate.tar (needs musl-gcc and buildah)
	@tests/needs.sh rust cc musl
	tests/kubernetes/quorate-image.sh

release-tools: ## installs what a release is made with: compilers for every target, the bill of materials, helm; as root on Debian, or with the packages that it names
	@tests/needs.sh rust cc go python yaml
	deploy/release/tools.sh

release: ## everything that a release of this commit has, without network: IMAGE=registry/repository URL=https://... of the files, MAINTAINER='Name <address>', KEY=private.pem signs, OUT=folder
	@tests/needs.sh rust python yaml
	deploy/release/build.sh

console: ## the console in headless Chromium: members, a stopped one, both themes, axe finds nothing; IMAGES=1 writes docs/images; needs Chromium and Node
	@tests/needs.sh rust cc node chromium
	cargo build --locked --bin quorate
	IMAGES=$(IMAGES) tests/console/run.sh

topology: ## hosts in network namespaces by the systemd unit, 1 to 7, partitioned; needs root on Linux; SIZES=3 runs one
	@tests/needs.sh root rust cc go
	tests/interop/build.sh
	cargo build --locked --bin quorate
	tests/topology/run.sh $(SIZES)

kubeadm: ## kubeadm itself on hosts in namespaces: external etcd, stacked, joins, renewed certificates, upgrade, reset; PART=stacked runs one; as root on Linux, with Go
	@tests/needs.sh root rust cc musl go python
	tests/kubernetes/packages.sh
	tests/kubernetes/build.sh
	tests/kubernetes/build.sh kubeadm
	tests/kubernetes/quorate-image.sh
	tests/kubeadm/run.sh $(PART)

e2e: ## on a real Kubernetes, as root on Linux, with Go; SCENARIO=name runs one, E2E_EXISTING=1 uses KUBECONFIG
	tests/e2e/run.sh $(SCENARIO)

instructions: ## instructions of an operation, by valgrind, against tests/instructions/baseline.csv: fails beyond 5 %; WRITE=1 writes it
	@tests/needs.sh rust cc valgrind
	$(if $(WRITE),WRITE=1) cargo run --locked --profile instructions -p quorate-instructions

ROUNDS ?= 5
KEYS ?= 1000000
# of the second table, on a disk whose syncs take 2 ms
SLOW_KEYS ?= 100000
PINNED ?=
versus = $(if $(PINNED),taskset -c 1) target/release/quorate-versus $(if $(PINNED),--members-on 0) --quorate target/release/quorate --etcd target/interop/bin/etcd --benchmark target/interop/bin/benchmark --rounds $(ROUNDS)
bench: ## this build against real etcd, three members each, in turn: ROUNDS, KEYS, PINNED=1 for all members on one core and the load on another; needs Go and a quiet machine
	@tests/needs.sh rust cc go
	tests/interop/build.sh
	tests/interop/build-bench.sh
	cargo build --locked --release --bin quorate
	cargo build --locked --release --features versus --bin quorate-versus
	$(versus) --keys $(KEYS) --dir target/bench/data --json target/bench/$(if $(PINNED),pinned,latest).json
	@if [ ! -w /dev/fuse ]; then echo "no second table: a disk with slow syncs needs root and /dev/fuse"; \
	else echo "the same, on a disk whose syncs take 2 ms"; mkdir -p target/bench/backing target/bench/slow && \
	target/interop/bin/slowdisk -delay 2ms -backing target/bench/backing -mount target/bench/slow -- \
	  $(versus) --keys $(SLOW_KEYS) --dir target/bench/slow/data --json target/bench/$(if $(PINNED),pinned-,)slow-disk.json; fi

AXIS ?= keys values clients watchers members
POINTS ?=
bench-growth: ## how the figures of `make bench` grow with AXIS=keys, values, clients, watchers or members (all in turn): POINTS=10000,100000 for some of its points; needs Go, python3 and a quiet machine
	@tests/needs.sh rust cc go python
	tests/interop/build.sh
	cargo build --locked --release --bin quorate
	cargo build --locked --release --features versus --bin quorate-versus
	@set -e; for axis in $(AXIS); do \
	  target/release/quorate-versus --axis $$axis $(if $(POINTS),--points $(POINTS)) --quorate target/release/quorate --etcd target/interop/bin/etcd \
	    --rounds $(if $(filter command line,$(origin ROUNDS)),$(ROUNDS),3) --dir target/bench/data --json target/bench/growth-$$axis.json; \
	  tests/docs/growth.py target/bench/growth-$$axis.json; done
