// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

// Package peers measures other libraries that do part of what this project
// does, next to it: consistent hashing by serialx/hashring, by groupcache and
// by dgryski/go-jump, and the LB policies that go-kratos gives to gRPC. It is a
// module of its own so that nobody else needs them. Names are as in package
// bench.
package peers
