// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package testplane

import (
	"context"
	"maps"
	"slices"
	"strconv"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"

	"github.com/xdslb/xdslb/xds/xdstest"
)

// A DeltaStream is one incremental ADS stream of a Scripted. It automatically sends the
// resources of Set and Update: the subscribed resources that the client does not have in this
// version, and the names of removed resources that the client has. Resources that never existed
// are not mentioned. It is safe for concurrent use.
type DeltaStream struct {
	*scriptedStream
	ads discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesServer

	// The following fields are guarded by Scripted.mu.
	requests received[*discoveryv3.DeltaDiscoveryRequest]
	queue    []*discoveryv3.DeltaDiscoveryResponse // from Respond, to be sent
	nonces   int
	types    map[string]*deltaStreamType
}

// deltaStreamType is the state of one type on a stream.
type deltaStreamType struct {
	stats xdstest.Stats
	names map[string]bool   // subscribed names
	has   map[string]string // versions that the client has
	open  map[string]bool   // unanswered nonces
}

// DeltaStream returns the newest open incremental stream, or nil.
func (s *Scripted) DeltaStream() *DeltaStream {
	s.mu.Lock()
	defer s.mu.Unlock()
	return youngest[*DeltaStream](s.streams)
}

// DeltaAggregatedResources implements the service.
func (a scriptedADS) DeltaAggregatedResources(ads discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesServer) error {
	st := &DeltaStream{scriptedStream: a.s.newStream(), ads: ads, types: make(map[string]*deltaStreamType)}
	return a.s.handle(ads.Context(), st, func() error {
		req, err := ads.Recv()
		if err == nil {
			st.request(req)
		}
		return err
	})
}

func (st *DeltaStream) typeLocked(url string) *deltaStreamType {
	t := st.types[url]
	if t == nil {
		t = &deltaStreamType{names: make(map[string]bool), has: make(map[string]string), open: make(map[string]bool)}
		st.types[url] = t
	}
	return t
}

// Requests returns the latest requests of a type, or of all if t is empty, oldest
// first.
func (st *DeltaStream) Requests(t string) []*discoveryv3.DeltaDiscoveryRequest {
	st.s.mu.Lock()
	defer st.s.mu.Unlock()
	return st.requests.ofType(t)
}

// Stats returns the statistics of type t on this stream.
func (st *DeltaStream) Stats(t string) xdstest.Stats {
	st.s.mu.Lock()
	defer st.s.mu.Unlock()
	return st.statsLocked(t)
}

func (st *DeltaStream) statsLocked(url string) xdstest.Stats {
	t := st.typeLocked(url)
	stats := t.stats
	stats.Names = slices.Sorted(maps.Keys(t.names))
	return stats
}

func (st *DeltaStream) eachLocked(f func(url string, stats xdstest.Stats)) {
	for url, t := range st.types {
		f(url, t.stats)
	}
}

// Send sends resources of type t, all with the same version, in one response, and returns its
// nonce.
func (st *DeltaStream) Send(t, version string, resources ...proto.Message) (nonce string) {
	resp := &discoveryv3.DeltaDiscoveryResponse{TypeUrl: t}
	for _, m := range resources {
		resp.Resources = append(resp.Resources, &discoveryv3.Resource{Name: nameOf(m), Version: version, Resource: anyOf(m)})
	}
	return st.Respond(resp)
}

// Remove sends the removal of resources of type t, and returns the nonce.
func (st *DeltaStream) Remove(t string, names ...string) (nonce string) {
	return st.Respond(&discoveryv3.DeltaDiscoveryResponse{TypeUrl: t, RemovedResources: names})
}

// Respond sends a response unchanged, even if it is invalid, after the pending ones. A response
// without a nonce gets a new one. It returns the nonce, and does not wait.
func (st *DeltaStream) Respond(resp *discoveryv3.DeltaDiscoveryResponse) (nonce string) {
	resp = proto.CloneOf(resp)
	st.s.mu.Lock()
	defer st.s.mu.Unlock()
	st.enterLocked(resp)
	st.queue = append(st.queue, resp)
	st.notify()
	return resp.GetNonce()
}

// request handles a request.
func (st *DeltaStream) request(req *discoveryv3.DeltaDiscoveryRequest) {
	st.check.DeltaRequest(req)
	st.s.mu.Lock()
	defer st.s.mu.Unlock()
	st.requests.add(req)
	t := st.typeLocked(req.GetTypeUrl())
	t.stats.Requests++
	if nonce := req.GetResponseNonce(); t.open[nonce] {
		delete(t.open, nonce)
		answered(&t.stats, req.GetErrorDetail())
	}
	for _, name := range req.GetResourceNamesSubscribe() {
		t.names[name] = true
		delete(t.has, name) // to be sent even if the client has it
	}
	maps.Copy(t.has, req.GetInitialResourceVersions())
	for _, name := range req.GetResourceNamesUnsubscribe() {
		delete(t.names, name)
		delete(t.has, name)
	}
	st.notify()
}

// send sends pending responses until ctx ends.
func (st *DeltaStream) send(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-st.wake:
		}
		st.s.mu.Lock()
		all := st.queue
		st.queue = nil
		if st.s.auto {
			for _, url := range []string{xdstest.CDS, xdstest.EDS, xdstest.LDS, xdstest.RDS} { // referenced types come first
				if resp := st.answerLocked(url); resp != nil {
					all = append(all, resp)
				}
			}
		}
		for _, resp := range all {
			st.typeLocked(resp.GetTypeUrl()).stats.Responses++
		}
		st.s.mu.Unlock()
		for _, resp := range all {
			if st.ads.Send(resp) != nil {
				<-ctx.Done() // the receiving side returns the error
				return
			}
		}
	}
}

// answerLocked returns a response with the resources of a type that the client does not have,
// or nil if it has all.
func (st *DeltaStream) answerLocked(url string) *discoveryv3.DeltaDiscoveryResponse {
	t := st.typeLocked(url)
	resp := &discoveryv3.DeltaDiscoveryResponse{TypeUrl: url, SystemVersionInfo: strconv.FormatUint(st.s.version, 10)}
	for _, name := range slices.Sorted(maps.Keys(t.names)) {
		r, ok := st.s.served[url][name]
		before, has := t.has[name]
		switch version := strconv.FormatUint(r.since, 10); {
		case ok && version != before:
			resp.Resources = append(resp.Resources, &discoveryv3.Resource{Name: name, Version: version, Resource: r.any})
			t.has[name] = version
		case !ok && has:
			resp.RemovedResources = append(resp.RemovedResources, name)
			delete(t.has, name)
		}
	}
	if len(resp.Resources)+len(resp.RemovedResources) == 0 {
		return nil
	}
	st.enterLocked(resp)
	return resp
}

// enterLocked assigns a nonce to a response.
func (st *DeltaStream) enterLocked(resp *discoveryv3.DeltaDiscoveryResponse) {
	if resp.GetNonce() == "" {
		st.nonces++
		resp.Nonce = strconv.Itoa(st.nonces)
	}
	st.typeLocked(resp.GetTypeUrl()).open[resp.GetNonce()] = true
	st.check.DeltaResponse(resp)
}
