// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

// Command report makes a page to look at of a recorded run of the benchmarks
// and of a latency study. Either may be missing.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"

	"github.com/xdslb/xdslb/bench/latency"
	"github.com/xdslb/xdslb/bench/record"
)

func main() {
	run := flag.String("bench", "", "`file` that scoreboard recorded")
	study := flag.String("latency", "", "`file` that latency wrote")
	out := flag.String("o", "report.html", "`file` to write")
	flag.Parse()
	if err := write(*run, *study, *out); err != nil {
		fmt.Fprintln(os.Stderr, "report:", err)
		os.Exit(1)
	}
}

func write(run, study, out string) error {
	rec, lat := &record.Record{}, &latency.Report{}
	if run != "" {
		f, err := os.Open(run)
		if err != nil {
			return err
		}
		defer func() { _ = f.Close() }() // it was only read
		if rec, err = record.Read(f); err != nil {
			return err
		}
	}
	if study != "" {
		text, err := os.ReadFile(study)
		if err != nil {
			return err
		}
		if err := json.Unmarshal(text, lat); err != nil {
			return fmt.Errorf("%s: %w", study, err)
		}
	}
	page, err := render(rec, lat)
	if err != nil {
		return err
	}
	return os.WriteFile(out, page, 0o644)
}
