// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package plot

import (
	"encoding/xml"
	"errors"
	"io"
	"math"
	"strings"
	"testing"
)

// wellFormed fails the test unless the chart is XML, and counts elements.
func wellFormed(t *testing.T, svg string) map[string]int {
	t.Helper()
	seen := make(map[string]int)
	d := xml.NewDecoder(strings.NewReader(svg))
	for {
		tok, err := d.Token()
		if errors.Is(err, io.EOF) {
			return seen
		}
		if err != nil {
			t.Fatalf("%v in\n%s", err, svg)
		}
		if e, ok := tok.(xml.StartElement); ok {
			seen[e.Name.Local]++
		}
	}
}

func TestRows(t *testing.T) {
	for _, log := range []bool{false, true} {
		svg := Chart{Title: "pick <cost>", Note: "ns", Log: log, Base: "ours"}.Rows([]string{"a & b", "c"}, []Series{
			{Name: "ours", Colour: "#111", Values: []float64{10, 200}},
			{Name: "stock", Colour: "#222", Values: []float64{math.NaN(), 3000}},
			{Name: "late", Colour: "#333", Values: []float64{70, math.NaN()}, Doubtful: []bool{true}},
		})
		seen := wellFormed(t, svg)
		if n := seen["rect"] + seen["circle"]; n != 4 {
			t.Errorf("%d values are drawn, want 4", n)
		}
		if got := strings.Contains(svg, "logarithmic scale"); got != log {
			t.Errorf("the scale is said to be logarithmic: %t, want %t", got, log)
		}
		for _, want := range []string{">10<", ">200<", ">3000  ×15<", ">70 †<", `fill="none" stroke="#333"`} {
			if !strings.Contains(svg, want) {
				t.Errorf("no %q in\n%s", want, svg)
			}
		}
		for _, bad := range []string{"NaN", "Inf", `width="-`} {
			if strings.Contains(svg, bad) {
				t.Errorf("%q in\n%s", bad, svg)
			}
		}
	}
}

func TestLines(t *testing.T) {
	x := []float64{0, 1, 2, 3}
	svg := Chart{Title: "t", X: "s", Note: "ms"}.Lines([]Series{{Name: "p99", X: x, Values: []float64{1, 2, math.NaN(), 4}}}, map[float64]string{1.5: "shift"})
	if seen := wellFormed(t, svg); seen["path"] != 1 {
		t.Errorf("%d paths, want 1", seen["path"])
	}
	if got := strings.Count(svg, "M"); got < 2 {
		t.Error("the gap is not in the line")
	}
}

// Charts of nothing are charts all the same.
func TestEmpty(t *testing.T) {
	for _, svg := range []string{
		Chart{}.Rows(nil, nil), Chart{Log: true}.Lines(nil, nil),
		Chart{}.Rows([]string{"a"}, []Series{{Values: []float64{0}}}),
		Chart{Log: true}.Rows([]string{"a"}, []Series{{Values: []float64{0}}}),
		Chart{}.Lines([]Series{{X: []float64{1}, Values: []float64{0}}}, nil),
	} {
		wellFormed(t, svg)
		if strings.Contains(svg, "NaN") || strings.Contains(svg, "Inf") {
			t.Errorf("not a number in\n%s", svg)
		}
	}
}

func TestTicks(t *testing.T) {
	for _, high := range []float64{.003, 1, 7, 10, 99, 12345} {
		if n := len(ticks(0, high)); n < 4 || n > 9 {
			t.Errorf("%d ticks from 0 to %v: %v", n, high, ticks(0, high))
		}
	}
}

// TestLegend: names that do not fit beside each other are below each other, and margins are as
// wide as what is in them.
func TestLegend(t *testing.T) {
	var series []Series
	for range 9 {
		series = append(series, Series{Name: "a name of some length", X: []float64{1}, Values: []float64{1}, Notes: []string{"as long as this"}})
	}
	places, height := legend(series)
	for i, p := range places {
		if p.x+letter*float64(len(series[i].Name)) > width {
			t.Errorf("name %d begins at %v", i, p)
		}
	}
	if height < 4*line {
		t.Errorf("a height of %d for nine names", height)
	}
	dots := Chart{Dots: true}.Lines(series, nil)
	if seen := wellFormed(t, dots); seen["circle"] != 9 || seen["path"] != 0 {
		t.Errorf("%d dots and %d lines, want nine dots", seen["circle"], seen["path"])
	}
	p := paper{high: 1}
	if p.setMargins(series); p.left < 130 || p.right < 150 {
		t.Errorf("margins %d and %d", p.left, p.right)
	}
	if rows := (Chart{}).Rows([]string{"a"}, series[:1]); !strings.Contains(rows, "1  as long as this") {
		t.Errorf("no note in\n%s", rows)
	}
}
