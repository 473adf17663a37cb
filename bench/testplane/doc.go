// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

// Package testplane provides control planes for the tests of this module, beside package xdstest,
// which is also for users: a scripted one that misbehaves on demand, and resources that only
// these tests need.
//
// [Scripted] is an independent ADS server that interprets the protocol strictly, fails the test
// of a client that violates it, and can delay, repeat, reorder, omit and garble responses, cut
// streams, and be unreachable. It tests clients with misbehaving servers; xdstest.Server, which is
// go-control-plane, tests them with real ones.
//
// A [Checker] checks the requests of clients, for a Scripted and for other servers.
package testplane
