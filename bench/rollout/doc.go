// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

// Package rollout tests how a program that links google.golang.org/grpc/xds comes to
// xdslb and goes back, without a build: by the environment variables XDSLB_DISABLE and
// XDSLB_ENABLE, and by a shadow.Shadow before that. It has no code but tests.
//
// Which of the two packages registers scheme xds first is up to the order in which the
// program initialises packages. The tests run with one order in go test, and with the
// other in
//
//	make rollout
//
// whose overlay has package integrate import google.golang.org/grpc/xds.
package rollout
