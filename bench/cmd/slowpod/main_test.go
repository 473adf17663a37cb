// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/integrate/probe"
)

// TestEveryPolicy checks that the table has a row and the SVG a curve of its own color for each policy, with phases
// that are too short to measure.
func TestEveryPolicy(t *testing.T) {
	*scale, *needs, *slower, *svg = .001, time.Millisecond, time.Millisecond, filepath.Join(t.TempDir(), "out.svg")
	var out strings.Builder
	kit.Must(t, run(&out))
	picture, err := os.ReadFile(*svg)
	kit.Must(t, err)
	var rows []string
	for line := range strings.Lines(out.String()) {
		if cells := strings.Split(line, "|"); len(cells) == 11 {
			rows = append(rows, strings.TrimSpace(cells[1]))
		}
	}
	want := "policy, ---, grpc-go round_robin, grpc-go least_request, xdslb_weighted_round_robin, " +
		"xdslb_least_request, xdslb_least_latency, xdslb_prequal"
	if got := strings.Join(rows, ", "); got != want {
		t.Errorf("rows %s, want %s", got, want)
	}
	for i, p := range policies {
		if !strings.Contains(string(picture), ">"+p.name+"</text>") || strings.Count(string(picture), colors[i]) != 1 {
			t.Errorf("the SVG has no curve of %s with the color %s", p.name, colors[i])
		}
	}
}

// TestServersAnswerProbes checks that xdslb_prequal does not fall back to least latency.
func TestServersAnswerProbes(t *testing.T) {
	_, state, stop, err := start()
	defer stop()
	kit.Must(t, err)
	cc, err := grpc.NewClient(state.Endpoints[0].Addresses[0].Addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	kit.Must(t, err)
	defer func() { _ = cc.Close() }()
	kit.Must(t, cc.Invoke(t.Context(), probe.Method, &emptypb.Empty{}, &emptypb.Empty{}))
}
