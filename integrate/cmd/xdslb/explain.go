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
	name: "explain", args: "TARGET METHOD", summary: "show where an RPC would go, and why",
	about: "Shows the route of an RPC and why earlier routes do not match, its clusters with\n" +
		"their priorities, and each endpoint with its share or the reason why it gets no\n" +
		"RPCs. Resources come from the control plane, or from a file (-f). Endpoints are\n" +
		"assumed to be READY except those of -down; none is contacted. With -at, a channel\n" +
		"of a running process explains the RPC, with the actual state of its endpoints. The\n" +
		"exit code is 1 if RPCs would fail.",
	example: "xdslb explain xds:///orders /shop.Cart/Add -H env=test -down 10.0.0.1:80\n" +
		"xdslb explain xds:///orders /shop.Cart/Add -at localhost:6060",
	flags: func(e *env, fs *flag.FlagSet) func([]string) (bool, error) {
		var q question
		q.register(fs)
		q.tls.register(fs)
		at := fs.String("at", "", "`address` of the debug page of a running process, as for attach")
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

func (q *question) explain(e *env, target, method, at string) (*integrate.Explanation, error) {
	if at != "" {
		return q.explainAt(e, fullTarget(target), method, at)
	}
	w, err := q.whatIf(e, target, method)
	if err != nil {
		return nil, err
	}
	return integrate.ExplainWhatIf(q.context(e), w)
}

// explainAt requests the explanation from the first channel to the target in a running process.
func (q *question) explainAt(e *env, target, method, at string) (*integrate.Explanation, error) {
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
			x := new(integrate.Explanation)
			return x, json.Unmarshal(text, x)
		}
		targets = append(targets, d.Channels[i].Target)
	}
	return nil, fmt.Errorf("%s: the process has no active channel to this target, only to: %s", target, strings.Join(targets, ", "))
}

// fails reports whether some RPCs would fail.
func fails(x *integrate.Explanation) bool {
	if x.NoRoute > 0 {
		return true
	}
	for i := range x.Routes {
		r := &x.Routes[i]
		if r.Probability > 0 && r.NotForwarding {
			return true
		}
		for k := range r.Clusters {
			if c := &r.Clusters[k]; c.Fails > 0 || report.Dropped(c) > 0 {
				return true
			}
		}
	}
	return false
}
