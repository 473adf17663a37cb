// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

//go:build xdslb_oldgrpc

package outgoing

import (
	"context"

	"google.golang.org/grpc/metadata"
)

// Value returns the values of a header in the outgoing metadata of ctx, nil if it has none.
// Keys are matched in any case. It copies all metadata.
func Value(ctx context.Context, key string) []string {
	all, ok := metadata.FromOutgoingContext(ctx) // with lower-case keys
	if !ok {
		return nil
	}
	return all.Get(key)
}
