// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package perrpc

import (
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
)

// results are what one attempt leaves for the call options that ask for it. gRPC fills
// them in when the attempt ends, unless it never had a stream.
type results struct {
	header, trailer metadata.MD
	peer            peer.Peer
}

// untouched is the trailer of results that gRPC has not filled in: no header can have
// its key.
var untouched = metadata.MD{"": nil}

// options are those of an attempt: the application's, but for what results stand for.
// OnFinish is left out, since an RPC ends once, whatever attempts it takes.
func (r *results) options(opts []grpc.CallOption) []grpc.CallOption {
	r.trailer = untouched
	return append(slices.DeleteFunc(slices.Clone(opts), perRPC), grpc.Header(&r.header), grpc.Trailer(&r.trailer), grpc.Peer(&r.peer))
}

// perRPC reports whether an option is about the RPC as a whole, or the attempt that
// decides it.
func perRPC(o grpc.CallOption) bool {
	switch o.(type) {
	case grpc.HeaderCallOption, *grpc.HeaderCallOption, grpc.TrailerCallOption, *grpc.TrailerCallOption,
		grpc.PeerCallOption, *grpc.PeerCallOption, grpc.OnFinishCallOption:
		return true
	}
	return false
}

// filled reports whether the attempt had a stream.
func (r *results) filled() bool {
	_, not := r.trailer[""]
	return !not
}

// store gives the application's options the results of the last attempt that had a
// stream. Without one, which is nil, they stay as they are. So it is in gRPC.
func (r *results) store(opts []grpc.CallOption) {
	if r == nil || !r.filled() {
		return
	}
	for _, o := range opts {
		switch o := o.(type) {
		case grpc.HeaderCallOption:
			*o.HeaderAddr = r.header
		case *grpc.HeaderCallOption:
			*o.HeaderAddr = r.header
		case grpc.TrailerCallOption:
			*o.TrailerAddr = r.trailer
		case *grpc.TrailerCallOption:
			*o.TrailerAddr = r.trailer
		case grpc.PeerCallOption:
			*o.PeerAddr = r.peer
		case *grpc.PeerCallOption:
			*o.PeerAddr = r.peer
		}
	}
}
