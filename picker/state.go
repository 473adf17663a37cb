// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package picker

import "sync/atomic"

// Connectivity is an endpoint's connection state, as gRPC counts them.
type Connectivity uint8

// The connectivity states.
const (
	Idle Connectivity = iota
	Connecting
	Ready
	TransientFailure
)

// ClusterState is what a caller knows about one cluster of a Config besides
// the configuration: which priority is in use and how its endpoints are.
type ClusterState struct {
	// Version changes whenever anything else in the state, or the cluster's
	// configuration, does. Build takes a cluster over from the previous
	// snapshot when its name and Version are the same.
	Version uint64

	// Leaf and Priority are the indexes of the priority in use (A56). While none is
	// in use, Leaf is -1: RPCs fail if Failed is set, otherwise they wait.
	Leaf, Priority int
	Failed         bool

	// Localities are those of the priority in use, in the order of the configuration.
	// While none of their endpoints is READY, RPCs wait if one of them may become
	// READY, otherwise they fail (T-LOC-1). If the policy hashes, the endpoint that an
	// RPC belongs to decides.
	Localities []LocalityState

	// The counters are all set if Leaf is not -1.
	Breaker  *Breaker   // shared by all users of the (cluster, service) pair
	Drops    []*Counter // one for each of the leaf's drop categories
	Overload *Counter   // RPCs that the breaker refused
}

// LocalityState is the state of one locality of the priority in use. Its endpoints are
// bound to its Load and the cluster's Breaker, and count their RPCs in flight if the policy
// looks at them (NewBinding).
type LocalityState struct {
	Load      *Load          // no other locality of the priority has it
	Endpoints EndpointStates // in the order of the configuration

	// Version, unless it is 0, stands for what Build reads of the state of the locality and its
	// endpoints: which Load and which Endpoints these are, what they are bound to, and their
	// Connectivity, Ejected, StateSince and weight (SetWeight). It changes whenever any of these
	// does, and never becomes what it was before. The locality's configuration and Utilization
	// are not in it. Build does not look at endpoints again whose locality it knows to be the
	// same. 0 says nothing.
	Version uint64

	// Utilization is the smoothed one of the endpoints, 1 being all of their capacity; 0 if
	// it was never known. Stale says that they have not reported for long. Only
	// Policy.LoadAware reads them.
	Utilization float64
	Stale       bool
}

// EndpointStates is a list of EndpointState, by index: a StateSlice, or the caller's own
// list of endpoints, which then needs no second one beside it. Build reads it and keeps
// what it needs.
type EndpointStates interface {
	Len() int
	State(i int) *EndpointState
}

// A StateSlice is the plain form of EndpointStates.
type StateSlice []*EndpointState

// Len implements EndpointStates.
func (s StateSlice) Len() int { return len(s) }

// State implements EndpointStates.
func (s StateSlice) State(i int) *EndpointState { return s[i] }

// appendStates appends a list to s.
func appendStates(s StateSlice, list EndpointStates) StateSlice {
	for i := range list.Len() {
		s = append(s, list.State(i))
	}
	return s
}

// An EndpointState is the part of an endpoint that all snapshots share (D9). The caller
// embeds it in its own type for endpoints and makes a callback of Finish once. So the end
// of an RPC needs nothing that was made for that RPC, and a long stream keeps no snapshot
// alive.
//
// The zero EndpointState is IDLE. It must be bound before it is passed to Build, and not be
// copied afterwards. It takes 32 bytes.
type EndpointState struct {
	binding *Binding

	// StateSince is when the endpoint came into its Connectivity, in nanoseconds on the
	// clock of Env.Now. Slow start reads it of READY endpoints.
	StateSince int64

	inFlight atomic.Int32 // RPCs
	weight   float32      // set by SetWeight

	// Connectivity is the state of the connection. The caller writes this and the
	// other exported fields, but not while a Build with the endpoint runs. Picks do
	// not read them.
	Connectivity Connectivity
	// Ejected says that outlier detection has ejected the endpoint (A50). If it is
	// READY, it counts as TRANSIENT_FAILURE.
	Ejected bool
	// Draining is for the caller, who connects no draining endpoint (A27-CLA-8). Build
	// goes by Endpoint.Health.
	Draining bool

	connectRequested atomic.Bool
}

// A Binding is what the RPCs to a locality's endpoints are counted with. It is immutable;
// the endpoints share it.
type Binding struct {
	load          *Load
	breaker       *Breaker
	unreported    bool    // a copy of load's, which saves Finish a load from memory
	countInFlight bool    // Begin and Finish maintain EndpointState.inFlight
	clock         *Clock  // nil if RPCs are not timed
	timing        *Timing // the endpoint's own, if RPCs are timed
}

// NewBinding returns the Binding of a locality: its Load and the Breaker of its cluster.
// countInFlight makes the endpoints count the RPCs that they have in flight, which costs
// each RPC two additions. It is Policy.CountsInFlight.
func NewBinding(load *Load, breaker *Breaker, countInFlight bool) *Binding {
	return &Binding{load: load, breaker: breaker, unreported: load.unreported, countInFlight: countInFlight}
}

// NewTimedBinding returns the Binding of a locality whose endpoints time their RPCs, which is
// Policy.TimesRPCs. Each endpoint then has counters of its own, of 128 bytes, and an RPC costs
// one addition at its beginning and two at its end, and two readings of clock. RPCs to these
// endpoints end by EndpointState.FinishTimed.
func NewTimedBinding(load *Load, breaker *Breaker, clock *Clock) *Binding {
	return &Binding{load: load, breaker: breaker, unreported: load.unreported, clock: clock}
}

// A timedBinding is the Binding of one endpoint, on the cache line that its RPCs write anyway.
type timedBinding struct {
	Binding
	timing Timing
}

// Bind sets what the endpoint's RPCs are counted with. An endpoint is bound once, since the
// end of an RPC cannot tell how its beginning was counted: one that moves to another
// locality or cluster, or whose policy comes to count RPCs in flight, gets a new
// EndpointState.
func (e *EndpointState) Bind(b *Binding) {
	if b.clock != nil {
		own := &timedBinding{Binding: *b}
		own.Binding.timing = &own.timing
		b = &own.Binding
	}
	e.binding = b
}

// Begin counts an RPC as issued to the endpoint. Any number of goroutines may call
// it. At most two atomic additions; does not allocate.
func (e *EndpointState) Begin() {
	if c := e.binding.clock; c != nil {
		e.beginTimed(c.Now())
		return
	}
	e.begin()
}

// beginTimed is Begin of an endpoint that times its RPCs.
func (e *EndpointState) beginTimed(now int64) {
	b := e.binding
	if !b.unreported {
		b.load.issue()
	}
	b.timing.Begin(now)
}

// begin is Begin of any other endpoint.
func (e *EndpointState) begin() {
	if !e.binding.unreported {
		e.binding.load.issue()
	}
	if e.binding.countInFlight {
		e.inFlight.Add(1)
	}
}

// Finish ends an RPC that was picked for the endpoint. It must be called exactly once for
// each. Any number of goroutines may call it. Two atomic additions, one less if nobody
// reports the load and one more if RPCs in flight are counted; does not allocate. Endpoints
// that time their RPCs have FinishTimed instead.
func (e *EndpointState) Finish(r CallResult) {
	b := e.binding
	b.breaker.Release()
	if !b.unreported {
		b.load.finish(r)
	}
	if b.countInFlight {
		e.inFlight.Add(-1)
	}
	if invariants && b.timing != nil {
		panic("picker: Finish of an endpoint that times its RPCs, which has FinishTimed")
	}
}

// TimesRPCs reports whether the endpoint times its RPCs, so that FinishTimed ends them.
func (e *EndpointState) TimesRPCs() bool { return e.binding.timing != nil }

// FinishTimed is Finish for endpoints that time their RPCs (NewTimedBinding), which have no
// other; it works for all. It is two additions and a reading of the clock more. That Finish
// does not go by the Binding saves other policies a call: the compiler would not inline it.
func (e *EndpointState) FinishTimed(r CallResult) {
	if b := e.binding; b.timing != nil {
		b.breaker.Release()
		if !b.unreported {
			b.load.finish(r)
		}
		b.timing.End(b.clock.Now(), r)
		return
	}
	e.Finish(r)
}

// MoveTo has an RPC that was picked for e, and that nobody has sent yet, begin at another
// endpoint of the same priority. It keeps its place at the circuit breaker. Up to four atomic
// additions; does not allocate.
func (e *EndpointState) MoveTo(other *EndpointState) {
	b := e.binding
	if !b.unreported {
		b.load.finish(CallNotSent)
	}
	if b.countInFlight {
		e.inFlight.Add(-1)
	}
	if b.timing != nil {
		b.timing.End(b.clock.Now(), CallNotSent)
	}
	other.Begin()
}

// RequestConnect reports whether an RPC is the first to ask for the endpoint's connection
// (outcomes QueueConnect and PickedConnect) since ResetConnectRequest: the others need do
// nothing. Any number of goroutines may call it.
func (e *EndpointState) RequestConnect() (first bool) {
	return !e.connectRequested.Load() && e.connectRequested.CompareAndSwap(false, true)
}

// ResetConnectRequest lets the next RPC that asks for the connection be the first. The
// caller resets it whenever the endpoint is IDLE again.
func (e *EndpointState) ResetConnectRequest() { e.connectRequested.Store(false) }

// RingState returns the aggregated state of a priority or locality whose policy hashes,
// from the number of its endpoints in each state (A42, A61, T-RING-7). The first rule that
// applies counts.
//
// Its endpoints connect when an RPC asks for them, but a priority that counts as failed or
// connecting may get no RPCs. connectOne says that the caller has to connect an IDLE
// endpoint, or else the state may never improve.
func RingState(idle, connecting, ready, failed int) (state Connectivity, connectOne bool) {
	switch {
	case ready > 0:
		return Ready, false
	case failed >= 2:
		state = TransientFailure
	case connecting > 0:
		state = Connecting
	case failed == 1 && idle > 0:
		state = Connecting
	case idle > 0:
		return Idle, false
	default:
		state = TransientFailure
	}
	return state, connecting == 0 && idle > 0
}
