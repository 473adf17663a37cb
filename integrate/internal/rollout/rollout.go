// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

// Package rollout reads from the environment which channels are handed to
// google.golang.org/grpc/xds, called stock here, so that a program can return to that package
// without a build, or adopt xdslb gradually.
//
// XDSLB_DISABLE and XDSLB_ENABLE are lists of patterns, separated by commas. Targets that match
// a pattern of XDSLB_DISABLE are stock's. If XDSLB_ENABLE is set, targets that do not match any
// of its patterns are stock's too. XDSLB_DISABLE wins. An empty variable counts as unset.
//
// A pattern is matched, by [path.Match], with the channel's target ("xds:///service:port", as
// [google.golang.org/grpc.ClientConn.CanonicalTarget] returns it) and with the endpoint name in
// it ("service:port"); one match is enough. "*" does not match a slash. The words all, *, true
// and 1 match every target; none, false and 0 match no target. White space around a pattern is
// ignored.
//
// A percentage, "10%", or "pattern:10%" for the targets of a pattern, selects that part of the
// hosts, by a hash of the host name: see [position]. XDSLB_ENABLE=10% lets the first tenth of the
// hosts use xdslb, and XDSLB_DISABLE=10% takes the last tenth away.
//
// A malformed pattern is logged as an error. Targets that match no valid pattern are
// stock's. Words such as yes and on, and other percentages, are malformed. [Problems] has the
// malformed patterns, and the variables whose patterns match no target of the process.
//
// A channel that stock cannot serve, because the program does not link it or it has no
// bootstrap, is not handed over: a roll-back must not cause an outage.
package rollout

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"

	"google.golang.org/grpc/resolver"

	"github.com/xdslb/xdslb/integrate/internal/link"
	"github.com/xdslb/xdslb/integrate/report"
	"github.com/xdslb/xdslb/xds/eventlog"
)

// The environment variables.
const (
	Disable = "XDSLB_DISABLE"
	Enable  = "XDSLB_ENABLE"
)

// Ours is implemented by the resolver builders of this module.
type Ours interface {
	resolver.Builder
	XDSLB()
}

// Earlier is the resolver builder that had scheme xds before Register, or nil. Tests replace
// it.
var Earlier resolver.Builder

// Register registers the builder for scheme xds, which another package may have registered.
func Register(b Ours) {
	Earlier = resolver.Get("xds")
	resolver.Register(b)
}

// Stock returns the resolver builder of another package for scheme xds, or nil. The order in
// which the two packages registered does not matter.
func Stock() resolver.Builder {
	for _, b := range []resolver.Builder{Earlier, resolver.Get("xds")} {
		if _, ours := b.(Ours); b != nil && !ours {
			return b
		}
	}
	return nil
}

// Configured reports whether the environment has one of the variables.
func Configured() bool {
	return patternsOf(Disable).set() || patternsOf(Enable).set()
}

// verdictOf returns the reason why a target is stock's, or nil if it is xdslb's.
func verdictOf(target resolver.Target) *report.RolloutStatus {
	disable, enable := patternsOf(Disable), patternsOf(Enable)
	if pattern, ok := disable.selects(target); ok {
		return disable.verdict(pattern, "take the pattern out of "+Disable)
	}
	if disable.malformed != "" {
		return disable.verdict(disable.malformed, "fix or remove the pattern in "+Disable)
	}
	if _, ok := enable.selects(target); ok || !enable.set() {
		return nil
	}
	if enable.malformed != "" {
		return enable.verdict(enable.malformed, "fix the pattern in "+Enable)
	}
	if p, ok := enable.match(target); ok {
		host, at := position()
		return enable.verdict("", fmt.Sprintf("raise the percentage of %q in %s above %.2f, the position of host %q, or unset it", p.text, Enable, at, host))
	}
	return enable.verdict("", fmt.Sprintf("add a pattern that matches %q to %s, or unset it", target.Endpoint(), Enable))
}

// verdict returns the verdict of a pattern. step is the way to change it.
func (p *patterns) verdict(pattern, step string) *report.RolloutStatus {
	return &report.RolloutStatus{
		Variable: p.variable, Value: p.text, Pattern: pattern, Malformed: pattern != "" && pattern == p.malformed,
		Forward: step + ", and restart the program",
	}
}

// Verdict returns the reason why the environment selects stock for a channel, or nil if it
// does not. It logs malformed patterns, once for each, and after a minute patterns that match no target.
func Verdict(target resolver.Target, logger *slog.Logger) *report.RolloutStatus {
	for _, p := range []patterns{patternsOf(Disable), patternsOf(Enable)} {
		if p.malformed != "" {
			note(logger, slog.LevelError, "xdslb: environment variable with a malformed pattern: targets that match no other pattern "+
				"use google.golang.org/grpc/xds", p.verdict(p.malformed, "").Why(), "", "remedy", accepted)
		}
		p.noteMatches(target, logger)
	}
	return verdictOf(target)
}

// NoteOutcome logs, once for each target and reason, that a channel was handed over or, with
// the error, that it was not. patched is whether the channel has an overlay, which stock does not apply.
func NoteOutcome(target resolver.Target, v *report.RolloutStatus, patched bool, err error, logger *slog.Logger) {
	if err != nil {
		note(logger, slog.LevelError, "xdslb: channels of a target stay with xdslb, since google.golang.org/grpc/xds cannot serve them", v.Why(), target.String(), "error", err)
		return
	}
	var lost []any
	if patched {
		lost = []any{"without", "the patches of Config.Overlay and XDSLB_OVERLAY"}
	}
	note(logger, slog.LevelWarn, "xdslb: channels of a target handed to google.golang.org/grpc/xds", v.Why(), target.String(), lost...)
}

// NoteLosses logs what would lose RPCs if the target's channels were handed to stock, once for each
// target and feature.
func NoteLosses(target string, losses []report.StockDifference, logger *slog.Logger) {
	const line = "xdslb: a roll-back to google.golang.org/grpc/xds by " + Disable + " would lose RPCs"
	var features, remedies []string
	for _, d := range losses {
		if _, noted := notedLines.LoadOrStore([3]string{line, d.Feature, target}, true); noted {
			continue
		}
		features = append(features, strings.Join(append([]string{d.Feature}, d.Where...), "; "))
		if !slices.Contains(remedies, d.Remedy) {
			remedies = append(remedies, d.Remedy)
		}
	}
	if features != nil {
		link.LoggerOr(logger).Warn(line, "target", target, "features", eventlog.CutTo(strings.Join(features, " | "), maxText),
			"remedy", strings.Join(remedies, "; ")+"; xdslb check and the status have the whole list")
	}
}

// maxText bounds the text of a line.
const maxText = 4096

// NoteTLS logs, once for each target, the TLS settings that stock ignores until environment
// variables enable them. The target's channel has xDS credentials.
func NoteTLS(target resolver.Target, logger *slog.Logger) {
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
		note(logger, slog.LevelWarn, "xdslb: google.golang.org/grpc/xds verifies the servers of a target less strictly than xdslb, until these variables are true",
			strings.Join(missing, "; "), target.String())
	}
}

// note logs a line once for each target and reason.
func note(logger *slog.Logger, level slog.Level, line, why, target string, attrs ...any) {
	if _, noted := notedLines.LoadOrStore([3]string{line, why, target}, true); noted {
		return
	}
	attrs = append([]any{"reason", why}, attrs...)
	if target != "" {
		attrs = append(attrs, "target", target)
	}
	link.LoggerOr(logger).Log(context.Background(), level, line, attrs...)
}

// notedLines contains the lines that note has logged.
var notedLines sync.Map
