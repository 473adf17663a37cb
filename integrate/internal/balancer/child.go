// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"errors"
	"log/slog"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/balancer/base"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/experimental/balancer/weight"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/ringhash"
	"google.golang.org/grpc/serviceconfig"

	"github.com/xdslb/xdslb/integrate/internal/xdstls"
	"github.com/xdslb/xdslb/picker"
	"github.com/xdslb/xdslb/picker/persistent"
)

// child is a balancer of grpc-go's registry that picks the endpoints of a group (A52, D10), and
// the ClientConn that it sees.
//
// The balancer is called without the mutex, as it may call back at once. Calls are made one at
// a time, in the order of Runtime.Call. Its own calls may come from any goroutine. A balancer
// need not shut its SubConns down when it is closed; child shuts them down.
//
// The balancer's mutex guards all fields but policy. Only functions passed to Runtime.Call
// access policy.
type child struct {
	balancer.ClientConn // the channel's

	leaf   *leafState
	owner  childOwner
	name   string
	policy balancer.Balancer // nil before the first update

	targets map[string]target // by address
	conns   map[*childSubConn]struct{}
	// unknown counts the RPCs to addresses without an endpoint; nil if there are no such
	// addresses.
	unknown *endpoint
	state   balancer.State
	closed  bool
	// awaitingState is set while the child has not reported a state since its latest list of
	// endpoints: it may still claim existing connections.
	awaitingState bool
}

// childOwner is the group of a child, as seen by the child and its SubConns.
type childOwner interface {
	// covers reports whether a locality's endpoints belong to the group.
	covers(l *locality) bool
	// home returns one of the group's localities.
	home() *locality
	// onChildState is called when one of the group's children reports a state.
	onChildState(c *child)
	// shutdownUnclaimed shuts down the connections of the group's endpoints that no child has
	// claimed. It does nothing and returns false if the child is not the current one.
	shutdownUnclaimed(c *child) bool
	// onChildClosed is called after a child and its connections are closed.
	onChildClosed(c *child)
}

// target is the endpoint, or connection, that an address belongs to.
type target struct {
	endpoint  *endpoint
	exclusive bool // the endpoint has no other address
	hostname  string
}

var errClosed = errors.New("xdslb: the LB policy is closed")

func newChild(leaf *leafState, owner childOwner, name string) *child {
	return &child{
		ClientConn: leaf.cc,
		leaf:       leaf,
		owner:      owner,
		name:       name,
		conns:      map[*childSubConn]struct{}{},
		state: balancer.State{
			ConnectivityState: connectivity.Connecting,
			Picker:            base.NewErrPicker(balancer.ErrNoSubConnAvailable),
		},
	}
}

// update passes a new list of endpoints and a configuration to the child. list is called later,
// without the mutex.
func (c *child) update(targets map[string]target, config []byte, list func() resolver.State) {
	c.retarget(targets)
	c.leaf.rt.Call(func() {
		closed := true
		c.leaf.entry.do(func() { closed, c.awaitingState = c.closed, true })
		if closed {
			return
		}
		parsed, err := c.buildPolicy(config)
		if err == nil {
			err = c.policy.UpdateClientConnState(balancer.ClientConnState{ResolverState: list(), BalancerConfig: parsed})
		}
		c.leaf.entry.do(func() { c.onUpdated(err) })
	})
}

// onUpdated is called after an update. err is not nil if the policy rejected it.
func (c *child) onUpdated(err error) {
	of := stateKey{statePolicy, c.leaf.cluster, c}
	if err != nil {
		c.leaf.rec.begin(of, msgPolicyRejects, slog.String("policy", c.name), slog.String("error", err.Error()))
	} else {
		c.leaf.rec.resolve(of, msgPolicyAccepts, slog.String("policy", c.name))
	}
	if c.policy == nil {
		c.onState(balancer.State{ConnectivityState: connectivity.TransientFailure, Picker: base.NewErrPicker(err)})
	}
	c.shutdownUnclaimed()
}

// retarget assigns the child's connections to the endpoints that have their addresses now: an
// address that moved to another locality belongs to a new endpoint.
func (c *child) retarget(targets map[string]target) {
	c.targets = targets
	for h := range c.conns {
		h.retarget()
		if own := h.conn.Load(); own != nil {
			own.setHostnames(c.hostnameOf)
		}
	}
}

// buildPolicy builds the policy if necessary, and parses its configuration, which was validated
// when the resource was accepted.
func (c *child) buildPolicy(config []byte) (parsed serviceconfig.LoadBalancingConfig, err error) {
	builder := balancer.Get(c.name)
	if builder == nil {
		return nil, errors.New("no such balancer is registered")
	}
	if parser, ok := builder.(balancer.ConfigParser); ok {
		if parsed, err = parser.ParseConfig(config); err != nil {
			return nil, err
		}
	}
	if c.policy == nil {
		if p := builder.Build(c, xdstls.Owned(c.leaf.buildOpts, c.leaf.security)); p != nil {
			c.policy = p
		} else {
			return nil, errors.New("its builder returned nil")
		}
	}
	return parsed, nil
}

// exitIdle asks the child to connect.
func (c *child) exitIdle() {
	c.leaf.rt.Call(func() {
		if c.policy != nil {
			c.policy.ExitIdle()
		}
	})
}

// close closes the child and then its remaining connections.
func (c *child) close() {
	if c.closed {
		return
	}
	c.closed = true
	c.leaf.rec.log.EndState(stateKey{statePolicy, c.leaf.cluster, c})
	c.leaf.rt.Call(func() {
		if c.policy != nil {
			c.policy.Close()
		}
		c.leaf.entry.end(c.onClosed)
	})
}

// onClosed is called after the policy is closed.
func (c *child) onClosed() {
	for h := range c.conns {
		h.shutdown()
	}
	if c.leaf.rt.Closed() {
		return
	}
	c.owner.onChildClosed(c)
	c.leaf.out.publish = true
}

// UpdateState implements balancer.ClientConn.
func (c *child) UpdateState(s balancer.State) {
	c.leaf.entry.do(func() { c.onState(s) })
}

func (c *child) onState(s balancer.State) {
	if c.closed {
		return
	}
	c.state = s
	c.owner.onChildState(c)
	c.shutdownUnclaimed()
}

// shutdownUnclaimed shuts down connections that existed before the child, or came with
// endpoints from another locality, once the child has had the chance to claim them.
func (c *child) shutdownUnclaimed() {
	if !c.awaitingState || c.closed || c.state.ConnectivityState == connectivity.Connecting {
		return
	}
	if c.owner.shutdownUnclaimed(c) {
		c.awaitingState = false
		c.leaf.out.publish = true
	}
}

// ResolveNow implements balancer.ClientConn.
func (c *child) ResolveNow(o resolver.ResolveNowOptions) { c.leaf.cc.ResolveNow(o) }

// RemoveSubConn implements balancer.ClientConn.
func (c *child) RemoveSubConn(sc balancer.SubConn) { sc.Shutdown() }

// UpdateAddresses implements balancer.ClientConn.
func (c *child) UpdateAddresses(sc balancer.SubConn, addrs []resolver.Address) {
	sc.UpdateAddresses(addrs)
}

// NewSubConn implements balancer.ClientConn.
func (c *child) NewSubConn(addrs []resolver.Address, opts balancer.NewSubConnOptions) (sc balancer.SubConn, err error) {
	err = errClosed
	c.leaf.entry.do(func() {
		if !c.closed {
			sc, err = c.newSubConn(addrs, opts)
		}
	})
	return sc, err
}

// EndpointInfo is integrate.EndpointInfo, which documents it.
type EndpointInfo struct {
	Locality         picker.LocalityID
	LocalityWeight   uint32          // within the priority; ≥ 1
	LocalityMetadata picker.Metadata // nil for most
	Weight           uint32          // within the locality; ≥ 1
	Hostname         string          // "" for most
	Metadata         picker.Metadata // nil for most
}

type infoKey struct{}

// EndpointInfoOf returns the EndpointInfo of an endpoint, or nil: see package integrate.
func EndpointInfoOf(e resolver.Endpoint) *EndpointInfo {
	info, _ := e.Attributes.Value(infoKey{}).(*EndpointInfo)
	return info
}

// Equal makes attributes comparable. Metadata is compared by identity, which updates preserve
// if the metadata is unchanged.
func (i *EndpointInfo) Equal(other any) bool {
	o, ok := other.(*EndpointInfo)
	return ok && (i == o || i != nil && o != nil &&
		i.Locality == o.Locality && i.LocalityWeight == o.LocalityWeight && i.Weight == o.Weight && i.Hostname == o.Hostname &&
		persistent.SameMap(i.LocalityMetadata, o.LocalityMetadata) && persistent.SameMap(i.Metadata, o.Metadata))
}

// stateOf returns the resolver state of a child: the endpoints of its localities, which are a
// subset of a priority's, without draining endpoints. O(endpoints), in time and allocations.
func stateOf(all, ours []picker.Locality) resolver.State {
	var state resolver.State
	var total uint64
	for i := range all {
		total += uint64(all[i].Weight)
	}
	for i := range ours {
		l := &ours[i]
		for k, share := range l.FlatWeights(total) {
			e := l.Endpoints.At(k)
			if e.Health == picker.Draining {
				continue
			}
			endpoint := endpointOf(l, e, share)
			state.Endpoints = append(state.Endpoints, endpoint)
			for _, a := range endpoint.Addresses {
				a.BalancerAttributes = endpoint.Attributes
				state.Addresses = append(state.Addresses, a)
			}
		}
	}
	return state
}

func endpointOf(l *picker.Locality, e *picker.Endpoint, share uint32) resolver.Endpoint {
	info := &EndpointInfo{Locality: l.ID, LocalityWeight: l.Weight, LocalityMetadata: l.Metadata, Weight: e.Weight}
	var out resolver.Endpoint
	for _, a := range addressesOf(e) {
		out.Addresses = append(out.Addresses, resolver.Address{Addr: a})
	}
	out = weight.Set(out, weight.EndpointInfo{Weight: share})
	if x := e.Extra; x != nil {
		info.Hostname, info.Metadata = x.Hostname, x.Metadata
		out = ringhash.SetHashKey(out, x.HashKey)
	}
	out.Attributes = out.Attributes.WithValue(infoKey{}, info)
	return out
}

// addressesOf returns the addresses of an endpoint, in order.
func addressesOf(e *picker.Endpoint) []string {
	addrs := []string{picker.AddrText(e.Addr)}
	if multiAddressed(e) {
		for _, a := range e.Extra.Addrs {
			addrs = append(addrs, picker.AddrText(a))
		}
	}
	return addrs
}

// multiAddressed reports whether an endpoint has several addresses (A61).
func multiAddressed(e *picker.Endpoint) bool { return e.Extra != nil && len(e.Extra.Addrs) > 0 }
