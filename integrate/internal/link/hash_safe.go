// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

//go:build purego

package link

import (
	"hash/maphash"

	"google.golang.org/grpc"
)

var seed = maphash.MakeSeed()

// hash returns a hash of a channel.
func hash(cc *grpc.ClientConn) uint64 { return maphash.Comparable(seed, cc) }
