// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

// Command demo runs a demonstration of xdslb: see package demo. It exits with 1 if a claim does
// not hold or there is an error, and with 130 when it is interrupted. While it runs, its client
// has a debug page on loopback. With -page it only serves this page, at the given address, until it is interrupted.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
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

var page = flag.String("page", "", "only serve the debug page at this `address`, until interrupted")

func main() {
	flag.Parse()
	interrupted, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	context.AfterFunc(interrupted, stop) // a second Ctrl-C ends the process at once
	os.Exit(run(interrupted, os.Stdout))
}

func run(interrupted context.Context, out io.Writer) (code int) {
	ctx, cancel := context.WithTimeout(interrupted, limit)
	defer cancel()
	closePage, err := servePage(cmp.Or(*page, "127.0.0.1:0"), out)
	defer closePage()
	if *page != "" {
		if err == nil {
			err = demo.Run(interrupted, demo.Options{Out: out, Still: true})
		}
		if interrupted.Err() != nil {
			return 0
		}
		fmt.Fprintln(os.Stderr, "demo:", err)
		return 1
	}
	info, err := os.Stdout.Stat()
	live := err == nil && info.Mode()&os.ModeCharDevice != 0
	err = demo.Run(ctx, demo.Options{Out: out, Live: live, Picks: true})
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

// servePage serves the debug page of this process, and prints its URL. The demo also works
// without it.
func servePage(address string, out io.Writer) (stop func(), err error) {
	lis, err := net.Listen("tcp", address)
	if err != nil {
		return func() {}, err
	}
	mux := http.NewServeMux()
	mux.Handle("/debug/xdslb/", debug.Handler())
	server := &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(lis) }() // until stop
	fmt.Fprintf(out, "The client's debug page is at http://%v/debug/xdslb/\n", lis.Addr())
	return func() { _ = server.Close() }, nil
}
