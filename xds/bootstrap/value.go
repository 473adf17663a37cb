// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"bytes"
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// A value is a position in a JSON document: its contents and its path. A field of a value that
// is not an object is an absent value, so a reader reports a wrong type only once.
type value struct {
	path string
	// v is the result of encoding/json, with json.Number for numbers; nil if the value is
	// absent or null.
	v any
}

// maxSize limits a document in bytes. Servers would not accept a larger one: node is sent with
// the first request of each stream, and gRPC servers accept messages up to 4 MiB by default.
const maxSize = 4 << 20

// decode returns the root of the JSON text in data.
func decode(source string, data []byte) (value, error) {
	root := value{path: "$"}
	if len(data) > maxSize {
		return root, tooLarge(source)
	}
	if len(bytes.TrimSpace(data)) == 0 {
		return root, &parseError{Source: source, Path: "$", Problem: "is empty", Fix: `give a JSON object with at least "xds_servers"`}
	}
	if bytes.HasPrefix(data, []byte("\xef\xbb\xbf")) || bytes.HasPrefix(data, []byte("\xff\xfe")) || bytes.HasPrefix(data, []byte("\xfe\xff")) {
		return root, &parseError{Source: source, Path: "line 1, column 1", Problem: "starts with a byte order mark", Fix: "save the document as UTF-8 without one"}
	}
	if i := invalidUTF8(data); i >= 0 {
		return root, &parseError{Source: source, Path: position(data[:i]), Problem: "is not UTF-8", Fix: "save the document in that encoding"}
	}
	// Unmarshal, unlike Decode, also checks the text after the first value.
	var text json.RawMessage
	if err := json.Unmarshal(data, &text); err != nil {
		return root, syntaxError(source, data, err)
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if err := d.Decode(&root.v); err != nil {
		return root, syntaxError(source, data, err)
	}
	return root, nil
}

// invalidUTF8 returns the index of the first byte that is not UTF-8, or -1.
func invalidUTF8(data []byte) int {
	for i := 0; i < len(data); {
		r, size := utf8.DecodeRune(data[i:])
		if r == utf8.RuneError && size == 1 {
			return i
		}
		i += size
	}
	return -1
}

// position describes the position after the given text, with columns in characters.
func position(before []byte) string {
	line := before[bytes.LastIndexByte(before, '\n')+1:]
	return fmt.Sprintf("line %d, column %d", bytes.Count(before, []byte{'\n'})+1, utf8.RuneCount(line)+1)
}

func tooLarge(source string) *parseError {
	return &parseError{Source: source, Path: "$", Problem: fmt.Sprintf("is larger than %d bytes", maxSize), Fix: "check that this is the bootstrap document; a usual one is below 10 kB"}
}

// field returns the member with the given name.
func (v value) field(name string) value {
	m, _ := v.v.(map[string]any)
	f := value{path: v.path + "." + name, v: m[name]}
	if strings.ContainsFunc(name, notInName) || name == "" {
		f.path = v.path + "[" + strconv.Quote(name) + "]"
	}
	return f
}

// notInName reports whether a member name that contains r needs quotes in a path.
func notInName(r rune) bool {
	return r != '_' && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z')
}

// index returns the element with the given index, which must exist.
func (v value) index(i int) value {
	return value{path: fmt.Sprintf("%s[%d]", v.path, i), v: v.v.([]any)[i]}
}

// kind returns the type of the value with its article.
func (v value) kind() string {
	switch v.v.(type) {
	case map[string]any:
		return "an object"
	case []any:
		return "a list"
	case string:
		return "a string"
	case json.Number:
		return "a number"
	case bool:
		return "a boolean"
	}
	return "null"
}

// excerpt returns a scalar as JSON, shortened, and "" for other values.
func (v value) excerpt() string {
	switch v.v.(type) {
	case nil, map[string]any, []any:
		return ""
	}
	const limit = 80
	s := []rune(string(canonical(v.v)))
	if len(s) > limit {
		return string(s[:limit-1]) + "…"
	}
	return string(s)
}

// canonical returns v as JSON with sorted names and no unnecessary escapes, so that equal
// documents have equal texts. v consists of values decoded by encoding/json or of this
// package's document types, so encoding succeeds.
func canonical(v any) json.RawMessage {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return json.RawMessage(strconv.Quote(err.Error()))
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// isObject reports whether v is an object, and records an error if not.
func (l *errorList) isObject(v value, fix string) bool {
	_, ok := v.v.(map[string]any)
	if !ok {
		l.fail(v, "must be an object, not "+v.kind(), fix)
	}
	return ok
}

// list iterates over the elements of v, and records an error if v is not a list. An absent v is
// empty.
func (l *errorList) list(v value, fix string) iter.Seq[value] {
	return func(yield func(value) bool) {
		elements, ok := v.v.([]any)
		if !ok && v.v != nil {
			l.fail(v, "must be a list, not "+v.kind(), fix)
		}
		for i := range elements {
			if !yield(v.index(i)) {
				return
			}
		}
	}
}

// members iterates over the members of v in the order of their names, and records an error if v
// is not an object. An absent v is empty.
func (l *errorList) members(v value, fix string) iter.Seq2[string, value] {
	return func(yield func(string, value) bool) {
		if v.v == nil || !l.isObject(v, fix) {
			return
		}
		for _, name := range slices.Sorted(maps.Keys(v.v.(map[string]any))) {
			if !yield(name, v.field(name)) {
				return
			}
		}
	}
}

// text returns the string at v, "" if it is absent, and records an error for other types.
func (l *errorList) text(v value) string {
	s, ok := v.v.(string)
	if !ok && v.v != nil {
		l.fail(v, "must be a string, not "+v.kind(), "put a string there, between double quotes")
	}
	return s
}

// requiredText is text for a field that is required and must not be empty; fix is the remedy.
func (l *errorList) requiredText(object value, name, fix string) string {
	v := object.field(name)
	if v.v == nil {
		l.missing(object, name, fix)
		return ""
	}
	s := l.text(v)
	if v.v == "" {
		l.fail(v, "must not be empty", fix)
	}
	return s
}

// missing records that a required field of object is absent. If another field looks like a
// misspelling of it, the error suggests that.
func (l *errorList) missing(object value, name, fix string) {
	m, _ := object.v.(map[string]any)
	for _, other := range slices.Sorted(maps.Keys(m)) {
		if other != name && skeleton(other) == skeleton(name) {
			fix = fmt.Sprintf("rename %q to %q; names are matched exactly", other, name)
			break
		}
	}
	l.fail(object.field(name), "is required, and missing", fix)
}

// skeleton returns a field name without case, separators and plural suffix, to detect
// misspellings.
func skeleton(name string) string {
	name = strings.Map(func(r rune) rune {
		if r == '_' || r == '-' || r == ' ' {
			return -1
		}
		return r
	}, strings.ToLower(name))
	return strings.TrimSuffix(name, "s")
}
