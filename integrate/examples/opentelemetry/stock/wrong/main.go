// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

// Command wrong links stock with the package that is for programs without it. gRPC ends
// it before main.
package main

import (
	_ "google.golang.org/grpc/xds"

	_ "github.com/xdslb/xdslb/integrate/stockmetrics"
)

func main() {}
