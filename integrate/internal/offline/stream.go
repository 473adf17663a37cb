// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package offline

import (
	"context"
	"fmt"
	"strings"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/xdslb/xdslb/xds/resource"
)

// DialOption returns an option for the channel to the control plane, with which the resources
// answer the streams of the channel. The channel makes no connections.
func (r *Resources) DialOption() grpc.DialOption {
	return grpc.WithStreamInterceptor(func(ctx context.Context, _ *grpc.StreamDesc, _ *grpc.ClientConn, method string, _ grpc.Streamer, _ ...grpc.CallOption) (grpc.ClientStream, error) {
		if !strings.HasSuffix(method, "/DeltaAggregatedResources") {
			return nil, status.Errorf(codes.Unimplemented, "resources of a file serve incremental ADS only, not %s", method)
		}
		return &stream{ctx: ctx, resources: r, responses: make(chan *discoveryv3.DeltaDiscoveryResponse, 1)}, nil
	})
}

// stream is the client's side of an incremental ADS stream. Each request that subscribes to
// names is answered by one response. It contains the resources of these names, and an error for
// each missing resource, so the client need not wait to detect missing resources.
type stream struct {
	ctx       context.Context
	resources *Resources
	responses chan *discoveryv3.DeltaDiscoveryResponse
	sent      int // responses
}

// SendMsg implements grpc.ClientStream.
func (s *stream) SendMsg(m any) error {
	req := m.(*discoveryv3.DeltaDiscoveryRequest)
	if len(req.GetResourceNamesSubscribe()) == 0 {
		return nil // an ACK or a NACK, or the end of a subscription
	}
	s.sent++
	resp := s.resources.answer(req)
	resp.Nonce = fmt.Sprint(s.sent)
	select {
	case s.responses <- resp:
		return nil
	case <-s.ctx.Done():
		return status.FromContextError(s.ctx.Err()).Err()
	}
}

// RecvMsg implements grpc.ClientStream.
func (s *stream) RecvMsg(m any) error {
	select {
	case resp := <-s.responses:
		to := m.(*discoveryv3.DeltaDiscoveryResponse)
		to.TypeUrl, to.Nonce, to.SystemVersionInfo, to.Resources, to.ResourceErrors = resp.TypeUrl, resp.Nonce, "1", resp.Resources, resp.ResourceErrors
		return nil
	case <-s.ctx.Done():
		return status.FromContextError(s.ctx.Err()).Err()
	}
}

// Header, Trailer, CloseSend and Context implement grpc.ClientStream.
func (s *stream) Header() (metadata.MD, error) { return nil, nil }
func (s *stream) Trailer() metadata.MD         { return nil }
func (s *stream) CloseSend() error             { return nil }
func (s *stream) Context() context.Context     { return s.ctx }

// answer returns the response to a request.
func (r *Resources) answer(req *discoveryv3.DeltaDiscoveryRequest) *discoveryv3.DeltaDiscoveryResponse {
	resp := &discoveryv3.DeltaDiscoveryResponse{TypeUrl: req.GetTypeUrl()}
	t, _ := resource.TypeOf(req.GetTypeUrl())
	for _, name := range req.GetResourceNamesSubscribe() {
		if found := r.byName[key{t, name}]; found != nil {
			resp.Resources = append(resp.Resources, found)
		} else {
			resp.ResourceErrors = append(resp.ResourceErrors, &discoveryv3.ResourceError{
				ResourceName: &discoveryv3.ResourceName{Name: name},
				ErrorDetail:  &statuspb.Status{Code: int32(codes.NotFound), Message: fmt.Sprintf("%v %q is not among the resources", t, name)},
			})
		}
	}
	return resp
}
