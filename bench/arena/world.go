// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package arena

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/experimental/balancer/weight"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"
	"google.golang.org/grpc/xds"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/xdslb/xdslb/bench/cputime"
	"github.com/xdslb/xdslb/bench/testplane"
	"github.com/xdslb/xdslb/integrate"
	"github.com/xdslb/xdslb/xds/xdstest"
)

// connBuffer is the size of the transports' buffers; there are thousands of them.
const connBuffer = 2 << 10

// target is the service's name.
const target = "arena.xdslb.test"

// A call is the outcome of an RPC.
type call struct {
	took     time.Duration // until the end of the run if it had not ended
	failed   bool
	attempts atomic.Int32 // seen by servers
	hit      atomic.Bool  // the key was in the server's cache
}

// A world is a run with real channels: a control plane, servers, clients. Its time is that of
// package time, virtual in a bubble.
type world struct {
	fleet   *Fleet
	policy  *Policy
	seed    uint64
	work    []arrival
	calls   []call
	models  []*Server
	nodes   []*node
	net     *xdstest.Network
	control *xdstest.Server
	conns   []*grpc.ClientConn

	mu     sync.Mutex
	faults []error // of events
}

// play runs a fleet with a policy over real channels, in memory or over loopback. All
// goroutines have ended when it returns.
func play(f *Fleet, p *Policy, seed uint64, real bool) (*Result, error) {
	if err := f.check(); err != nil {
		return nil, err
	}
	w := &world{fleet: f, policy: p, seed: seed, work: f.arrivals(seed), net: xdstest.NewNetwork()}
	w.net.TCP = real
	w.calls = make([]call, len(w.work))
	defer w.close()
	clock := &systemClock{start: time.Now()}
	w.models = f.newServers(clock)
	if err := w.startNodes(); err != nil {
		return nil, err
	}
	if err := w.serve(); err != nil {
		return nil, err
	}
	if err := w.connect(seed); err != nil {
		return nil, err
	}
	reseed(seed)
	clock.start = time.Now() // after connecting
	begin := cputime.Process()
	events := w.schedule(clock, seed)
	w.send(clock)
	for _, e := range events {
		e.Stop()
	}
	cpu := cputime.Process() - begin
	w.close()
	if len(w.faults) > 0 {
		return nil, fmt.Errorf("arena: %s, %s: %w", f.Name, p, w.faults[0])
	}
	r := score(f, seed, w.work, w.calls, w.models)
	r.Policy, r.Impl = p.Name, p.Impl
	r.CPU = float64(cpu.Nanoseconds()) / 1e3 / float64(len(w.work))
	return r, nil
}

// serve starts the control plane.
func (w *world) serve() error {
	if w.policy.Impl == Anchor || w.policy.ServiceConfig != "" {
		return nil
	}
	var err error
	if w.control, err = xdstest.Start(xdstest.Options{Listen: w.net.Listen}); err != nil {
		return err
	}
	nodes := w.nodes
	if w.fleet.Joins {
		nodes = nodes[:len(nodes)-1]
	}
	return w.assign(nodes)
}

// assign gives clients these servers.
func (w *world) assign(nodes []*node) error {
	zones := make([]xdstest.Locality, max(1, w.fleet.Zones))
	for i, n := range nodes {
		z := &zones[i%len(zones)]
		z.Zone = strconv.Itoa(i % len(zones))
		e := xdstest.Endpoint{Addr: n.addr}
		if w.policy.Weights {
			e.Weight = uint32(100 * n.model.Nominal)
		}
		z.Weight += uint32(100 * n.model.Nominal)
		z.Endpoints = append(z.Endpoints, e)
	}
	r := w.service(target, zones)
	if w.fleet.Repeats {
		for i := range w.fleet.Clients {
			r.Add(w.service(w.fleet.target(i), zones))
		}
	}
	if w.fleet.ClientZones != nil {
		r.Endpoints = append(r.Endpoints, w.fleet.assignment())
	}
	return w.control.Set(r)
}

// service returns the resources of a service with all servers.
func (w *world) service(name string, zones []xdstest.Locality) xdstest.Resources {
	r := xdstest.Service(name, zones...)
	r.Clusters[0] = xdstest.Cluster(name, name, append([]testplane.ClusterOption{testplane.MaxRequests(1 << 30)}, w.policy.Cluster...)...)
	route := r.Routes[0].VirtualHosts[0].Routes[0]
	if w.policy.Hashed {
		testplane.HashHeader(route, hashHeader)
	}
	if w.policy.Route != nil {
		w.policy.Route(route.GetRoute())
	}
	return r
}

// target returns the service of a client. Circuit breakers and retry budgets apply to all
// channels of a process to a cluster, so where they matter each client has its own service, as
// if it were a separate process.
func (f *Fleet) target(client int) string {
	if f.Repeats {
		return strconv.Itoa(client) + "." + target
	}
	return target
}

// connect makes the clients' channels, one after the other, and waits until all are connected,
// so that draws of a policy follow the seed as well.
func (w *world) connect(seed uint64) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for i := range w.fleet.Clients {
		reseed(seed<<20 + uint64(i))
		cc, err := w.channel(i)
		if err != nil {
			return err
		}
		w.conns = append(w.conns, cc)
		cc.Connect()
		// Rings connect on demand.
		for s := cc.GetState(); s != connectivity.Ready && !w.policy.Hashed; s = cc.GetState() {
			if !cc.WaitForStateChange(ctx, s) {
				return fmt.Errorf("arena: %s, %s: a channel is %v", w.fleet.Name, w.policy, s)
			}
		}
		time.Sleep(settle)
	}
	return nil
}

// settle is the time for the connections of a channel after the first.
const settle = 50 * time.Millisecond

// channel makes the channel of a client.
func (w *world) channel(client int) (*grpc.ClientConn, error) {
	opts := []grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithContextDialer(w.net.Dial),
		grpc.WithReadBufferSize(connBuffer), grpc.WithWriteBufferSize(connBuffer), grpc.WithIdleTimeout(0),
	}
	opts = append(opts, w.policy.DialOptions...)
	if w.control == nil {
		return w.static(opts)
	}
	zone := ""
	if w.fleet.ClientZones != nil {
		zone = strconv.Itoa(w.fleet.clientZone(client))
	}
	bootstrap, err := bootstrapOf(w.net, w.control, zone)
	if err != nil {
		return nil, err
	}
	if w.policy.Impl == Stock {
		b, err := xds.NewXDSResolverWithConfigForTesting(bootstrap)
		if err != nil {
			return nil, err
		}
		return grpc.NewClient("xds:///"+w.fleet.target(client), append(opts, grpc.WithResolvers(b))...)
	}
	cfg := w.policy.Config
	cfg.Bootstrap, cfg.Linger = bootstrap, -1
	ours, err := integrate.DialOptions(cfg)
	if err != nil {
		return nil, err
	}
	return grpc.NewClient("xds:///"+w.fleet.target(client), append(opts, ours...)...)
}

// static makes a channel without xDS.
func (w *world) static(opts []grpc.DialOption) (*grpc.ClientConn, error) {
	m := manual.NewBuilderWithScheme("arena")
	var state resolver.State
	for _, n := range w.nodes {
		a := withModel(resolver.Address{Addr: n.addr.String()}, n.model, w.fleet.mean())
		e := weight.Set(resolver.Endpoint{Addresses: []resolver.Address{a}}, weight.EndpointInfo{Weight: uint32(100 * n.model.Nominal)})
		state.Addresses, state.Endpoints = append(state.Addresses, a), append(state.Endpoints, e)
	}
	m.InitialState(state)
	return grpc.NewClient("arena:///"+target, append(opts, grpc.WithResolvers(m), grpc.WithDefaultServiceConfig(w.policy.ServiceConfig))...)
}

// schedule starts timers for the events.
func (w *world) schedule(clock clock, seed uint64) []timer {
	m := &machines{
		servers: w.models,
		stop:    func(i int, gracefully bool) { w.nodes[i].stop(gracefully) },
		start: func(i int) {
			err := w.nodes[i].start()
			if err == nil && w.fleet.Joins && w.control != nil {
				err = w.assign(w.nodes)
			}
			if err != nil {
				w.mu.Lock()
				defer w.mu.Unlock()
				w.faults = append(w.faults, err)
			}
		},
	}
	var list []timer
	for _, e := range w.fleet.events(seed) {
		if e.At == 0 {
			e.do(m)
		} else {
			list = append(list, clock.after(e.At, func() { e.do(m) }))
		}
	}
	return list
}

// events returns the events, drawn from the seed.
func (f *Fleet) events(seed uint64) []Event {
	if f.Script == nil {
		return nil
	}
	return f.Script(f, rand.New(rand.NewPCG(seed, 3)))
}

// send sends the RPCs at their times, each on its own goroutine, and returns at the end of the
// run.
func (w *world) send(clock clock) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var calls sync.WaitGroup
	for i := range w.work {
		if d := w.work[i].at - clock.now(); d > 0 {
			time.Sleep(d)
		}
		calls.Go(func() { w.call(ctx, clock, i) })
	}
	if d := w.fleet.end() - clock.now(); d > 0 {
		time.Sleep(d)
	}
	cancel()
	calls.Wait()
}

// call makes one RPC. Its latency is measured from the time when it was due.
func (w *world) call(ctx context.Context, clock clock, i int) {
	a := &w.work[i]
	if w.fleet.Keys > 0 {
		ctx = session(ctx, strconv.Itoa(a.key))
	} else if w.policy.Hashed {
		ctx = session(ctx, strconv.Itoa(i))
	}
	c := &w.calls[i]
	ended := func(err error) {
		c.took = clock.now() - a.at
		c.failed = err != nil && ctx.Err() == nil // RPCs interrupted by the end of the run have not failed
	}
	if w.fleet.Methods[a.method].Open > 0 {
		w.openStream(ctx, i, ended)
		return
	}
	err := w.invoke(ctx, i)
	for n := w.fleet.Again; n > 0 && err != nil && ctx.Err() == nil; n-- {
		err = w.invoke(ctx, i)
	}
	ended(err)
}

func (w *world) invoke(ctx context.Context, i int) error {
	if w.fleet.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, w.fleet.Timeout)
		defer cancel()
	}
	return w.conns[w.work[i].client].Invoke(ctx, method, wrapperspb.UInt32(uint32(i)), new(wrapperspb.UInt32Value))
}

// close closes everything. It may be called repeatedly.
func (w *world) close() {
	for _, cc := range w.conns {
		_ = cc.Close() // the error is irrelevant
	}
	stopNodes(w.nodes)
	if w.control != nil {
		w.control.Stop()
	}
	w.conns, w.nodes, w.control = nil, nil, nil
}

// bootstrapOf returns a bootstrap with a control plane on a network, for a client in a zone; ""
// means no zone.
func bootstrapOf(n *xdstest.Network, control *xdstest.Server, zone string) ([]byte, error) {
	type object = map[string]any
	node := object{"id": "arena"}
	if zone != "" {
		node["locality"] = object{"zone": zone}
	}
	return json.Marshal(object{
		"node":        node,
		"xds_servers": []object{{"server_uri": control.Addr(), "channel_creds": []object{n.Creds()}}},
	})
}
