// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net/url"
	"time"

	statusv3 "github.com/envoyproxy/go-control-plane/envoy/service/status/v3"
	"google.golang.org/grpc/resolver"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/xdslb/xdslb/integrate/internal/explain"
	"github.com/xdslb/xdslb/integrate/internal/offline"
	"github.com/xdslb/xdslb/integrate/internal/rpc"
	"github.com/xdslb/xdslb/integrate/internal/sanitize"
	"github.com/xdslb/xdslb/integrate/internal/xdstls"
	"github.com/xdslb/xdslb/picker"
	"github.com/xdslb/xdslb/xds"
	"github.com/xdslb/xdslb/xds/csds"
)

var dumpCommand = command{
	name: "dump", args: "TARGET", summary: "print the resources of a target as JSON",
	about: "Requests the resources of a target from the control plane, and prints them in the\n" +
		"format of CSDS, with their state and errors. No endpoint is contacted. Other\n" +
		"commands read the output with -f. The control plane sees another client with the\n" +
		"node id of the bootstrap.",
	example: "xdslb dump xds:///orders > orders.json",
	flags: func(e *env, fs *flag.FlagSet) func([]string) (bool, error) {
		var boot bootstrapFlag
		boot.register(fs)
		timeout := fs.Duration("timeout", 10*time.Second, "how long to wait for the control plane")
		return func(args []string) (bool, error) {
			target, text, err := boot.target(args)
			if err != nil {
				return false, err
			}
			js, _, err := e.fetch(text, target, &boot, *timeout)
			if js != nil {
				fmt.Fprintf(e.stdout, "%s\n", sanitize.JSON(js))
			}
			return false, err
		}
	},
}

// fetch returns the resources of a target as a CSDS response in JSON, and their sources as
// explain.Sources does. It connects to control planes only. If the target cannot be served, it returns an error and the available resources.
func (e *env) fetch(boot []byte, target string, opts *bootstrapFlag, timeout time.Duration) (js []byte, sources []string, err error) {
	cfg, err := xdstls.BootstrapParser().Parse(opts.source, boot)
	if err != nil {
		return nil, nil, err
	}
	u, err := url.Parse(target)
	if err != nil {
		return nil, nil, err
	}
	if u.Scheme != "xds" && u.Scheme != "xdslb" {
		return nil, nil, fmt.Errorf("target %q: the scheme is neither xds nor xdslb", target)
	}
	authority := resolver.Target{URL: *u}.Endpoint()
	listener, err := cfg.ListenerName(u.Host, authority)
	if err != nil {
		return nil, nil, err
	}
	client := xds.Acquire(cfg, xds.Options{Filter: rpc.FilterType, Delta: opts.delta, AcceptHostnames: opts.hostnames, Linger: -1, Logger: silent})
	defer client.Release()
	view := client.View(nil, "").With(xds.TargetOptions{LocalCluster: opts.localCluster})
	defer view.Watch(listener, authority, keep{})()
	ctx, cancel := context.WithTimeout(e.ctx, timeout)
	defer cancel()
	defer e.progress("waiting for %s to send Listener %s", cfg.Servers[0].URI, listener)()
	_, unserved := view.Fetch(ctx, listener, authority)
	if ctx.Err() != nil {
		if unserved = view.Waiting(listener, authority); unserved == nil {
			unserved = fmt.Errorf("no response within %v", timeout)
		}
	}
	status, err := csds.NewServer().FetchClientStatus(e.ctx, &statusv3.ClientStatusRequest{})
	if err != nil {
		return nil, nil, err
	}
	js, err = protojson.MarshalOptions{Multiline: true, Resolver: offline.LinkedTypes{}}.Marshal(status)
	return js, explain.Sources(view.TargetResources(listener, authority)), errors.Join(err, unserved)
}

// silent discards the log: commands print its problems themselves.
var silent = slog.New(slog.DiscardHandler)

// keep is a Watcher that keeps a target subscribed.
type keep struct{}

// Update implements xds.Watcher.
func (keep) Update(*picker.Config) {}

// Error implements xds.Watcher.
func (keep) Error(error) {}
