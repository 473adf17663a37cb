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
# The balancer's random model, which needs the build tag invariants.
MODEL    := ./integrate/internal/balancer/modeltest
# What a program that uses the library compiles.
LIBRARY  := ./edf ./picker/... ./ringhash ./xds/... ./integrate/...
# The system and the word size whose code differs. The workflow weekly sets more.
PLATFORMS ?= windows/386

SHELL    := bash

.DEFAULT_GOAL := help

.PHONY: help
help: ## Print the targets.
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-14s %s\n", $$1, $$2}'

.PHONY: demo
demo: ## Run a demo on loopback: control plane, backends, client.
	@GO=$(GO) bench/cmd/run.sh demo

.PHONY: page
page: ## Serve the debug page of the demo's client at PAGE (default 127.0.0.1:6060), until interrupted.
	@GO=$(GO) bench/cmd/run.sh demo -page $(or $(PAGE),127.0.0.1:6060)

QUICK := unit examples
REST  := lint apidiff dashboards kubernetes long invariants seeded rollout oldest race bench-once guard portable quickstart fuzz

.PHONY: test
test: ## Unit tests and examples: three minutes on an idle machine without caches.
	@MAKE='$(MAKE)' .ci/steps test $(QUICK)

.PHONY: check
check: ## Run everything that must pass before a merge.
	@MAKE='$(MAKE)' .ci/steps check $(QUICK) $(REST)

.PHONY: rest
rest: ## The part of check that is not in test.
	@MAKE='$(MAKE)' .ci/steps rest $(REST)

.PHONY: lint
lint: ## gofmt, vet, staticcheck, go.mod tidiness.
	@files=$$(gofmt -l .); test -z "$$files" || { echo "$$files"; exit 1; }
	$(GO) vet $(PKGS)
	$(TOOL) staticcheck -checks '$(CHECKS)' $(PKGS)
	$(GO) mod tidy -diff
	for m in */*/go.mod */*/*/go.mod; do $(GO) -C $${m%/go.mod} mod tidy -diff || exit 1; done
	@.ci/figures || true

.PHONY: apidiff
apidiff: ## Compare the exported API with that of the commit in .ci/api.
	cd bench/cmd/api && $(GO) vet . && $(TEST) .
	$(GO) run -C bench/cmd/api . -C ../../..

.PHONY: api
api: ## Accept the incompatible changes of the exported API that apidiff reports.
	$(GO) run -C bench/cmd/api . -C ../../.. -w

# The packages whose tests take minutes of CPU time without -short.
LONG := xds integrate integrate/internal/balancer bench/hostile bench/arena bench/rollout bench/differential xds/lrs
OTHERS = $(filter-out $(LONG:%=$(shell $(GO) list -m)/%),$(shell $(GO) list $(PKGS)))

.PHONY: unit
unit: ## Unit tests, examples, the import rules between packages; shorter runs of LONG.
	$(TEST) $(OTHERS)
	$(TEST) -short $(LONG:%=./%)

# vet has run before, in lint or with the tests: here and below it would be repeated for each kind of build.
# One package more than processors runs at once, since hostile, the slowest, mostly waits.
.PHONY: long
long: ## The tests of LONG that unit shortens or skips.
	@run=$$(.ci/shortened $(LONG)) && n=$$(getconf _NPROCESSORS_ONLN) && set -x && \
	$(TEST) -vet=off -p $$((n + 1)) -run "$$run" ./bench/hostile $(patsubst %,./%,$(filter-out bench/hostile,$(LONG)))

.PHONY: examples
examples: ## The examples, which are modules of their own.
	cd integrate/examples/custom && $(GO) vet . && $(TEST) .
	cd integrate/examples/opentelemetry && $(GO) vet ./... && $(TEST) ./...

.PHONY: dashboards
dashboards: ## The dashboards and alert rules, with Prometheus' parser.
	cd integrate/dashboards && $(GO) vet . && $(TEST) .

.PHONY: kubernetes
kubernetes: ## The source of Kubernetes, with client-go.
	cd integrate/kubernetes && $(GO) vet . && $(TEST) .

.PHONY: invariants
invariants: ## The kernel's tests with internal checks enabled, and the balancer's random model.
	$(GO) vet -tags invariants $(MODEL)
	$(TEST) -vet=off -short -tags invariants ./edf ./picker ./ringhash
	$(TEST) -vet=off -tags invariants $(MODEL)

.PHONY: seeded
seeded: ## Test that random choices in the arena follow the seed.
	$(TEST) -vet=off -tags seeded -ldflags=-checklinkname=0 -run '^TestSeed$$' ./bench/arena

.PHONY: rollout
rollout: ## Test switching back to grpc/xds if it registers its scheme first.
	$(TEST) -vet=off -overlay .ci/stockfirst.json ./bench/rollout -rollout.stockfirst

# imports prints the packages of LIBRARY that import a package whose path matches a regular expression.
imports = $(shell $(GO) list -f '{{.ImportPath}}{{range .Imports}} {{.}}{{end}}' $(LIBRARY) | grep -E ' $(1)( |$$)' | cut -d' ' -f1)

# The tests that another gRPC can fail. vet compiles the others. TestArrows runs go list, which does not use the
# other go.mod. TestEveryField and TestIgnoredFields list the fields of the newer messages. If that Go or gRPC
# cannot be fetched, the target prints a message and succeeds.
OLDTESTED = $(call imports,google\.golang\.org/grpc[^ ]*) ./bench/rollout

.PHONY: oldest
oldest: ## Vet with the oldest supported gRPC and Go, and test what uses gRPC: see integrate/docs/rollout.md.
	@if ! GOTOOLCHAIN=$(OLDGO) .ci/again $(GO) mod download -modfile=.ci/oldest.mod; then echo 'oldest: NOT RUN: $(OLDGO) or its modules cannot be fetched'; exit 0; fi; set -ex; \
	GOTOOLCHAIN=$(OLDGO) $(GO) vet -modfile=.ci/oldest.mod -tags xdslb_oldgrpc $(LIBRARY) ./bench/rollout; \
	GOTOOLCHAIN=$(OLDGO) $(TEST) -vet=off -short -skip '^(TestArrows|TestEveryField|TestIgnoredFields)$$' -modfile=.ci/oldest.mod -tags xdslb_oldgrpc $(OLDTESTED)

# Code that shares memory between goroutines imports sync or sync/atomic; the tests of the other packages have no
# race of their own to find, except for csds and debug, which read the client. The slowest come first. ONE are slow tests of a single goroutine, or of memory.
# The workflow weekly tests all packages and the random model, and leaves out none.
RACED = $(addprefix ./,xds integrate integrate/internal/balancer xds/csds integrate/debug bench/demo) $(call imports,sync(/atomic)?)
ONE := TestDenseRoutes|TestTooManyFields|TestFieldsInAnyOrder|TestManyRoutes|TestTooManyEntries|TestManyTargets|TestDeltaRequestsFit|TestFleetReturns
# Goroutines of a bubble that read timers on two threads at once can crash the race detector of Go 1.26
# (golang/go#78156), so packages with bubbles are tested on one thread. The race detector then finds nearly as much:
# without the lock, one thread finds the races of five of six types, and misses those of link. Two threads are safe
# for link and picker: bubbles of link read no timers, and those of picker in one goroutine.
BUBBLED = $(filter-out %/picker %/link,$(shell $(GO) list -f '{{.ImportPath}} {{.TestImports}}{{.XTestImports}}' $(RACED) | grep testing/synctest | cut -d' ' -f1))

.PHONY: race
race: ## Tests under the race detector of the packages that share memory between goroutines.
	$(TEST) -vet=off -short -race -skip '^($(ONE))$$' -cpu 1 $(BUBBLED)
	$(TEST) -vet=off -short -race -skip '^($(ONE))$$' $(filter-out $(BUBBLED),$(shell $(GO) list $(RACED)))

.PHONY: quickstart
quickstart: ## Run the steps of integrate/docs/quickstart.md: DNS; server, client, control plane, rollback.
	$(TEST) -vet=off -count=1 -run 'TestQuickstart(DNS)?$$' ./bench/doccheck -quickstart

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
	$(GO) test -timeout 0 -tags invariants -run 'TestModel$$' $(MODEL) -model.runs $(RUNS)

.PHONY: differential
differential: ## Compare with stock xDS in SEEDS random worlds (default 300), from seed FROM.
	$(GO) test -timeout 0 -v -run 'TestDifferential$$' ./bench/differential -model.runs $(or $(SEEDS),300) -model.seed $(or $(FROM),1)

.PHONY: hostile
hostile: ## Measure the cost of misbehaving control planes: bench/hostile/costs.tsv (minutes).
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

# The packages that have benchmarks; linking the tests of the others takes longer than the benchmarks. That of
# bench/size builds programs, which the workflow weekly does.
UNBENCHED ?= bench/size
BENCHED = $(shell $(GO) list -f '{{.Dir}}' $(PKGS) | while read -r d; do ! grep -qs '^func Benchmark' "$$d"/*_test.go || echo "$$d"; done)

# The time of a single iteration is meaningless.
NOFIGURES := grep -vE '^(Benchmark.*/op|goos: |goarch: |pkg: |cpu: |PASS$$)'

.PHONY: bench-once
bench-once: ## Run every benchmark once, to check that it works.
	@set -o pipefail; $(TEST) -vet=off -run '^$$' -bench . -benchtime 1x -short $(filter-out $(UNBENCHED:%=$(CURDIR)/%),$(BENCHED)) | $(NOFIGURES)
	@set -o pipefail; cd bench/peers && $(GO) vet . && $(TEST) -bench . -benchtime 1x . | $(NOFIGURES)

# The packages that compute with words; the workflow weekly tests all of LIBRARY. TestReweighOften takes minutes
# with 32 bits.
WORDS ?= ./edf ./picker/... ./ringhash ./xds/resource ./xds/lrs ./xds/internal/... $(addprefix ./integrate/internal/,balancer counters orcaweight outlier rpc weights)

# go list -export compiles the tests too, and does not link them.
.PHONY: portable
portable: ## Compile for PLATFORMS, and run the tests of WORDS with 32 bits.
	@set -e; for p in $(PLATFORMS); do echo "compile for $$p"; \
		GOOS=$${p%/*} GOARCH=$${p#*/} $(GO) list -export -test $(LIBRARY) >/dev/null; done
	@if GOARCH=386 $(GO) test -vet=off -run '^$$' ./edf 2>&1 | grep 'exec format error'; then \
		echo 'portable: 32-bit tests NOT RUN, only compiled: this system cannot execute them'; \
	else set -x; GOARCH=386 $(TEST) -vet=off -short -skip TestReweighOften $(WORDS); fi

.PHONY: fuzz
fuzz: ## Fuzz every target for FUZZTIME.
	@GO='$(GO)' FUZZTIME=$(FUZZTIME) .ci/fuzz ./fuzz ./xds/bootstrap ./xds/resource ./integrate/internal/balancer ./integrate/internal/offline ./integrate/internal/rpc
	@cd integrate/kubernetes && GO='$(GO)' FUZZTIME=$(FUZZTIME) ../../.ci/fuzz .
