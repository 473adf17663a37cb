// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !xdslb_oldgrpc

// Package metadatautil provides access to the outgoing headers and hashes of RPCs, for routes and
// hash policies. gRPC can look up a single header without copying all metadata since v1.85. Programs
// that pin an older version build with the tag xdslb_oldgrpc and pay for the copy; see
// integrate/docs/rollout.md.
package metadatautil

import (
	"context"

	"google.golang.org/grpc/metadata"
)

// OutgoingValues returns the values of a header in the outgoing metadata of ctx, or nil if it
// is absent. Keys are case-insensitive. It copies only the returned values.
func OutgoingValues(ctx context.Context, key string) []string {
	return metadata.ValueFromOutgoingContext(ctx, key)
}
