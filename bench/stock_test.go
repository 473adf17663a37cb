// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"

	"google.golang.org/grpc"
)

// stock holds unexported functions of grpc-go, for comparison. They are nil unless the test is
// built with package overlay, as make bench does. Benchmarks skip the functions that are nil.
var stock struct {
	// pick performs the steps of one attempt of an RPC between the call and the
	// transport: select the call's config, pick a SubConn, commit, finish.
	pick func(ctx context.Context, cc *grpc.ClientConn, method string) error
	// ring returns a function that builds a ring of size entries and returns its lookup,
	// which returns the key of the host.
	ring func(keys []string) func(size uint64) func(hash uint64) string
	// edf builds an EDF scheduler and returns its Next method.
	edf func(weights []uint32) func() any
	// decode decodes and validates a resource.
	decode func(typeURL string, value []byte) error
}
