// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/xdslb/xdslb/bench/arena"
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
	if err != nil {
		t.Fatal(err)
	}
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
	if err := w.start(); err != nil {
		t.Fatal(err)
	}
	if err := w.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
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
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]bool{}
	for _, c := range list {
		rows[c.Policy] = true
		if c.Fleet != "homogeneous" {
			t.Errorf("%v was not asked for", c)
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

// TestPage: the page is there with all its charts, and no figure is none.
func TestPage(t *testing.T) {
	r := &arena.Report{Go: "go <1>", Fleets: arena.Describe()}
	for i, p := range arena.Policies()[:6] {
		r.Results = append(r.Results, &arena.Result{
			Fleet: "one stalls", Impl: p.Impl, Policy: p.Name, Mode: arena.Channels, P99: float64(100 - i), Goodput: 1, RPCs: 9,
			Utilisation: []float64{.5, .6}, Marks: []arena.Mark{{Second: 1, Label: "stalls"}},
			Points: []arena.Point{{Second: .5, RPCs: 4, P99: 7}, {Second: 1.5}, {Second: 2.5, RPCs: 5, P99: 9}},
		})
	}
	r.Results[3].Error = "it <crashed>"
	arena.Judge(r.Results)
	text, err := render(r)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"go &lt;1&gt;", "it &lt;crashed&gt;", ">stalls<", "Regret by fleet", "Utilisation", "stock rr"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the page has no %q", want)
		}
	}
	if strings.Contains(string(text), "NaN") {
		t.Error("NaN on the page")
	}
	svgs := 0
	for rest := string(text); ; svgs++ {
		_, from, ok := strings.Cut(rest, "<svg")
		if !ok {
			break
		}
		chart, after, _ := strings.Cut(from, "</svg>")
		d := xml.NewDecoder(strings.NewReader("<svg" + chart + "</svg>"))
		for err = nil; err == nil; _, err = d.Token() {
		}
		if !errors.Is(err, io.EOF) {
			t.Error(err)
		}
		rest = after
	}
	if svgs != 4 {
		t.Errorf("%d charts, want 4", svgs)
	}
}

// TestColours: rows that may be in the same chart differ in colour.
func TestColours(t *testing.T) {
	seen := map[string]string{}
	for _, p := range arena.Policies() {
		c := colour(p.String())
		if other, taken := seen[c]; taken {
			t.Errorf("%s has the colour of %s", p.String(), other)
		}
		seen[c] = p.String()
	}
}
