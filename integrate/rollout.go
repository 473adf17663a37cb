// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path"
	"strings"
	"sync"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/resolver"

	"github.com/xdslb/xdslb/integrate/internal/perrpc"
	"github.com/xdslb/xdslb/integrate/internal/report"
)

// The environment variables by which a program goes back to the xDS of grpc-go without a
// build, or comes to ours by degrees. Each is a list of patterns, separated by commas.
//
// Targets that a pattern of XDSLB_DISABLE matches are handed to google.golang.org/grpc/xds,
// and, if XDSLB_ENABLE is set, so are targets that no pattern of that matches.
// XDSLB_DISABLE wins. A variable that is empty is not set.
//
// A pattern is matched, as [path.Match] does it, with the channel's target
// ("xds:///service:port", as [google.golang.org/grpc.ClientConn.CanonicalTarget] has it)
// and with the endpoint name in it ("service:port"); one of the two is enough. In a pattern
// "*" does not match a slash. The words all, *, true and 1 match every target; none, false
// and 0 match none. White space around a pattern does not count.
//
// A pattern that is malformed is logged as an error. All targets that the other patterns
// do not decide about are then handed to stock's xDS if the program links it; if not, they
// stay ours, since the other way there would be no service.
const (
	disableVariable = "XDSLB_DISABLE"
	enableVariable  = "XDSLB_ENABLE"
)

// rolloutConfigured reports whether the environment has one of the variables.
func rolloutConfigured() bool {
	return patternsOf(disableVariable).set() || patternsOf(enableVariable).set()
}

// patterns are the value of a variable.
type patterns struct {
	variable, text string // as the environment has it
	valid          []string
	malformed      string // the first that is
}

func patternsOf(variable string) patterns {
	p := patterns{variable: variable, text: strings.TrimSpace(os.Getenv(variable))}
	for pattern := range strings.SplitSeq(p.text, ",") {
		pattern = strings.TrimSpace(pattern)
		_, err := path.Match(pattern, "")
		switch {
		case err == nil && pattern != "":
			p.valid = append(p.valid, pattern)
		case err != nil && p.malformed == "":
			p.malformed = pattern
		}
	}
	return p
}

// set reports whether there is any.
func (p patterns) set() bool { return len(p.valid) > 0 || p.malformed != "" }

// match returns the first pattern that matches the target.
func (p *patterns) match(target resolver.Target) (pattern string, ok bool) {
	for _, pattern := range p.valid {
		switch strings.ToLower(pattern) {
		case "all", "*", "true", "1":
			return pattern, true
		case "none", "false", "0":
			continue
		}
		for _, name := range []string{target.String(), target.Endpoint()} {
			if ok, _ := path.Match(pattern, name); ok {
				return pattern, true
			}
		}
	}
	return "", false
}

// verdictOf returns why a target is not ours, or nil if it is.
func verdictOf(target resolver.Target) *RolloutStatus {
	disable, enable := patternsOf(disableVariable), patternsOf(enableVariable)
	if pattern, ok := disable.match(target); ok {
		return disable.verdict(pattern, "take the pattern out of "+disableVariable)
	}
	if disable.malformed != "" {
		return disable.verdict(disable.malformed, "mend or remove the pattern in "+disableVariable)
	}
	if _, ok := enable.match(target); ok || !enable.set() {
		return nil
	}
	if enable.malformed != "" {
		return enable.verdict(enable.malformed, "mend the pattern in "+enableVariable)
	}
	return enable.verdict("", fmt.Sprintf("add a pattern that matches %q to %s, or unset it", target.Endpoint(), enableVariable))
}

// verdict returns the verdict of a pattern. step is what to do about it.
func (p *patterns) verdict(pattern, step string) *RolloutStatus {
	return &RolloutStatus{
		Variable: p.variable, Value: p.text, Pattern: pattern, Malformed: pattern != "" && pattern == p.malformed,
		Forward: step + ", and restart the program",
	}
}

// handedOver returns why a channel is to be stock's, or nil if it is ours. It logs, once for
// each target and reason, what is not as a program without the variables would have it.
func (b *resolverBuilder) handedOver(target resolver.Target) *RolloutStatus {
	v := verdictOf(target)
	for _, p := range []patterns{patternsOf(disableVariable), patternsOf(enableVariable)} {
		if p.malformed != "" {
			b.noteRollout(slog.LevelError, "xdslb: an environment variable for roll-out has a malformed pattern: targets that the other patterns do not decide about "+
				"go to google.golang.org/grpc/xds if the program links it, and else stay xdslb's", report.Malformed(p.variable, p.malformed), "")
		}
	}
	switch {
	case v == nil || v.Malformed && stockBuilder() == nil:
		return nil
	case stockBuilder() != nil:
		b.noteRollout(slog.LevelWarn, "xdslb: the channels of a target are google.golang.org/grpc/xds's, not xdslb's, as the environment has it", v.Why(), target.String())
	}
	return v
}

// noteStockTLS logs, once for each target, which TLS settings stock ignores on a channel with xDS
// credentials that is handed to it: settings that it uses only if environment variables say so.
func (b *resolverBuilder) noteStockTLS(target resolver.Target, opts *resolver.BuildOptions) {
	creds, ok := transportCredentials(&balancer.BuildOptions{DialCreds: opts.DialCreds, CredsBundle: opts.CredsBundle}).(interface{ UsesXDS() bool })
	if !ok || !creds.UsesXDS() {
		return
	}
	var missing []string
	for _, v := range []struct{ name, without string }{
		{"GRPC_EXPERIMENTAL_XDS_SNI", "sni, auto_host_sni and auto_sni_san_validation are ignored"},
		{"GRPC_EXPERIMENTAL_XDS_MTLS_SPIFFE", "trust domains of SPIFFE bundle maps are ignored"},
		{"GRPC_EXPERIMENTAL_XDS_SYSTEM_ROOT_CERTS", "clusters with system_root_certs are rejected"},
	} {
		if !strings.EqualFold(os.Getenv(v.name), "true") {
			missing = append(missing, v.name+": "+v.without)
		}
	}
	if missing != nil {
		b.noteRollout(slog.LevelWarn, "xdslb: google.golang.org/grpc/xds verifies the servers of a target less strictly than xdslb, until these variables are true",
			strings.Join(missing, "; "), target.String())
	}
}

// noteRollout logs a line once for each target and reason.
func (b *resolverBuilder) noteRollout(level slog.Level, line, why, target string) {
	if _, noted := rolloutNoted.LoadOrStore([3]string{line, why, target}, true); noted {
		return
	}
	attrs := []any{"reason", why}
	if target != "" {
		attrs = append(attrs, "target", target)
	}
	perrpc.LoggerOr(b.opts.Logger).Log(context.Background(), level, line, attrs...)
}

// rolloutNoted has the lines that noteRollout has logged.
var rolloutNoted sync.Map
