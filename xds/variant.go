// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xds

import (
	"context"
	"log/slog"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/xdslb/xdslb/xds/bootstrap"
	"github.com/xdslb/xdslb/xds/resource"
)

// variant is one of the two ways to speak ADS: sotw or delta. It stands between a
// server and the wire, and has no state: that is in server and subscriptions. What
// is above a server (cache, targets, fallback, federation) does not know which one
// is spoken.
//
// All methods whose names end in Locked are called with Client.mu held.
type variant interface {
	// String is the name of the variant's RPC in the field's words.
	String() string
	// open opens a stream.
	open(ctx context.Context, cc *grpc.ClientConn) (adsStream, error)
	// openedLocked prepares a type for a new stream.
	openedLocked(s *server, t *subscriptions)
	// requestLocked returns the next request about a type, with node if there is
	// one, and the subscriptions that wait for an answer to it. It returns nil when
	// there is nothing to say; then the type is not dirty any more.
	requestLocked(s *server, typ resource.Type, node *corev3.Node) (request, []*subscription)
	// split names the resources of a response. It costs one pass over their bytes
	// and decodes nothing.
	split(typ resource.Type, msg message) pieces
	// deleteLocked deals with the resources that a response says are not there;
	// partial is that of its pieces.
	deleteLocked(s *server, typ resource.Type, msg message, partial bool)
	// acknowledgeLocked makes one of the next requests the answer to a response of a
	// version (T-XDS-1).
	acknowledgeLocked(s *server, typ resource.Type, version string, a answer)
	// sendsLocked reports whether the server still sends changes of a resource, so
	// that the cache can be used.
	sendsLocked(sub *subscription) bool
}

// answer is an ACK, or a NACK if there is a rejection.
type answer struct {
	nonce     string
	rejection rejection
	// refetch are subscriptions that the server is to answer once more, after the NACK: it
	// takes the client to have resources that it does not have. In state of the world the
	// NACK says so.
	refetch []*subscription
}

// adsStream is a stream in either variant.
type adsStream interface {
	recv() (message, error)
	send(request) error
}

// message is a response in either variant.
type message interface {
	proto.Message
	GetTypeUrl() string
	GetNonce() string
	GetResourceErrors() []*discoveryv3.ResourceError
}

// sizeOf returns the size of a response in bytes.
func sizeOf(msg message) int {
	if w, ok := msg.(*sotwResponse); ok {
		return w.size()
	}
	return proto.Size(msg)
}

// release is for when nobody reads a response any more.
func release(msg message) {
	if w, ok := msg.(*sotwResponse); ok {
		w.free()
	}
}

// request is a request in either variant.
type request interface {
	proto.Message
	GetTypeUrl() string
	GetErrorDetail() *statuspb.Status
}

// typedStream makes an adsStream of the stream of an RPC, whose messages are *Req and
// *Resp.
type typedStream[Req, Resp any] struct {
	grpc.BidiStreamingClient[Req, Resp]
}

func (st typedStream[Req, Resp]) recv() (message, error) {
	msg, err := st.Recv()
	if err != nil {
		return nil, err
	}
	return any(msg).(message), nil
}

func (st typedStream[Req, Resp]) send(req request) error {
	return st.Send(any(req).(*Req))
}

// wantedVariant returns the variant that the bootstrap and the options ask for.
func (c *Client) wantedVariant(cfg *bootstrap.Server) variant {
	if cfg.Delta || c.opts.Delta {
		return delta{}
	}
	return sotw{}
}

// other returns the other variant.
func other(v variant) variant {
	if v == (delta{}) {
		return sotw{}
	}
	return delta{}
}

// variantRetry is how long a variant that a server does not implement is not tried again.
const variantRetry = 5 * time.Minute

// switchVariant turns to the other variant after a stream that ended without a
// response because the server does not implement this one. It reports whether a
// stream of the other one is to follow at once. If the server implements neither,
// it is out of reach like others.
func (s *server) switchVariant(err error) bool {
	if status.Code(err) != codes.Unimplemented {
		return false
	}
	s.c.mu.Lock()
	defer s.c.unlock()
	next := other(s.variant)
	s.c.logLocked(slog.LevelInfo, "xdslb: an xDS server does not implement a variant of ADS, trying the other", fact{server: s.cfg, typ: noType, err: err},
		slog.String("variant", s.variant.String()), slog.String("other", next.String()))
	if s.variant == s.c.wantedVariant(s.cfg) {
		s.refused = time.Now()
	}
	s.speakLocked(next)
	first := !s.switched
	s.switched = true
	return first
}

// retryVariant has the next stream be of the variant that is wanted, if the server has not
// refused it for a while: that may have been a proxy's answer, or that of an earlier version.
func (s *server) retryVariant() {
	s.c.mu.Lock()
	defer s.c.unlock()
	if want := s.c.wantedVariant(s.cfg); s.variant != want && time.Since(s.refused) >= variantRetry {
		s.switched = false
		s.speakLocked(want)
	}
}

// speakLocked has the next stream be of a variant.
func (s *server) speakLocked(v variant) {
	s.variant = v
	s.relation.status.Variant = v.String()
	for i := range s.types {
		t := &s.types[i]
		t.version, t.places, t.delta = "", nil, deltaType{}
		for _, sub := range t.subs {
			sub.received = false // versions of one variant say nothing in the other
		}
	}
	s.c.reviewLocked()
}
