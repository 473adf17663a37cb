// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

// Package integrate makes grpc-go channels use xDS. Replace grpc.NewClient by [NewClient], or
// add [DialOptions] to an existing call:
//
//	cc, err := integrate.NewClient("xds:///orders:8080",
//		grpc.WithTransportCredentials(insecure.NewCredentials()))
//
// [NewCredentials] secures connections as the control plane demands. [WaitReady] waits until
// RPCs of a method would be sent. [Status] and [StatusOf] return what is in force and what is
// wrong; [Explain] returns where an RPC would go, and why nowhere else:
//
//	x, err := integrate.Explain(ctx, cc, "/shop.Cart/Add")
//	fmt.Print(x) // text; plain data for encoding/json
//
// A blank import registers the schemes xds and xdslb. Channels made without [DialOptions] lack
// the interceptors: HTTP filters and some timeouts and retries are not applied, which is logged.
// If the program links google.golang.org/grpc/xds too, such channels of scheme xds may belong to
// that package; scheme xdslb never does.
//
// Channels without xDS can name five LB policies in their service config: [WeightedRoundRobin],
// [RingHash], [LeastRequest], [LeastLatency] and [Prequal].
//
// The environment variables XDSLB_DISABLE and XDSLB_ENABLE hand channels to
// google.golang.org/grpc/xds by patterns of their targets: see docs/rollout.md. METRICS.md lists
// the metrics, DIFFERENCES.md the differences from grpc-go, ARCHITECTURE.md describes the code.
package integrate
