// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xds

import (
	"slices"
	"testing"
	"testing/synctest"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"

	"github.com/xdslb/xdslb/bench/testplane"
	"github.com/xdslb/xdslb/xds/resource"
	"github.com/xdslb/xdslb/xds/xdstest"
)

// fake is a scripted server in a bubble: each of its methods returns when
// everybody has come to rest.
type fake struct {
	*testplane.Scripted
	t    testing.TB
	name string
}

func newFake(t testing.TB, name string) *fake {
	f := &fake{t: t, name: name}
	f.Scripted = testplane.StartScripted(testplane.ScriptedOptions{Report: func(violation string) { t.Errorf("%s: %s", name, violation) }})
	return f
}

// refuse makes connections fail, and breaks the present ones, or lets them work
// again.
func (f *fake) refuse(err error) {
	f.Refuse(err)
	synctest.Wait()
}

// hangUp ends the present stream.
func (f *fake) hangUp(err error) {
	if s := f.current(); s != nil {
		s.Close(err)
	} else if d := f.delta(); d != nil {
		d.Close(err)
	}
	synctest.Wait()
}

// delta returns the open stream of the incremental variant, nil if there is none.
func (f *fake) delta() *testplane.DeltaStream {
	synctest.Wait()
	return f.DeltaStream()
}

// mustDelta returns the open stream of the incremental variant, or ends the test.
func (f *fake) mustDelta() *testplane.DeltaStream {
	f.t.Helper()
	s := f.delta()
	if s == nil {
		f.t.Fatalf("%s: no stream", f.name)
	}
	return s
}

// connected reports whether there is a stream.
func (f *fake) connected() bool {
	synctest.Wait()
	open, _ := f.Streams()
	return open > 0
}

// current returns the open stream, nil if there is none.
func (f *fake) current() *testplane.Stream {
	synctest.Wait()
	return f.Stream()
}

// must returns the open stream, or ends the test.
func (f *fake) must() *testplane.Stream {
	f.t.Helper()
	s := f.current()
	if s == nil {
		f.t.Fatalf("%s: no stream", f.name)
	}
	return s
}

// send sends resources of one type in one response.
func (f *fake) send(typ resource.Type, version string, resources ...proto.Message) {
	f.t.Helper()
	f.must().Send(typ.URL(), version, resources...)
	synctest.Wait()
}

// respond sends a response.
func (f *fake) respond(typ resource.Type, resp *discoveryv3.DiscoveryResponse) {
	f.t.Helper()
	if resp.TypeUrl == "" {
		resp.TypeUrl = typ.URL()
	}
	f.must().Respond(resp)
	synctest.Wait()
}

// serve sets resources and has all requests answered from now on.
func (f *fake) serve(resources ...proto.Message) {
	f.t.Helper()
	if err := f.Update(collect(resources)); err != nil {
		f.t.Fatal(err)
	}
	synctest.Wait()
}

// collect sorts resources by type.
func collect(messages []proto.Message) (r xdstest.Resources) {
	for _, m := range messages {
		switch m := m.(type) {
		case *listenerv3.Listener:
			r.Listeners = append(r.Listeners, m)
		case *routev3.RouteConfiguration:
			r.Routes = append(r.Routes, m)
		case *clusterv3.Cluster:
			r.Clusters = append(r.Clusters, m)
		case *endpointv3.ClusterLoadAssignment:
			r.Endpoints = append(r.Endpoints, m)
		}
	}
	return r
}

// last returns the latest request of a type on the open stream.
func (f *fake) last(typ resource.Type) *discoveryv3.DiscoveryRequest {
	f.t.Helper()
	requests := f.must().Requests(typ.URL())
	if len(requests) == 0 {
		f.t.Fatalf("%s: no request of type %v", f.name, typ)
	}
	return requests[len(requests)-1]
}

// asked checks the names of the latest request of a type.
func (f *fake) asked(typ resource.Type, names ...string) {
	f.t.Helper()
	if got := f.last(typ).ResourceNames; !slices.Equal(got, names) {
		f.t.Errorf("%s: %v names asked for = %q, want %q", f.name, typ, got, names)
	}
}

// count returns how many requests of a type the open stream has carried.
func (f *fake) count(typ resource.Type) int { return f.must().Stats(typ.URL()).Requests }

// counts returns the number of ACKs and NACKs of a type on the open stream,
// and the latest NACK's text.
func (f *fake) counts(typ resource.Type) (acks, nacks int, detail string) {
	stats := f.must().Stats(typ.URL())
	return stats.ACKs, stats.NACKs, stats.LastError
}

// opened returns how many streams there have been.
func (f *fake) opened() int {
	synctest.Wait()
	_, total := f.Streams()
	return total
}
