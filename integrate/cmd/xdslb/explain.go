// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"net/url"
	"strings"

	"github.com/xdslb/xdslb/integrate"
	"github.com/xdslb/xdslb/integrate/internal/sanitize"
	"github.com/xdslb/xdslb/integrate/report"
)

var explainCommand = command{
	name: "explain", args: "TARGET METHOD", summary: "where would an RPC go, and why not elsewhere?",
	about: "Says which route takes an RPC, and what fails of those before it; the cluster, the\n" +
		"priority, and each endpoint with its share or the reason that it is out.\n" +
		"Resources are those of the control plane, or of a file (-f); endpoints are\n" +
		"supposed to be READY but for those with -down, and none is touched. With -at the\n" +
		"channel of a running process is asked instead, with its endpoints as they are.\n" +
		"It exits with 1 if RPCs would fail.",
	example: "xdslb explain xds:///orders /shop.Cart/Add -H env=test -down 10.0.0.1:80\n" +
		"xdslb explain xds:///orders /shop.Cart/Add -at localhost:6060",
	flags: func(e *env, fs *flag.FlagSet) func([]string) (bool, error) {
		var q question
		q.register(fs)
		q.tls.register(fs)
		at := fs.String("at", "", "`address` of a running process's debug page: see attach")
		return func(args []string) (bool, error) {
			if err := want(args, "TARGET", "METHOD"); err != nil {
				return false, err
			}
			x, err := q.explain(e, args[0], args[1], *at)
			if err != nil {
				return false, err
			}
			if e.json {
				return fails(x), e.printJSON(x)
			}
			for line := range strings.Lines(x.String()) {
				fmt.Fprintln(e.stdout, sanitize.Text(strings.TrimSuffix(line, "\n"), 0))
			}
			return fails(x), nil
		}
	},
}

func (q *question) explain(e *env, target, method, at string) (*report.Explanation, error) {
	if at != "" {
		return q.explainAt(e, fullTarget(target), method, at)
	}
	w, err := q.whatIf(e, target, method)
	if err != nil {
		return nil, err
	}
	return integrate.ExplainWhatIf(q.context(e), w)
}

// explainAt has a running process explain an RPC of its first channel to the target.
func (q *question) explainAt(e *env, target, method, at string) (*report.Explanation, error) {
	p := &remote{at: at, timeout: q.timeout, tls: q.tls}
	d, err := p.document(e.ctx, "detail", "0")
	if err != nil {
		return nil, err
	}
	var lines []string
	for k, values := range q.headers {
		for _, v := range values {
			lines = append(lines, k+": "+v)
		}
	}
	var targets []string
	for i := range d.Channels {
		if s := &d.Channels[i]; s.Target == target {
			text, err := p.get(e.ctx, url.Values{"format": {"explain"}, "channel": {fmt.Sprint(s.Channel)}, "method": {method}, "headers": {strings.Join(lines, "\n")}})
			if err != nil {
				return nil, err
			}
			x := new(report.Explanation)
			return x, json.Unmarshal(text, x)
		}
		targets = append(targets, d.Channels[i].Target)
	}
	return nil, fmt.Errorf("the process has no channel to %s that is not idle, but those to: %s", target, strings.Join(targets, ", "))
}

// fails reports whether some RPCs would fail.
func fails(x *report.Explanation) bool {
	if x.NoRoute > 0 {
		return true
	}
	for i := range x.Routes {
		r := &x.Routes[i]
		if r.Probability > 0 && r.NotForwarding {
			return true
		}
		for k := range r.Clusters {
			if r.Clusters[k].Fails > 0 {
				return true
			}
		}
	}
	return false
}
