// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"flag"
	"fmt"
	"strconv"
	"strings"

	"github.com/xdslb/xdslb/integrate"
	"github.com/xdslb/xdslb/integrate/internal/sanitize"
	"github.com/xdslb/xdslb/integrate/internal/statustext"
	"github.com/xdslb/xdslb/integrate/report"
)

var pickCommand = command{
	name: "pick", args: "TARGET", summary: "make picks and show their distribution",
	about: "Makes picks like a channel to the target, and compares their distribution with the\n" +
		"expected one. Each RPC ends before the next begins. Resources come from the\n" +
		"control plane, or from a file (-f). Endpoints are assumed to be READY except those\n" +
		"of -down; none is contacted. The exit code is 1 if RPCs would fail.",
	example: "xdslb pick xds:///orders -n 1e6 -f orders.json -down 10.0.0.1:80",
	flags: func(e *env, fs *flag.FlagSet) func([]string) (bool, error) {
		var q question
		q.register(fs)
		method := fs.String("method", "/", "`path` of the RPCs")
		n := 100_000
		fs.Func("n", "`number` of picks, such as 1e6 (default 100000)", func(s string) error {
			f, err := strconv.ParseFloat(s, 64)
			if err != nil || f < 1 || f > 1e9 {
				return errors.New("want a number from 1 to 1e9")
			}
			n = int(f)
			return nil
		})
		return func(args []string) (bool, error) {
			if err := want(args, "TARGET"); err != nil {
				return false, err
			}
			w, err := q.whatIf(e, args[0], *method)
			if err != nil {
				return false, err
			}
			s, err := integrate.InspectWhatIf(w)
			if err != nil {
				return false, err
			}
			defer e.progress("making %d picks", n)()
			p, err := integrate.PickWhatIf(q.context(e), w, n)
			if err != nil {
				return false, err
			}
			found := p.Failed+p.NoRoute+p.Refused > 0
			if e.json {
				return found, e.printJSON(p)
			}
			e.printPicks(p, s)
			return found, nil
		}
	},
}

// printPicks prints the distribution of picks.
func (e *env) printPicks(p *report.Picks, s *integrate.TargetStatus) {
	expected := map[string]float64{} // share of the cluster's RPCs, by cluster and address
	for i := range s.Clusters {
		for e := range report.Endpoints(&s.Clusters[i]) {
			expected[s.Clusters[i].Name+"\x00"+e.Address] = e.Share
		}
	}
	totals := map[string]int{}
	for _, end := range p.Endpoints {
		totals[end.Cluster] += end.RPCs
	}
	fmt.Fprintf(e.stdout, "%d picks for %s\n", p.RPCs, sanitize.Text(s.Target, 50))
	cluster, locality := "\x00", "\x00"
	for _, end := range p.Endpoints {
		if end.Cluster != cluster {
			cluster, locality = end.Cluster, "\x00"
			e.line("cluster %s: %s of the RPCs", sanitize.Text(cluster, 40), report.Percent(float64(totals[cluster])/float64(p.RPCs)))
		}
		if name := report.Place(end.Region, end.Zone, end.SubZone); name != locality {
			locality = name
			e.line("  %-30s %10s %8s %9s", sanitize.Text(name, 30), "RPCs", "picked", "expected")
		}
		got := 0.
		if n := totals[cluster]; n > 0 {
			got = float64(end.RPCs) / float64(n)
		}
		e.line("    %-28s %10d %8s %9s  %s", sanitize.Text(end.Address, 28), end.RPCs, report.Percent(got), report.Percent(expected[cluster+"\x00"+end.Address]), bar(got, 14))
	}
	for _, o := range []struct {
		n    int
		text string
	}{
		{p.Waiting, "wait for an endpoint"}, {p.Failed, "fail: no endpoint is reachable"}, {p.NoRoute, "fail: no route matches"},
		{p.Refused, "are dropped, or rejected by the circuit breaker"}, {p.Delegated, "go to a child policy, which picks the endpoint"},
	} {
		if o.n > 0 {
			e.line("%s of the RPCs %s", report.Percent(float64(o.n)/float64(p.RPCs)), o.text)
		}
	}
}

// line prints a line, truncated to 80 columns.
func (e *env) line(format string, args ...any) {
	fmt.Fprintln(e.stdout, sanitize.Text(strings.TrimRight(fmt.Sprintf(format, args...), " "), statustext.Columns))
}

// bar draws a share as a bar.
func bar(share float64, width int) string {
	eighths := int(share*float64(width)*8 + .5)
	text := strings.Repeat("█", eighths/8)
	if r := eighths % 8; r > 0 {
		text += string([]rune(" ▏▎▍▌▋▊▉")[r])
	}
	return text
}
