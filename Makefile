# Copyright 2026 The xdslb Authors
# SPDX-License-Identifier: Apache-2.0

GO       ?= go
TOOL     := $(GO) tool -modfile=.ci/tools.mod
# The default -timeout of ten minutes is short for a package on a shared machine.
TEST     := $(GO) test -timeout 1h
PKGS     := ./...
CHECKS   := $(shell sed 's/ *\#.*//' .ci/checks | paste -sd, -)
FUZZTIME ?= 10s
SCENARIOS ?= 100
RUNS     ?= 100000
DURATION ?= 10m
BENCH    ?= .
COUNT    ?= 1
BASE     ?=
OLDGO    ?= go1.25.0
# Every system, and every size of a word; nothing depends on more than that.
PLATFORMS := linux/arm64 linux/386 darwin/arm64 windows/amd64

SHELL    := bash

.DEFAULT_GOAL := help

.PHONY: help
help: ## Print the targets.
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-14s %s\n", $$1, $$2}'

.PHONY: demo
demo: ## Run a demo on loopback: control plane, backends, client.
	@GO=$(GO) bench/cmd/run.sh demo

QUICK := lint unit examples
REST  := long invariants seeded rollout oldest race bench-once guard portable quickstart fuzz

.PHONY: test
test: ## Vet, lint, unit tests, examples: three minutes on an idle machine.
	@MAKE='$(MAKE)' .ci/steps test $(QUICK)

.PHONY: check
check: ## Run everything that must pass before a merge.
	@MAKE='$(MAKE)' .ci/steps check $(QUICK) $(REST)

.PHONY: rest
rest: ## The part of check that is not in test.
	@MAKE='$(MAKE)' .ci/steps rest $(REST)

.PHONY: lint
lint: ## gofmt, vet, staticcheck, go.mod tidiness, the exported API.
	@test -z "$$(gofmt -l . | tee /dev/stderr)"
	$(GO) vet $(PKGS)
	$(TOOL) staticcheck -checks '$(CHECKS)' $(PKGS)
	$(GO) mod tidy -diff
	$(GO) run -C bench/cmd/api . -C ../../..
	@.ci/figures || true

.PHONY: api
api: ## Accept the incompatible changes of the exported API that lint reports.
	$(GO) run -C bench/cmd/api . -C ../../.. -w

# The packages whose tests take minutes of CPU time without -short.
LONG := bench/arena bench/differential integrate integrate/internal/balancer xds xds/lrs
OTHERS = $(filter-out $(LONG:%=$(shell $(GO) list -m)/%),$(shell $(GO) list $(PKGS)))

.PHONY: unit
unit: ## Unit tests, examples, the import rules between packages; shorter runs of LONG.
	$(TEST) $(OTHERS)
	$(TEST) -short $(LONG:%=./%)

.PHONY: long
long: ## The tests of LONG that unit shortens or skips.
	@run=$$(.ci/shortened $(LONG)) && set -x && $(TEST) -run "$$run" $(LONG:%=./%)

.PHONY: examples
examples: ## The modules below this one: examples, and the check of the exported API.
	cd integrate/examples/custom && $(GO) vet . && $(TEST) .
	cd integrate/examples/opentelemetry && $(GO) vet ./... && $(TEST) ./...
	cd integrate/dashboards && $(GO) vet . && $(TEST) .
	cd bench/cmd/api && $(GO) vet . && $(TEST) .

.PHONY: invariants
invariants: ## The kernel's tests with internal checks enabled.
	$(TEST) -short -tags invariants ./edf ./picker ./ringhash

.PHONY: seeded
seeded: ## Test that random choices in the arena follow the seed.
	$(GO) test -tags seeded -ldflags=-checklinkname=0 -run '^TestSeed$$' ./bench/arena

.PHONY: rollout
rollout: ## Test switching back to grpc/xds if it registers its scheme first.
	$(TEST) -overlay .ci/stockfirst.json ./bench/rollout -rollout.stockfirst

# TestArrows runs go list, which does not use the other go.mod. vet has run before. If that Go or gRPC cannot be
# fetched, the target prints a message and succeeds.
.PHONY: oldest
oldest: ## Vet and test with the oldest supported gRPC and Go: see integrate/docs/rollout.md.
	@if ! GOTOOLCHAIN=$(OLDGO) .ci/again $(GO) mod download -modfile=.ci/oldest.mod; then echo 'oldest: NOT RUN: $(OLDGO) or its modules cannot be fetched'; exit 0; fi; set -ex; \
	GOTOOLCHAIN=$(OLDGO) $(GO) vet -modfile=.ci/oldest.mod -tags xdslb_oldgrpc ./edf ./picker/... ./ringhash ./xds/... ./integrate/... ./bench/rollout; \
	GOTOOLCHAIN=$(OLDGO) $(TEST) -vet=off -short -skip TestArrows -modfile=.ci/oldest.mod -tags xdslb_oldgrpc ./edf ./picker/... ./ringhash ./xds/... ./integrate/... ./bench/rollout

.PHONY: race
race: ## Tests under the race detector.
	$(TEST) -short -race $(PKGS)

.PHONY: quickstart
quickstart: ## Run the steps of integrate/docs/quickstart.md: server, client, control plane, rollback.
	$(TEST) -count=1 -run 'TestQuickstart$$' ./bench/doccheck -quickstart

.PHONY: conformance
conformance: ## grpc-go's own xDS end-to-end tests through our resolver (minutes).
	@bench/conformance/run.sh

.PHONY: istio
istio: ## Run channels behind Istio's programs, ISTIO_PILOT and ISTIO_AGENT (minutes): see bench/istio/README.md.
	ISTIO_PILOT=$(abspath $(ISTIO_PILOT)) ISTIO_AGENT=$(abspath $(ISTIO_AGENT)) $(GO) test -timeout 20m -count 1 -v -run 'TestIstio$$' ./bench/istio

.PHONY: chaos
chaos: ## Run SCENARIOS random scenarios of faults, half a minute of virtual time each, and one over TCP.
	$(GO) test -timeout 0 -run 'TestChaos(Loopback)?$$' ./integrate -chaos.loopback -chaos.scenarios $(SCENARIOS)

.PHONY: model
model: ## Run RUNS random histories of the balancer against a model.
	$(GO) test -timeout 0 -run 'TestModel$$' ./integrate/internal/balancer -model.runs $(RUNS)

.PHONY: differential
differential: ## Compare with stock xDS in SEEDS random worlds (default 300), from seed FROM.
	$(GO) test -timeout 0 -v -run 'TestDifferential$$' ./bench/differential -model.runs $(or $(SEEDS),300) -model.seed $(or $(FROM),1)

.PHONY: hostile
hostile: ## Measure the cost of misbehaving control planes: the table of xds/SECURITY.md (minutes).
	$(GO) test -timeout 0 -count 1 -v -run 'TestHostile$$' ./bench/hostile -hostile 3s

.PHONY: soak
soak: ## Keep 50 channels busy for DURATION, and print heap, goroutines and picks.
	$(GO) test -timeout 0 -v -run 'TestSoak$$' ./integrate/internal/balancer -soak $(DURATION)

.PHONY: bench
bench: ## Run the scoreboard: ours, stock xDS, round_robin and other libraries.
	@$(GO) run ./bench/cmd/scoreboard -bench '$(BENCH)' -count $(COUNT)

.PHONY: bench-record
bench-record: ## Record a run for the READMEs, on an idle machine.
	@$(GO) run ./bench/cmd/scoreboard -count 3 -o bench/testdata/baseline.txt

.PHONY: readme
readme: ## Write the tables of README.md and bench/README.md from the recorded run.
	@$(GO) run ./bench/cmd/readme

# The tag and the flag make random choices of policies follow the seed.
.PHONY: arena
arena: ## Compare all policies, ours and stock's, in all fleets; ARENA has more flags.
	@mkdir -p bench/out
	@set -o pipefail; GO=$(GO) GOFLAGS='-tags=seeded -ldflags=-checklinkname=0' bench/cmd/run.sh arena -o bench/out/arena.json $(ARENA) | tee bench/out/arena.txt
	@echo bench/out/arena.txt

.PHONY: bench-diff
bench-diff: ## Compare the hot benchmarks with another commit: BASE, or the start of this branch.
	@GO=$(GO) bench/cmd/run.sh benchdiff -base '$(BASE)'

.PHONY: guard
guard: ## Compare the hot benchmarks with the commit of the recorded run.
	@GO=$(GO) bench/cmd/run.sh benchdiff -recorded bench/testdata/baseline.txt

# The packages that have benchmarks; linking the tests of the others takes longer than the benchmarks.
BENCHED = $(shell $(GO) list -f '{{.Dir}}' $(PKGS) | while read -r d; do ! grep -qs '^func Benchmark' "$$d"/*_test.go || echo "$$d"; done)

# The time of a single iteration is meaningless.
NOFIGURES := grep -vE '^(Benchmark.*/op|goos: |goarch: |pkg: |cpu: |PASS$$)'

.PHONY: bench-once
bench-once: ## Run every benchmark once, to check that it works.
	@set -o pipefail; $(TEST) -run '^$$' -bench . -benchtime 1x -short $(BENCHED) | $(NOFIGURES)
	@set -o pipefail; cd bench/peers && $(GO) vet . && $(TEST) -run '^$$' -bench . -benchtime 1x . | $(NOFIGURES)

# vet covers the tests, which go build does not. TestReweighOften takes minutes with 32 bits.
.PHONY: portable
portable: ## Build for every system in PLATFORMS, and run the tests with 32 bits.
	@set -e; for p in $(PLATFORMS); do echo "build for $$p"; \
		GOOS=$${p%/*} GOARCH=$${p#*/} $(GO) build ./...; done
	GOOS=windows $(GO) vet -buildtag ./...
	@if GOARCH=386 $(GO) test -run '^$$' ./edf 2>&1 | grep 'exec format error'; then \
		echo 'portable: 32-bit tests NOT RUN, only vetted: this system cannot execute them'; set -x; \
		GOARCH=386 $(GO) vet ./edf ./picker/... ./ringhash ./xds/... ./integrate/...; \
	else set -x; GOARCH=386 $(TEST) -short -skip TestReweighOften ./edf ./picker/... ./ringhash ./xds/... ./integrate/...; fi

.PHONY: fuzz
fuzz: ## Fuzz every target for FUZZTIME.
	@GO='$(GO)' FUZZTIME=$(FUZZTIME) .ci/fuzz ./fuzz ./integrate/internal/balancer ./integrate/internal/offline ./integrate/internal/rpc
