// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/xdslb/xdslb/bench/cputime"
	"github.com/xdslb/xdslb/xds/xdstest"
)

// BenchmarkEDSUpdate measures an EDS update that changes the weight of one endpoint, in state
// of the world: the cost for the client, which is a separate process, from the arrival of the
// response until it is idle. change=none sends the same bytes again. impl=none is a client that
// accepts everything without decoding: gRPC's part.
//
// The clients run on a fakegrpc.Channel, without connections to backends. All implementations
// of a size alternate.
func BenchmarkEDSUpdate(b *testing.B) {
	for _, n := range sizes(1000, 5000) {
		for _, change := range []string{"weight", "none"} {
			list := []string{"none", "stock", "ours"}
			if testing.Short() {
				list = []string{"none", "ours"}
			}
			measured := newSeries(func() map[string]updateCost { return measureEDS(b, n, change, list) })
			for _, impl := range list {
				b.Run(fmt.Sprintf("impl=%s/n=%d/change=%s", impl, n, change), func(b *testing.B) {
					if b.N == 1 {
						measured.begin(impl)
					}
					measured.of(impl).report(b)
				})
			}
		}
	}
}

func measureEDS(b *testing.B, n int, change string, impls []string) map[string]updateCost {
	sc := scenario{localities: 5, perLocality: n / 5, weighted: true}
	list := make(map[string]contender)
	for _, impl := range impls {
		control := startControl(b, sc)
		all := []string{service}
		client := startApart(b, clientSpec{
			Impl: impl, Bootstrap: control.Bootstrap(b.Name()), Endpoints: n,
			Addr: control.Addr(), Names: map[string][]string{xdstest.LDS: all, xdstest.RDS: all, xdstest.CDS: all, xdstest.EDS: all},
		})
		list[impl] = contender{client: client, update: func() error {
			revision++
			var err error
			if change == "none" {
				err = control.Resend(xdstest.EDS, service)
			} else {
				err = control.Set(sc.resources(revision))
			}
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
			defer cancel()
			return control.WaitACK(ctx, xdstest.EDS)
		}}
	}
	return measureUpdates(b, list, 11, 8)
}

// revision makes each update differ from the one before.
var revision uint32

// charge reports the processor time of an operation, from its call to that of its result. On a
// shared machine that is the better measure, since it excludes time of other processes. It
// includes the runtime's work in the background.
func charge(b *testing.B) (stop func()) {
	from := cpuTime()
	return func() { b.ReportMetric(float64(cpuTime()-from)/float64(b.N), "cpu-ns/op") }
}

// cpuTime is the processor time of the process so far, in nanoseconds.
func cpuTime() int64 { return cputime.Process().Nanoseconds() }
