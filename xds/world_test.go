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
	"testing"
	"testing/synctest"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/xdslb/xdslb/xds/bootstrap"
	"github.com/xdslb/xdslb/xds/resource"
)

// worldSize is how many resources of each type there are in a world.
const worldSize = 4

// world is a client without a network, its servers, and what is true: target ti
// has routes rj, these lead to a cluster ck, that to the assignment el, and that
// has one endpoint, whose port tells the version and the server.
//
// After each step these must hold:
//
//   - Requests are as the protocol asks (see testplane.Checker), none of them a
//     wildcard.
//   - What is in the cache with a good version stays so while somebody watches
//     it; with fail_on_data_errors, unless it was deleted or spoilt.
//   - Nothing counts as missing or invalid that was neither deleted nor spoilt.
//   - A target that was served whole stays so, unless something was.
//   - What a target has is what a look at everything would give it (slowTarget).
//
// After all is repaired, connected and delivered (settle), these must:
//
//   - It comes to rest.
//   - Every watcher has the configuration of the present, from the first server.
type world struct {
	t     testing.TB
	c     *Client
	drops bool // the servers have fail_on_data_errors
	// federated says that every other resource is of an authority that has the
	// servers in the opposite order (A47).
	federated bool
	kind      deltaKind // of servers of the incremental variant
	// trusts has servers of state of the world go by the version in the first request of a
	// stream: see sotwWire.trust.
	trusts  bool
	servers []*simServer
	watches []*worldWatch

	// overlay is what some of the watches have; nil if none has one.
	overlay *worldOverlay
	// mortal means that assignments have a time to live in the incremental variant, which expires at
	// times: servers send heartbeats when they please, and before a world is compared.
	mortal bool

	link    [3][worldSize]int // which rj, ck, el the resource of the type before leads to
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
	// evaluates says that evaluate has something to do.
	evaluates bool
}

func newWorld(t testing.TB, opts Options, drops, federated bool, servers int) *world {
	w := &world{t: t, drops: drops, federated: federated && servers > 1, harmed: map[entryKey]bool{}, slow: map[*dependencyManager]*slowTarget{}}
	var docs []string
	for i := range servers {
		feature := ""
		if drops {
			feature = "fail_on_data_errors"
		}
		docs = append(docs, serverDoc(fmt.Sprint("cp", i), feature))
	}
	chain := strings.Join(docs, ",")
	slices.Reverse(docs)
	cfg, err := bootstrap.Parser{}.Parse("test", []byte(`{"xds_servers": [`+chain+`], "node": {"id": "`+t.Name()+`"},
		"authorities": {"here": {}, "other": {"xds_servers": [`+strings.Join(docs, ",")+`]}}}`))
	if err != nil {
		t.Fatal(err)
	}
	opts.DialOptions = []grpc.DialOption{grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
		<-ctx.Done() // nobody is there: see tame
		return nil, ctx.Err()
	})}
	w.c = newClient(cfg, opts.withDefaults())
	w.c.rest = 5 * time.Second // opWait waits for less in all, so that nothing is under way for longer
	for i, s := range cfg.Servers {
		w.servers = append(w.servers, newSimServer(w, i, s))
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

// tame ends the goroutines that servers of the client run. The world does what
// they would do.
func (w *world) tame() {
	synctest.Wait()
	for _, sim := range w.servers {
		sim.restart()
	}
	w.c.mu.Lock()
	for i, sim := range w.servers {
		s := w.c.pool.servers[w.c.cfg.Servers[i].Key()]
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
	if w.first(i) > 0 {
		return "xdstp://other/" + typ.String() + "/" + own
	}
	return own
}

// first returns the number of the server that comes first for a resource.
func (w *world) first(i int) int {
	if w.federated {
		return i % 2
	}
	return 0
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
		r := routesTo(own, w.name(cds, w.link[1][i]))
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

func (w *world) portAt(i, from int) uint16 { return uint16(from*30000) + w.port[i] }

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
			return false // nor may a timer run out for want of a delivery, be it a rest
		}
		w.waited += d
		<-time.After(max(d, 1)) // see timing.After
	case opSettle:
		w.settle(int(o.a))
	}
	return true
}

func (w *world) watch(target int) {
	watch := &worldWatch{target: target, view: w.view(target)}
	watch.cancel = watch.view.Watch(w.name(lds, target), "host", watch)
	w.watches = append(w.watches, watch)
}

// change makes a new version of a resource, which is good, and leads elsewhere.
func (w *world) change(typ resource.Type, i, to int) {
	if typ < eds {
		w.link[typ][i] = to
	} else {
		w.port[i] += worldSize
	}
	w.present[typ][i], w.good[typ][i] = true, true
	w.touch(typ, i)
}

// touch has all servers send a resource anew, or its absence.
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
