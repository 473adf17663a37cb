// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// An Error says why a resource is refused. Its text is what the control plane's
// operator gets to read in the NACK, so it names everything that is wrong, not
// just the first of it.
type Error struct {
	Type   Type
	Name   string       // of the resource; empty if it has none
	Errors []FieldError // in the order of reading, at most 32
	More   bool         // there are others beyond those
}

// A FieldError is one rule that a resource breaks.
type FieldError struct {
	// Path leads to the field, by the names of its proto:
	// "virtual_hosts[2].routes[0].match". It is empty for the resource itself.
	Path string
	// Value is what the field says, shortened; text is quoted. It is empty if
	// the field is missing or if Rule says it all.
	Value string
	// Rule is what the field has to be: "must not be empty".
	Rule string
}

// Error returns one line: the resource's type and name, then each FieldError.
func (e *Error) Error() string {
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
func (e FieldError) String() string {
	s := e.Rule
	if e.Path != "" {
		s = e.Path + ": " + s
	}
	if e.Value != "" {
		s += " (it is " + e.Value + ")"
	}
	return s
}

// Bounds on the size of an Error, which would otherwise be a multiple of the
// resource that caused it.
const (
	maxErrors = 32
	maxQuote  = 128 // bytes of a text that is quoted
	maxRule   = 512 // bytes of an error of a filter that is not of this package

	// maxPolicyRule is likewise for policies, whose errors name the lists that
	// they are in: 16 levels are less than 1500 bytes.
	maxPolicyRule = 2048
)

// problems collects what is wrong with one resource.
type problems struct {
	errors []FieldError
	more   bool // there was no room for another
	// ignored is what is asked for and not done, each once.
	ignored []string
}

// full reports whether there is no room for another problem.
func (l *problems) full() bool {
	l.more = l.more || len(l.errors) == maxErrors
	return l.more
}

// err returns nil if there was no problem. The result is an error, and not an
// *Error, so that this nil is one.
func (l *problems) err(t Type, name string) error {
	if len(l.errors) == 0 {
		return nil
	}
	return &Error{Type: t, Name: name, Errors: l.errors, More: l.more}
}

// quote returns s between quotes, cut after maxQuote bytes.
func quote(s string) string {
	if len(s) <= maxQuote {
		return strconv.Quote(s)
	}
	return strconv.Quote(clip(s, maxQuote)) + "…"
}

// clip returns the first n bytes of s, or fewer so as not to cut a character.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}
