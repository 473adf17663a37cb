// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"errors"
	"fmt"
	"math"
	"time"

	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
)

// wrapper is the type URL of a wrapped resource.
const wrapper = urlPrefix + "envoy.service.discovery.v3.Resource"

// wrapping has the fields of an envoy.service.discovery.v3.Resource other than the resource
// (xDS protocol, "TTL").
type wrapping struct {
	Name, Version string
	// TTL is the time for which the resource is valid unless it is sent again; 0 means forever.
	TTL time.Duration
	// Heartbeat means that the wrapper is empty: it renews the resource with its name.
	Heartbeat bool
}

// WrappingOf returns the wrapper of a resource in a response, or the zero value if the resource
// is not wrapped.
func WrappingOf(a *anypb.Any) (w wrapping, err error) {
	if a.GetTypeUrl() != wrapper {
		return wrapping{}, nil
	}
	var seconds, nanos uint64
	timed := false
	w.Heartbeat = true
	r := reader{rest: a.GetValue()}
	for r.next() {
		switch r.tag {
		case 1<<3 | bytesType:
			w.Version = string(r.bytes)
		case 2<<3 | bytesType:
			w.Heartbeat = false
		case 3<<3 | bytesType:
			w.Name = string(r.bytes)
		case 6<<3 | bytesType:
			timed = true
			d := reader{rest: r.bytes}
			for d.next() {
				switch d.tag {
				case 1<<3 | varintType:
					seconds = d.varint
				case 2<<3 | varintType:
					nanos = d.varint
				}
			}
			r.bad = r.bad || d.bad
		}
	}
	if r.bad {
		return wrapping{}, errors.New("discovery.v3.Resource wrapper: malformed")
	}
	if !timed {
		w.Heartbeat = false // it is empty: see Unwrap
		return w, nil
	}
	w.TTL, err = TTL(&durationpb.Duration{Seconds: int64(seconds), Nanos: int32(nanos)})
	return w, err
}

// TTL returns the time to live of a resource. It must be above 0.
func TTL(d *durationpb.Duration) (time.Duration, error) {
	if d == nil {
		return 0, nil
	}
	if err := d.CheckValid(); err != nil || d.GetSeconds() < 0 || d.GetNanos() < 0 || d.GetSeconds() == 0 && d.GetNanos() == 0 {
		return 0, fmt.Errorf("ttl: must be above 0, not %d s and %d ns", d.GetSeconds(), d.GetNanos())
	}
	if d.GetSeconds() > math.MaxInt64/int64(time.Second)-1 {
		return math.MaxInt64, nil
	}
	return d.AsDuration(), nil
}
