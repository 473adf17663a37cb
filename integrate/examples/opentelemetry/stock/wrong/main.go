// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

// Command wrong links grpc/xds together with the package for programs without it. gRPC
// terminates it before main.
package main

import (
	_ "google.golang.org/grpc/xds"

	_ "github.com/xdslb/xdslb/integrate/stockmetrics"
)

func main() {}
