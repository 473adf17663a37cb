// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
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
)

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
