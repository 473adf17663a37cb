// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

//go:build invariants

package modeltest

import (
	"regexp"
	"testing"
	"time"

	"github.com/xdslb/xdslb/bench/kit"
)

// The random model is histories of a balancer between a control plane and gRPC that
// are both simulated. Package kit runs and shrinks them. The rest is in
//
//	modelplane_test.go     plane: the configuration, and how it changes at random
//	modelplaces_test.go    where things are in the configuration that was sent last
//	modelgrpc_test.go      modelChannel: gRPC's side, with SubConns that keep gRPC's rules
//	modelpolicydraw_test.go any policy, drawn at random
//	modelpolicies_test.go  custom policies, good and bad
//	modelhealth_test.go    the health services of backends (A17)
//	modelrpc_test.go       modelRPC: an RPC from its first pick to its end
//	modelloads_test.go     the servers that load is reported to, and what they should hear
//	modelinside_test.go    all that the model knows of the inside of this package
//	modeltrial_test.go     trial: a history under way
//	modelops_test.go       all that can happen in it (ops)
//	modelchecks_test.go    what holds after every step (trial.audit)
//	modelstatus_test.go    what a channel says of itself
//	modelretries_test.go   volleys of RPCs that fail, and the retries that budgets admit
//	modelflights_test.go   flights: RPCs through these filters, which may refuse them
//	modelroutes_test.go    trips: RPCs by routes that change while they are bound, and their cookies
//	modelheaders_test.go   header mutations, and the headers that attempts send
//	modelnames_test.go     hostnames: authorities (A81, A111), and the TLS handshakes of connections (A101)
//	modelsessions_test.go  what holds for RPCs of sessions
//	modellook_test.go      status and explanations at any moment
//	modelrollout_test.go   channels that the environment hands to stock
//	modelend_test.go       the calm at the end, and what holds then (trial.converge, finish)
//	modelordeals_test.go   what is tried in the calm: an ejection, a reconnection
//	modelevents_test.go    events in which several features meet (combinedEvents)
//	modeloutlier_test.go   consecutive failures, and the ejections that they may cause

// TestModel is the random model of everything: see ops and plane.mutate for what
// happens in it, and audit, converge and finish for what a balancer promises.
func TestModel(t *testing.T) {
	runs := 500
	if testing.Short() {
		runs = 100
	}
	// Picks draw at random, and goroutines of custom policies take turns in any order.
	m := kit.Model{Steps: 60, Retries: 4, Kind: kindOf, Run: func(k *kit.Trial) {
		t := newTrial(k)
		defer func() {
			t.stop()
			kit.Pass(time.Minute) // for those who finish in their own time
		}()
		t.audit()
		for range t.Steps() {
			t.step()
		}
		t.converge()
		t.finish()
	}}
	m.Test(t, runs)
}

// kindOf returns what failures of the same kind have in common: all but the numbers and
// the states of SubConns.
func kindOf(failure string) string { return details.ReplaceAllString(failure, "") }

var details = regexp.MustCompile(`(?s)\d|to [ab]|"[ab]\d?\.\d+"|\([A-Z].*?\)|map\[.*?\]|\n.*`)
