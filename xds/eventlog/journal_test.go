// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package eventlog

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 6e6, time.UTC)

// TestMerge checks that frequent events of a kind and cluster within a minute are merged into
// one event with a count, and that other events are separate and separate their neighbors.
func TestMerge(t *testing.T) {
	var j Journal
	add := func(after time.Duration, kind Kind, cluster string) {
		j.Add(&Event{Time: start.Add(after), Kind: kind, Cluster: cluster, Error: after.String()})
	}
	for i := range time.Duration(3) {
		add(i, ConnectionFailed, "a")
		add(i, ConnectionFailed, "b")
		add(i, ConnectionLost, "a")
	}
	shared := j.ring[0]
	add(3, ConnectionFailed, "a")
	if shared.Count != 3 {
		t.Errorf("merging changed an event that was added: %v", shared)
	}
	add(4, "PriorityChanged", "a")
	add(5, ConnectionFailed, "a")
	add(5+time.Minute, ConnectionFailed, "a")
	var got []string
	for _, e := range j.Events() {
		last := e.Last
		if e.Count == 0 {
			last = e.Time
		}
		got = append(got, fmt.Sprintf("%v %s %d %v-%v %v", e.Kind, e.Cluster, e.Count, e.Time.Sub(start), last.Sub(start), e.Error))
	}
	want := []string{
		"ConnectionFailed a 4 0s-3ns 3ns", "ConnectionFailed b 3 0s-2ns 2ns", "ConnectionLost a 3 0s-2ns 2ns",
		"PriorityChanged a 0 4ns-4ns 4ns", "ConnectionFailed a 0 5ns-5ns 5ns", "ConnectionFailed a 0 1m0.000000005s-1m0.000000005s 1m0.000000005s",
	}
	if !slices.Equal(got, want) {
		t.Errorf("Events() =\n%q, want\n%q", got, want)
	}
}

// TestMergeConfigurations checks that configurations that change endpoints only are merged.
func TestMergeConfigurations(t *testing.T) {
	var j Journal
	for _, c := range []Changes{{Routes: true}, {EndpointsAdded: 2}, {EndpointsAdded: 1, Weights: 3}, {TLS: 1}, {EndpointsRemoved: 1}} {
		j.Add(&Event{Time: start, Kind: ConfigurationApplied, Changes: &c})
	}
	var got []string
	for _, e := range j.Events() {
		got = append(got, fmt.Sprint(e.Count, " ", e.Change))
	}
	if want := []string{"0 routes", "2 +3 endpoints, 3 weights", "0 1 TLS", "0 -1 endpoints"}; !slices.Equal(got, want) {
		t.Errorf("Events() = %q, want %q", got, want)
	}
}

func TestRing(t *testing.T) {
	var j Journal
	if got := j.Events(); len(got) != 0 {
		t.Errorf("Events() of the zero Journal = %v", got)
	}
	for i := range 3*size + 7 {
		if !j.Add(&Event{Version: fmt.Sprint(i)}) {
			t.Fatalf("event %d was merged", i)
		}
		list := j.Events()
		if len(list) != min(i+1, size) || list[len(list)-1].Version != fmt.Sprint(i) || list[0].Version != fmt.Sprint(max(0, i+1-size)) {
			t.Fatalf("after %d events: %v", i+1, list)
		}
	}
}

func TestCut(t *testing.T) {
	if got := Cut("short"); got != "short" {
		t.Errorf("Cut(short) = %q", got)
	}
	got := Cut("x" + strings.Repeat("é", 1000))
	if len(got) > maxText+3 || !utf8.ValidString(got) || !strings.HasSuffix(got, "é…") {
		t.Errorf("Cut of a long text has %d bytes: %q", len(got), got)
	}
}

// TestEventText checks that a merged event does not attribute the error of one endpoint to
// another.
func TestEventText(t *testing.T) {
	event := Event{Time: start, Kind: ConnectionFailed, Cluster: "c", Endpoint: "10.0.0.1:80", Error: "refused"}
	if got, want := event.String(), `03:04:05.006 ConnectionFailed cluster "c" endpoint "10.0.0.1:80": refused`; got != want {
		t.Errorf("String() = %s, want %s", got, want)
	}
	event.Count, event.Last = 2, start.Add(time.Second)
	if got, want := event.String(), `03:04:05.006 ConnectionFailed ×2 until 03:04:06.006 cluster "c" first endpoint "10.0.0.1:80", the last: refused`; got != want {
		t.Errorf("String() = %s, want %s", got, want)
	}
}
