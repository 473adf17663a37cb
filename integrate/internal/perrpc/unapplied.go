// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package perrpc

import (
	"fmt"
	"log/slog"
	"strings"
	"sync"
)

// This file is about what the control plane asks for and a channel does not do,
// which is said once for each target (D15).

// Unapplied returns what the configuration asks for and the channel does not do
// because it has none of our interceptors: a phrase each, for people. It is empty
// if interceptors were installed, or have asked for the channel's configuration.
func (l *Link) Unapplied(t *Table) []string {
	if t.Plans == nil || l.HasInterceptors() {
		return nil
	}
	return t.Plans.unapplied()
}

// HasInterceptors reports whether RPCs of the channel pass interceptors of ours.
func (l *Link) HasInterceptors() bool { return l.Intercepted || l.cc.Load() != nil }

// unapplied returns what plans do that nothing else does.
func (p *Plans) unapplied() (list []string) {
	if len(p.filters) > 0 {
		list = append(list, fmt.Sprintf("HTTP filters %q", p.filters))
	}
	if p.retries > 0 {
		list = append(list, fmt.Sprintf("the retries of %s", routes(p.retries)))
	}
	if p.others > 0 {
		list = append(list, fmt.Sprintf("that retries go to other endpoints, for %d of the routes", p.others))
	}
	if p.timeouts > 0 {
		list = append(list, fmt.Sprintf("the timeouts of %s", routes(p.timeouts)))
	}
	if p.asking {
		list = append(list, "probes for each RPC: xdslb_prequal goes by earlier ones")
	}
	return list
}

// routes says how many routes.
func routes(n int) string {
	if n == 1 {
		return "1 route that gRPC's service config cannot express"
	}
	return fmt.Sprintf("%d routes that gRPC's service config cannot express", n)
}

// warned has what was logged: a target, and what about it.
var warned sync.Map

// warn logs a line about a target unless something of the kind was logged before.
func warn(logger *slog.Logger, target, kind, line string, more ...any) {
	if _, again := warned.LoadOrStore([2]string{target, kind}, true); !again {
		LoggerOr(logger).Warn("xdslb: "+line, append([]any{"target", target}, more...)...)
	}
}

// LoggerOr returns a Logger, or the process's if that is nil.
func LoggerOr(logger *slog.Logger) *slog.Logger {
	if logger == nil {
		return slog.Default()
	}
	return logger
}

// warnUnapplied logs what a pick found to be missing. It costs two loads if
// nothing is, or if that was logged.
func (l *Link) warnUnapplied(t *Table) {
	if l.HasInterceptors() || l.looked.Swap(t.Plans) == t.Plans {
		return
	}
	if list := l.Unapplied(t); len(list) > 0 {
		p := t.Plans
		warn(l.Logger, l.Target, fmt.Sprintf("lacks %q, %v, %v, %v, %v", p.filters, p.retries > 0, p.timeouts > 0, p.others > 0, p.asking),
			"some of the configuration is not applied, because the channel has no interceptors of xdslb. "+
				"Make the channel with integrate.NewClient, or with integrate.DialOptions.", "not_applied", strings.Join(list, "; "))
	}
}

// warnOrder logs that interceptors behind ours change where RPCs go.
func (l *Link) warnOrder() {
	warn(l.Logger, l.Target, "order", "an interceptor changes headers behind those of xdslb, and routes match by headers: RPCs go where their headers say, "+
		"but with the timeout, the retries and the filters of another route. Put integrate.DialOptions last among the options, or use integrate.NewClient.")
}

// warnOtherResolver logs that a channel of a scheme that is ours has a resolver that
// is not.
func warnOtherResolver(target string) {
	warn(nil, target, "resolver", "the channel has interceptors of xdslb, and a resolver of another package, usually google.golang.org/grpc/xds. "+
		"Make the channel with integrate.NewClient, or with integrate.DialOptions.")
}
