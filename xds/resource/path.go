// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"fmt"
	"strconv"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/types/known/durationpb"
)

// A path is a position in a resource. It is formatted only if there is an error. Paths point to
// their parent path, so each step costs one small allocation, which is negligible compared with
// the message being read.
type path struct {
	up    *path
	to    *problems
	step  string // a field's name or a map key in brackets; "" if index is used
	index int
}

func (l *problems) root() *path { return &path{to: l} }

// dot returns the path of a field.
func (p *path) dot(field string) *path { return &path{up: p, to: p.to, step: field} }

// at returns the path of an element of the repeated field at p.
func (p *path) at(i int) *path { return &path{up: p, to: p.to, index: i} }

// key returns the path of an element of the map at p.
func (p *path) key(k string) *path { return &path{up: p, to: p.to, step: "[" + quote(k) + "]"} }

// fail records that the value at p violates a rule.
func (p *path) fail(rule string) {
	if !p.to.full() {
		p.to.errors = append(p.to.errors, fieldError{Path: p.String(), Rule: rule})
	}
}

func (p *path) failf(format string, args ...any) { p.fail(fmt.Sprintf(format, args...)) }

// refuse records that value, which is at p, violates a rule.
func (p *path) refuse(value any, rule string) {
	if p.to.full() {
		return
	}
	text := fmt.Sprint(value)
	if s, ok := value.(string); ok {
		text = quote(s)
	}
	p.to.errors = append(p.to.errors, fieldError{Path: p.String(), Value: text, Rule: rule})
}

// String returns the path in the form of fieldError.Path.
func (p *path) String() string {
	switch {
	case p.up == nil:
		return ""
	case p.step == "":
		return p.up.String() + "[" + strconv.Itoa(p.index) + "]"
	case p.up.up == nil || p.step[0] == '[':
		return p.up.String() + p.step
	}
	return p.up.String() + "." + p.step
}

// nonEmpty checks and returns the text at p.
func (p *path) nonEmpty(s string) string {
	if s == "" {
		p.fail("must not be empty")
	}
	return s
}

// duration validates and returns the duration at p, or 0 if it is unset. Durations beyond
// time.Duration's 292 years are capped.
func (p *path) duration(d *durationpb.Duration) time.Duration {
	if d == nil {
		return 0
	}
	switch {
	case !d.IsValid():
		p.failf("must be a valid duration, not %d s and %d ns", d.GetSeconds(), d.GetNanos())
	case d.AsDuration() < 0:
		p.refuse(d.AsDuration(), "must not be negative")
	default:
		return d.AsDuration()
	}
	return 0
}

// atMost checks a number at p against its maximum.
func (p *path) atMost(n, limit uint32) {
	if n > limit {
		p.refuse(n, fmt.Sprintf("must be at most %d", limit))
	}
}

// adsOrSelf checks that a resource comes from the same server as the resource that names it;
// clients support no other source (A27, A47).
func (p *path) adsOrSelf(s *corev3.ConfigSource) {
	if s.GetAds() == nil && s.GetSelf() == nil {
		p.fail("must be ads or self")
	}
}
