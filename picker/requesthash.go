// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package picker

import (
	"context"
	"math/bits"
	"strings"

	"github.com/xdslb/xdslb/ringhash"
)

// requestHash returns the hash of an RPC, made with fn: the one that it brings
// along; or that of header, if that is not empty (A76); or else that of the
// route's hash policies (A42, T-RING-6). It returns false for an RPC that does not
// care where it goes: nothing that is to be hashed is there.
//
// It does not allocate unless the header hook does, a header has several values,
// or a hash policy rewrites it.
func (s *Snapshot) requestHash(ctx context.Context, route int32, fn ringhash.Func, header string) (hash uint64, ok bool) {
	if brought, some := s.env.RequestHash(ctx); some {
		return brought, true
	}
	if header != "" {
		return s.headerHash(ctx, fn, &HashPolicy{Header: header})
	}
	if route < 0 || int(route) >= len(s.routes) {
		return 0, false
	}
	policies := s.routes[route].Hash
	for i := range policies {
		p := &policies[i]
		part, found := s.env.ChannelID, true
		if p.Header != "" {
			part, found = s.headerHash(ctx, fn, p)
		}
		if found {
			// Rotated, so that equal parts do not cancel each other out.
			hash, ok = bits.RotateLeft64(hash, 1)^part, true
		}
		if p.Terminal && ok {
			break
		}
	}
	return hash, ok
}

// headerHash returns the hash of the header that p names, if the RPC has it. Which
// headers it has is what it is for routes: binary ones are never seen (T-RC-3), and
// the content type is known (A28).
func (s *Snapshot) headerHash(ctx context.Context, fn ringhash.Func, p *HashPolicy) (hash uint64, ok bool) {
	if strings.HasSuffix(p.Header, "-bin") {
		return 0, false
	}
	values := contentType
	if p.Header != "content-type" {
		values = s.env.Header(ctx, p.Header)
	}
	if len(values) == 0 {
		return 0, false
	}
	value := values[0]
	if len(values) > 1 {
		value = strings.Join(values, ",")
	}
	if p.Rewrite != nil {
		value = p.Rewrite.ReplaceAllString(value, p.Substitution)
	}
	return fn.Sum(value), true
}
