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
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"log/slog"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

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
		v := enable.verdict(p.text, fmt.Sprintf("raise the percentage of %q in %s above %.2f, the position of host %q, or unset it", p.text, Enable, at, host))
		v.Host, v.Position = host, at
		return v
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

// accepted describes the values of the variables, in messages.
const accepted = `use all, none, a percentage of the hosts such as 10%, or patterns of targets such as orders*, xds:///orders* and orders*:10%, separated by commas`

// misunderstood are words that are no patterns, since their authors mean all or none.
var misunderstood = []string{"yes", "no", "on", "off", "y", "n", "t", "f", "enable", "enabled", "disable", "disabled", "always", "never"}

// patterns is the parsed value of a variable.
type patterns struct {
	variable, text string // as set in the environment
	valid          []pattern
	malformed      string // the first malformed pattern
}

// pattern selects targets on a part of the hosts.
type pattern struct {
	text    string // as in the variable
	targets string // without the percentage; "*" if there is only a percentage
	percent float64
}

func patternsOf(variable string) patterns {
	p := patterns{variable: variable, text: strings.TrimSpace(os.Getenv(variable))}
	for text := range strings.SplitSeq(p.text, ",") {
		switch parsed, ok := parse(strings.TrimSpace(text)); {
		case ok && parsed.text != "":
			p.valid = append(p.valid, parsed)
		case !ok && p.malformed == "":
			p.malformed = parsed.text
		}
	}
	return p
}

// parse parses a pattern, which may be empty.
func parse(text string) (p pattern, ok bool) {
	p = pattern{text: text, targets: text, percent: 100}
	if share, found := strings.CutSuffix(text, "%"); found {
		i := strings.LastIndexByte(share, ':')
		percent, err := strconv.ParseFloat(strings.TrimSpace(share[i+1:]), 64)
		if err != nil || !(percent >= 0 && percent <= 100) || i == 0 {
			return p, false
		}
		p.percent, p.targets = percent, "*"
		if i > 0 {
			p.targets = share[:i]
		}
	} else if _, err := strconv.ParseFloat(text, 64); err == nil && text != "0" && text != "1" {
		return p, false // a percentage without its sign
	}
	_, err := path.Match(p.targets, "")
	return p, err == nil && !slices.Contains(misunderstood, strings.ToLower(p.targets))
}

// set reports whether the variable contains a pattern.
func (p patterns) set() bool { return len(p.valid) > 0 || p.malformed != "" }

// match reports whether the pattern matches the target, on any host.
func (p *pattern) match(target resolver.Target) bool {
	switch strings.ToLower(p.targets) {
	case "all", "*", "true", "1":
		return true
	case "none", "false", "0":
		return false
	}
	for _, name := range []string{target.String(), target.Endpoint()} {
		if ok, _ := path.Match(p.targets, name); ok {
			return true
		}
	}
	return false
}

// match returns the first pattern that matches the target, on any host.
func (p *patterns) match(target resolver.Target) (of *pattern, ok bool) {
	i := slices.IndexFunc(p.valid, func(one pattern) bool { return one.match(target) })
	if i < 0 {
		return nil, false
	}
	return &p.valid[i], true
}

// selects returns the text of the first pattern that matches the target on this host.
func (p *patterns) selects(target resolver.Target) (text string, ok bool) {
	for i := range p.valid {
		if one := &p.valid[i]; one.match(target) && p.includes(one.percent) {
			return one.text, true
		}
	}
	return "", false
}

// includes reports whether the percentage of hosts includes this one: for XDSLB_ENABLE the first
// ones, and for XDSLB_DISABLE the last ones. A higher percentage includes the hosts of a lower one, and
// XDSLB_DISABLE=90% leaves xdslb to the same hosts as XDSLB_ENABLE=10%.
func (p *patterns) includes(percent float64) bool {
	if percent >= 100 {
		return true
	}
	_, at := position()
	if p.variable == Disable {
		return percent > 0 && at >= 100-percent
	}
	return at < percent
}

// hostname is os.Hostname, except in tests.
var hostname = os.Hostname

// position returns the host name and the position of the host among all hosts, from 0 to 100: the
// first 8 bytes of the SHA-256 of the name, as a fraction. A host without a name is the last one.
func position() (host string, at float64) {
	host, err := hostname()
	if err != nil {
		return "", 100
	}
	sum := sha256.Sum256([]byte(host))
	return host, float64(binary.BigEndian.Uint64(sum[:8])) / (1 << 64) * 100
}

// matched contains the values of variables of which a pattern has matched a target, and watched those
// that have a timer.
var matched, watched sync.Map // by [2]string, variable and value

// key identifies the value of the variable.
func (p *patterns) key() [2]string { return [2]string{p.variable, p.text} }

// idle reports whether XDSLB_DISABLE names targets that the process has not used. Channels that
// XDSLB_ENABLE does not match are stock's, which their verdicts show.
func (p *patterns) idle() bool {
	names := slices.ContainsFunc(p.valid, func(one pattern) bool {
		return !slices.Contains([]string{"none", "false", "0"}, strings.ToLower(one.targets))
	})
	_, used := matched.Load(p.key())
	return p.variable == Disable && names && !used
}

// unused describes a variable whose patterns match no target.
func (p *patterns) unused() string {
	return fmt.Sprintf("%s=%q matches no target that the process has used so far", p.variable, p.text)
}

// matchTime is the time in which a process is expected to use the targets that the variables name.
const matchTime = time.Minute

// noteMatches records whether the variable matches the target. If its patterns match no target within
// matchTime, that is logged as an error.
func (p patterns) noteMatches(target resolver.Target, logger *slog.Logger) {
	if _, ok := p.match(target); ok {
		matched.Store(p.key(), true)
	}
	if !p.idle() {
		return
	}
	if _, before := watched.LoadOrStore(p.key(), true); !before {
		time.AfterFunc(matchTime, func() {
			if p.idle() {
				note(logger, slog.LevelError, "xdslb: environment variable has no effect", p.unused(), "", "remedy", accepted)
			}
		})
	}
}

// Problems describes the variables of the environment that are not understood or that have no effect.
func Problems() (list []string) {
	for _, p := range []patterns{patternsOf(Disable), patternsOf(Enable)} {
		if p.malformed != "" {
			list = append(list, p.verdict(p.malformed, "").Why()+": "+accepted)
		} else if p.idle() {
			list = append(list, p.unused()+": "+accepted)
		}
	}
	if _, err := weights(); err != nil {
		list = append(list, err.Error())
	}
	return list
}

// IgnoreWeights is the variable for Config.IgnoreEndpointWeights.
const IgnoreWeights = "XDSLB_IGNORE_ENDPOINT_WEIGHTS"

func weights() (ignore bool, err error) {
	text := strings.TrimSpace(os.Getenv(IgnoreWeights))
	if text == "" {
		return false, nil
	}
	if ignore, err = strconv.ParseBool(text); err != nil {
		return false, fmt.Errorf("%s=%q is not understood and has no effect: use 1, true, 0 or false", IgnoreWeights, text)
	}
	return ignore, nil
}

// IgnoresWeights reports whether the environment has channels ignore endpoint weights. A value that is not
// understood is logged once.
func IgnoresWeights(logger *slog.Logger) bool {
	ignore, err := weights()
	if err != nil {
		note(logger, slog.LevelError, "xdslb: environment variable is not understood", err.Error(), "")
	}
	return ignore
}
