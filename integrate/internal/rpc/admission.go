// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package rpc

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/xdslb/xdslb/xds/resource"
)

// An admission refuses RPCs of a channel while too many fail, before anything is sent (Envoy's
// admission_control; the client-side throttling of the SRE book). With n RPCs that ended in the
// latest window, s of them with success, it refuses an RPC with probability
//
//	((n - s/threshold) / (n + 1)) ^ (1/aggression)
//
// at most max_rejection_probability, and 0 while fewer RPCs than rps_threshold end. Refused
// RPCs do not count. Retries happen inside of it: an RPC counts once, however many attempts it
// takes, and a refused RPC is not retried.
//
// A channel has one admission for each filter and configuration, which its routes share. The
// plans of the next configuration take it over if they have the same filter.
//
// The window is a ring of slots of step each. Counts are kept in the current slot and in the
// sum of all slots, so that an RPC does not walk the ring. The goroutine that finds an expired
// slot clears it, while other goroutines continue. Any number of goroutines may use an
// admission without waiting.
type admission struct {
	cfg  resource.AdmissionControl
	err  error // of RPCs that are refused
	born time.Time
	step time.Duration

	turn    atomic.Int64 // the step that is counted in, since born
	turning atomic.Bool  // a goroutine is advancing turn
	since   atomic.Int64 // steps before this one are not counted
	sum     atomic.Uint64
	slots   []atomic.Uint64 // by step, one more than the window has

	refused atomic.Uint64 // since born
}

// Counts hold the number of RPCs, and in the upper half the number of successes among them.
const (
	oneRPC     = 1
	oneSuccess = 1 << 32
)

// maxSlots is the number of slots of a long window. A shorter window has slots of a second, as in
// Envoy.
const maxSlots = 60

// An admissionKey identifies an admission of a channel.
type admissionKey struct {
	filter string
	cfg    resource.AdmissionControl
}

func newAdmission(key admissionKey) *admission {
	n := min(key.cfg.Window/time.Second, maxSlots)
	text := fmt.Sprintf("xdslb: RPC refused by admission control %q: less than %.4g %% of the RPCs of the last %v succeeded",
		key.filter, 100*key.cfg.Threshold, key.cfg.Window)
	err := refusal(codes.Unavailable, text, "ADMISSION", map[string]string{"filter": key.filter})
	return &admission{cfg: key.cfg, err: err, born: time.Now(), step: key.cfg.Window / n, slots: make([]atomic.Uint64, n+1)}
}

// advance clears the expired slots. The slot of the next step is always empty, so that goroutines
// that count in it need not wait.
func (a *admission) advance() {
	now := int64(time.Since(a.born) / a.step)
	if now <= a.turn.Load() || !a.turning.CompareAndSwap(false, true) {
		return
	}
	was, n := a.turn.Load(), int64(len(a.slots))
	for step := max(was+2, now+2-n); step <= now+1; step++ {
		a.sum.Add(-a.slots[step%n].Swap(0))
	}
	if a.sum.Load() == 0 {
		a.since.Store(now)
	}
	a.turn.Store(max(now, was))
	a.turning.Store(false)
}

// record counts an RPC that has ended. The sum comes first: it is never less than the slots.
func (a *admission) record(err error) {
	a.advance()
	n := uint64(oneRPC)
	if a.cfg.Succeeded(uint32(status.Code(err))) {
		n += oneSuccess
	}
	a.sum.Add(n)
	a.slots[a.turn.Load()%int64(len(a.slots))].Add(n)
}

// counts returns the RPCs that ended in the window, and the successes among them.
func (a *admission) counts() (rpcs, successes uint32) {
	sum := a.sum.Load()
	return uint32(sum), uint32(sum >> 32)
}

// probability returns the current probability of refusing an RPC.
func (a *admission) probability() float64 {
	a.advance()
	n, s := a.counts()
	if a.cfg.MinRPS > 0 {
		covered := min(time.Since(a.born)-time.Duration(a.since.Load())*a.step, a.cfg.Window)
		if float64(n)/max(covered, time.Second).Seconds() < float64(a.cfg.MinRPS) {
			return 0
		}
	}
	p := (float64(n) - float64(s)/a.cfg.Threshold) / (float64(n) + 1)
	if p <= 0 {
		return 0
	}
	if a.cfg.Aggression != 1 {
		p = math.Pow(p, 1/a.cfg.Aggression)
	}
	return min(p, a.cfg.MaxRejection)
}

// admit returns nil, or the status of an RPC that is refused.
func (a *admission) admit() error {
	if p := a.probability(); p == 0 || rand.Float64() >= p {
		return nil
	}
	a.refused.Add(1)
	return a.err
}

// admissionInterceptor is an admission as an interceptor. RPCs that another filter refuses do
// not count, since they carry no information about servers.
func admissionInterceptor(a *admission) interceptor {
	admit := func(ctx context.Context) error {
		err := a.admit()
		if ch := callIn(ctx).channel(); err != nil && ch != nil {
			ch.rejectedByAdmission.Add(1)
		}
		return err
	}
	record := func(ctx context.Context, err error) {
		if err == nil || !callIn(ctx).refusedUnsent() {
			a.record(err)
		}
	}
	return interceptor{
		unary: func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			if err := admit(ctx); err != nil {
				return err
			}
			err := invoker(ctx, method, req, reply, cc, opts...)
			record(ctx, err)
			return err
		},
		stream: func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
			if err := admit(ctx); err != nil {
				return nil, err
			}
			var once sync.Once
			end := func(err error) { once.Do(func() { record(ctx, err) }) }
			s, err := streamer(ctx, desc, cc, method, append(opts[:len(opts):len(opts)], grpc.OnFinish(end))...)
			if err != nil {
				end(err)
			}
			return s, err
		},
	}
}

// An AdmissionState is the state of an admission control filter.
type AdmissionState struct {
	Filter          string
	Probability     float64 // of refusing an RPC
	RPCs, Successes uint32  // that ended in the window
	Refused         uint64  // since the filter has this configuration
	Window          time.Duration
}

func (a *admission) state(filter string) AdmissionState {
	s := AdmissionState{Filter: filter, Probability: a.probability(), Refused: a.refused.Load(), Window: a.cfg.Window}
	s.RPCs, s.Successes = a.counts()
	return s
}

// Admissions returns the states of the admission control filters, by filter.
func (p *Plans) Admissions() (list []AdmissionState) {
	if p == nil {
		return nil
	}
	for key, a := range p.admissions {
		list = append(list, a.state(key.filter))
	}
	slices.SortFunc(list, func(a, b AdmissionState) int {
		return cmp.Or(strings.Compare(a.Filter, b.Filter), cmp.Compare(b.Refused, a.Refused), cmp.Compare(b.RPCs, a.RPCs))
	})
	return list
}

// Admission returns the state of a filter with a configuration, if it is admission control and
// some plan has it.
func (p *Plans) Admission(filter string, config any) (s AdmissionState, ok bool) {
	cfg, ok := config.(*resource.AdmissionControl)
	if !ok || p == nil {
		return s, false
	}
	a := p.admissions[admissionKey{filter, *cfg}]
	if a == nil {
		return s, false
	}
	return a.state(filter), true
}

// String describes the state.
func (s AdmissionState) String() string {
	return fmt.Sprintf("refuses %.4g %% of RPCs: %d of %d in the last %v succeeded", 100*s.Probability, s.Successes, s.RPCs, s.Window)
}
