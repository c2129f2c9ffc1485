# LMCache operator. `make demo` shows the main job, `make test` proves it.
SHELL := /bin/bash
.DEFAULT_GOAL := help
CLUSTER_DIR ?= .cluster
NODES ?= 3
RESOURCES ?= 1000
PAIRS ?= 3
BENCH_KIND ?=

help: ## Lists the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: help build demo demo-trace demo-down test unit lint generate bench bench-traces bench-webhook cluster-up cluster-down install uninstall deploy undeploy

build: ## Builds target/release/manager
	cargo build --release --locked --bin manager

demo: build ## Shows an engine going from Pending to Ready on a real API server, then all three kinds, and vLLM connected to it (Ctrl-C ends it)
	cargo run --release --locked -q -p lmcache-demo -- up --manager target/release/manager

demo-trace: build ## The same with a Jaeger beside it, and the trace of each rollout as a waterfall
	tests/testbed/build-jaeger.sh
	cargo run --release --locked -q -p lmcache-demo -- up --trace --manager target/release/manager

demo-down: ## Ends a demo that was left running
	cargo run --release --locked -q -p lmcache-demo -- down

test: lint unit ## Everything: formatting, lints, documentation, unit tests, tests on a real control plane

lint: ## Formatting, lints and documentation without warnings; licences and sources of dependencies
	cargo fmt --all --check
	cargo clippy --locked --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --locked --workspace --no-deps --document-private-items
	tests/deny.sh

unit: ## All tests; the control plane is built once and cached outside the checkout
	tests/testbed/build.sh
	tests/testbed/build-jaeger.sh
	cargo test --locked --workspace

generate: ## Writes the CRD manifests, docs/api.md, the state diagram, the dashboards and docs/observability.md anew
	cargo run --locked -q -p lmcache-crds --example generate
	cargo run --locked -q -p lmcache-states --example diagram
	cargo run --locked -q -p lmcache-observability --example generate

bench: build ## Measures RESOURCES resources, a third of each kind or all of BENCH_KIND, against a floor of plain clients
	cargo run --release --locked -q -p lmcache-bench -- --resources $(RESOURCES) $(if $(BENCH_KIND),--kind $(BENCH_KIND)) --manager target/release/manager

bench-traces: build ## Compares PAIRS pairs of such runs, without traces and with traces to a live Jaeger
	cargo run --release --locked -q -p lmcache-bench -- --resources $(RESOURCES) --traces $(PAIRS) --manager target/release/manager

bench-webhook: build ## Measures the injectors alone, and 10,000 pods while the operator restarts and its certificate rotates
	cargo run --release --locked -q -p lmcache-bench --bin bench-webhook -- --manager target/release/manager

cluster-up: ## Starts a control plane with NODES simulated GPU nodes and prints its KUBECONFIG
	cargo run --locked -q -p lmcache-testbed -- up --dir $(CLUSTER_DIR) --nodes $(NODES)

cluster-down: ## Ends it and removes its state
	cargo run --locked -q -p lmcache-testbed -- down --dir $(CLUSTER_DIR)

install: ## Applies the CRDs to the cluster that KUBECONFIG names
	kubectl apply --server-side -k crds/manifests

uninstall: ## Deletes the CRDs, and with them every engine
	kubectl delete --ignore-not-found -k crds/manifests

deploy: ## Applies CRDs, RBAC and the operator to the cluster that KUBECONFIG names
	kubectl apply --server-side -k deploy/base

undeploy: ## Deletes what deploy applied
	kubectl delete --ignore-not-found -k deploy/base
