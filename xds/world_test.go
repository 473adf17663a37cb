// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xds

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/picker"
	"github.com/xdslb/xdslb/xds/bootstrap"
	"github.com/xdslb/xdslb/xds/resource"
)

// worldSize is how many resources of each type there are in a world.
const worldSize = 4

// world is a client without a network, its servers, and the resources that exist: target i has routes,
// which lead to a cluster or two, which leads to an assignment with one endpoint, whose port identifies the version and
// the server.
//
// After each step these must hold:
//
//   - Requests can be encoded, and are as the protocol requires (see testplane.Checker). None of
//     them is a wildcard.
//   - A resource in the cache with a valid version stays in use while it is watched; with
//     fail_on_data_errors, unless it was deleted or replaced by an invalid one.
//   - A resource that was neither deleted nor invalid does not count as missing or invalid.
//   - A target that had a configuration without faults keeps one, unless a resource was deleted or invalid,
//     or the fault is confined to a cluster (A74).
//   - The configuration of a target equals an evaluation from scratch (slowTarget).
//   - A target whose name cannot be requested has an error.
//
// After everything has been delivered (settle), these must hold:
//
//   - No more messages are sent.
//   - The outcome of each target follows the rules: see compare. If all resources are valid and all servers can be
//     reached, that is the present configuration, from the first server of each authority.
type world struct {
	t     testing.TB
	c     *Client
	drops bool // the servers have fail_on_data_errors
	// authorities has the authority of the resources with each index (A47).
	authorities [worldSize]worldAuthority
	outages     *outages  // of TestModelOutages; otherwise nil
	kind        deltaKind // of servers of the incremental variant
	// trusts has servers of state of the world go by the version in the first request of a
	// stream: see sotwWire.trust.
	trusts  bool
	servers []*simServer
	watches []*worldWatch

	// overlay is the overlay of some of the watches; nil if no watch has one.
	overlay *worldOverlay
	// mortal means that assignments have a time to live in the incremental variant, which expires at
	// times: servers send heartbeats when they please, and before a world is compared.
	mortal bool

	link    [3][worldSize]int // the index of the resource of the next type to which one leads
	second  [worldSize]int    // the index of another cluster to which routes lead; -1 for none
	port    [worldSize]uint16
	version int
	present [resource.NumTypes][worldSize]bool
	good    [resource.NumTypes][worldSize]bool
	set     [resource.NumTypes][worldSize]int // version
	// harmed are the resources that were deleted or spoilt since all was well.
	harmed map[entryKey]bool
	waited time.Duration // since then

	away   int             // number of the server that is out of reach, counted from 1
	cached map[*entry]bool // had a good version after the last step
	slow   map[*dependencyManager]*slowTarget
	// evaluates means that evaluate has work to do.
	evaluates bool
}

// worldOptions are the properties of a world that its bootstrap has.
type worldOptions struct {
	drops bool // see world
	// federated means that every other resource is of an authority that has the servers in the opposite
	// order.
	federated bool
	servers   int
	outages   *outages
}

// worldAuthority is an authority of the bootstrap. The name is empty for names that are not xdstp names.
// chain has the numbers of its servers.
type worldAuthority struct {
	name  string
	chain []int
}

func newWorld(t testing.TB, opts Options, o worldOptions) *world {
	w := &world{t: t, drops: o.drops, outages: o.outages, harmed: map[entryKey]bool{}, slow: map[*dependencyManager]*slowTarget{}}
	doc := func(number int) string {
		var features []string
		if o.drops {
			features = append(features, "fail_on_data_errors")
		}
		if o.outages != nil && o.outages.transient[number] {
			features = append(features, "resource_timer_is_transient_error")
		}
		return serverDoc(fmt.Sprint("cp", number), features...)
	}
	docs := func(chain []int) string {
		var all []string
		for _, number := range chain {
			all = append(all, doc(number))
		}
		return strings.Join(all, ",")
	}
	var chain []int
	for i := range o.servers {
		chain = append(chain, i)
	}
	reversed := slices.Clone(chain)
	slices.Reverse(reversed)
	for i := range worldSize {
		w.authorities[i] = worldAuthority{"", chain}
		if o.federated && o.servers > 1 && i%2 == 1 {
			w.authorities[i] = worldAuthority{"other", reversed}
		}
		w.second[i] = -1
	}
	further := ""
	if o.outages != nil {
		w.authorities[2] = worldAuthority{"here", chain}
		w.authorities[3] = worldAuthority{"far", o.outages.far}
		further = `, "far": {"xds_servers": [` + docs(o.outages.far) + `]}`
	}
	cfg, err := bootstrap.Parser{}.Parse("test", []byte(`{"xds_servers": [`+docs(chain)+`], "node": {"id": "`+t.Name()+`"},
		"authorities": {"here": {}, "other": {"xds_servers": [`+docs(reversed)+`]}`+further+`}}`))
	kit.Must(t, err)
	opts.DialOptions = []grpc.DialOption{grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
		<-ctx.Done() // never answered: see tame
		return nil, ctx.Err()
	})}
	w.c = newClient(cfg, opts.withDefaults())
	w.c.rest = 5 * time.Second // opWait waits for less in all, so that nothing is under way for longer
	known := cfg.Servers
	if o.outages != nil {
		known = slices.Concat(known, cfg.Authorities["far"].Servers)
	}
	for _, s := range known {
		if !slices.ContainsFunc(w.servers, func(sim *simServer) bool { return sim.cfg == s }) {
			w.servers = append(w.servers, newSimServer(w, len(w.servers), s))
		}
	}
	for i := range worldSize {
		for typ := range w.present {
			w.present[typ][i], w.good[typ][i] = true, true
		}
		w.link[0][i], w.link[1][i], w.link[2][i] = i, i, i
		w.port[i] = uint16(1 + i)
	}
	return w
}

func (w *world) close() {
	w.c.users = 1
	w.c.combined.linger = -1
	w.c.Release()
	<-w.c.done
}

// tame ends the goroutines that servers of the client run. The world replaces them.
func (w *world) tame() {
	synctest.Wait()
	for _, sim := range w.servers {
		sim.restart()
	}
	w.c.mu.Lock()
	for _, sim := range w.servers {
		s := w.c.pool.servers[sim.cfg.Key()]
		if s == sim.s {
			continue
		}
		if s != nil {
			s.cancel()
		}
		sim.s, sim.stream = s, nil
	}
	w.c.unlock()
	synctest.Wait()
	w.evaluate()
}

// evaluate holds every target against one that is evaluated from scratch. It is for
// some worlds, and then after each step.
func (w *world) evaluate() {
	if !w.evaluates {
		return
	}
	w.c.mu.Lock()
	defer w.c.unlock()
	for _, m := range w.c.targets.managers {
		if w.slow[m] == nil {
			w.slow[m] = newSlowTarget(m)
		}
		if err := w.slow[m].checkLocked(); err != nil {
			w.t.Errorf("target %q: %v", m.key.listener, err)
		}
	}
	w.checkPatchesLocked()
}

func (w *world) name(typ resource.Type, i int) string {
	own := fmt.Sprint([]string{"t", "r", "c", "e"}[typ], i)
	plain, encoded := own, own
	if w.outages != nil {
		plain, encoded = own+w.outages.names[i].plain, own+w.outages.names[i].encoded
	}
	if name := w.authorities[i].name; name != "" {
		return "xdstp://" + name + "/" + strings.TrimPrefix(typ.URL(), "type.googleapis.com/") + "/" + encoded
	}
	return plain
}

// first returns the number of the first server of the authority of a resource.
func (w *world) first(i int) int { return w.authorities[i].chain[0] }

// up reports whether a server can be reached.
func (w *world) up(number int) bool {
	return number+1 != w.away && (w.outages == nil || !w.outages.down[number])
}

// routed returns the indexes of the clusters to which routes lead.
func (w *world) routed(r int) []int {
	clusters := []int{w.link[1][r]}
	if n := w.second[r]; n >= 0 && n != clusters[0] {
		clusters = append(clusters, n)
	}
	return clusters
}

// resource returns a resource as server number from has it, nil if it is
// deleted.
func (w *world) resource(typ resource.Type, i, from int) *anypb.Any {
	if !w.present[typ][i] {
		return nil
	}
	good, own := w.good[typ][i], w.name(typ, i)
	switch typ {
	case lds:
		l := listenerTo(own, w.name(rds, w.link[0][i]))
		if !good {
			l.ApiListener.ApiListener = wrap(&corev3.Node{})
		}
		return wrap(l)
	case rds:
		var clusters []string
		for _, c := range w.routed(i) {
			clusters = append(clusters, w.name(cds, c))
		}
		r := routesTo(own, clusters...)
		if !good && w.outages != nil {
			return wrap(routesWithLongErrors(own, w.set[rds][i]%3))
		}
		if !good {
			r.VirtualHosts[0].Routes[0].Match = &routev3.RouteMatch{}
		}
		return wrap(r)
	case cds:
		if !good {
			return wrap(badCluster(own))
		}
		return wrap(clusterTo(own, w.name(eds, w.link[2][i])))
	}
	if !good {
		return wrap(badEndpoints(own))
	}
	return wrap(endpointsAt(own, w.portAt(i, from)))
}

func (w *world) portAt(i, from int) uint16 { return uint16(from*15000) + w.port[i] }

// do takes a step, and reports whether it had an effect.
func (w *world) do(o op) bool {
	effect := w.step(o)
	if w.overlay != nil && o.c%16 == 0 {
		w.overlay.change(int(o.b))
	}
	w.tame()
	w.check()
	return effect
}

func (w *world) step(o op) bool {
	sim := w.servers[int(o.a)%len(w.servers)]
	typ, i := resource.Type(o.b%4), int(o.c)%worldSize
	switch o.kind {
	case opWatch:
		if len(w.watches) >= 8 {
			return false
		}
		w.watch(i)
	case opCancel, opRewatch:
		if len(w.watches) == 0 {
			return false
		}
		n := int(o.a) % len(w.watches)
		target := w.watches[n].target
		w.watches[n].cancel()
		w.watches = slices.Delete(w.watches, n, n+1)
		if o.kind == opRewatch {
			w.watch(target)
		}
	case opConnect:
		return sim.connect()
	case opCut:
		return sim.end(errors.New("going away"))
	case opRefuse:
		return sim.refuse()
	case opSend:
		return sim.send()
	case opHear:
		return sim.hear()
	case opReceive:
		for range resource.NumTypes { // of the first type that has one
			if sim.receive(typ) {
				return true
			}
			typ = (typ + 1) % resource.NumTypes
		}
		return false
	case opChange:
		if w.outages != nil && typ == rds {
			w.second[i] = int(o.a)/worldSize%(worldSize+1) - 1
		}
		w.change(typ, i, int(o.a)%worldSize)
	case opSpoil:
		w.harm(typ, i)
		w.good[typ][i] = false
		w.touch(typ, i)
	case opDelete:
		w.harm(typ, i)
		w.present[typ][i] = false
		w.touch(typ, i)
	case opResend:
		w.touch(typ, i)
	case opPartial:
		return sim.partial(typ, o.c)
	case opWait:
		d := time.Duration(o.a) * 8 * time.Millisecond
		if w.waited+d > 4*time.Second {
			return false // nor may a timer expire, not even a rest, because a delivery is outstanding
		}
		w.waited += d
		<-time.After(max(d, 1)) // see timing.After
	case opSettle:
		w.settle(int(o.a))
	case opOutage:
		if w.outages != nil {
			w.outage(o)
		}
	case opInvalidTarget:
		if w.outages != nil {
			w.toggleInvalid(int(o.c))
		}
	case opReturn:
		w.leaveAndReturn(rds+typ%2, i, int(o.a)%worldSize)
	}
	return true
}

func (w *world) watch(target int) {
	watch := &worldWatch{target: target, view: w.view(target), listener: w.name(lds, target), authority: "host"}
	if w.outages != nil {
		w.dial(watch)
	}
	watch.cancel = watch.view.Watch(watch.listener, watch.authority, watch)
	w.watches = append(w.watches, watch)
}

// change makes a new version of a resource, which is valid and leads to another one.
func (w *world) change(typ resource.Type, i, to int) {
	if typ < eds {
		w.link[typ][i] = to
	} else {
		w.port[i] += worldSize
	}
	w.present[typ][i], w.good[typ][i] = true, true
	w.touch(typ, i)
}

// touch has all servers send a resource again, or its absence.
func (w *world) touch(typ resource.Type, i int) {
	w.version++
	w.set[typ][i] = w.version
	for _, sim := range w.servers {
		sim.answer(typ)
	}
}

func (w *world) harm(typ resource.Type, i int) {
	w.harmed[entryKey{typ, w.name(typ, i)}] = true
}

// worldWatch is a Watcher that records its calls in a step.
type worldWatch struct {
	target              int
	view                View
	listener, authority string
	cancel              func()
	whole               bool // it had a configuration without any fault

	mu    sync.Mutex
	heard []outcome
	last  outcome
}

// outcome is a call of a Watcher.
type outcome struct {
	config *picker.Config
	err    error
}

func (w *worldWatch) Update(c *picker.Config) { w.hear(outcome{config: c}) }
func (w *worldWatch) Error(err error)         { w.hear(outcome{err: err}) }
func (w *worldWatch) hear(o outcome) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.heard, w.last = append(w.heard, o), o
}

// fault returns the error in a call, or "".
func (o outcome) fault() string {
	if o.err != nil {
		return o.err.Error()
	}
	for _, c := range o.config.Clusters {
		if c.Err != nil {
			return c.Err.Error()
		}
		if len(c.Leaves) != 1 || c.Leaves[0].ResolutionNote != nil || len(c.Leaves[0].Priorities) != 1 {
			return fmt.Sprintf("cluster %q: %+v", c.Name, c.Leaves)
		}
	}
	return ""
}
