// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xdstest

import (
	"context"
	"errors"
	"strconv"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"github.com/envoyproxy/go-control-plane/pkg/server/delta/v3"
)

// DeltaAggregatedResources handles an incremental stream until it ends.
func (a *ads) DeltaAggregatedResources(stream discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesServer) error {
	ctx, st, end := a.begin(stream.Context())
	defer end()
	server := delta.NewServer(ctx, &a.store.mux, st)
	if err := server.DeltaStreamHandler(stream, resource.AnyType); err != nil {
		return err
	}
	if err := context.Cause(ctx); errors.Is(err, errBroken) {
		return err
	}
	return nil
}

// OnDeltaStreamOpen implements delta.Callbacks.
func (st *adsStream) OnDeltaStreamOpen(context.Context, int64, string) error { return nil }

// OnDeltaStreamClosed implements delta.Callbacks.
func (st *adsStream) OnDeltaStreamClosed(int64, *corev3.Node) {}

// OnStreamDeltaRequest implements delta.Callbacks.
func (st *adsStream) OnStreamDeltaRequest(_ int64, req *discoveryv3.DeltaDiscoveryRequest) error {
	a := st.ads
	if a.onDeltaRequest != nil {
		a.onDeltaRequest(st.number, req)
	}
	t := req.GetTypeUrl()
	a.mu.Lock()
	defer a.mu.Unlock()
	defer a.events.notify()
	sub := st.subLocked(t)
	sub.claimed = a.store.claimed(t, req.GetInitialResourceVersions(), sub.claimed)
	version := a.store.version(t)
	for _, name := range req.GetResourceNamesSubscribe() {
		if _, ok := sub.names[name]; !ok {
			sub.names[name] = version
		}
	}
	for _, name := range req.GetResourceNamesUnsubscribe() {
		delete(sub.names, name)
		delete(sub.claimed, name)
	}
	st.answeredLocked(t, sub, sub.nonce != "" && req.GetResponseNonce() == sub.nonce, req.GetErrorDetail())
	return nil
}

// OnStreamDeltaResponse implements delta.Callbacks.
func (st *adsStream) OnStreamDeltaResponse(_ int64, _ *discoveryv3.DeltaDiscoveryRequest, resp *discoveryv3.DeltaDiscoveryResponse) {
	st.responded(resp.GetTypeUrl(), resp.GetNonce(), resp.GetSystemVersionInfo())
}

// responded records a response.
func (st *adsStream) responded(t, nonce, version string) {
	a := st.ads
	a.mu.Lock()
	defer a.mu.Unlock()
	defer a.events.notify()
	stats := a.stats[t]
	stats.Responses++
	a.stats[t] = stats
	sub := st.subLocked(t)
	sub.nonce, sub.answered = nonce, false
	// The cache's versions are decimal numbers.
	sub.sent, _ = strconv.ParseUint(version, 10, 64)
}

// claimed adds to a map the versions of the resources that a client already has in the current
// version, identified by hashes, which are their versions in the cache.
func (s *store) claimed(t string, initial map[string]string, to map[string]uint64) map[string]uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.byType[t]
	for name, hash := range initial {
		if c == nil || c.encoded[name] == nil || cache.HashResource(c.encoded[name]) != hash {
			continue
		}
		if to == nil {
			to = make(map[string]uint64)
		}
		to[name] = c.changed[name]
	}
	return to
}
