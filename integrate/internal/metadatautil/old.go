// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

//go:build xdslb_oldgrpc

package metadatautil

import (
	"context"

	"google.golang.org/grpc/metadata"
)

// OutgoingValues returns the values of a header in the outgoing metadata of ctx, or nil if it
// is absent. Keys are case-insensitive. It copies all metadata.
func OutgoingValues(ctx context.Context, key string) []string {
	all, ok := metadata.FromOutgoingContext(ctx) // with lower-case keys
	if !ok {
		return nil
	}
	return all.Get(key)
}
