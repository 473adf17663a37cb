// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

// Command demo runs a demonstration of xdslb: see package demo. It exits with 1 if a claim does
// not hold or there is an error, and with 130 when it is interrupted. While it runs, its client
// has a debug page on loopback.
package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"time"

	"github.com/xdslb/xdslb/bench/demo"
	"github.com/xdslb/xdslb/integrate/debug"
)

// limit is the timeout of the demo, which needs half a minute.
const limit = 5 * time.Minute

func main() { os.Exit(run()) }

func run() (code int) {
	interrupted, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	context.AfterFunc(interrupted, stop) // a second Ctrl-C ends the process at once
	ctx, cancel := context.WithTimeout(interrupted, limit)
	defer cancel()
	closePage := servePage()
	defer closePage()
	info, err := os.Stdout.Stat()
	live := err == nil && info.Mode()&os.ModeCharDevice != 0
	err = demo.Run(ctx, demo.Options{Out: os.Stdout, Live: live, Picks: true})
	switch {
	case err == nil:
		return 0
	case interrupted.Err() != nil:
		fmt.Fprintln(os.Stderr, "demo: interrupted")
		return 130
	case errors.Is(err, context.DeadlineExceeded) && ctx.Err() != nil:
		fmt.Fprintf(os.Stderr, "demo: not finished after %v: is the machine busy?\n", limit)
	default:
		fmt.Fprintln(os.Stderr, err)
	}
	return 1
}

// servePage serves the debug page of this process, and prints its address. The demo also works
// without it.
func servePage() (stop func()) {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return func() {}
	}
	mux := http.NewServeMux()
	mux.Handle("/debug/xdslb/", debug.Handler())
	server := &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(lis) }() // until stop
	fmt.Printf("Meanwhile the client's debug page is at http://%v/debug/xdslb/\n", lis.Addr())
	return func() { _ = server.Close() }
}
