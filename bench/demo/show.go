// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
)

// claim is one line of the final table: what was to be seen, what was.
type claim struct {
	what, expected, observed string
	ok                       bool
}

// show prints what happens: live on a terminal, as plain lines elsewhere.
type show struct {
	out    io.Writer
	live   bool
	begin  time.Time
	claims []claim
}

func (s *show) step(format string, args ...any) {
	s.erase()
	fmt.Fprintf(s.out, "%5.1fs  %s\n", time.Since(s.begin).Seconds(), fmt.Sprintf(format, args...))
}

// status overwrites the terminal's last line; elsewhere it prints nothing.
func (s *show) status(format string, args ...any) {
	if s.live {
		s.erase()
		fmt.Fprintf(s.out, "        … %s", fmt.Sprintf(format, args...))
	}
}

func (s *show) erase() {
	if s.live {
		fmt.Fprint(s.out, "\r\x1b[2K")
	}
}

// claim records a claim and prints it at once.
func (s *show) claim(ok bool, what, expected, observed string) {
	s.claims = append(s.claims, claim{what, expected, observed, ok})
	mark := "ok"
	if !ok {
		mark = "DOES NOT HOLD"
	}
	s.step("  %-52s expected %-12s observed %-14s %s", what, expected, observed, mark)
}

// count claims that a number is exactly another.
func (s *show) count(what string, want, got int64) {
	s.claim(want == got, what, fmt.Sprint(want), fmt.Sprint(got))
}

// share claims that a fraction is another within a tolerance.
func (s *show) share(what string, want, got, tolerance float64) {
	off := got - want
	s.claim(off <= tolerance && off >= -tolerance, what,
		fmt.Sprintf("%.2f%%", 100*want), fmt.Sprintf("%.2f%% (%+.2f)", 100*got, 100*off))
}

// table prints all claims and returns how many do not hold.
func (s *show) table() (failed int) {
	s.erase()
	fmt.Fprintf(s.out, "\n")
	w := tabwriter.NewWriter(s.out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "CLAIM\tEXPECTED\tOBSERVED\t\n")
	for _, c := range s.claims {
		mark := "ok"
		if !c.ok {
			mark = "DOES NOT HOLD"
			failed++
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", c.what, c.expected, c.observed, mark)
	}
	w.Flush()
	fmt.Fprintf(s.out, "%s\n%d claims, %d do not hold, %.1f s\n", strings.Repeat("-", 60), len(s.claims), failed, time.Since(s.begin).Seconds())
	return failed
}
