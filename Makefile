# Copyright 2026 The xdslb Authors
# SPDX-License-Identifier: Apache-2.0

GO       ?= go
TOOL     := $(GO) tool -modfile=.ci/tools.mod
PKGS     := ./...
CHECKS   := $(shell sed 's/ *\#.*//' .ci/checks | paste -sd, -)
FUZZTIME ?= 10s
SCENARIOS ?= 100
DURATION ?= 10m
BENCH    ?= .
COUNT    ?= 1
BASE     ?=
REPORTED := ^Benchmark(Decode|EDF|EDSUpdate|PickDown|Policy|Ring|Select|Startup)$$

.DEFAULT_GOAL := help

.PHONY: help
help: ## Print the targets.
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-14s %s\n", $$1, $$2}'

.PHONY: demo
demo: ## Run the whole of it on loopback: control plane, backends, client.
	@$(GO) run ./bench/cmd/demo

.PHONY: test
test: lint unit examples invariants race bench-once fuzz ## Run everything that has to pass before a merge.

.PHONY: lint
lint: ## gofmt, vet, staticcheck, go.mod tidiness.
	@test -z "$$(gofmt -l . | tee /dev/stderr)"
	$(GO) vet $(PKGS)
	$(TOOL) staticcheck -checks '$(CHECKS)' $(PKGS)
	$(GO) mod tidy -diff

.PHONY: unit
unit: ## Unit tests, examples, the import arrows of the house.
	$(GO) test $(PKGS)

.PHONY: examples
examples: ## Modules that use this one as others do.
	cd integrate/examples/custom && $(GO) vet . && $(GO) test .

.PHONY: invariants
invariants: ## The kernel's tests with its internal checks switched on.
	$(GO) test -short -tags invariants ./edf ./picker ./ringhash

.PHONY: race
race: ## Tests under the race detector.
	$(GO) test -short -race $(PKGS)

.PHONY: conformance
conformance: ## grpc-go's own xDS end-to-end tests through our resolver (minutes).
	@bench/conformance/run.sh

.PHONY: chaos
chaos: ## Run SCENARIOS random scenarios of faults, half a minute of virtual time each.
	$(GO) test -timeout 0 -run 'TestChaos$$' ./integrate -chaos.scenarios $(SCENARIOS)

.PHONY: soak
soak: ## Keep 50 channels busy for DURATION, and print how heap, goroutines and picks do.
	$(GO) test -timeout 0 -v -run 'TestSoak$$' ./integrate -soak $(DURATION)

.PHONY: bench
bench: ## The scoreboard: ours, stock xDS, round_robin and others, side by side.
	@$(GO) run ./bench/cmd/scoreboard -bench '$(BENCH)' -count $(COUNT)

.PHONY: bench-record
bench-record: ## Record a run for the READMEs. Have the machine to yourself.
	@$(GO) run ./bench/cmd/scoreboard -count 3 -o bench/testdata/baseline.txt

.PHONY: readme
readme: ## Write the tables of README.md and bench/README.md from the recorded run.
	@$(GO) run ./bench/cmd/readme

.PHONY: bench-report
bench-report: ## A page with plots in bench/out: costs, shares, latencies, what happens during failures.
	@mkdir -p bench/out
	@$(GO) run ./bench/cmd/scoreboard -bench '$(REPORTED)' -benchtime 30ms -o bench/out/bench.txt >/dev/null
	@$(GO) run ./bench/cmd/latency -o bench/out/latency.json
	@$(GO) run ./bench/cmd/report -bench bench/out/bench.txt -latency bench/out/latency.json -o bench/out/report.html
	@echo bench/out/report.html

.PHONY: bench-diff
bench-diff: ## Compare the hot benchmarks with another commit's: BASE, or where this branch began.
	@$(GO) run ./bench/cmd/benchdiff -base '$(BASE)'

.PHONY: bench-once
bench-once: ## Every benchmark once, so that none rots.
	$(GO) test -run '^$$' -bench . -benchtime 1x -short $(PKGS)
	cd bench/peers && $(GO) vet . && $(GO) test -run '^$$' -bench . -benchtime 1x .

.PHONY: fuzz
fuzz: ## Fuzz every target for FUZZTIME.
	@set -e; for p in ./fuzz ./integrate; do for t in $$($(GO) test -list '^Fuzz' $$p | grep ^Fuzz); do \
		echo "fuzz $$t"; $(GO) test -run '^$$' -fuzz "^$$t\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 20x $$p; done; done
