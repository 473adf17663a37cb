// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package perrpc

import (
	"context"
	"maps"
	"slices"
	"strconv"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
)

// previousAttemptsKey is the header that tells servers how many attempts were made
// before (A6).
const previousAttemptsKey = "grpc-previous-rpc-attempts"

// attemptCreds add the header to an attempt, and to nothing else: from the metadata of the
// attempt's context, RPCs that are made with that context would get it too, for instance
// those of credentials.
type attemptCreds struct {
	theirs   credentials.PerRPCCredentials // the application's; nil if it has none
	previous int                           // attempts
}

// withPreviousAttempts adds the header to an attempt's options, which it may change. An RPC
// has one option for credentials. If the application's is of a type of its own, that counts.
func withPreviousAttempts(opts []grpc.CallOption, previous int) []grpc.CallOption {
	c := attemptCreds{previous: previous}
	opts = slices.DeleteFunc(opts, func(o grpc.CallOption) bool {
		switch o := o.(type) {
		case grpc.PerRPCCredsCallOption:
			c.theirs = o.Creds
		case *grpc.PerRPCCredsCallOption:
			c.theirs = o.Creds
		default:
			return false
		}
		return true
	})
	return slices.Insert(opts, 0, grpc.PerRPCCredentials(c))
}

// GetRequestMetadata implements credentials.PerRPCCredentials.
func (c attemptCreds) GetRequestMetadata(ctx context.Context, uri ...string) (map[string]string, error) {
	headers := map[string]string{previousAttemptsKey: strconv.Itoa(c.previous)}
	if c.theirs == nil {
		return headers, nil
	}
	theirs, err := c.theirs.GetRequestMetadata(ctx, uri...)
	maps.Copy(headers, theirs)
	return headers, err
}

// RequireTransportSecurity implements credentials.PerRPCCredentials.
func (c attemptCreds) RequireTransportSecurity() bool {
	return c.theirs != nil && c.theirs.RequireTransportSecurity()
}
