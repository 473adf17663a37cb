// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// An parseError describes a mistake in a bootstrap document, its position, and its remedy. Functions
// of this package that report several errors join them like [errors.Join], so errors.As finds
// the first, which should be fixed first.
type parseError struct {
	// Source describes the origin of the document: "file /etc/xds.json", "environment variable
	// GRPC_XDS_BOOTSTRAP_CONFIG", or the source passed to Parse.
	Source string
	// Path is the JSON path of the invalid value, such as "$.xds_servers[0].channel_creds"; or
	// "line 3, column 7" if the text is not JSON; or empty if there is no text.
	Path string
	// Value is the invalid value as JSON, shortened. It is empty if the value is absent, and
	// for objects and lists, which may contain data that should not be logged.
	Value string
	// Problem is the violated rule, and Fix is the remedy.
	Problem, Fix string

	cause error
}

// Error formats the fields as one line.
func (e *parseError) Error() string {
	var b strings.Builder
	b.WriteString("xdslb: bootstrap: ")
	b.WriteString(e.Source)
	if e.Path != "" {
		b.WriteString(": " + e.Path)
	}
	b.WriteString(": " + e.Problem)
	if e.Value != "" {
		b.WriteString(" (it is " + e.Value + ")")
	}
	b.WriteString("; " + e.Fix)
	return b.String()
}

// Unwrap returns the underlying error of the operating system or of a credentials builder, or
// nil.
func (e *parseError) Unwrap() error { return e.cause }

// maxErrors limits the length of a report: the tenth mistake of a document is most often a
// consequence of the first.
const maxErrors = 10

// An errorList collects the errors of one document.
type errorList struct {
	source string
	errs   []error
	more   int // number of errors beyond maxErrors
}

func (l *errorList) add(e *parseError) {
	if len(l.errs) == maxErrors {
		l.more++
		return
	}
	e.Source = l.source
	l.errs = append(l.errs, e)
}

// fail records that the value at v violates a rule.
func (l *errorList) fail(v value, problem, fix string) {
	l.add(&parseError{Path: v.path, Value: v.excerpt(), Problem: problem, Fix: fix})
}

// err returns nil, the only error, or all errors joined.
func (l *errorList) err() error {
	errs := l.errs
	if len(errs) == 1 {
		return errs[0]
	}
	if l.more > 0 {
		errs = append(errs, fmt.Errorf("xdslb: bootstrap: %s: and %d more", l.source, l.more))
	}
	return errors.Join(errs...)
}

// syntaxError describes a JSON syntax error. It uses only the position, since the texts of
// encoding/json differ between Go versions.
func syntaxError(source string, data []byte, err error) *parseError {
	// Offset counts the bytes read, including the invalid one. At the end of the text there is
	// no invalid byte.
	offset := len(data)
	var s *json.SyntaxError
	if errors.As(err, &s) && !strings.HasPrefix(s.Error(), "unexpected end") {
		offset = min(max(int(s.Offset)-1, 0), len(data))
	}
	e := &parseError{Source: source, Path: position(data[:offset]), Problem: "is not JSON: the text ends too early", cause: err}
	if offset < len(data) {
		r, _ := utf8.DecodeRune(data[offset:])
		e.Problem = fmt.Sprintf("is not JSON: unexpected %q", r)
	}
	e.Fix = syntaxHint(bytes.TrimSpace(data[:offset]), data[offset:])
	return e
}

// syntaxHint guesses the mistake from the trimmed text before the invalid byte and the text
// from it on.
func syntaxHint(before, rest []byte) string {
	if len(rest) == 0 {
		return "complete the document; it was cut short, or lacks a closing quote or bracket"
	}
	if len(before) == 0 {
		return "start the document with '{'; to name a file instead of giving the text, set GRPC_XDS_BOOTSTRAP to its path"
	}
	last := before[len(before)-1]
	switch c := rest[0]; {
	case last == ',' && (c == '}' || c == ']'):
		return "remove the comma before the closing bracket"
	case last == '\\':
		return "write a backslash within a string as two"
	case c < ' ':
		return "close the string before the end of the line, or write \\n in it"
	case c == '\'':
		return "put strings between double quotes"
	case c == '/' || c == '#':
		return "remove the comment; JSON has none"
	case c == '$' || c == '<':
		return "put a value there; it looks as if a template was not filled in"
	case c == 'T' || c == 'F' || c == 'N':
		return "write true, false and null in lower case; JSON has no other words"
	case (last == '{' || last == ',') && ('a' <= c|0x20 && c|0x20 <= 'z' || c == '_'):
		return "put names and strings between double quotes"
	case last == '}' && c == '{':
		return "add a comma between the objects, or remove what follows the document"
	case bytes.IndexByte([]byte(`"]}`), last) >= 0 && bytes.IndexByte([]byte(`"[{-0123456789tfn`), c) >= 0:
		return "add the comma or the colon that is missing before it"
	}
	return "correct the text there; a tool such as jq shows whether it is JSON"
}
