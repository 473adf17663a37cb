// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package metadatautil

import (
	"context"

	"google.golang.org/grpc/metadata"
)

type hashKey struct{}

// WithHash returns a context whose RPCs have a request hash. It allocates once.
func WithHash(ctx context.Context, h uint64) context.Context {
	return context.WithValue(ctx, hashKey{}, h)
}

// Hash returns the request hash of an RPC, if it has one.
func Hash(ctx context.Context) (h uint64, ok bool) {
	h, ok = ctx.Value(hashKey{}).(uint64)
	return h, ok
}

// Detached returns a context with the values of ctx that picks read. Its methods run no code of
// the application, which the methods of ctx may do.
func Detached(ctx context.Context) context.Context {
	detached := context.Background()
	if hash, ok := Hash(ctx); ok {
		detached = WithHash(detached, hash)
	}
	md, ok := metadata.FromOutgoingContext(ctx)
	if !ok {
		return detached
	}
	for name := range md {
		md[name] = OutgoingValues(ctx, name) // the values that picks read
	}
	return metadata.NewOutgoingContext(detached, md)
}
