// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xds

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/xdslb/xdslb/bench/kit"
)

// TestChurn runs random histories of a client and its servers with concurrency, and compares the
// configurations that watchers have with the resources that the servers have. Every resource exists at
// all times, so it is a failure if a watcher gets an error that one does not, or does not get
// the present state after a while; the fake checks the protocol. Deletions are not
// ignored, since they would not be noticed.
func TestChurn(t *testing.T) {
	runs, steps := 8, 600
	if testing.Short() || raceEnabled {
		runs, steps = 3, 200
	}
	for _, variant := range []string{"sotw", "delta", "changing"} {
		t.Run(variant, func(t *testing.T) {
			(&kit.Model{Steps: steps, Retries: 2, Run: func(t *kit.Trial) {
				linger := []time.Duration{-1, 100 * time.Millisecond, 20 * time.Second}[t.Seed%3]
				m := newChurn(t, 1+int(t.Seed%2), Options{Linger: linger, Delta: variant != "sotw"})
				for i := range t.Steps() {
					if i == t.Len()/2 && variant == "changing" {
						for _, cp := range m.cps {
							cp.Serve(true, false)
						}
					}
					m.step()
					if t.Rand.IntN(3) == 0 {
						synctest.Wait()
					}
					if i%20 == 19 {
						m.check()
					}
				}
			}}).Test(t, runs)
		})
	}
}

const churnSize = 5 // targets, route configurations, clusters, assignments

type churn struct {
	t       *kit.Trial
	h       *harness
	cps     []*fake           // a chain; all of them have the same resources
	watches map[*recorder]int // to the target's number

	cluster [churnSize]int // of a route configuration
	service [churnSize]int // of a cluster
	port    [churnSize]uint16
	invalid [churnSize]bool
}

func newChurn(t *kit.Trial, servers int, opts Options) *churn {
	m := &churn{t: t, watches: map[*recorder]int{}}
	names := []string{"first", "second"}[:servers]
	var docs []string
	for _, name := range names {
		docs = append(docs, serverDoc(name, "fail_on_data_errors"))
	}
	m.h = newHarness(t, opts, docs, "")
	for _, name := range names {
		m.cps = append(m.cps, m.h.servers[name])
	}
	for i := range churnSize {
		m.cluster[i], m.service[i], m.port[i] = i, i, uint16(1000*i)
		for _, cp := range m.cps {
			cp.serve(listenerTo(fmt.Sprint("t", i), fmt.Sprint("r", i)))
		}
		m.serve(i)
	}
	return m
}

// serve gives the server the resources of the model. The fake's own serve waits,
// which is not wanted here.
func (m *churn) serve(i int) {
	endpoints := endpointsAt(fmt.Sprint("e", i), m.port[i])
	if m.invalid[i] {
		endpoints = badEndpoints(fmt.Sprint("e", i))
	}
	for _, cp := range m.cps {
		if err := cp.Update(collect([]proto.Message{routesTo(fmt.Sprint("r", i), fmt.Sprint("c", m.cluster[i])), clusterTo(fmt.Sprint("c", i), fmt.Sprint("e", m.service[i])), endpoints})); err != nil {
			m.t.Fatal(err)
		}
	}
}

func (m *churn) step() {
	i := m.t.Rand.IntN(churnSize)
	cp := m.cps[m.t.Rand.IntN(len(m.cps))]
	switch k := m.t.Rand.IntN(100); {
	case k < 25:
		m.watches[m.h.watch(fmt.Sprint("t", i))] = i
	case k < 45:
		for w := range m.watches {
			w.cancel()
			delete(m.watches, w)
			break
		}
	case k < 55: // all of them, and some again
		for w, i := range m.watches {
			w.cancel()
			delete(m.watches, w)
			if m.t.Rand.IntN(2) == 0 {
				m.watches[m.h.watch(fmt.Sprint("t", i))] = i
			}
		}
	case k < 70:
		m.port[i]++
		m.invalid[i] = m.t.Rand.IntN(10) == 0
		m.serve(i)
	case k < 75:
		m.cluster[i] = m.t.Rand.IntN(churnSize)
		m.serve(i)
	case k < 80:
		m.service[i] = m.t.Rand.IntN(churnSize)
		m.serve(i)
	case k < 84:
		cp.hangUp(errors.New("going away"))
	case k < 86:
		cp.refuse(errRefused)
	case k < 90:
		cp.refuse(nil)
	default:
		<-time.After(time.Duration(m.t.Rand.IntN(3000)) * time.Millisecond)
	}
}

// check waits until everything can have come through, and compares.
func (m *churn) check() {
	m.t.Helper()
	for i := range churnSize {
		if m.invalid[i] {
			m.invalid[i] = false
			m.serve(i)
		}
	}
	for _, cp := range m.cps {
		cp.refuse(nil)
	}
	for i := 0; i < 300 && !m.cps[0].connected(); i++ {
		advance(time.Second)
		if len(m.watches) == 0 {
			break
		}
	}
	advance(time.Second)
	for w, target := range m.watches {
		got := w.got()
		if got.err != nil {
			m.t.Fatalf("target t%d: %v", target, got.err)
		}
		if got.config == nil {
			m.t.Fatalf("target t%d has no configuration", target)
		}
		cluster := m.cluster[target]
		want := fmt.Sprintf("c%d %d", cluster, m.port[m.service[cluster]])
		c := got.config.Clusters[0]
		if c.Err != nil || len(c.Leaves) == 0 || c.Leaves[0].ResolutionNote != nil || ports(c) != want {
			m.t.Fatalf("target t%d: cluster %q, %+v; want %q", target, ports(c), c, want)
		}
	}
	for s := range m.h.c.Resources() {
		if s.Watched && s.Err != nil && (strings.Contains(s.Err.Error(), "not found") || s.State == DoesNotExist) {
			m.t.Fatalf("%+v", s)
		}
	}
}
