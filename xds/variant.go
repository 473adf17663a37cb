// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xds

import (
	"context"
	"iter"
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

// variant is one of the two protocols of ADS: sotw or delta. The differences are in the methods of
// variant, protocol and message, which nothing outside their files distinguishes. The cache, targets,
// fallback and federation are above a server, and do not depend on the variant.
type variant interface {
	// String returns the name of the variant's RPC.
	String() string
	// open opens a stream.
	open(ctx context.Context, cc *grpc.ClientConn) (adsStream, error)
	// newProtocol returns the state of a type for which no stream has been opened.
	newProtocol() protocol
	// collections reports whether glob collections can be subscribed to.
	collections() bool
	// resends reports whether a server answers a new subscription to a resource that the client has
	// rejected, although the resource has not changed.
	resends() bool
	// sendsLocked reports whether the server still sends changes of a resource, so
	// that the cache can be used.
	sendsLocked(sub *subscription) bool
}

// protocol is a variant's state of one type: the content of the next requests. All methods are called
// with Client.mu held.
type protocol interface {
	// openedLocked prepares for a new stream.
	openedLocked(t *subscriptions)
	// stopLocked stops the timers.
	stopLocked()
	// changedLocked notes that a name may have been added or removed.
	changedLocked(name string)
	// requestLocked returns the next request about the type, with node if there is
	// one, and the subscriptions that wait for an answer to it. If there is no request to send, it
	// returns nil, and the type is no longer dirty.
	requestLocked(s *server, typ resource.Type, node *corev3.Node) (request, []*subscription)
	// deleteLocked deletes the resources that a response reports, or implies, not to exist;
	// partial is that of its pieces.
	deleteLocked(s *server, typ resource.Type, msg message, partial bool)
	// acknowledgeLocked makes one of the next requests the answer to a response of a
	// version (T-XDS-1).
	acknowledgeLocked(s *server, typ resource.Type, version string, a answer)
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
	GetTypeUrl() string
	GetNonce() string
	GetResourceErrors() []*discoveryv3.ResourceError
	// split names the resources. It costs one pass over their bytes and decodes nothing. Resources
	// that are unchanged since the latest response of the type, by their places in it, need not be named.
	split(typ resource.Type, latest []place) pieces
	// removed returns the names that the response reports as removed.
	removed() iter.Seq[string]
	// size returns the size in bytes.
	size() int
	// free releases the memory. The message must not be read after that.
	free()
}

// request is a request in either variant.
type request interface {
	proto.Message
	GetTypeUrl() string
	GetErrorDetail() *statuspb.Status
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
		t.protocol.stopLocked()
		t.protocol, t.places = v.newProtocol(), nil
		for _, sub := range t.subs {
			sub.received = false // versions of one variant say nothing in the other
		}
	}
	s.c.reviewLocked()
}
