// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xds

import (
	"context"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/xdslb/xdslb/xds/bootstrap"
)

// variant is one of the two protocols of ADS: sotw or delta. All differences are in the methods of
// variant, protocol and message. The cache, targets, fallback and federation do not depend on the
// variant.
type variant interface {
	// String returns the name of the variant's RPC.
	String() string
	// open opens a stream.
	open(ctx context.Context, cc *grpc.ClientConn) (adsStream, error)
	// newProtocol returns the state of a type for which no stream has been opened.
	newProtocol() protocol
	// resends reports whether a server answers a new subscription to a resource that the client has
	// rejected, although the resource has not changed.
	resends() bool
	// sendsLocked reports whether the server still sends changes of a resource, so
	// that the cache can be used.
	sendsLocked(sub *subscription) bool
}

// protocol is the state of one type in a variant: the content of the next requests. All methods are
// called with core.mu held.
type protocol interface {
	// openedLocked prepares for a new stream.
	openedLocked(t *subscriptions)
	// stopLocked stops the timers.
	stopLocked()
	// changedLocked is called when a name may have been added or removed.
	changedLocked(name string)
	// requestLocked returns the next request about the type, with node if that is not
	// nil, and the subscriptions that wait for an answer to it. If there is no request to send, it
	// returns nil, and the type is no longer dirty.
	requestLocked(t *subscriptions, node *corev3.Node) (request, []*subscription)
	// expiredLocked is called when a resource that is awaited has not arrived in time. It reports
	// whether the resource is requested once more.
	expiredLocked(t *subscriptions, sub *subscription) bool
	// deleteLocked deletes the resources that a response reports, or implies, not to exist, and
	// returns the entries that changed. partial is that of splitResponse.
	deleteLocked(t *subscriptions, msg message, partial bool) (changed []*entry)
	// acknowledgeLocked makes one of the next requests the answer to a response of a
	// version (T-XDS-1).
	acknowledgeLocked(t *subscriptions, version string, a answer)
}

// answer is an ACK, or a NACK if there is a rejection.
type answer struct {
	nonce     string
	rejection rejection
	// refetch are subscriptions that the server has to answer again after the NACK, since it assumes
	// that the client has resources that it does not have. In state of the world the NACK implies it.
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
	// readInto adds the resources to p. It reads their bytes once and decodes nothing.
	readInto(p *splitResponse)
	// Size returns the size in bytes.
	Size() int
	// Free releases the memory. The message must not be read after that.
	Free()
}

// request is a request in either variant.
type request interface {
	proto.Message
	GetTypeUrl() string
	GetErrorDetail() *statuspb.Status
}

// wantedVariantLocked returns the variant that the bootstrap and the options request for a server.
func wantedVariantLocked(cfg *bootstrap.Server, o *combined) variant {
	if cfg.Delta || o.delta || cfg.Local() {
		return delta{}
	}
	return sotw{}
}

// alternate returns the other variant.
func alternate(v variant) variant {
	if v == (delta{}) {
		return sotw{}
	}
	return delta{}
}
