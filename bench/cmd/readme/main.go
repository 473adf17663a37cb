// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

// Command readme writes the tables of figures in README.md and bench/README.md, between their
// markers, from a recorded run of the benchmarks:
//
//	make bench-record    # on an idle machine
//	make readme
//
// Missing measurements are omitted; rows in which we are slower are not.
package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"github.com/xdslb/xdslb/bench/record"
)

const (
	recorded = "bench/testdata/baseline.txt"
	begin    = "<!-- figures: written by make readme -->\n"
	end      = "<!-- end of figures -->\n"
)

// pages maps the files with figures to their contents.
var pages = map[string]func(*record.Record) string{
	"README.md":       front,
	"bench/README.md": goals,
}

func main() {
	root := flag.String("root", ".", "the module's `directory`")
	flag.Parse()
	if err := update(*root); err != nil {
		fmt.Fprintln(os.Stderr, "readme:", err)
		os.Exit(1)
	}
}

// update rewrites the pages.
func update(root string) error {
	written, err := compose(root)
	if err != nil {
		return err
	}
	for name, text := range written {
		if err := os.WriteFile(filepath.Join(root, name), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// compose returns the updated pages.
func compose(root string) (map[string][]byte, error) {
	f, err := os.Open(filepath.Join(root, recorded))
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // only read
	rec, err := record.Read(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", recorded, err)
	}
	list := make(map[string][]byte)
	for name, make := range pages {
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			return nil, err
		}
		before, rest, ok := bytes.Cut(text, []byte(begin))
		_, after, closed := bytes.Cut(rest, []byte(end))
		if !ok || !closed {
			return nil, fmt.Errorf("%s: missing %q followed by %q", name, begin, end)
		}
		list[name] = bytes.Join([][]byte{before, []byte(begin), []byte(make(rec)), []byte(end), after}, nil)
	}
	return list, nil
}
