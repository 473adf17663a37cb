// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"
)

// columns is the width of a terminal, which every line fits.
const columns = 80

// An act is a part of the demo, with a line in the summary.
type act struct {
	title      string
	held, made int // claims
}

// show prints the progress: live on a terminal, as plain lines elsewhere.
type show struct {
	out    io.Writer
	live   bool
	begin  time.Time
	total  int // total number of acts
	acts   []act
	failed []string // lines of the claims that do not hold
	headed bool     // the act's claims have a header
}

// open starts an act.
func (s *show) open(title string) {
	s.acts = append(s.acts, act{title: title})
	s.headed = false
	s.erase()
	fmt.Fprintf(s.out, "\n[%d/%d] %s\n", len(s.acts), s.total, title)
}

// note prints an event, wrapped if necessary.
func (s *show) note(format string, args ...any) {
	s.erase()
	prefix := fmt.Sprintf("%5.1fs ", s.elapsed())
	for _, line := range wrap(fmt.Sprintf(format, args...), columns-1-len(prefix)) {
		fmt.Fprintf(s.out, "%s%s\n", prefix, line)
		prefix = strings.Repeat(" ", len(prefix))
	}
}

// status overwrites the terminal's last line; elsewhere it does nothing.
func (s *show) status(format string, args ...any) {
	if s.live {
		line := []rune("     … " + fmt.Sprintf(format, args...))
		s.erase()
		fmt.Fprint(s.out, string(line[:min(len(line), columns-1)]))
	}
}

func (s *show) erase() {
	if s.live {
		fmt.Fprint(s.out, "\r\x1b[2K")
	}
}

func (s *show) elapsed() float64 { return time.Since(s.begin).Seconds() }

// The columns of a claim: its mark, its text, the expected and the observed value.
const row = "  %-4s %-45s %15s %9s\n"

// claim counts a claim and prints it.
func (s *show) claim(ok bool, what, expected, observed string) {
	s.erase()
	if !s.headed {
		fmt.Fprintf(s.out, row, "", "", "expected", "observed")
		s.headed = true
	}
	a := &s.acts[len(s.acts)-1]
	a.made++
	mark := "ok"
	if ok {
		a.held++
	} else {
		mark = "FAIL"
	}
	line := fmt.Sprintf(row, mark, what, expected, observed)
	if !ok {
		s.failed = append(s.failed, line)
	}
	fmt.Fprint(s.out, line)
}

// count claims that a number equals an expected value.
func (s *show) count(what string, want, got int64) {
	s.claim(want == got, what, fmt.Sprint(want), fmt.Sprint(got))
}

// share claims that a fraction equals an expected value within a tolerance.
func (s *show) share(what string, want, got, tolerance float64) {
	off := got - want
	s.claim(off <= tolerance && off >= -tolerance, what,
		fmt.Sprintf("%.2f%% ±%.2f", 100*want, 100*tolerance), fmt.Sprintf("%.2f%%", 100*got))
}

// sum prints the number of claims of each act that held, and the failed claims. It returns the
// totals.
func (s *show) sum() (made, held int) {
	s.erase()
	fmt.Fprintf(s.out, "\n  claims  held\n")
	for _, a := range s.acts {
		fmt.Fprintf(s.out, "%8d%6d  %s\n", a.made, a.held, a.title)
		made, held = made+a.made, held+a.held
	}
	if len(s.failed) > 0 {
		fmt.Fprintf(s.out, "\nThese do not hold:\n"+row+"%s", "", "", "expected", "observed", strings.Join(s.failed, ""))
	}
	return made, held
}

// verdict describes how many claims held.
func verdict(made, held int) string {
	switch {
	case made == 0:
		return "no claim was checked yet"
	case made == held:
		return fmt.Sprintf("all %d claims hold", made)
	}
	return fmt.Sprintf("%d of %d claims hold, %d do not", held, made, made-held)
}

// wrap breaks a text between words into lines of at most the width.
func wrap(text string, width int) []string {
	var lines []string
	line := ""
	for _, word := range strings.Fields(text) {
		if line != "" && utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > width {
			lines = append(lines, line)
			line = ""
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	return append(lines, line)
}
