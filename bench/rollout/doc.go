// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

// Package rollout tests how a program that links google.golang.org/grpc/xds switches to xdslb
// and back without a rebuild, by the environment variables XDSLB_DISABLE and XDSLB_ENABLE. It
// contains only tests.
//
// The order in which the program initializes packages decides which of the two packages
// registers scheme xds first. The tests run with one order in go test, and with the other in
//
//	make rollout
//
// whose overlay makes package integrate import google.golang.org/grpc/xds.
package rollout
