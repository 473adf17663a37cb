// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/xdslb/xdslb/bench/arena"
	"github.com/xdslb/xdslb/bench/kit"
)

// TestMain lets the test's program be its own worker, as the command is.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == workerArg {
		work()
		return
	}
	os.Exit(m.Run())
}

// TestWorkers: copies of the program play cells, and results come in their order.
func TestWorkers(t *testing.T) {
	cells := []arena.Cell{
		{Mode: arena.Kernels, Fleet: "5 clients", Policy: "anchor random", Seed: 1},
		{Mode: arena.Channels, Fleet: "none", Policy: "anchor oracle", Seed: 1},
		{Mode: arena.Kernels, Fleet: "5 clients", Policy: "anchor oracle", Seed: 1},
	}
	told := 0
	list, err := play(t.Context(), cells, 2, func(arena.Cell, *arena.Result) error { told++; return nil })
	kit.Must(t, err)
	if len(list) != 3 || told != 3 || list[0].Policy != "random" || list[2].Policy != "oracle" || list[1].Error == "" {
		t.Fatalf("the results are %+v", list)
	}
	if list[2].P99 <= 0 || list[2].P99 >= list[0].P99 {
		t.Errorf("p99 is %v ms of the oracle, %v of random", list[2].P99, list[0].P99)
	}
}

// TestCrash: a run whose process dies is reported, and the next has another.
func TestCrash(t *testing.T) {
	w := &worker{}
	defer w.stop()
	kit.Must(t, w.start())
	kit.Must(t, w.cmd.Process.Kill())
	c := arena.Cell{Mode: arena.Kernels, Fleet: "5 clients", Policy: "anchor random", Seed: 1}
	if r, err := w.play(t.Context(), c); err != nil || !strings.HasSuffix(r.Error, ")") || r.Row() != c.Policy {
		t.Errorf("the result of a process that was killed: %+v, %v", r, err)
	}
	if r, err := w.play(t.Context(), c); err != nil || r.Error != "" {
		t.Errorf("the result of the next: %+v, %v", r, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := play(ctx, []arena.Cell{c}, 1, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("the error of an interrupted run is %v", err)
	}
}

// TestCells: flags choose, but random and oracle are in every choice.
func TestCells(t *testing.T) {
	o := options{fleets: "^homogeneous$", policies: "^ours least_request$"}
	list, err := o.cells()
	kit.Must(t, err)
	rows := map[string]bool{}
	for _, c := range list {
		rows[c.Policy] = true
		if c.Fleet != "homogeneous" {
			t.Errorf("%v was not requested", c)
		}
	}
	if len(rows) != 3 {
		t.Errorf("the rows are %v, want three", rows)
	}
	for _, o := range []options{{fleets: "nothing"}, {fleets: "("}, {policies: "("}} {
		if _, err := o.cells(); err == nil {
			t.Errorf("%+v: no error", o)
		}
	}
}

// TestPublish checks that the tables replace the text between the marks, and that nothing else
// changes.
func TestPublish(t *testing.T) {
	file := filepath.Join(t.TempDir(), "README.md")
	kit.Must(t, os.WriteFile(file, []byte("before\n<!-- arena -->\nobsolete\n<!-- end of arena -->\nafter\n"), 0o600))
	r := &arena.Report{Go: "go1", Fleets: arena.Describe(), Results: []*arena.Result{
		{Fleet: "homogeneous", Impl: arena.Ours, Policy: "round_robin", Mode: arena.Channels, P99: 123, Goodput: 1},
		{Fleet: "total outage", Impl: arena.Stock, Policy: "round_robin, retries", Mode: arena.Channels, P99: 2000, Goodput: .5, Attempts: 4.9, Recovery: -1},
	}}
	for range 2 { // the second time in place of the first
		kit.Must(t, publish(r, file))
	}
	text, err := os.ReadFile(file)
	kit.Must(t, err)
	for _, want := range []string{"before\n", "\nafter\n", "| 123 |", "| stock round_robin, retries |", "50.0 % succeed, attempts 4.900", "recovery never"} {
		if strings.Count(string(text), want) != 1 {
			t.Errorf("there should be one %q in\n%s", want, text)
		}
	}
	if strings.Contains(string(text), "obsolete") {
		t.Error("the old tables are still there")
	}
	kit.Must(t, os.WriteFile(file, []byte("no marks"), 0o600))
	if publish(r, file) == nil {
		t.Error("a file without the marks")
	}
}

// TestSave checks that -resume continues from a saved partial report.
func TestSave(t *testing.T) {
	o := options{out: filepath.Join(t.TempDir(), "arena.json"), seed: 1, fleets: "^5 clients$", policies: "none", modes: "kernels", processes: 1}
	r, err := o.report(t.Context())
	kit.Must(t, err)
	saved, err := read(o.out)
	kit.Must(t, err)
	if !saved.Partial || len(saved.Results) != len(r.Results) || len(r.Results) == 0 {
		t.Errorf("%d results are saved, partial: %t; want %d", len(saved.Results), saved.Partial, len(r.Results))
	}
	if kept, err := o.kept(); err != nil || len(kept) != len(r.Results) {
		t.Errorf("%d results are kept, %v", len(kept), err)
	}
}
