// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/types/known/durationpb"
)

// An resourceError is the reason for rejecting a resource. The control plane's operator sees its text
// in the NACK, so it lists all errors, not just the first one.
type resourceError struct {
	Type   Type
	Name   string       // of the resource; empty if it has none
	Errors []fieldError // in the order of reading, at most 32
	More   bool         // there are further errors
}

// A fieldError is one rule that a resource breaks.
type fieldError struct {
	// Path is the path of the field, by its proto names: "virtual_hosts[2].routes[0].match". It
	// is empty for the resource itself.
	Path string
	// Value is the value of the field, shortened; text is quoted. It is empty if the field is
	// missing or if Rule is sufficient.
	Value string
	// Rule is the requirement for the field: "must not be empty".
	Rule string
}

// Error returns one line: the resource's type and name, then each fieldError.
func (e *resourceError) Error() string {
	var b strings.Builder
	b.WriteString(e.Type.String() + " " + quote(e.Name))
	sep := ": "
	for i := range e.Errors {
		b.WriteString(sep + e.Errors[i].String())
		sep = "; "
	}
	if e.More {
		b.WriteString("; and more")
	}
	return b.String()
}

// String returns path, rule and value.
func (e fieldError) String() string {
	s := e.Rule
	if e.Path != "" {
		s = e.Path + ": " + s
	}
	if e.Value != "" {
		s += " (it is " + e.Value + ")"
	}
	return s
}

// Limits of the size of an error, which would otherwise be a multiple of the resource's size.
const (
	maxErrors = 32
	maxQuote  = 128 // bytes of a quoted text
	maxRule   = 512 // bytes of an error of an external filter type

	// maxPolicyRule is the limit for policies, whose errors name the enclosing lists: 16 levels
	// are less than 1500 bytes.
	maxPolicyRule = 2048
)

// problems collects the errors of one resource.
type problems struct {
	errors []fieldError
	more   bool // the limit was reached
	// ignored are the unsupported features, each once.
	ignored []string
	stock   []string // why stock rejects the resource
}

// full reports whether there is no room for another problem.
func (l *problems) full() bool {
	l.more = l.more || len(l.errors) == maxErrors
	return l.more
}

// err returns nil if there was no problem. The result type is error rather than *resourceError, so that
// nil compares equal to nil.
func (l *problems) err(t Type, name string) error {
	if len(l.errors) == 0 {
		return nil
	}
	return &resourceError{Type: t, Name: name, Errors: l.errors, More: l.more}
}

// quote returns s between quotes, cut after maxQuote bytes.
func quote(s string) string {
	if len(s) <= maxQuote {
		return strconv.Quote(s)
	}
	return strconv.Quote(clip(s, maxQuote)) + "…"
}

// clip returns the first n bytes of s, or fewer to avoid cutting a character.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// ErrStopped is returned by Decode if Options.Stopped has returned true. The resource may be
// valid.
var ErrStopped = errors.New("resource: decoding was stopped")

// stopEvery is the number of endpoints decoded between two calls of Options.Stopped.
const stopEvery = 1024

// A stopper allows decoding of a large resource to be stopped between two of its elements.
type stopper struct {
	request func() bool // Options.Stopped
	stopped bool        // it has returned true
}

// stop reports whether decoding must stop.
func (s *stopper) stop() bool {
	if s.request != nil && !s.stopped {
		s.stopped = s.request()
	}
	return s.stopped
}

// stopAt is stop for element i of many cheap elements: it calls stop once per stopEvery.
func (s *stopper) stopAt(i int) bool { return i%stopEvery == stopEvery-1 && s.stop() }

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
