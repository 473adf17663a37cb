// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
)

// link joins a channel's interceptors, which know the channel, with its LB
// policy, which knows the configuration. gRPC tells a resolver nothing of the
// channel it is for, and an interceptor nothing of the resolver; what both
// reach is the channel's service config. The resolver puts an entry there for a
// method that nobody calls, whose timeout, a random number, names the link. The
// channel's first RPC finds it and binds the link, and then the entry goes: a
// service config with methods costs every RPC three look-ups in a map.
//
// A link lives as long as its resolver. A channel that leaves idle mode has a
// new one.
type link struct {
	id          time.Duration
	tell        func() // gRPC the service config, if wanted changed
	intercepted bool   // an interceptor will ask
	picker      atomic.Pointer[stablePicker]
	cc          atomic.Pointer[grpc.ClientConn] // in linksOf under this key
	once        sync.Once
	known       chan struct{} // closed once picker has had a configuration, or an error, or never will
	closed      atomic.Bool
}

const (
	linkService = "xdslb.link"
	linkMethod  = "/" + linkService + "/id"
)

var (
	links   sync.Map // link.id to *link
	linksOf sync.Map // *grpc.ClientConn to *link, of channels that made an RPC
	// settled is an entry of linksOf that is found without a look-up: that of
	// the channel which came first of those that are left, usually the only one.
	settled atomic.Pointer[bound]
	// asked says that an interceptor met a channel whose resolver was not made
	// together with it.
	asked atomic.Bool
)

// bound is a channel and its link.
type bound struct {
	cc   *grpc.ClientConn
	link *link
}

func newLink(tell func(), intercepted bool) *link {
	l := &link{id: time.Duration(rand.Int64N(1 << 62)), tell: tell, intercepted: intercepted, known: make(chan struct{})}
	links.Store(l.id, l)
	return l
}

// wanted reports whether the service config is to name the link.
func (l *link) wanted() bool { return (l.intercepted || asked.Load()) && l.cc.Load() == nil }

// ask has all links named that are not bound. It reports whether that is new.
func ask() bool {
	if asked.Swap(true) {
		return false
	}
	links.Range(func(_, l any) bool {
		l.(*link).tell()
		return true
	})
	return true
}

// methodConfig is the entry of the service config that names the link.
func (l *link) methodConfig() methodConfig {
	return methodConfig{
		Name:    []map[string]string{{"service": linkService}},
		Timeout: fmt.Sprintf("%d.%09ds", l.id/time.Second, l.id%time.Second),
	}
}

// attach makes p, which has a configuration by now or cannot have one, the
// picker of the link.
func (l *link) attach(p *stablePicker) {
	l.picker.Store(p)
	l.once.Do(func() { close(l.known) })
}

// bind remembers that the link is cc's. Whichever of bind and close comes
// second removes the entry again.
func (l *link) bind(cc *grpc.ClientConn) {
	l.cc.Store(cc)
	linksOf.Store(cc, l)
	settled.CompareAndSwap(nil, &bound{cc, l})
	if l.closed.Load() {
		l.forget(cc)
	}
	l.tell()
}

// forget removes what leads from the channel to the link.
func (l *link) forget(cc *grpc.ClientConn) {
	linksOf.CompareAndDelete(cc, l)
	if b := settled.Load(); b != nil && b.link == l {
		settled.CompareAndSwap(b, nil)
	}
}

// close ends the link with its resolver. RPCs that wait for it look again.
func (l *link) close() {
	links.Delete(l.id)
	l.closed.Store(true)
	if cc := l.cc.Load(); cc != nil {
		l.forget(cc)
	}
	l.once.Do(func() { close(l.known) })
}

// linkOf returns the channel's link, or nil if its resolver is not ours. It
// costs a map look-up at most and does not allocate, but for the first RPC of a channel
// that is new or was idle, which wakes it.
func linkOf(ctx context.Context, cc *grpc.ClientConn) *link {
	if b := settled.Load(); b != nil && b.cc == cc {
		return b.link
	}
	if l, ok := linksOf.Load(cc); ok {
		return l.(*link)
	}
	if target := cc.CanonicalTarget(); !strings.HasPrefix(target, "xds:") && !strings.HasPrefix(target, "xdslb:") {
		return nil
	}
	for awake := false; ; {
		if id := cc.GetMethodConfig(linkMethod).Timeout; id != nil {
			if l, ok := links.Load(*id); ok {
				l.(*link).bind(cc)
				return l.(*link)
			}
		}
		if l, ok := linksOf.Load(cc); ok { // another RPC was faster
			return l.(*link)
		}
		state := cc.GetState()
		switch {
		case state == connectivity.Idle && !awake:
			cc.Connect() // resolvers usually say what they have to before this returns
			awake = true
		case ask():
		case state != connectivity.Idle && state != connectivity.Connecting:
			return nil
		case !cc.WaitForStateChange(ctx, state):
			return nil
		}
	}
}

// tableOf returns what the channel's picks read at the moment, waiting for a
// first configuration if need be. It is nil if the channel is not ours, or if
// ctx ends before; the RPC itself will say so better.
func tableOf(ctx context.Context, cc *grpc.ClientConn) *published {
	for {
		l := linkOf(ctx, cc)
		if l == nil {
			return nil
		}
		if p := l.picker.Load(); p != nil {
			return p.current.Load()
		}
		select {
		case <-l.known:
		case <-ctx.Done():
			return nil
		}
	}
}
