// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

// Package size measures what xDS adds to a program: the same small client without xDS, with
// stock's and with ours.
//
// gRPC links golang.org/x/net/trace, and that text/template, which calls methods by names that
// the linker does not know. So the linker keeps the methods of all types, and xDS has many.
// With the build tag grpcnotrace, which is gRPC's own, it drops those that nobody calls.
package size
