// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

// Package integrate makes grpc-go channels use xDS. Replace grpc.NewClient by [NewClient], or by
// [Config.NewClient] to set options, or add [DialOptions] to an existing call:
//
//	cc, err := integrate.NewClient("xds:///orders:8080",
//		grpc.WithTransportCredentials(insecure.NewCredentials()))
//
// [NewCredentials] secures connections as the control plane demands. [WaitReady] waits until
// RPCs of a method would be sent. [Status] and [StatusOf] return the current configuration and
// its problems. [Explain] returns where an RPC would go, and why. The types are in package
// report.
//
//	x, err := integrate.Explain(ctx, cc, "/shop.Cart/Add")
//	fmt.Print(x) // text; plain data for encoding/json
//
// A blank import registers the schemes xds and xdslb. Channels made without [DialOptions] lack
// the interceptors: HTTP filters and some timeouts and retries are not applied, which is
// logged. If google.golang.org/grpc/xds is linked too, it may have scheme xds, but never scheme
// xdslb.
//
// Channels without xDS can name LB policies in their service config: see [WeightedRoundRobin].
// The environment variables XDSLB_DISABLE and XDSLB_ENABLE hand channels to grpc-go's xDS by
// their targets (docs/rollout.md). METRICS.md lists the metrics.
package integrate
