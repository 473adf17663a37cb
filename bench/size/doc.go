// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

// Package size measures the size that xDS adds to a program: the same small client without xDS,
// with stock's and with ours.
//
// gRPC links golang.org/x/net/trace, which links text/template, which calls methods by names
// unknown to the linker. So the linker keeps the methods of all types, and xDS has many. With
// gRPC's build tag grpcnotrace, it removes unused methods.
package size
