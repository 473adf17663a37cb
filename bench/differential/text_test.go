// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package differential

import (
	"fmt"
	"strings"
)

// String returns the world as text, for analyzing failures.
func (w *world) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "listener: inline=%t max_stream_duration=%v fault=%v\n", w.inline, w.maxStream, w.fault)
	for _, h := range w.hosts {
		fmt.Fprintf(&b, "virtual host %q retry=%v fault=%v\n", h.domains, h.retry, h.fault)
		for i, r := range h.routes {
			fmt.Fprintf(&b, "  route %d: %v\n", i, &r)
		}
	}
	for i := range w.clusters {
		fmt.Fprintf(&b, "%v", &w.clusters[i])
	}
	fmt.Fprintf(&b, "ignore weights: %t, not served: %q, defects: %v, unreachable: %q\n", w.ignoreWeights, w.gone, w.defects, w.unreachable)
	return b.String()
}

func (r *route) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %q", r.kind, r.path)
	if r.ignoreCase {
		b.WriteString(" ignore_case")
	}
	for _, h := range r.headers {
		fmt.Fprintf(&b, " header %s %s %q invert=%t ignore_case=%t", h.name, h.kind, h.value, h.invert, h.ignoreCase)
	}
	if r.fraction.of != 0 {
		fmt.Fprintf(&b, " fraction %v", r.fraction)
	}
	fmt.Fprintf(&b, " -> %s", r.action)
	for _, c := range r.clusters {
		fmt.Fprintf(&b, " %s*%d", c.cluster, c.weight)
		if c.fault != nil {
			fmt.Fprintf(&b, "(fault %v)", c.fault)
		}
	}
	if r.timeout != nil {
		fmt.Fprintf(&b, " max_stream_duration=%v", *r.timeout)
	}
	if r.headerMax != nil {
		fmt.Fprintf(&b, " grpc_timeout_header_max=%v", *r.headerMax)
	}
	if r.retry != nil {
		fmt.Fprintf(&b, " retry=%v", r.retry)
	}
	if r.fault != nil {
		fmt.Fprintf(&b, " fault=%v", r.fault)
	}
	if r.hash != nil {
		fmt.Fprintf(&b, " hash=%+v", r.hash)
	}
	return b.String()
}

func (f fraction) String() string { return fmt.Sprintf("%d/%d", f.n, f.of) }

func (r *retry) String() string {
	if r == nil {
		return "none"
	}
	return fmt.Sprintf("{on %s, n=%d, %v..%v}", strings.Join(r.on, ","), r.n, r.base, r.max)
}

func (f *fault) String() string {
	if f == nil {
		return "none"
	}
	return fmt.Sprintf("{abort %v with grpc %d http %d, delay %v by %v, by header %t}", f.abort, f.code, f.http, f.delay, f.delayBy, f.byHeader)
}

func (c *cluster) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "cluster %s: %s %s", c.name, c.kind, c.policy)
	if c.kind == aggregate {
		fmt.Fprintf(&b, " of %q", c.children)
	}
	if c.edsName != "" {
		fmt.Fprintf(&b, " eds_name=%s", c.edsName)
	}
	if c.maxRequests != 0 {
		fmt.Fprintf(&b, " max_requests=%d", c.maxRequests)
	}
	if c.loadReports {
		b.WriteString(" lrs")
	}
	if c.outlier {
		b.WriteString(" outlier_detection")
	}
	for _, d := range c.drops {
		fmt.Fprintf(&b, " drop %s %v", d.category, d.fraction)
	}
	b.WriteByte('\n')
	for _, l := range c.localities {
		fmt.Fprintf(&b, "  locality %s priority=%d weight=%d:", l.name, l.priority, l.weight)
		for _, e := range l.endpoints {
			fmt.Fprintf(&b, " %s", e.backend)
			if e.weight != 0 {
				fmt.Fprintf(&b, "*%d", e.weight)
			}
			if e.health != 0 {
				fmt.Fprintf(&b, "(%v)", e.health)
			}
		}
		b.WriteByte('\n')
	}
	return b.String()
}
