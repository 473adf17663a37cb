// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package rpc

import (
	"fmt"
	"strings"

	"github.com/xdslb/xdslb/integrate/internal/link"
)

// This file reports settings of routes that a channel does not apply.

// Unapplied returns a phrase for each part of the configuration that the channel does not apply
// because it has none of our interceptors.
func (ch *Channel) Unapplied(t *Table) []string {
	if t.Plans == nil || ch.HasInterceptors() {
		return nil
	}
	return t.Plans.unapplied()
}

// HasInterceptors reports whether the channel has our interceptors: it was made with them, or an
// interceptor has called link.Find for one of its RPCs.
func (ch *Channel) HasInterceptors() bool { return ch.Link.Intercepted() }

// unapplied returns a phrase for each kind of setting that only interceptors apply.
func (p *Plans) unapplied() (list []string) {
	if len(p.filters) > 0 {
		list = append(list, fmt.Sprintf("HTTP filters %q", p.filters))
	}
	if p.retries > 0 {
		list = append(list, fmt.Sprintf("the retries of %s", routes(p.retries)))
	}
	if p.others > 0 {
		list = append(list, fmt.Sprintf("retries at other endpoints, for %d of the routes", p.others))
	}
	if p.timeouts > 0 {
		list = append(list, fmt.Sprintf("the timeouts of %s", routes(p.timeouts)))
	}
	if p.headers > 0 {
		list = append(list, fmt.Sprintf("changes of request headers, by %d of the routes", p.headers))
	}
	if p.probing {
		list = append(list, "probes for each RPC: xdslb_prequal uses the results of earlier probes")
	}
	return list
}

// routes returns a phrase for a number of routes.
func routes(n int) string {
	if n == 1 {
		return "1 route that gRPC's service config cannot express"
	}
	return fmt.Sprintf("%d routes that gRPC's service config cannot express", n)
}

// warnUnapplied logs once which settings are not applied. Picks call it. It requires two loads
// if all settings are applied, or if they were logged.
func (ch *Channel) warnUnapplied(t *Table) {
	if ch.HasInterceptors() || ch.looked.Swap(t.Plans) == t.Plans {
		return
	}
	if list := ch.Unapplied(t); len(list) > 0 {
		p := t.Plans
		link.WarnOnce(ch.Logger, ch.Target, fmt.Sprintf("lacks %q, %v, %v, %v, %v, %v", p.filters, p.retries > 0, p.timeouts > 0, p.others > 0, p.headers > 0, p.probing),
			"some of the configuration is not applied: the channel has no interceptors of xdslb. "+
				"Make the channel with integrate.NewClient, or with integrate.DialOptions.", "not_applied", strings.Join(list, "; "))
	}
}

// warnOrder logs that interceptors after ours change the routes of RPCs.
func (ch *Channel) warnOrder() {
	link.WarnOnce(ch.Logger, ch.Target, "order", "an interceptor after xdslb's changes headers, and routes match by headers: RPCs use the cluster of their new route, "+
		"but with the timeout, the retries and the filters of the previous route. Put integrate.DialOptions last among the options, or use integrate.NewClient.")
}
