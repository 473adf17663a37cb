// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

// Command controlplane is an xDS control plane to try xdslb with. It serves ADS, in both
// variants, and LRS without TLS, with the given endpoints:
//
//	controlplane [-listen addr] [-bootstrap file] service=host:port[*weight],... ...
//
// Each service is a Listener of that name, a route, a cluster and its endpoints, in one
// locality; clients dial "xds:///service". It writes a bootstrap for itself to the file. A line
// of standard input in the same form replaces the endpoints of a service. It runs until it is
// interrupted.
package main

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"io"
	"maps"
	"net"
	"net/netip"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"

	"github.com/xdslb/xdslb/xds/xdstest"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:18000", "address of ADS and LRS")
	bootstrap := flag.String("bootstrap", "xds.json", "`file` to write the bootstrap to")
	flag.Usage = func() {
		fmt.Fprintln(os.Stderr, "usage: controlplane [-listen addr] [-bootstrap file] service=host:port[*weight],... ...")
		flag.PrintDefaults()
	}
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *listen, *bootstrap, flag.Args(), os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "controlplane:", err)
		os.Exit(1)
	}
}

// run serves until ctx is done.
func run(ctx context.Context, listen, bootstrap string, services []string, in io.Reader, out io.Writer) error {
	p := &plane{services: make(map[string][]xdstest.Endpoint)}
	for _, s := range services {
		if _, err := p.replace(s); err != nil {
			return err
		}
	}
	if len(services) == 0 {
		return fmt.Errorf("no services: add one, such as greeter=127.0.0.1:50051")
	}
	var err error
	p.server, err = xdstest.Start(xdstest.Options{Listen: func(string) (net.Listener, error) { return net.Listen("tcp", listen) }})
	if err != nil {
		return err
	}
	defer p.server.Stop()
	if err := p.push(); err != nil {
		return err
	}
	if err := os.WriteFile(bootstrap, p.server.Bootstrap("try-xdslb"), 0o644); err != nil {
		return err
	}
	fmt.Fprintf(out, "serving xDS at %s; clients need GRPC_XDS_BOOTSTRAP=%s\n", p.server.Addr(), bootstrap)
	for _, name := range slices.Sorted(maps.Keys(p.services)) {
		p.report(out, name)
	}
	lines := make(chan string)
	go read(ctx, in, lines)
	for {
		select {
		case <-ctx.Done():
			return nil
		case line := <-lines:
			name, err := p.replace(line)
			if err == nil {
				err = p.push()
			}
			if err != nil {
				fmt.Fprintln(out, err)
				continue
			}
			p.report(out, name)
		}
	}
}

// read sends the non-empty lines of in, until ctx is done or in ends.
func read(ctx context.Context, in io.Reader, lines chan<- string) {
	for s := bufio.NewScanner(in); s.Scan(); {
		line := strings.TrimSpace(s.Text())
		if line == "" {
			continue
		}
		select {
		case lines <- line:
		case <-ctx.Done():
			return
		}
	}
}

// A plane is the control plane with its endpoints by service.
type plane struct {
	server   *xdstest.Server
	services map[string][]xdstest.Endpoint
}

// report prints the number of endpoints of a service.
func (p *plane) report(out io.Writer, service string) {
	unit := "endpoints"
	if len(p.services[service]) == 1 {
		unit = "endpoint"
	}
	fmt.Fprintf(out, "xds:///%s: %d %s\n", service, len(p.services[service]), unit)
}

// replace parses "service=host:port[*weight],..." and returns the service. The list of
// endpoints may be empty.
func (p *plane) replace(text string) (service string, err error) {
	service, list, ok := strings.Cut(text, "=")
	if !ok || service == "" {
		return "", fmt.Errorf("%q: want service=host:port,host:port*weight", text)
	}
	var endpoints []xdstest.Endpoint
	for item := range strings.SplitSeq(list, ",") {
		if item == "" {
			continue
		}
		e, err := endpoint(item)
		if err != nil {
			return "", fmt.Errorf("%q: %w", text, err)
		}
		endpoints = append(endpoints, e)
	}
	p.services[service] = endpoints
	return service, nil
}

// endpoint parses "host:port" or "host:port*weight". The host must be an IP address, as in EDS.
func endpoint(text string) (e xdstest.Endpoint, err error) {
	addr, weight, weighted := strings.Cut(text, "*")
	if weighted {
		n, err := strconv.ParseUint(weight, 10, 32)
		if err != nil || n == 0 {
			return e, fmt.Errorf("weight %q: must be a number above 0", weight)
		}
		e.Weight = uint32(n)
	}
	e.Addr, err = netip.ParseAddrPort(addr)
	return e, err
}

// push sends the changes to clients.
func (p *plane) push() error {
	var all xdstest.Resources
	for _, name := range slices.Sorted(maps.Keys(p.services)) {
		all.Add(xdstest.Service(name, xdstest.Locality{Place: xdstest.Place{Region: "local"}, Endpoints: p.services[name]}))
	}
	return p.server.Set(all)
}
