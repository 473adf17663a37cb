// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

/*
Package xdslb is documentation only. The module github.com/xdslb/xdslb is a client-side xDS load
balancer for gRPC in Go. It replaces the client half of google.golang.org/grpc/xds. Targets, the
bootstrap, control planes and servers stay as they are.

Programs import package [github.com/xdslb/xdslb/integrate]:

	cc, err := integrate.NewClient("xds:///orders:8080", grpc.WithTransportCredentials(creds))

# Packages for programs

	integrate                the resolver, and channels that use it; Explain, Status and WaitReady
	integrate/debug          a debug page with all channels of the process
	integrate/cmd/xdslb      a command: status, explanations, checks of a bootstrap
	integrate/stockmetrics   the metric names of google.golang.org/grpc/xds
	integrate/attemptlabels  labels on gRPC's per-attempt metrics
	integrate/probe          the server side of the policy xdslb_prequal
	xds/csds                 CSDS, for grpcdebug and others
	xds/xdstest              a control plane and backends in memory, for tests of services

# Packages below

	xds                  the XdsClient: streams, cache, one configuration per target
	xds/resource         decoding and validation of resources
	picker               the kernel: configuration and states in, endpoint index out
	edf, ringhash        EDF schedules; hash rings and Maglev tables
	bench, fuzz          benchmarks, comparisons with google.golang.org/grpc/xds, fuzz targets

The kernel (picker, edf and ringhash) imports neither gRPC nor protobuf.

README.md introduces the module, integrate/docs has the user documentation, and ARCHITECTURE.md
describes the code for people who change it.
*/
package xdslb
