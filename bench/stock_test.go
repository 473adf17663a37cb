// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"

	"google.golang.org/grpc"
)

// stock holds what grpc-go does not export, for comparison. It is all nil
// unless the test is built against a copy of grpc-go with a door in it, as make
// bench does (package inside); benchmarks leave out what is nil.
var stock struct {
	// pick does what one attempt of an RPC does between the call and the
	// transport: select the call's config, pick a SubConn, commit, finish.
	pick func(ctx context.Context, cc *grpc.ClientConn, method string) error
	// ring returns a function that builds a ring of so many entries and returns
	// its look-up, which returns the key of the host.
	ring func(keys []string) func(size uint64) func(hash uint64) string
	// edf builds the scheduler of that name and returns its Next.
	edf func(weights []uint32) func() any
	// decode decodes and validates a resource.
	decode func(typeURL string, value []byte) error
}
