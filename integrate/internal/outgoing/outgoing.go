// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !xdslb_oldgrpc

// Package outgoing reads headers of RPCs, for routes and hashes. gRPC can look one up
// without a copy of all since v1.85. Programs that replace it by an older one build with
// the tag xdslb_oldgrpc, and pay for the copy: integrate/docs/rollout.md.
package outgoing

import (
	"context"

	"google.golang.org/grpc/metadata"
)

// Value returns the values of a header in the outgoing metadata of ctx, nil if it has none.
// Keys are matched in any case. It copies those, and nothing else.
func Value(ctx context.Context, key string) []string {
	return metadata.ValueFromOutgoingContext(ctx, key)
}
