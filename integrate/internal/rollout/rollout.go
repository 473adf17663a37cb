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
// A malformed pattern is logged as an error. Targets that match no valid pattern are
// stock's.
//
// A channel that stock cannot serve, because the program does not link it or it has no
// bootstrap, is not handed over: a roll-back must not cause an outage.
package rollout

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path"
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

// patterns is the parsed value of a variable.
type patterns struct {
	variable, text string // as set in the environment
	valid          []string
	malformed      string // the first malformed pattern
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

// set reports whether the variable contains a pattern.
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

// verdictOf returns the reason why a target is stock's, or nil if it is xdslb's.
func verdictOf(target resolver.Target) *report.RolloutStatus {
	disable, enable := patternsOf(Disable), patternsOf(Enable)
	if pattern, ok := disable.match(target); ok {
		return disable.verdict(pattern, "take the pattern out of "+Disable)
	}
	if disable.malformed != "" {
		return disable.verdict(disable.malformed, "fix or remove the pattern in "+Disable)
	}
	if _, ok := enable.match(target); ok || !enable.set() {
		return nil
	}
	if enable.malformed != "" {
		return enable.verdict(enable.malformed, "fix the pattern in "+Enable)
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
// does not. It logs malformed patterns, once for each.
func Verdict(target resolver.Target, logger *slog.Logger) *report.RolloutStatus {
	for _, p := range []patterns{patternsOf(Disable), patternsOf(Enable)} {
		if p.malformed != "" {
			note(logger, slog.LevelError, "xdslb: environment variable with a malformed pattern: targets that match no other pattern "+
				"use google.golang.org/grpc/xds", p.verdict(p.malformed, "").Why(), "")
		}
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

// NoteLosses logs, once for each target, what would lose RPCs if the target's channels were handed to
// stock.
func NoteLosses(target string, losses []report.StockDifference, logger *slog.Logger) {
	var features, remedies []string
	for _, d := range losses {
		features = append(features, strings.Join(append([]string{d.Feature}, d.Where...), "; "))
		if !slices.Contains(remedies, d.Remedy) {
			remedies = append(remedies, d.Remedy)
		}
	}
	const line = "xdslb: a roll-back to google.golang.org/grpc/xds by " + Disable + " would lose RPCs"
	if _, noted := notedLines.LoadOrStore([3]string{line, "", target}, true); !noted {
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
