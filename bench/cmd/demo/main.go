// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

// Command demo shows xdslb at work: see package demo.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"time"

	"github.com/xdslb/xdslb/bench/demo"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, 58*time.Second)
	defer cancel()
	info, err := os.Stdout.Stat()
	live := err == nil && info.Mode()&os.ModeCharDevice != 0
	if err := demo.Run(ctx, demo.Options{Out: os.Stdout, Live: live, Picks: true}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		stop()
		os.Exit(1)
	}
}
