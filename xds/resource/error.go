// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"strconv"
	"strings"
	"unicode/utf8"
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
