// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate

import (
	"context"
	"math/rand/v2"
	"strconv"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/xdslb/xdslb/xds/resource"
)

// activeFaults counts the RPCs of the process that suffer a fault at the
// moment; A33 has max_active_faults apply to all of them together.
var activeFaults atomic.Int64

// interceptorFor returns what a filter's configuration does to RPCs, or nil if
// that is nothing.
func interceptorFor(config any) Interceptor {
	f, ok := config.(*resource.Fault)
	if !ok || f.Delay == nil && f.Abort == nil {
		return nil
	}
	return func(ctx context.Context) (context.Context, func(), error) { return inject(ctx, f) }
}

// abortedOK is the error of an RPC that a fault ends with status OK.
type abortedOK struct{}

func (abortedOK) Error() string { return "xds: fault injection ended the RPC with status OK" }

// inject delays and then aborts an RPC, each with its own chance, before
// anything is sent (A33).
func inject(ctx context.Context, f *resource.Fault) (context.Context, func(), error) {
	delay := f.Delay != nil && hit(ctx, f.Delay.Chance, f.Delay.Header, "x-envoy-fault-delay-request-percentage")
	abort := f.Abort != nil && hit(ctx, f.Abort.Chance, f.Abort.Header, "x-envoy-fault-abort-request-percentage")
	if !delay && !abort {
		return ctx, nil, nil
	}
	if activeFaults.Add(1) > int64(f.MaxActive) {
		activeFaults.Add(-1)
		return ctx, nil, nil
	}
	done := func() { activeFaults.Add(-1) }
	if delay {
		if err := pause(ctx, f.Delay); err != nil {
			done()
			return ctx, nil, err
		}
	}
	if abort {
		if code, ok := abortCode(ctx, f.Abort); ok {
			done()
			if code == codes.OK {
				return ctx, nil, abortedOK{}
			}
			return ctx, nil, status.Error(code, "xds: RPC aborted by fault injection")
		}
	}
	return ctx, done, nil
}

// hit draws whether a fault strikes. Where the request's headers drive the
// fault they may lower its chance, not raise it.
func hit(ctx context.Context, p resource.Percentage, byHeader bool, header string) bool {
	chance := p.PerMillion
	if byHeader {
		if n, ok := headerNumber(ctx, header); ok {
			chance = uint32(min(uint64(chance), n*uint64(p.Unit)))
		}
	}
	return rand.Uint32N(1e6) < chance
}

// pause waits as long as the delay says, or the RPC's header does.
func pause(ctx context.Context, d *resource.FaultDelay) error {
	wait := d.Fixed
	if d.Header {
		ms, ok := headerNumber(ctx, "x-envoy-fault-delay-request")
		if !ok {
			return nil
		}
		wait = time.Duration(min(ms, 1<<40)) * time.Millisecond
	}
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	}
}

// abortCode is the status that the abort, or the RPC's header, asks for.
func abortCode(ctx context.Context, a *resource.FaultAbort) (codes.Code, bool) {
	if !a.Header {
		return codes.Code(a.Code), true
	}
	if n, ok := headerNumber(ctx, "x-envoy-fault-abort-grpc-request"); ok && n <= 16 {
		return codes.Code(n), true
	}
	if n, ok := headerNumber(ctx, "x-envoy-fault-abort-request"); ok && n < 600 {
		code, ok := resource.AbortCode(uint32(n))
		return codes.Code(code), ok
	}
	return 0, false
}

// headerNumber is the number in a request header; ok is false if there is none.
func headerNumber(ctx context.Context, name string) (n uint64, ok bool) {
	values := metadata.ValueFromOutgoingContext(ctx, name)
	if len(values) == 0 {
		return 0, false
	}
	n, err := strconv.ParseUint(values[0], 10, 32)
	return n, err == nil
}
