// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package picker_test

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"sync"
	"sync/atomic"

	"github.com/xdslb/xdslb/picker"
)

// A proxy is a reverse proxy for HTTP that picks backends with the kernel alone. Requests
// take no lock.
type proxy struct {
	snapshot atomic.Pointer[picker.Snapshot]
	forward  []*httputil.ReverseProxy // by endpoint

	mu    sync.Mutex // guards the data that Build reads
	cfg   *picker.Config
	state picker.ClusterState
}

// requestKey is the context key of the *http.Request that is picked for.
type requestKey struct{}

// newProxy returns a proxy for backends, which are all up, with a weight for each. For
// policies that hash, requests are hashed by their header "user".
func newProxy(policy picker.Policy, backends []string, weights []uint32) (*proxy, error) {
	p := &proxy{}
	load, breaker := new(picker.ClusterLoad), new(picker.Breaker)
	state := picker.LocalityState{Load: load.Locality(picker.LocalityID{})}
	var list []picker.Endpoint
	var endpoints picker.StateSlice
	for i, b := range backends {
		u, err := url.Parse(b)
		if err != nil {
			return nil, err
		}
		addr, err := netip.ParseAddrPort(u.Host)
		if err != nil {
			return nil, err
		}
		p.forward = append(p.forward, httputil.NewSingleHostReverseProxy(u))
		list = append(list, picker.Endpoint{
			Addr: addr, Weight: weights[i],
			Extra: &picker.EndpointExtra{HashKey: fmt.Sprint("backend-", i)}, // the position on a ring, independent of the address
		})
		e := &picker.EndpointState{Connectivity: picker.Ready}
		e.Bind(picker.NewBinding(state.Load, breaker, false))
		endpoints = append(endpoints, e)
	}
	state.Endpoints = endpoints
	p.cfg = &picker.Config{
		Routes: []picker.Route{{
			Hash:     []picker.HashPolicy{{Header: "user"}},
			Clusters: []picker.WeightedCluster{{Name: "web", Weight: 1}},
		}},
		Clusters: []*picker.Cluster{{Name: "web", Leaves: []picker.Leaf{{
			Policy:      policy,
			MaxRequests: 1024,
			Priorities:  []picker.Priority{{Localities: []picker.Locality{{Weight: 1, Endpoints: picker.ListOf(list...)}}}},
		}}}},
	}
	p.state = picker.ClusterState{Localities: []picker.LocalityState{state}, Breaker: breaker, Overload: load.Overload()}
	return p, p.publish(func() {})
}

// publish changes the state and publishes its snapshot.
func (p *proxy) publish(change func()) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	change()
	p.state.Version++
	next, err := picker.Build(p.snapshot.Load(), p.cfg, []picker.ClusterState{p.state}, picker.Env{
		Header: func(ctx context.Context, name string) []string {
			return ctx.Value(requestKey{}).(*http.Request).Header.Values(name)
		},
	})
	if err == nil {
		p.snapshot.Store(next)
	}
	return err
}

// setHealth sets whether a backend is healthy, as a health check would.
func (p *proxy) setHealth(backend int, up bool) error {
	return p.publish(func() {
		e := p.state.Localities[0].Endpoints.State(backend)
		if e.Connectivity = picker.TransientFailure; up {
			e.Connectivity = picker.Ready
		}
	})
}

// ServeHTTP implements http.Handler.
func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	ctx := context.WithValue(r.Context(), requestKey{}, r)
	switch result := p.snapshot.Load().Pick(ctx, r.URL.Path, rand.Uint64()); result.Outcome {
	case picker.Picked:
		e := p.state.Localities[0].Endpoints.State(int(result.Index)) // this list never changes
		defer e.Finish(picker.CallOK)
		p.forward[result.Index].ServeHTTP(w, r)
	case picker.Overloaded:
		http.Error(w, "too many requests in flight", http.StatusServiceUnavailable)
	default:
		http.Error(w, "no backend is up", http.StatusServiceUnavailable)
	}
}

// A reverse proxy with weights, health, and a ring on which the failure of a backend moves only
// its own users.
func Example_proxy() {
	var backends []string
	for _, name := range []string{"a", "b", "c"} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, name) }))
		defer server.Close()
		backends = append(backends, server.URL)
	}
	get := func(p *proxy, user string) string {
		w, r := httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil)
		r.Header.Set("user", user)
		p.ServeHTTP(w, r)
		return w.Body.String()
	}
	must := func(err error) {
		if err != nil {
			panic(err)
		}
	}
	count := func(p *proxy) map[string]int {
		counts := make(map[string]int)
		for range 40 {
			counts[get(p, "anyone")]++
		}
		return counts
	}

	p, err := newProxy(picker.Policy{Kind: picker.PolicyEDF}, backends, []uint32{1, 2, 1})
	must(err)
	fmt.Println("weights 1, 2, 1:", count(p))
	must(p.setHealth(1, false))
	fmt.Println("b is down:      ", count(p))

	ring := picker.Policy{Kind: picker.PolicyRingHash, Flat: true, Ring: &picker.RingPolicy{MinSize: 1024, MaxSize: 4096}}
	p, err = newProxy(ring, backends, []uint32{1, 1, 1})
	must(err)
	home := make(map[string]string)
	for i := range 100 {
		user := fmt.Sprint("user-", i)
		home[user] = get(p, user)
	}
	moved := func() map[string]int { // users by home
		counts := make(map[string]int)
		for user, backend := range home {
			if get(p, user) != backend {
				counts[backend]++
			}
		}
		return counts
	}
	must(p.setHealth(1, false))
	fmt.Println("b is down, users that moved:", moved())
	must(p.setHealth(1, true))
	fmt.Println("b is up, users away from home:", moved())
	// Output:
	// weights 1, 2, 1: map[a:10 b:20 c:10]
	// b is down:       map[a:20 c:20]
	// b is down, users that moved: map[b:38]
	// b is up, users away from home: map[]
}
