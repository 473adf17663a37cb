// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

// Command latency makes the study of package latency and writes it as JSON.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strings"
	"time"

	"google.golang.org/grpc"

	"github.com/xdslb/xdslb/bench/latency"
)

func main() {
	rate := flag.Float64("rate", 1500, "RPCs per second")
	duration := flag.Duration("duration", 9*time.Second, "of each of the sixteen runs")
	short := flag.Bool("short", false, "two seconds for each run")
	out := flag.String("o", "", "`file` to write to; standard output by default")
	flag.Parse()
	if *short {
		*duration = 2 * time.Second
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, latency.Study{Rate: *rate, Duration: *duration, Progress: progress}, *out); err != nil {
		fmt.Fprintln(os.Stderr, "latency:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, s latency.Study, out string) error {
	r, err := s.Run(ctx)
	if err != nil {
		return err
	}
	if terminal() {
		fmt.Fprint(os.Stderr, "\r\x1b[K")
	}
	r.Go, r.GRPC, r.Date = runtime.Version(), grpc.Version, time.Now().UTC().Format(time.DateOnly)
	r.Machine = fmt.Sprintf("%s/%s, %d processors", runtime.GOOS, runtime.GOARCH, runtime.NumCPU())
	if commit, err := exec.CommandContext(ctx, "git", "describe", "--always", "--dirty").Output(); err == nil {
		r.Commit = strings.TrimSpace(string(commit))
	}
	text, err := json.MarshalIndent(r, "", "\t")
	if err != nil {
		return err
	}
	text = append(text, '\n')
	if out == "" {
		_, err = os.Stdout.Write(text)
		return err
	}
	return os.WriteFile(out, text, 0o644)
}

// progress says what is being done: on a terminal in one line, elsewhere in a
// line for each run.
func progress(done, total int, what string) {
	if terminal() {
		fmt.Fprintf(os.Stderr, "\r\x1b[K")
	}
	fmt.Fprintf(os.Stderr, "%6d of %d  %s", done+1, total, what)
	if !terminal() {
		fmt.Fprintln(os.Stderr)
	}
}

func terminal() bool {
	info, err := os.Stderr.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
