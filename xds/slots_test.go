// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xds

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/xds/resource"
)

// placesWorld is a client and a server that sends its clusters in some order, which it
// changes now and then.
type placesWorld struct {
	d       *direct
	rng     *rand.Rand
	order   []int // of the clusters that there are
	content []int // of each cluster; less than 0 is invalid
	log     []string
	version int
	// forgets has the client forget the places before each response: all is looked up.
	forgets bool
	same    int // resources that were in their places
}

const placesClusters = 12

func newPlacesWorld(t *kit.Trial, forgets bool) *placesWorld {
	opts := Options{BackoffBase: time.Hour, Logger: slog.New(slog.DiscardHandler)}
	if forgets {
		opts.BackoffMax += time.Hour // so that it is another client
	}
	w := &placesWorld{d: newDirectWith(t, opts), rng: rand.New(rand.NewPCG(t.Seed, 1)), content: make([]int, placesClusters), forgets: forgets}
	w.order = w.rng.Perm(placesClusters)
	w.d.speak("sotw")
	w.d.settled()
	w.d.respond(lds, "1", wrap(listenerTo("svc", "svc")))
	return w
}

// step has one thing happen.
func (w *placesWorld) step() {
	i := w.rng.IntN(placesClusters)
	at := slices.Index(w.order, i)
	switch op := w.rng.IntN(12); {
	case op < 4:
		w.content[i]++
	case op == 4:
		w.content[i] = -1
	case op == 5 && at >= 0:
		w.order = slices.Delete(w.order, at, at+1)
	case op <= 6 && at < 0:
		w.order = slices.Insert(w.order, w.rng.IntN(len(w.order)+1), i)
	case op == 7:
		w.rng.Shuffle(len(w.order), func(i, j int) { w.order[i], w.order[j] = w.order[j], w.order[i] })
	case op == 8:
		var used []string
		for c := range placesClusters {
			if w.rng.IntN(4) > 0 {
				used = append(used, fmt.Sprint("c", c))
			}
		}
		if len(used) > 0 {
			w.d.respond(rds, "r", wrap(routesTo("svc", used...)))
		}
	}
	w.respond()
}

// respond has the server send all clusters.
func (w *placesWorld) respond() {
	w.version++
	msg := &discoveryv3.DiscoveryResponse{TypeUrl: cds.URL(), VersionInfo: fmt.Sprint(w.version), Nonce: fmt.Sprint(w.version)}
	for _, i := range w.order {
		msg.Resources = append(msg.Resources, w.cluster(i))
	}
	switch w.rng.IntN(12) {
	case 0:
		twice := w.rng.IntN(placesClusters)
		if at := slices.Index(w.order, twice); at >= 0 && w.rng.IntN(2) == 0 {
			w.content[twice] += 10 // both are other than before
			msg.Resources[at] = w.cluster(twice)
		}
		msg.Resources = slices.Insert(msg.Resources, w.rng.IntN(len(msg.Resources)+1), w.cluster(twice))
	case 1:
		msg.Resources = append(msg.Resources, wrap(listenerTo("x", "y")))
	case 2:
		msg.Resources = append(msg.Resources, &anypb.Any{TypeUrl: cds.URL(), Value: []byte{0xff}})
	case 3:
		for k, a := range msg.Resources {
			if w.rng.IntN(3) == 0 {
				msg.Resources[k] = wrap(&discoveryv3.Resource{Resource: a, Ttl: durationpb.New(time.Hour)})
			}
		}
	case 4:
		msg.Resources = []*anypb.Any{wrap(&discoveryv3.Resource{Name: fmt.Sprint("c", w.rng.IntN(placesClusters)), Ttl: durationpb.New(time.Hour)})}
	}
	if w.forgets {
		w.d.c.mu.Lock()
		w.d.s.types[cds].slots, w.d.s.types[cds].whole = nil, false
		w.d.c.mu.Unlock()
	}
	w.handle(msg)
	for s := range w.d.c.Resources() {
		s.Since, s.ErrTime, s.Asked, s.Updated, s.Rejected.Time = time.Time{}, time.Time{}, time.Time{}, time.Time{}, time.Time{}
		w.log = append(w.log, fmt.Sprintf("%d %+v", w.version, s))
	}
	w.requests()
}

func (w *placesWorld) handle(msg proto.Message) {
	r := response{t: &w.d.s.types[cds], msg: arrived(msg)}
	affected := r.handle()
	w.same += len(r.slots) - len(r.items) - len(r.unwanted)
	for _, settled := range affected {
		<-settled
	}
}

func (w *placesWorld) requests() {
	w.d.c.mu.Lock()
	defer w.d.c.mu.Unlock()
	for req, awaited := w.d.s.requestLocked(nil); req != nil; req, awaited = w.d.s.requestLocked(nil) {
		text, _ := prototext.MarshalOptions{}.Marshal(req)
		w.log = append(w.log, fmt.Sprintf("%d asks %x, %d awaited", w.version, text, len(awaited)))
	}
}

func (w *placesWorld) cluster(i int) *anypb.Any {
	name := fmt.Sprint("c", i)
	if w.content[i] < 0 {
		return wrap(badCluster(name))
	}
	return wrap(largeCluster(name, uint32(w.content[i])))
}

// TestPlaces: a resource in the same place as in the latest response is not looked up, with the same
// effects as if it were.
func TestPlaces(t *testing.T) {
	same, runs := 0, 20
	if testing.Short() || raceEnabled {
		runs = 6
	}
	const steps = 60
	(&kit.Model{Steps: steps, Run: func(t *kit.Trial) {
		quick, slow := newPlacesWorld(t, false), newPlacesWorld(t, true)
		for range t.Steps() {
			for _, w := range []*placesWorld{quick, slow} {
				w.rng, w.log = rand.New(rand.NewPCG(t.Step, 1)), nil
				w.step()
			}
			if !slices.Equal(quick.log, slow.log) {
				t.Errorf("version %d:\n%q\nwant\n%q", quick.version, quick.log, slow.log)
			}
		}
		same += quick.same
		if slow.same != 0 {
			t.Errorf("%d resources were in places that are forgotten", slow.same)
		}
	}}).Test(t, runs)
	if same < steps*placesClusters/3 {
		t.Errorf("%d resources were in their places", same)
	}
}

// TestAwaitedOnNewStream: a resource that was requested after a response which had all requested
// resources is awaited on the next stream as well.
func TestAwaitedOnNewStream(t *testing.T) {
	d := newDirect(t)
	d.speak("sotw")
	d.requests()
	d.respond(lds, "1", wrap(listenerTo("svc", "r")))
	d.requests()
	d.c.view().Watch("other", "other", &counter{})
	d.settled()
	d.requests()
	d.speak("sotw")
	d.c.mu.Lock()
	defer d.c.mu.Unlock()
	sub := d.s.types[lds].subs["other"]
	if _, awaited := d.s.requestLocked(nil); sub == nil || !slices.Contains(awaited, sub) {
		t.Errorf("waits for %v, want %v", awaited, sub)
	}
}

// TestPlacesOfChanges: how much of a response is looked up after one change.
func TestPlacesOfChanges(t *testing.T) {
	const n = 100
	all := make([]*anypb.Any, n)
	for i := range all {
		all[i] = wrap(largeCluster(fmt.Sprint("c", i), 0))
	}
	other := wrap(largeCluster("c50", 1))
	twice := wrap(largeCluster("c3", 0))
	for _, tt := range []struct {
		name  string
		list  []*anypb.Any
		items int
		names bool // all names are looked at
	}{
		{"nothing", all, 0, false},
		{"one is other", slices.Replace(slices.Clone(all), 50, 51, other), 1, false},
		{"one is gone", slices.Delete(slices.Clone(all), 50, 51), 0, false},
		{"some are gone", slices.Delete(slices.Clone(all), 50, 50+maxGone), 0, false},
		{"one has come", slices.Insert(slices.Clone(all), 50, wrap(largeCluster("new", 0))), 1, true},
		{"one is there twice", slices.Insert(slices.Clone(all), 50, twice), 0, true},
		{"two have changed places", slices.Replace(slices.Clone(all), 50, 52, all[51], all[50]), 1, true},
	} {
		msg := &discoveryv3.DiscoveryResponse{TypeUrl: cds.URL(), Resources: all}
		latest := splitOf(arrived(msg), cds, nil)
		places := make([]slot, n)
		for i, it := range latest.items {
			places[i] = slot{it.sum, &subscription{entry: &entry{key: entryKey{cds, it.name}}}}
		}
		msg.Resources = tt.list
		p := splitOf(arrived(msg), cds, places)
		if len(p.items) != tt.items || (p.seen != nil) != tt.names {
			t.Errorf("%s: %d resources are looked up, all names: %v; want %d, %v", tt.name, len(p.items), p.seen != nil, tt.items, tt.names)
		}
		if twice := tt.name == "one is there twice"; (p.faults.n > 0) != twice {
			t.Errorf("%s: %v", tt.name, p.faults.String())
		}
	}
}

// TestPlacesAreBounded: places are kept of cached resources only.
func TestPlacesAreBounded(t *testing.T) {
	d := newDirect(t)
	list := []*anypb.Any{wrap(listenerTo("svc", "r"))}
	for i := range 1000 {
		list = append(list, wrap(listenerTo(fmt.Sprint("other-", i), "r")))
	}
	places := func() []slot {
		d.c.mu.Lock()
		defer d.c.mu.Unlock()
		return d.s.types[resource.ListenerType].slots
	}
	d.respond(lds, "1", list...)
	if got := places(); len(got) != 1 || cap(got) > 2 {
		t.Errorf("%d places with room for %d, and one resource in the cache", len(got), cap(got))
	}
	d.c.mu.Lock()
	d.s.types[lds].dropLocked(d.s.types[lds].subs["svc"].entry)
	d.c.mu.Unlock()
	if got := places(); got != nil {
		t.Errorf("%d places after the resource was dropped", len(got))
	}
}

// TestOmittedAgain: after a response that has all subscribed resources and also the unsubscribed
// one, the next request omits the unsubscribed resource once more.
func TestOmittedAgain(t *testing.T) {
	d := newDirect(t)
	d.speak("sotw")
	cancel := d.c.view().Watch("other", "other", &counter{})
	d.settled()
	d.requests()
	both := []*anypb.Any{wrap(listenerTo("svc", "r")), wrap(listenerTo("other", "r"))}
	d.respond(lds, "1", both...)
	d.requests()
	d.c.mu.Lock()
	typ := &d.s.types[lds]
	sub := typ.subs["other"]
	d.c.mu.Unlock()
	cancel()
	for watched := true; watched; runtime.Gosched() {
		d.c.mu.Lock()
		watched = len(sub.entry.watchers) > 0
		d.c.mu.Unlock()
	}
	d.requests()
	d.respond(lds, "2", both...)
	d.requests()
	d.c.mu.Lock()
	defer d.c.mu.Unlock()
	if !sub.unsubscribing || sub.omitted != typ.round || typ.whole {
		t.Errorf("subscription %+v after response number %d, whole: %v", sub, typ.round, typ.whole)
	}
}
