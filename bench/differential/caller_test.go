// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package differential

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/xds"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/bench/testplane"
	"github.com/xdslb/xdslb/integrate"
	"github.com/xdslb/xdslb/xds/xdstest"
)

// methods are the methods in calls and routes.
var methods = []string{"/shop.Cart/Add", "/shop.Cart/Get", "/shop.Pay/Charge", "/SHOP.pay/charge", "/other.Svc/Do"}

// A caller is a kind of RPC.
type caller struct {
	method   string
	headers  []string // keys and values
	script   string   // behavior of backends; empty means success
	deadline time.Duration
	stream   bool
	wait     bool // wait-for-ready
	burst    int  // so many at once, if not 0
}

func (c *caller) String() string {
	s := fmt.Sprintf("%s %q script=%q deadline=%v", c.method, c.headers, c.script, c.deadline)
	if c.stream {
		s += " stream"
	}
	if c.wait {
		s += " wait-for-ready"
	}
	if c.burst > 0 {
		s += fmt.Sprintf(" %d at once", c.burst)
	}
	return s
}

// callers draws kinds of RPCs.
func (g *gen) callers() []*caller {
	list := []*caller{{method: pick(g, methods...), deadline: 20 * time.Second}}
	for range 7 {
		c := &caller{method: pick(g, methods...), deadline: 20 * time.Second, stream: g.chance(25) && !g.without("streams"), wait: g.chance(20)}
		for range g.IntN(4) {
			switch g.IntN(6) {
			case 0, 1:
				c.headers = append(c.headers, "x-tenant", pick(g, "canary", "canary", "Canary", "blue", ""))
			case 2:
				c.headers = append(c.headers, "x-n", pick(g, "5", "50", "-3", "abc", "010"))
			case 3, 4:
				c.headers = append(c.headers, "x-user", fmt.Sprintf("u%d", g.IntN(10)))
			case 5:
				c.headers = append(c.headers, "x-data-bin", "u1")
			}
		}
		switch n := g.IntN(20); {
		case n < 5 && g.without("failures"):
		case n < 3:
			c.script = pick(g, "14", "14,0", "14,14,0", "14,14,14,14,14,14,0")
		case n < 5:
			c.script = pick(g, "13,0", "8,14,0", "h14,0", "5", "p20:14,0", "p-1:14,0", "1,1,0", "4,0")
		case n < 7:
			c.script = "hang"
			c.deadline = pick(g, 500*time.Millisecond, 20*time.Second)
		case n < 9:
			c.script, c.burst, c.deadline, c.stream = "hang", 6, 400*time.Millisecond, false
		case n < 10:
			c.headers = append(c.headers, "x-envoy-fault-abort-grpc-request", pick(g, "7", "14", "x"), "x-envoy-fault-abort-request-percentage", pick(g, "100", "30"))
		case n < 11:
			c.headers = append(c.headers, "x-envoy-fault-delay-request", pick(g, "30", "-1", "x"))
		}
		list = append(list, c)
	}
	return list
}

// client makes RPCs on one channel and observes them.
type client struct {
	side  *side
	cc    *grpc.ClientConn
	fleet *fleet
	last  atomic.Int64 // RPC
	// changes is true if routes change request headers, which are not compared then.
	changes bool
}

// rpc is the record of an RPC.
type rpc struct {
	err      error
	elapsed  time.Duration
	attempts []attempt
}

// do makes one RPC.
func (c *client) do(ctx context.Context, k *caller) rpc {
	id := c.side.name + strconv.FormatInt(c.last.Add(1), 10)
	kv := append(slices.Clone(k.headers), idHeader, id)
	if k.script != "" {
		kv = append(kv, scriptHeader, k.script)
	}
	ctx, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(ctx, kv...), k.deadline)
	defer cancel()
	start := time.Now()
	var err error
	if k.stream {
		err = c.stream(ctx, k)
	} else {
		var in, out wrapperspb.BytesValue
		err = c.cc.Invoke(ctx, k.method, &in, &out, grpc.WaitForReady(k.wait))
	}
	elapsed := time.Since(start)
	cancel()
	attempts := c.fleet.take(id)
	for _, a := range attempts {
		for _, name := range changed {
			if c.changes {
				delete(a.md, name)
			}
		}
	}
	return rpc{err: err, elapsed: elapsed, attempts: attempts}
}

// stream makes a bidirectional stream with one message each way.
func (c *client) stream(ctx context.Context, k *caller) error {
	desc := &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}
	s, err := c.cc.NewStream(ctx, desc, k.method, grpc.WaitForReady(k.wait))
	if err != nil {
		return err
	}
	var in, out wrapperspb.BytesValue
	if err := s.SendMsg(&in); err != nil && err != io.EOF {
		return err
	}
	if err := s.CloseSend(); err != nil {
		return err
	}
	for {
		if err := s.RecvMsg(&out); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
	}
}

// Aspects of an RPC that are compared, each as a text.
const (
	aspectStatus   = "status"
	aspectElapsed  = "elapsed"
	aspectCluster  = "cluster"
	aspectBackend  = "backend"
	aspectAttempts = "attempts"
	aspectTimeout  = "timeout"
	aspectMetadata = "metadata"
)

var aspects = []string{aspectStatus, aspectAttempts, aspectCluster, aspectBackend, aspectTimeout, aspectElapsed, aspectMetadata}

// observe makes one observation of a caller: an RPC, or a burst of them.
func (c *client) observe(ctx context.Context, k *caller) (observation map[string]string, err error) {
	if k.burst == 0 {
		r := c.do(ctx, k)
		return r.observation(), r.err
	}
	all := make([]rpc, k.burst)
	var wg sync.WaitGroup
	for i := range all {
		wg.Go(func() { all[i] = c.do(ctx, k) })
	}
	wg.Wait()
	counts := map[codes.Code]int{}
	for _, r := range all {
		counts[status.Code(r.err)]++
	}
	return map[string]string{aspectStatus: fmt.Sprint(counts)}, all[0].err
}

func (r *rpc) observation() map[string]string {
	o := map[string]string{}
	for _, a := range aspects {
		o[a] = "none"
	}
	o[aspectStatus] = status.Code(r.err).String()
	if len(r.attempts) <= 1 {
		o[aspectElapsed] = r.elapsed.Round(time.Millisecond).String()
	}
	if len(r.attempts) == 0 {
		return o
	}
	var previous, clusters, backends []string
	for _, a := range r.attempts {
		backends = append(backends, a.backend)
		previous = append(previous, strings.Join(a.md.Get("grpc-previous-rpc-attempts"), "+"))
		clusters = append(clusters, clusterOf(a.backend))
	}
	o[aspectAttempts] = fmt.Sprintf("%d, with grpc-previous-rpc-attempts %q", len(r.attempts), previous)
	o[aspectCluster] = strings.Join(slices.Compact(clusters), ",")
	o[aspectBackend] = strings.Join(backends, ",")
	o[aspectTimeout] = r.attempts[0].timeout.Round(100 * time.Millisecond).String()
	o[aspectMetadata] = describe(r.attempts[0].md)
	return o
}

// The two implementations.
const (
	stock = "stock"
	ours  = "ours"
)

var both = []string{stock, ours}

// A side is one of the two clients, and the control plane that serves it. The two
// control planes always serve the same; there are two so that each client's
// requests are counted apart.
type side struct {
	name    string
	control *xdstest.Server
	checker *testplane.Checker // of the control plane
	net     *xdstest.Network
	cfg     integrate.Config // of ours

	mu       sync.Mutex
	rejected map[string]string // error_detail of a NACK since forget, by type
}

// newSide starts a control plane.
func newSide(t testing.TB, name string, n *xdstest.Network) *side {
	s := &side{name: name, net: n, rejected: map[string]string{}}
	s.checker = testplane.NewChecker(nil)
	s.control = xdstest.New(t, xdstest.Options{Listen: n.Listen, OnRequest: s.onRequest, Server: []grpc.ServerOption{s.checker.ServerOption()}})
	return s
}

// onRequest records NACKs. The control plane answers a NACK with the rejected resource, and
// stock answers that with a NACK, immediately: without a pause virtual time would never
// advance.
func (s *side) onRequest(_ int64, req *discoveryv3.DiscoveryRequest) {
	if req.GetErrorDetail() == nil {
		return
	}
	s.mu.Lock()
	s.rejected[req.GetTypeUrl()] = req.GetErrorDetail().GetMessage()
	s.mu.Unlock()
	time.Sleep(time.Second)
}

// forget discards the recorded NACKs.
func (s *side) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.rejected)
}

// answer returns whether there was a NACK of a type, and its detail.
func (s *side) answer(url string) (rejected bool, detail string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	detail, rejected = s.rejected[url]
	return rejected, detail
}

// bootstrap names the side's control plane.
func (s *side) bootstrap(t testing.TB) []byte {
	type object = map[string]any
	b, err := json.Marshal(object{
		"node": object{"id": s.name},
		"xds_servers": []object{{
			"server_uri":    s.control.Addr(),
			"channel_creds": []object{s.net.Creds()},
		}},
	})
	kit.Must(t, err)
	return b
}

// xdsOptions are the dial options that make a channel the side's.
func (s *side) xdsOptions(t testing.TB) []grpc.DialOption {
	if s.name == stock {
		b, err := xds.NewXDSResolverWithConfigForTesting(s.bootstrap(t))
		kit.Must(t, err)
		return []grpc.DialOption{grpc.WithResolvers(b)}
	}
	cfg := s.cfg
	cfg.Bootstrap, cfg.Linger = s.bootstrap(t), -1
	opts, err := integrate.DialOptions(cfg)
	kit.Must(t, err)
	return opts
}

// transportOptions are the same for both.
func (s *side) transportOptions() []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(s.net.Dial),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, MaxDelay: time.Second},
			MinConnectTimeout: 2 * time.Second,
		}),
		grpc.WithIdleTimeout(0),
	}
}

// dial returns a channel to a service.
func (s *side) dial(t testing.TB, service string, opts ...grpc.DialOption) *grpc.ClientConn {
	all := append(s.xdsOptions(t), s.transportOptions()...)
	cc, err := grpc.NewClient("xds:///"+service, append(all, opts...)...)
	kit.Must(t, err)
	t.Cleanup(func() { _ = cc.Close() })
	return cc
}
