// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package picker

import (
	"sync/atomic"
	"time"
)

// Connectivity is an endpoint's connection state, as in gRPC.
type Connectivity uint8

// The connectivity states.
const (
	Idle Connectivity = iota
	Connecting
	Ready
	TransientFailure
)

// ClusterState is the caller's state of one cluster of a Config in addition to the
// configuration: the active priority and the states of its endpoints.
type ClusterState struct {
	// Version must change whenever anything else in the state, or the cluster's configuration,
	// changes. Build reuses a cluster of the previous snapshot with the same name and Version.
	Version uint64

	// Leaf and Priority are the indexes of the active priority (A56). Without one, Leaf is -1:
	// RPCs fail if Failed is set, otherwise they wait.
	Leaf, Priority int
	Failed         bool

	// Localities are the localities of the active priority, in configuration order. If none of
	// their endpoints is READY, RPCs wait if an endpoint may become READY, otherwise they fail
	// (T-LOC-1). If the policy hashes, only the endpoint to which an RPC belongs matters.
	Localities []LocalityState

	// The counters must all be set unless Leaf is -1.
	Breaker  *Breaker   // shared by all users of the (cluster, service) pair
	Drops    []*Counter // one for each drop category of the leaf
	Overload *Counter   // RPCs rejected by the breaker
}

// LocalityState is the state of one locality of the active priority. Its endpoints are bound to
// its Load and the cluster's Breaker, and count their RPCs in flight if the policy needs it
// (NewBinding).
type LocalityState struct {
	Load      *Load          // not shared with other localities of the priority
	Endpoints EndpointStates // in configuration order

	// Version, unless it is 0, identifies the state of the locality and its endpoints that
	// Build reads: the Load and Endpoints, their bindings, and their Connectivity, Ejected, Cold,
	// StateSince and weight (SetWeight). It must change whenever any of these changes, and must
	// not return to an earlier value. It does not cover the locality's configuration. Build
	// does not read the endpoints of an unchanged locality again. With 0 it always does.
	Version uint64
}

// EndpointStates is a list of EndpointState, by index: a StateSlice, or the caller's own list
// of endpoints, which then needs no parallel slice. Build does not modify it, and copies the
// parts it needs.
type EndpointStates interface {
	Len() int
	State(i int) *EndpointState
}

// A StateSlice is a slice that implements EndpointStates.
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

// An EndpointState is the part of an endpoint that all snapshots share (D9). The caller embeds
// it in its own endpoint type and creates a callback of Finish once. So the end of an RPC needs
// no allocation per RPC, and a long stream keeps no snapshot alive.
//
// The zero EndpointState is IDLE. It must be bound before it is passed to Build, and must not
// be copied afterwards. It takes 32 bytes.
type EndpointState struct {
	binding *Binding

	// StateSince is the time at which the endpoint entered its Connectivity, in nanoseconds on
	// the clock of Env.Now. Slow start uses it for READY endpoints.
	StateSince int64

	inFlight atomic.Int32 // RPCs
	weight   float32      // set by SetWeight

	// Connectivity is the state of the connection. The caller sets this and the other exported
	// fields, but not while a Build with the endpoint runs. Picks do not read them.
	Connectivity Connectivity
	// Ejected means that outlier detection has ejected the endpoint (A50). If it is READY, it
	// then counts as TRANSIENT_FAILURE.
	Ejected bool
	// Draining is for the caller, which connects no draining endpoint (A27-CLA-8). Build uses
	// Endpoint.Health.
	Draining bool
	// Cold means that the server is new or has failed, so that it lacks what other servers have cached. Policies
	// that hash slow-start only such endpoints: the rest become READY late because no RPC has needed them before.
	Cold bool

	connectRequested atomic.Bool
}

// A Binding has the counters for RPCs to a locality's endpoints. It is immutable and shared by
// the endpoints.
type Binding struct {
	load          *Load
	breaker       *Breaker
	unreported    bool    // a copy from load, which saves Finish a memory access
	uncounted     bool    // a copy from breaker
	countInFlight bool    // Begin and Finish maintain EndpointState.inFlight
	clock         *Clock  // nil if RPCs are not timed
	timing        *timing // of the endpoint, if RPCs are timed
}

// NewBinding returns the Binding of a locality with its Load and the Breaker of its cluster.
// countInFlight, which should be Policy.CountsInFlight, makes the endpoints count their RPCs in
// flight, which costs each RPC two additions.
func NewBinding(load *Load, breaker *Breaker, countInFlight bool) *Binding {
	return &Binding{load: load, breaker: breaker, unreported: load.unreported, uncounted: breaker.Unlimited, countInFlight: countInFlight}
}

// NewTimedBinding returns the Binding of a locality whose endpoints time their RPCs, for
// Policy.TimesRPCs. Each endpoint then has 128 bytes of counters of its own, and an RPC costs
// one addition at its beginning and two at its end, plus two readings of clock. RPCs to these
// endpoints must end with EndpointState.FinishTimed.
func NewTimedBinding(load *Load, breaker *Breaker, clock *Clock) *Binding {
	return &Binding{load: load, breaker: breaker, unreported: load.unreported, uncounted: breaker.Unlimited, clock: clock}
}

// A timedBinding is the Binding of one endpoint, on the cache line that its RPCs write anyway.
type timedBinding struct {
	Binding
	timing timing
}

// Bind sets the counters of the endpoint's RPCs. It must be called only once, since the end of
// an RPC cannot tell how its beginning was counted. An endpoint that moves to another locality
// or cluster, or whose policy starts to count RPCs in flight, needs a new EndpointState.
func (e *EndpointState) Bind(b *Binding) {
	if b.clock != nil {
		own := &timedBinding{Binding: *b}
		own.Binding.timing = &own.timing
		b = &own.Binding
	}
	e.binding = b
}

// Begin counts an RPC as issued to the endpoint, which the caller has chosen. The RPC takes no
// position in the locality's sequence, so the sequence of other RPCs remains in EDF order. It is
// safe for concurrent use. At most two atomic additions; does not allocate.
func (e *EndpointState) Begin() {
	b := e.binding
	if !b.unreported {
		b.load.count(countChosen)
	}
	switch {
	case b.timing != nil:
		b.timing.begin(b.clock.now())
	case b.countInFlight:
		e.inFlight.Add(1)
	}
}

// beginTimed counts an RPC that the snapshot picked for an endpoint that times its RPCs.
func (e *EndpointState) beginTimed(now int64) {
	b := e.binding
	if !b.unreported {
		b.load.issue()
	}
	b.timing.begin(now)
}

// begin counts an RPC that the snapshot picked for any other endpoint.
func (e *EndpointState) begin() {
	if !e.binding.unreported {
		e.binding.load.issue()
	}
	if e.binding.countInFlight {
		e.inFlight.Add(1)
	}
}

// Finish ends an RPC that was picked for the endpoint. It must be called exactly once per RPC.
// It is safe for concurrent use. Two atomic additions, one less without a circuit breaker, one less
// without load reports and one more if RPCs in flight are counted; does not allocate. Endpoints that time their RPCs need
// FinishTimed instead.
func (e *EndpointState) Finish(r CallResult) {
	b := e.binding
	if !b.uncounted {
		b.breaker.release()
	}
	if l := b.load; b.unreported {
	} else if l.striped.Load() == 0 {
		l.counts[r&3].Add(1)
	} else {
		l.countInStripe(int(r & 3))
	}
	if b.countInFlight {
		e.inFlight.Add(-1)
	}
	if invariants && b.timing != nil {
		panic("picker: Finish of an endpoint that times its RPCs, which has FinishTimed")
	}
}

// TimesRPCs reports whether the endpoint times its RPCs, so that FinishTimed must end them.
func (e *EndpointState) TimesRPCs() bool { return e.binding.timing != nil }

// FinishTimed is Finish for endpoints that time their RPCs (NewTimedBinding), which must not
// use Finish; it works for all endpoints. It costs two more additions and a reading of the
// clock. Finish does not check the Binding for this, since the compiler would then not inline
// it.
func (e *EndpointState) FinishTimed(r CallResult) {
	if b := e.binding; b.timing != nil {
		b.breaker.Release()
		if !b.unreported {
			b.load.finish(r)
		}
		b.timing.end(b.clock.now(), r)
		return
	}
	e.Finish(r)
}

// PushBack is called at the end of an RPC whose server asks not to be sent RPCs for d. Policies that time RPCs
// then choose the endpoint only if there is no other, and d counts as the latency of an RPC. Other policies
// ignore it. Does not allocate.
func (e *EndpointState) PushBack(d time.Duration) {
	if b := e.binding; b.timing != nil {
		b.timing.pushBack(b.clock.now(), d)
	}
}

// PushedBack reports whether PushBack keeps the endpoint out of choice.
func (e *EndpointState) PushedBack() bool {
	b := e.binding
	return b.timing != nil && b.timing.isPushedBack(b.clock)
}

// MoveTo moves an RPC that was picked for e, and has not been sent yet, to another endpoint of
// the same priority. The RPC remains counted in the circuit breaker. Up to four atomic
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
		b.timing.end(b.clock.now(), CallNotSent)
	}
	other.Begin()
}

// RequestConnect reports whether an RPC is the first to request the endpoint's connection
// (outcomes QueueConnect and PickedConnect) since ResetConnectRequest. Only the first one needs
// to act. It is safe for concurrent use.
func (e *EndpointState) RequestConnect() (first bool) {
	return !e.connectRequested.Load() && e.connectRequested.CompareAndSwap(false, true)
}

// ResetConnectRequest makes RequestConnect return true again. The caller calls it whenever the
// endpoint becomes IDLE.
func (e *EndpointState) ResetConnectRequest() { e.connectRequested.Store(false) }

// RingState returns the aggregated state of a priority or locality whose policy hashes, from
// the number of its endpoints in each state (A42, A61, T-RING-7). The first matching rule
// applies.
//
// Its endpoints connect on demand, but a priority that counts as failed or connecting may get
// no RPCs. connectOne means that the caller has to connect an IDLE endpoint, or else the state
// may never improve.
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
