// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package differential

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/xds/xdstest"
)

// A world is the resources that the control planes serve, and the states of the backends. Its
// types are simplified xDS types, which can be printed and compared.
type world struct {
	inline        bool          // the routes are in the listener
	maxStream     time.Duration // the listener's max_stream_duration; 0 means no limit
	fault         *fault
	hosts         []host
	clusters      []cluster
	ignoreWeights bool     // Config.IgnoreEndpointWeights (D2)
	gone          []string // resources that are not served: "LDS", "RDS", "CDS name", "EDS name"
	defects       []defect // resources that are served in a version to be rejected
	unreachable   []string // backends
}

type host struct {
	domains []string
	routes  []route
	retry   *retry
	fault   *fault // overrides the listener's
	changes bool   // of request headers, see changedHeaders
}

// Kinds of path and header matches.
const (
	matchPrefix  = "prefix"
	matchExact   = "exact"
	matchRegex   = "regex"
	matchSuffix  = "suffix"
	matchPresent = "present"
	matchRange   = "range" // value is "lo-hi"
	matchContain = "contains"
)

type route struct {
	path       string
	kind       string // of path match: prefix, exact, regex
	ignoreCase bool
	headers    []header
	fraction   fraction
	action     string // one of the actions
	clusters   []weighted
	timeout    *time.Duration // max_stream_duration
	headerMax  *time.Duration // grpc_timeout_header_max
	retry      *retry
	hash       []hashPolicy
	fault      *fault
	changes    bool // of request headers, see changedHeaders
	authority  bool // is rewritten, which an untrusted server cannot do
}

// Actions of routes.
const (
	forward    = "forward"
	nonForward = "non-forwarding"
	direct     = "direct response"
	redirect   = "redirect"
)

type header struct {
	name, kind, value string
	invert            bool
	ignoreCase        bool
}

// fraction is a runtime_fraction; of 0 means none.
type fraction struct{ n, of uint32 }

type weighted struct {
	cluster string
	weight  uint32
	fault   *fault
}

type retry struct {
	on        []string
	n         uint32 // 0 is unset
	base, max time.Duration
	hedge     time.Duration // after which unary RPCs are hedged; 0 is never
	perTry    time.Duration // the time of an attempt; 0 is not limited
}

type hashPolicy struct {
	header    string // empty is the channel's id
	regex     string
	rewritten string
	terminal  bool
}

type fault struct {
	abort, delay fraction
	code         uint32 // gRPC's
	http         uint32 // instead of code, if not 0
	delayBy      time.Duration
	byHeader     bool
}

// Kinds of clusters.
const (
	eds       = "EDS"
	dns       = "LOGICAL_DNS"
	aggregate = "aggregate"
)

// LB policies of clusters.
const (
	roundRobin       = "ROUND_ROBIN"
	leastRequest     = "LEAST_REQUEST"
	ringHash         = "RING_HASH"
	wrrRoundRobin    = "wrr_locality{round_robin}"
	wrrRandom        = "wrr_locality{random, round_robin}" // stock has no random
	wrrLeastRequest  = "wrr_locality{least_request}"
	wrrPickFirst     = "wrr_locality{pick_first}"
	plainRoundRobin  = "round_robin"
	pickFirst        = "pick_first"
	typedRingHash    = "ring_hash"
	clientWeightedRR = "wrr_locality{client_side_weighted_round_robin}"
)

type cluster struct {
	name        string
	kind        string
	children    []string // of an aggregate
	edsName     string   // empty is name
	policy      string
	maxRequests uint32 // 0 is unset
	maxRetries  uint32 // 0 is unset
	loadReports bool
	outlier     bool
	checked     bool // by the health service of backends, which are SERVING
	drops       []drop
	localities  []locality // of EDS; LOGICAL_DNS has the first backend of the cluster's
}

type drop struct {
	category string
	fraction fraction
}

type locality struct {
	name      string
	priority  uint32
	weight    uint32 // 0 is unset
	endpoints []endpoint
}

type endpoint struct {
	backend string
	weight  uint32 // 0 is unset
	health  corev3.HealthStatus
}

// A defect makes a resource one to be rejected.
type defect struct {
	typ     string // "LDS", "RDS", "CDS", "EDS"
	name    string // of the cluster, for CDS and EDS
	kind    string // see defectKinds
	version int    // so that it is new each time
}

// clone returns a copy that shares nothing with w that a change would touch.
func (w *world) clone() *world {
	c := *w
	c.gone, c.defects, c.unreachable = slices.Clone(w.gone), slices.Clone(w.defects), slices.Clone(w.unreachable)
	c.hosts = slices.Clone(w.hosts)
	for i := range c.hosts {
		h := &c.hosts[i]
		h.domains, h.routes = slices.Clone(h.domains), slices.Clone(h.routes)
		for k := range h.routes {
			r := &h.routes[k]
			r.headers, r.clusters, r.hash = slices.Clone(r.headers), slices.Clone(r.clusters), slices.Clone(r.hash)
		}
	}
	c.clusters = slices.Clone(w.clusters)
	for i := range c.clusters {
		cl := &c.clusters[i]
		cl.children, cl.drops, cl.localities = slices.Clone(cl.children), slices.Clone(cl.drops), slices.Clone(cl.localities)
		for k := range cl.localities {
			cl.localities[k].endpoints = slices.Clone(cl.localities[k].endpoints)
		}
	}
	return &c
}

// cluster returns the cluster with a name, or nil.
func (w *world) cluster(name string) *cluster {
	for i := range w.clusters {
		if w.clusters[i].name == name {
			return &w.clusters[i]
		}
	}
	return nil
}

// leaves returns the clusters that an RPC for a cluster can go to.
func (w *world) leaves(name string) []*cluster {
	c := w.cluster(name)
	if c == nil {
		return nil
	}
	if c.kind != aggregate {
		return []*cluster{c}
	}
	var all []*cluster
	for _, child := range c.children {
		all = append(all, w.leaves(child)...)
	}
	return all
}

func (w *world) isGone(resource string) bool { return slices.Contains(w.gone, resource) }

// Headers with which a caller passes information about an RPC to backends.
const (
	idHeader     = "x-rpc-id"     // names the RPC in records
	scriptHeader = "x-rpc-script" // behavior of its attempts, see script
)

// earlyHeaders is the script of RPCs that get headers before the backend has a message.
const earlyHeaders = "early"

// An attempt is one call as a backend saw it.
type attempt struct {
	backend string
	method  string
	timeout time.Duration // until the deadline; 0 means no deadline
	md      metadata.MD   // without idHeader and scriptHeader
}

// fleet is all backends: one gRPC server on many addresses, which echoes the message of every
// method and records the called addresses.
type fleet struct {
	server *grpc.Server
	net    *xdstest.Network
	names  map[string]string // by address
	addrs  map[string]netip.AddrPort

	mu       sync.Mutex
	attempts map[string][]attempt // by RPC
}

// newFleet starts backends with the given names.
func newFleet(t testing.TB, n *xdstest.Network, names []string) *fleet {
	f := &fleet{net: n, names: map[string]string{}, addrs: map[string]netip.AddrPort{}, attempts: map[string][]attempt{}}
	f.server = grpc.NewServer(grpc.UnknownServiceHandler(f.handle), grpc.WaitForHandlers(true))
	healthpb.RegisterHealthServer(f.server, health.NewServer())
	var serving sync.WaitGroup
	for _, name := range names {
		lis, err := n.Listen("127.0.0.1:0")
		kit.Must(t, err)
		f.names[lis.Addr().String()] = name
		f.addrs[name] = netip.MustParseAddrPort(lis.Addr().String())
		serving.Go(func() { _ = f.server.Serve(lis) })
	}
	t.Cleanup(func() {
		f.server.Stop()
		serving.Wait()
	})
	return f
}

// setDown makes a backend unreachable, or reachable again.
func (f *fleet) setDown(name string, down bool) { f.net.SetDown(f.addrs[name].String(), down) }

// take returns the attempts of an RPC, in order, and forgets them.
func (f *fleet) take(id string) []attempt {
	f.mu.Lock()
	defer f.mu.Unlock()
	a := f.attempts[id]
	delete(f.attempts, id)
	return a
}

// handle answers an RPC.
func (f *fleet) handle(_ any, s grpc.ServerStream) error {
	ctx := s.Context()
	a := attempt{}
	if p, ok := peer.FromContext(ctx); ok {
		a.backend = f.names[p.LocalAddr.String()]
	}
	a.method, _ = grpc.MethodFromServerStream(s)
	if d, ok := ctx.Deadline(); ok {
		a.timeout = time.Until(d)
	}
	md, _ := metadata.FromIncomingContext(ctx)
	a.md = md.Copy()
	delete(a.md, idHeader)
	delete(a.md, scriptHeader)
	id := strings.Join(md.Get(idHeader), "")
	f.mu.Lock()
	nth := len(f.attempts[id])
	f.attempts[id] = append(f.attempts[id], a)
	f.mu.Unlock()
	if strings.Join(md.Get(scriptHeader), "") == earlyHeaders {
		if err := s.SendHeader(metadata.Pairs("x-backend", a.backend)); err != nil {
			return err
		}
	}
	// The first message is received first, so that the client's actions before a failure are
	// deterministic.
	var m wrapperspb.BytesValue
	received := s.RecvMsg(&m)
	if err := f.act(ctx, s, md.Get(scriptHeader), nth, a.backend); err != nil {
		return err
	}
	for ; received == nil; received = s.RecvMsg(&m) {
		if err := s.SendMsg(&m); err != nil {
			return err
		}
	}
	if received == io.EOF {
		return nil
	}
	return received
}

// act performs the script for the nth attempt: a comma-separated list of words, the last of
// which applies to all further attempts. A word is a status code (0 lets the RPC succeed),
// "hang" to wait for the end of the RPC, "h" and a code to fail after headers were sent, or
// "p", a number, ":" and a code to fail with a pushback of that many milliseconds.
func (f *fleet) act(ctx context.Context, s grpc.ServerStream, script []string, nth int, backend string) error {
	header := metadata.Pairs("x-backend", backend)
	if len(script) == 0 {
		return s.SendHeader(header)
	}
	words := strings.Split(script[0], ",")
	word := words[min(nth, len(words)-1)]
	fail := func(code string) error {
		n, err := strconv.Atoi(code)
		if err != nil {
			return status.Errorf(codes.Internal, "script %q: %v", script[0], err)
		}
		s.SetTrailer(metadata.Pairs("x-failed-by", backend))
		return status.Error(codes.Code(n), "scripted failure")
	}
	switch {
	case word == earlyHeaders:
		return nil
	case word == "0":
		return s.SendHeader(header)
	case word == "hang":
		<-ctx.Done()
		time.Sleep(time.Millisecond) // otherwise the end of the RPC would be a race
		return status.FromContextError(ctx.Err()).Err()
	case strings.HasPrefix(word, "h"):
		if err := s.SendHeader(header); err != nil {
			return err
		}
		return fail(word[1:])
	case strings.HasPrefix(word, "p"):
		ms, code, _ := strings.Cut(word[1:], ":")
		s.SetTrailer(metadata.Pairs("grpc-retry-pushback-ms", ms))
		return fail(code)
	}
	return fail(word)
}

// describe is metadata as text, without the user agent, which is grpc-go's.
func describe(md metadata.MD) string {
	var b strings.Builder
	for _, k := range slices.Sorted(maps.Keys(md)) {
		if k == "user-agent" || k == "grpc-previous-rpc-attempts" {
			continue // the latter is compared by attempt
		}
		fmt.Fprintf(&b, "%s=%s;", k, strings.Join(md[k], ","))
	}
	return b.String()
}
