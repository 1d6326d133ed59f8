# `make run` and `make test` do everything on a new machine. CONTRIBUTING.md lists the
# tools that they need.

SHELL := /bin/bash
.DEFAULT_GOAL := help
CARGO ?= cargo

.PHONY: help run play test test-long quick lint bench bench-peers image controlplane fmt

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "make %-14s %s\n", $$1, $$2}'

run: ## build belay and serve on 127.0.0.1 without a cluster, with its own certificates
	$(CARGO) run --locked --profile local --bin belay -- serve --standalone \
		--policies examples/policies --objects examples/objects

play: controlplane ## run a real control plane with belay installed, until Ctrl-C
	$(CARGO) build --locked --bin belay --example play
	@exec $${CARGO_TARGET_DIR:-target}/debug/examples/play $${CARGO_TARGET_DIR:-target}/debug/belay

test: controlplane ## run all tests, with a real control plane; ONLY=text selects tests by name
	@tests/image/tools
	@$(CARGO) run --locked --example suite -- --only "$(ONLY)"

test-long: controlplane ## run the scenarios with 10,000 objects and production intervals, a browser, then an hour of the soak
	@BELAY_TEST_LONG=1 $(CARGO) run --locked --example suite -- --only scenarios
	@BELAY_TEST_LONG=1 $(CARGO) test --locked --test cli chromium
	@$(CARGO) run --locked --release --example soak -- --minutes 60

quick: ## run the tests that need no control plane
	@$(CARGO) run --locked --example suite -- --quick

lint: ## check formatting, clippy, and cargo-deny if it is installed
	$(CARGO) fmt --check
	$(CARGO) clippy --locked --all-targets -- -D warnings
	@if command -v cargo-deny >/dev/null; then $(CARGO) deny check; else echo "cargo-deny is not installed; its check is skipped"; fi

bench: ## run the benchmarks of docs/PERFORMANCE.md
	$(CARGO) bench --locked

bench-peers: controlplane ## compare belay with other webhooks, and draw docs/peers.svg
	@tools=$$(examples/peers/build) && \
		$(CARGO) run --locked --release --example peers -- $$tools docs/peers.svg
	@peers=$$(examples/peers/build plane) && \
		$(CARGO) run --locked --release --example peers -- plane $$peers

image: ## build the container image and its SBOM with docker, podman or buildah
	@image/build

controlplane: ## build etcd, Kubernetes, kubectl, helm and kwok into the user's cache, once
	@tests/controlplane/build >/dev/null

fmt: ## format the code
	$(CARGO) fmt
