// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package hostile

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

var (
	duration = flag.Duration("hostile", 0, "how long each server goes on; 0 is a single response")
	only     = flag.String("hostile.only", "", "a part of the names of the servers to run")
)

// Bounds that hold for all servers.
const (
	// A client allocates so many bytes for each byte of a response, and slack besides, which
	// is for gRPC and for the test itself. About a third of it is live at the peak.
	usualAllocated = 60
	slack          = 4 << 20
	longestLine    = 8 << 10 // of the log
	closing        = 10 * time.Second
)

// TestHostile sends each server's largest response once, and limits the bytes that the client
// allocates for it, its lines in the log, and the time until it is closed. With -hostile it
// prints a table of the cost of continuous misbehavior, and checks nothing else.
func TestHostile(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	var table strings.Builder
	table.WriteString(head)
	for _, s := range scenarios() {
		if !strings.Contains(s.name, *only) {
			continue
		}
		t.Run(s.name, func(t *testing.T) {
			if *duration == 0 && s.silent {
				t.Skip("there is no single response")
			}
			f := measure(t, s, *duration)
			if *duration == 0 {
				f.check(t, s)
			}
			table.WriteString(f.row(s))
		})
	}
	t.Log("\n" + table.String())
}

// head begins the table of SECURITY.md.
const head = "| server | response | allocated per byte | heap at the peak, per byte | CPU, of one core | longest text | lock | close |\n|---|---|---|---|---|---|---|---|\n"

// row returns the figures as a row of the table.
func (f *figures) row(s *scenario) string {
	perByte := ""
	if f.largest >= 64<<10 {
		perByte = fmt.Sprintf(", %.0f", f.perByte(f.heap))
	}
	return fmt.Sprintf("| %s | %s | %s | %s%s | %.0f %% | %s | %.0f ms | %.1f s |\n", s.name, size(f.largest), s.bound(), size(int64(f.heap)), perByte,
		100*f.cpu, size(f.longest), f.lock.Seconds()*1000, f.closing.Seconds())
}

// allocates returns how many bytes the client allocates at most for each byte of a response.
func (s *scenario) allocates() float64 {
	if s.allocated == 0 {
		return usualAllocated
	}
	return s.allocated
}

// bound is allocates for the table.
func (s *scenario) bound() string {
	if s.silent {
		return "-"
	}
	return fmt.Sprintf("≤ %.0f", s.allocates())
}

// TestTable: SECURITY.md has a row for each server, with the bound that TestHostile checks.
func TestTable(t *testing.T) {
	text, err := os.ReadFile("../../xds/SECURITY.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), head)
	section, _, _ = strings.Cut(section, "\n\n")
	var got, want []string
	for line := range strings.Lines(section) {
		if cells := strings.Split(line, " | "); len(cells) > 3 {
			got = append(got, cells[0]+" | "+cells[2])
		}
	}
	for _, s := range scenarios() {
		want = append(want, "| "+s.name+" | "+s.bound())
	}
	if !slices.Equal(got, want) {
		t.Errorf("servers and bounds are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func size(n int64) string {
	switch {
	case n >= 10<<20:
		return fmt.Sprintf("%d MiB", n>>20)
	case n >= 10<<10:
		return fmt.Sprintf("%d KiB", n>>10)
	}
	return fmt.Sprintf("%d B", n)
}

// check compares the figures of a single response with their bounds.
func (f *figures) check(t *testing.T, s *scenario) {
	if limit := s.allocates()*float64(f.bytes) + slack; float64(f.allocated) > limit {
		t.Errorf("%d bytes were allocated for %d of responses, want %.0f at most", f.allocated, f.bytes, limit)
	}
	if f.kept > slack {
		t.Errorf("%d bytes are kept by a client that is closed", f.kept)
	}
	if f.longest > longestLine {
		t.Errorf("an error or a line of the log has %d bytes, want %d at most", f.longest, longestLine)
	}
	if f.closing > closing {
		t.Errorf("the client was closed after %v, want %v at most", f.closing, closing)
	}
}
