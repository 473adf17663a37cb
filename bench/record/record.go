// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

// Package record provides the parsing of benchmark runs in Go's benchmark format
// (https://go.dev/design/14313-benchmark-format) and tables that compare implementations.
//
// It supports only the output of this project's benchmarks: golang.org/x/perf has the whole
// format, and statistics that need ten runs of each benchmark where a scoreboard has one.
// Keeping it small keeps x/perf out of the module graph of users.
package record

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// A Record is the output of a run.
type Record struct {
	Config  []Setting // about the run as a whole, in order
	Results []Result
}

// A Setting is a configuration line, such as "cpu: AMD EPYC".
type Setting struct{ Key, Value string }

// A Result is one line of one benchmark.
type Result struct {
	Op     string    // "Pick" in BenchmarkPick/impl=ours/n=10-2
	Params []Setting // impl=ours, n=10; a part without "=" has only a value
	Procs  string    // 2; empty if the name has no such suffix
	N      int64
	Values []Value
}

// A Value is a measurement, such as 12.3 ns/op.
type Value struct {
	Amount float64
	Unit   string
}

// Get returns the value of a configuration line, the last if there are several, or "".
func (r *Record) Get(key string) string {
	for _, s := range slices.Backward(r.Config) {
		if s.Key == key {
			return s.Value
		}
	}
	return ""
}

// Param returns a parameter, or "".
func (r *Result) Param(key string) string {
	for _, p := range r.Params {
		if p.Key == key {
			return p.Value
		}
	}
	return ""
}

// Rest returns the name without the operation and the parameter key.
func (r *Result) Rest(key string) string {
	var parts []string
	for _, p := range r.Params {
		if p.Key != key {
			parts = append(parts, p.String())
		}
	}
	return strings.Join(parts, "/")
}

// String returns the parameter as in a benchmark's name.
func (s Setting) String() string {
	if s.Key == "" {
		return s.Value
	}
	return s.Key + "=" + s.Value
}

// Name returns the name as written by Go, without "Benchmark" and processors.
func (r *Result) Name() string {
	if rest := r.Rest(""); rest != "" {
		return r.Op + "/" + rest
	}
	return r.Op
}

// Value returns a measurement by its unit, and whether it exists.
func (r *Result) Value(unit string) (amount float64, ok bool) {
	for _, v := range r.Values {
		if v.Unit == unit {
			return v.Amount, true
		}
	}
	return 0, false
}

// Read reads a record. Lines that are neither configuration nor results, such as "PASS", are
// skipped; an invalid result is an error.
func Read(in io.Reader) (*Record, error) {
	r := &Record{}
	lines := bufio.NewScanner(in)
	for n := 1; lines.Scan(); n++ {
		line := lines.Text()
		if strings.HasPrefix(line, "Benchmark") {
			res, err := parse(line)
			if err != nil {
				return nil, fmt.Errorf("record: line %d: %w", n, err)
			}
			if res != nil {
				r.Results = append(r.Results, *res)
			}
			continue
		}
		if key, value, ok := strings.Cut(line, ": "); ok && isKey(key) {
			s := Setting{key, strings.TrimSpace(value)}
			if !slices.Contains(r.Config, s) {
				r.Config = append(r.Config, s)
			}
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("record: %w", err)
	}
	return r, nil
}

// isKey reports whether a line that starts with key and a colon is a
// configuration line.
func isKey(key string) bool {
	return key != "" && key[0] >= 'a' && key[0] <= 'z' && !strings.ContainsAny(key, " \t")
}

// parse parses a result. It returns nil for a name without a result, which Go writes when a
// benchmark logs something.
func parse(line string) (*Result, error) {
	fields := strings.Fields(line)
	if len(fields) < 2 {
		return nil, nil
	}
	n, err := strconv.ParseInt(fields[1], 10, 64)
	if err != nil || len(fields)%2 != 0 {
		return nil, fmt.Errorf("%q is not a result", line)
	}
	r := &Result{N: n}
	name := strings.TrimPrefix(fields[0], "Benchmark")
	if i := strings.LastIndexByte(name, '-'); i >= 0 {
		if _, err := strconv.ParseUint(name[i+1:], 10, 32); err == nil {
			name, r.Procs = name[:i], name[i+1:]
		}
	}
	parts := strings.Split(name, "/")
	r.Op = parts[0]
	for _, part := range parts[1:] {
		if key, value, ok := strings.Cut(part, "="); ok {
			r.Params = append(r.Params, Setting{key, value})
		} else {
			r.Params = append(r.Params, Setting{"", part})
		}
	}
	for i := 2; i < len(fields); i += 2 {
		amount, err := strconv.ParseFloat(fields[i], 64)
		if err != nil {
			return nil, fmt.Errorf("%q is not a measurement", fields[i])
		}
		r.Values = append(r.Values, Value{amount, fields[i+1]})
	}
	return r, nil
}
