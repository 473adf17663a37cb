// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package csds

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	adminv3 "github.com/envoyproxy/go-control-plane/envoy/admin/v3"
	statusv3 "github.com/envoyproxy/go-control-plane/envoy/service/status/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/xdslb/xdslb/xds"
	"github.com/xdslb/xdslb/xds/overlay"
)

func init() { xds.KeepBytes() }

// server is a CSDS server for the XdsClients of the process. It has no state.
type server struct {
	statusv3.UnimplementedClientStatusDiscoveryServiceServer
	others []statusv3.ClientStatusDiscoveryServiceServer
}

// NewServer returns a CSDS server for the XdsClients of the process. It adds the configurations of
// other CSDS servers: the server of google.golang.org/grpc/xds/csds, for programs that use both. If
// one of them fails, the RPC fails with its status.
func NewServer(others ...statusv3.ClientStatusDiscoveryServiceServer) statusv3.ClientStatusDiscoveryServiceServer {
	return &server{others: others}
}

// Register registers the server of NewServer with r, which does not serve yet: a *grpc.Server, or a
// *xds.GRPCServer of grpc-go. A gRPC server accepts each service once: if r already has a CSDS
// server, Register returns an error; gRPC itself would terminate the process.
func Register(r interface {
	grpc.ServiceRegistrar
	GetServiceInfo() map[string]grpc.ServiceInfo
}, others ...statusv3.ClientStatusDiscoveryServiceServer) error {
	name := statusv3.ClientStatusDiscoveryService_ServiceDesc.ServiceName
	if _, ok := r.GetServiceInfo()[name]; ok {
		return fmt.Errorf("csds: the gRPC server has a service %s already, as google.golang.org/grpc/admin registers it "+
			"in programs with google.golang.org/grpc/xds; call csds.Register with that one as another server instead of it", name)
	}
	statusv3.RegisterClientStatusDiscoveryServiceServer(r, NewServer(others...))
	return nil
}

// FetchClientStatus implements the unary method.
func (s *server) FetchClientStatus(ctx context.Context, req *statusv3.ClientStatusRequest) (*statusv3.ClientStatusResponse, error) {
	if len(req.GetNodeMatchers()) > 0 {
		return nil, status.Error(codes.InvalidArgument, "csds: node_matchers: must be empty, since a client has one node (A40)")
	}
	resp := &statusv3.ClientStatusResponse{}
	for _, c := range xds.Clients() {
		resp.Config = append(resp.Config, configOf(c, !req.GetExcludeResourceContents()))
	}
	for _, other := range s.others {
		more, err := other.FetchClientStatus(ctx, req)
		if err != nil {
			return nil, err
		}
		resp.Config = append(resp.Config, more.GetConfig()...)
	}
	return resp, nil
}

// StreamClientStatus implements the streaming method: one response to each request. It does not
// watch for changes (A40).
func (s *server) StreamClientStatus(stream statusv3.ClientStatusDiscoveryService_StreamClientStatusServer) error {
	for {
		req, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		resp, err := s.FetchClientStatus(stream.Context(), req)
		if err != nil {
			return err
		}
		if err := stream.Send(resp); err != nil {
			return err
		}
	}
}

// configOf describes a client.
func configOf(c *xds.Client, contents bool) *statusv3.ClientConfig {
	config := &statusv3.ClientConfig{Node: c.Node(), ClientScope: scopeOf(c.Targets())}
	for r := range c.Resources() {
		if r.Watched {
			config.GenericXdsConfigs = append(config.GenericXdsConfigs, formsOf(&r, contents)...)
		}
	}
	return config
}

// maxScope is the maximum number of targets in client_scope.
const maxScope = 8

// scopeOf returns the scope of a client's data (A71): the names of its targets' Listeners.
func scopeOf(targets []xds.Target) string {
	var names []string
	for _, t := range targets {
		if n := len(names); n == 0 || names[n-1] != t.Listener {
			names = append(names, t.Listener)
		}
	}
	if more := len(names) - maxScope; more > 0 {
		names = append(names[:maxScope], fmt.Sprintf("and %d more", more))
	}
	return text(strings.Join(names, ", "))
}

// statuses maps states to A40's and A88's names.
var statuses = map[xds.State]adminv3.ClientResourceStatus{
	xds.Unknown:       adminv3.ClientResourceStatus_UNKNOWN,
	xds.Requested:     adminv3.ClientResourceStatus_REQUESTED,
	xds.DoesNotExist:  adminv3.ClientResourceStatus_DOES_NOT_EXIST,
	xds.Acked:         adminv3.ClientResourceStatus_ACKED,
	xds.Nacked:        adminv3.ClientResourceStatus_NACKED,
	xds.ReceivedError: adminv3.ClientResourceStatus_RECEIVED_ERROR,
	xds.TimedOut:      adminv3.ClientResourceStatus_TIMEOUT,
}

// formsOf describes the forms of a resource that are in use: as received, or with the patches of
// overlays.
func formsOf(r *xds.ResourceStatus, contents bool) (forms []*statusv3.ClientConfig_GenericXdsConfig) {
	received := r.Unpatched || len(r.Patched) == 0
	for _, form := range r.Patched {
		if !slices.ContainsFunc(form.Outcomes, func(o overlay.Outcome) bool { return o.Changed }) {
			received = true
			continue
		}
		g := genericOf(r, false)
		if contents {
			g.XdsConfig = form.Raw
		}
		forms = append(forms, g)
	}
	if received {
		forms = append(forms, genericOf(r, contents))
	}
	return forms
}

// genericOf describes a resource.
func genericOf(r *xds.ResourceStatus, contents bool) *statusv3.ClientConfig_GenericXdsConfig {
	g := &statusv3.ClientConfig_GenericXdsConfig{
		TypeUrl:      r.Type.URL(),
		Name:         text(r.Name),
		VersionInfo:  text(r.Version),
		LastUpdated:  timestamp(r.Updated),
		ClientStatus: statuses[r.State],
		ErrorState:   errorOf(r),
	}
	if contents {
		g.XdsConfig = r.Raw
	}
	return g
}

// errorOf returns the reason why the resource's latest version is not in use; nil if it is, or
// if nothing is known yet.
func errorOf(r *xds.ResourceStatus) *adminv3.UpdateFailureState {
	switch {
	case r.Rejected.Err != nil:
		return &adminv3.UpdateFailureState{
			LastUpdateAttempt: timestamp(r.Rejected.Time),
			Details:           text(r.Rejected.Err.Error()),
			VersionInfo:       text(r.Rejected.Version),
		}
	case r.Err != nil:
		return &adminv3.UpdateFailureState{LastUpdateAttempt: timestamp(r.ErrTime), Details: text(r.Err.Error())}
	}
	return nil
}

// timestamp returns nil for the zero time.
func timestamp(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}

// text returns valid UTF-8, since protobuf refuses to encode other strings. Names come from
// users and servers.
func text(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }
