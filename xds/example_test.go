// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xds_test

import (
	"fmt"
	"log"
	"net/netip"

	"github.com/xdslb/xdslb/picker"
	"github.com/xdslb/xdslb/xds"
	"github.com/xdslb/xdslb/xds/bootstrap"
	"github.com/xdslb/xdslb/xds/xdstest"
)

// printer is a Watcher that prints its calls.
type printer struct{ told chan struct{} }

func (p printer) Update(cfg *picker.Config) {
	for _, c := range cfg.Clusters {
		for _, l := range c.Leaves {
			for i, priority := range l.Priorities {
				for _, locality := range priority.Localities {
					for _, e := range locality.Endpoints.All() {
						fmt.Printf("cluster %s, priority %d: %v\n", c.Name, i, e.Addr)
					}
				}
			}
		}
	}
	close(p.told)
}

func (p printer) Error(err error) { fmt.Println("error:", err) }

// A target is followed from its name to its endpoints.
func Example() {
	cp, err := xdstest.Start(xdstest.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer cp.Stop()
	err = cp.Set(xdstest.Service("greeter:50051",
		xdstest.Locality{Endpoints: []xdstest.Endpoint{{Addr: netip.MustParseAddrPort("10.0.0.1:80")}, {Addr: netip.MustParseAddrPort("10.0.0.2:80")}}},
		xdstest.Locality{Priority: 1, Endpoints: []xdstest.Endpoint{{Addr: netip.MustParseAddrPort("10.9.0.1:80")}}},
	))
	if err != nil {
		log.Fatal(err)
	}

	cfg, err := bootstrap.Parser{}.Parse("example", cp.Bootstrap("example-node"))
	if err != nil {
		log.Fatal(err)
	}
	listener, err := cfg.ListenerName("", "greeter:50051")
	if err != nil {
		log.Fatal(err)
	}
	c := xds.Acquire(cfg, xds.Options{Linger: -1})
	defer c.Release()
	p := printer{told: make(chan struct{})}
	cancel := c.View(nil, "").Watch(listener, "greeter:50051", p)
	defer cancel()
	<-p.told

	// Output:
	// cluster greeter:50051, priority 0: 10.0.0.1:80
	// cluster greeter:50051, priority 0: 10.0.0.2:80
	// cluster greeter:50051, priority 1: 10.9.0.1:80
}
