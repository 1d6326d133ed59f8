# Two targets do everything on a fresh machine: `make run` and `make test`.
# Go 1.26 and Rust 1.95 or newer are all they need.

SHELL := /bin/bash
.DEFAULT_GOAL := help
CARGO ?= cargo

.PHONY: help run play test test-long quick lint bench image controlplane fmt

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "make %-14s %s\n", $$1, $$2}'

run: ## build belay and serve on 127.0.0.1, with certificates of its own and no cluster
	$(CARGO) run --locked --profile local --bin belay -- serve --standalone \
		--policies examples/policies --objects examples/objects

play: controlplane ## a real control plane with belay in front of it, until Ctrl-C
	$(CARGO) build --locked --bin belay --example play
	@exec $${CARGO_TARGET_DIR:-target}/debug/examples/play $${CARGO_TARGET_DIR:-target}/debug/belay

test: controlplane ## all the tests, those on the real control plane included; ONLY=text: tests whose names contain it
	@tests/image/tools
	@$(CARGO) run --locked --example suite -- --only "$(ONLY)"

test-long: controlplane ## the live tests with 10,000 objects and the intervals of production, then an hour of the soak
	@BELAY_TEST_LONG=1 $(CARGO) run --locked --example suite -- --only scenarios
	@$(CARGO) run --locked --release --example soak -- --minutes 60

quick: ## the tests that need no control plane
	@$(CARGO) run --locked --example suite -- --quick

lint: ## formatting, clippy with warnings denied, cargo-deny if it is installed
	$(CARGO) fmt --check
	$(CARGO) clippy --locked --all-targets -- -D warnings
	@if command -v cargo-deny >/dev/null; then $(CARGO) deny check; else echo "cargo-deny is not installed; its check is skipped"; fi

bench: ## the benchmarks of docs/PERFORMANCE.md
	$(CARGO) bench --locked

image: ## the container image and what it is made of, by docker, podman or buildah
	@image/build

controlplane: ## build etcd, Kubernetes, kubectl, helm and kwok into the user's cache, once
	@tests/controlplane/build >/dev/null

fmt: ## format the code
	$(CARGO) fmt
