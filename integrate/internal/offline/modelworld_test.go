// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package offline

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing/synctest"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/resolver"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/bench/testplane"
	"github.com/xdslb/xdslb/picker"
	"github.com/xdslb/xdslb/xds"
	"github.com/xdslb/xdslb/xds/bootstrap"
	"github.com/xdslb/xdslb/xds/xdstest"
)

// modelServices are the targets of a modelWorld. Each has a Listener, routes, and a cluster; the last one of
// type STRICT_DNS.
var modelServices = [...]string{"svc0", "svc1", "named"}

const modelDNSService = len(modelServices) - 1

// modelPorts are the ports of the services, which tell the source and the version; 0 for a service that it lacks.
type modelPorts [len(modelServices)]int

// modelChains are the sources of a world, in the order of the bootstrap.
var modelChains = [][]string{{"server", "file"}, {"file", "server"}, {"server", "remembered"}, {"file"}}

// modelWorld is a client, its sources, and watches of services. These have to hold:
//
//   - A service that has been served is served until its watch ends, without an error.
//   - No port is in use that no source had, or that only a part of a file had.
//   - The first source that can be reached has the configuration (A71), 2 s after a change of a file, and
//     15 s and half the outage after a server has come back, and later sources are not in use. A file can be
//     reached if it is valid, or if it was valid since its use began. A name that it lacks does not exist.
//   - Remembered resources are those of the server that were in use at the end of the client, unless they are older
//     than a day.
//   - Resources have the name of their source, and a source has an error while its previous resources are
//     in use.
//   - A cluster of type STRICT_DNS has the addresses of the latest answer.
type modelWorld struct {
	t     *kit.Trial
	chain []string

	server     *testplane.Scripted
	refused    bool
	downAt     time.Time     // when it was last refused
	outage     time.Duration // the longest one since the last settle
	fromServer modelPorts

	file    string
	written modelPorts  // of the last complete text
	valid   bool        // the file has that text
	kept    *modelPorts // the client has it since the use of the file began; or nil

	memory   string     // the name of the file of remembered resources
	recorded modelPorts // in it
	recordAt time.Time  // its time; long ago without a file

	dns         *modelDNS
	addresses   string // of the latest answer
	addressesAt int    // for this port
	moved       int    // after so many changes of the port

	client  *xds.Client
	forget  func()
	watches [len(modelServices)]*modelWatch
	issued  map[int]bool // ports
	next    int
}

func newModelWorld(t *kit.Trial) *modelWorld {
	dir, err := os.MkdirTemp("", "model")
	kit.Must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	w := &modelWorld{t: t, chain: modelChains[t.Seed%uint64(len(modelChains))], issued: map[int]bool{}, dns: &modelDNS{answer: 1},
		file: filepath.Join(dir, "resources.json"), memory: filepath.Join(dir, "remembered.json")}
	w.server = testplane.StartScripted(testplane.ScriptedOptions{Report: func(violation string) { t.Error(violation) }})
	for i := range modelServices {
		w.fromServer[i], w.written[i] = w.port(10000), w.port(20000)
	}
	w.serve()
	if t.Seed%3 > 0 {
		w.write(w.written)
	}
	w.start()
	return w
}

func (w *modelWorld) log(args ...any) { w.t.Logf("%s", strings.TrimSpace(fmt.Sprintln(args...))) }

// port returns the next port of a source.
func (w *modelWorld) port(base int) int {
	w.next++
	w.issued[base+w.next] = true
	return base + w.next
}

func (w *modelWorld) uri(source string) string {
	return map[string]string{"server": "passthrough:///server", "file": "file://" + w.file, "remembered": Remembered + w.memory}[source]
}

// order returns the position of a source; -1 without it.
func (w *modelWorld) order(source string) int { return slices.Index(w.chain, source) }

func (w *modelWorld) start() {
	var docs []string
	for _, source := range w.chain {
		doc := `{"server_uri": "` + w.uri(source) + `"}`
		if source == "server" {
			doc = `{"server_uri": "` + w.uri(source) + `", "channel_creds": [{"type": "insecure"}]}`
		}
		docs = append(docs, doc)
	}
	cfg, err := bootstrap.Parser{}.Parse("test", []byte(`{"xds_servers": [`+strings.Join(docs, ",")+`], "node": {"id": "`+w.file+`"}}`))
	kit.Must(w.t, err)
	logger := slog.New(slog.DiscardHandler)
	w.client = xds.Acquire(cfg, xds.Options{DNS: w.dns, Linger: -1, Logger: logger, DialOptions: []grpc.DialOption{grpc.WithContextDialer(w.server.Dial)}})
	w.forget = Remember(w.client, cfg, logger)
}

// stop ends the client. If killed, without its last write of the resources.
func (w *modelWorld) stop(killed bool) {
	text, err := os.ReadFile(w.memory)
	at := time.Now()
	if info, err := os.Stat(w.memory); err == nil {
		at = info.ModTime()
	}
	w.forget()
	if killed && err == nil {
		kit.Must(w.t, os.WriteFile(w.memory, text, 0o600))
		kit.Must(w.t, os.Chtimes(w.memory, at, at))
	} else if killed {
		_ = os.Remove(w.memory)
	}
	for i := range w.watches {
		w.unwatch(i)
	}
	w.client.Release()
	w.kept = nil
	time.Sleep(time.Second)
	synctest.Wait()
}

func (w *modelWorld) end() {
	w.stop(true)
	w.server.Stop()
	time.Sleep(5 * time.Minute) // its goroutines end
}

// restart ends the client and starts it again, at times a day later, or without the server.
func (w *modelWorld) restart(n int) {
	w.settle()
	killed := n%2 == 0
	var watched modelPorts
	for i, o := range w.outcomes() {
		if o != nil && i != modelDNSService {
			watched[i] = o.port
		}
	}
	w.stop(killed)
	w.checkMemory()
	if !killed && w.order("remembered") > 0 && !w.refused && watched != (modelPorts{}) {
		for i, port := range watched {
			if port != 0 && w.recorded[i] != port {
				w.t.Errorf("port %d of %s was remembered, want %d", w.recorded[i], modelServices[i], port)
			}
		}
	}
	if n/2%2 == 0 {
		w.refuse()
	}
	if n/4%4 == 0 {
		time.Sleep(25 * time.Hour)
	}
	w.outage, w.downAt = 0, time.Now() // nor has the new client a backoff
	w.start()
}

// checkMemory reads the remembered resources.
func (w *modelWorld) checkMemory() {
	w.recorded, w.recordAt = modelPorts{}, time.Time{}
	info, err := os.Stat(w.memory)
	if err != nil {
		return
	}
	text, err := os.ReadFile(w.memory)
	kit.Must(w.t, err)
	r, err := Parse(text)
	kit.Must(w.t, err)
	w.recordAt = info.ModTime()
	for k, found := range r.byName {
		m, err := found.GetResource().UnmarshalNew()
		kit.Must(w.t, err)
		var of *endpointv3.ClusterLoadAssignment
		switch m := m.(type) {
		case *endpointv3.ClusterLoadAssignment:
			of = m
		case *clusterv3.Cluster:
			of = m.GetLoadAssignment()
		}
		if i := modelService(k.name); of != nil && i >= 0 {
			w.recorded[i] = int(of.GetEndpoints()[0].GetLbEndpoints()[0].GetEndpoint().GetAddress().GetSocketAddress().GetPortValue())
			if !w.issued[w.recorded[i]] || w.recorded[i] >= 20000 {
				w.t.Errorf("port %d of %s was remembered, which the server did not have", w.recorded[i], k.name)
			}
		}
	}
}

// content returns the ports of source n; nil if it cannot be reached.
func (w *modelWorld) content(n int) *modelPorts {
	switch {
	case w.chain[n] == "server" && !w.refused:
		return &w.fromServer
	case w.chain[n] == "file" && w.valid:
		return &w.written
	case w.chain[n] == "file":
		return w.kept
	case w.chain[n] == "remembered" && time.Since(w.recordAt) < 24*time.Hour:
		return &w.recorded
	}
	return nil
}

// inUse reports whether the client uses a source.
func (w *modelWorld) inUse(source string) bool {
	synctest.Wait()
	for _, s := range w.client.Servers() {
		if s.URI == w.uri(source) {
			return s.InUse
		}
	}
	return false
}

// serve has the server have its resources.
func (w *modelWorld) serve() {
	r, err := Parse([]byte(modelText(w.fromServer)))
	kit.Must(w.t, err)
	var set xdstest.Resources
	for _, found := range r.byName {
		m, err := found.GetResource().UnmarshalNew()
		kit.Must(w.t, err)
		switch m := m.(type) {
		case *listenerv3.Listener:
			set.Listeners = append(set.Listeners, m)
		case *routev3.RouteConfiguration:
			set.Routes = append(set.Routes, m)
		case *clusterv3.Cluster:
			set.Clusters = append(set.Clusters, m)
		case *endpointv3.ClusterLoadAssignment:
			set.Endpoints = append(set.Endpoints, m)
		}
	}
	kit.Must(w.t, w.server.Set(set))
}

// write writes a complete text to the file.
func (w *modelWorld) write(ports modelPorts) {
	w.spoil(modelText(ports))
	w.written, w.valid = ports, true
}

// spoil writes a text that is not complete.
func (w *modelWorld) spoil(text string) {
	w.valid = false
	kit.Must(w.t, os.WriteFile(w.file, []byte(text), 0o600))
}

// modelText returns the resources of the services with a port.
func modelText(ports modelPorts) string {
	text := `{"cds": [{"name": "unused", "type": "EDS", "eds_cluster_config": {"eds_config": {"ads": {}}}}]}`
	for i, port := range ports {
		if port == 0 {
			continue
		}
		one := document(port)
		if i == modelDNSService {
			one = strings.Replace(one, `"type": "EDS", "eds_cluster_config": {"eds_config": {"ads": {}}}`, fmt.Sprintf(`"type": "STRICT_DNS", "dns_refresh_rate": "1s",
				"load_assignment": {"endpoints": [{"lb_endpoints": [{"endpoint": {"address": {"socket_address": {"address": "steady", "port_value": %d}}}},
				{"endpoint": {"address": {"socket_address": {"address": "host", "port_value": %d}}}}]}]}`, port, port), 1)
		}
		text += strings.ReplaceAll(one, `"svc"`, `"`+modelServices[i]+`"`)
	}
	return text
}

func modelService(name string) int { return slices.Index(modelServices[:], name) }

// modelDNS resolves names to addresses: "steady" always to the same one, and others to that of an answer.
type modelDNS struct {
	mu     sync.Mutex
	answer int // less than 0 for an error
}

func (d *modelDNS) set(answer int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.answer = answer
}

// list returns the addresses as they are in a modelOutcome; "" if lookups fail.
func (d *modelDNS) list() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.answer < 0 {
		return ""
	}
	return fmt.Sprintf("10.0.0.1 10.0.0.%d", 100+d.answer)
}

func (d *modelDNS) steady() bool { return d.list() != "" }

func (d *modelDNS) Scheme() string { return "dns" }

func (d *modelDNS) Build(target resolver.Target, cc resolver.ClientConn, _ resolver.BuildOptions) (resolver.Resolver, error) {
	r := modelResolver{d, target.Endpoint(), cc}
	r.ResolveNow(resolver.ResolveNowOptions{})
	return r, nil
}

type modelResolver struct {
	dns  *modelDNS
	name string
	cc   resolver.ClientConn
}

func (r modelResolver) ResolveNow(resolver.ResolveNowOptions) {
	host, port, _ := net.SplitHostPort(r.name)
	address, other, _ := strings.Cut(r.dns.list(), " ")
	if host != "steady" {
		address = other
	} else if address == "" {
		address = "10.0.0.1"
	}
	if address == "" {
		r.cc.ReportError(errors.New("SERVFAIL"))
		return
	}
	_ = r.cc.UpdateState(resolver.State{Addresses: []resolver.Address{{Addr: address + ":" + port}}})
}

func (modelResolver) Close() {}

// modelWatch is a watch of a service.
type modelWatch struct {
	cancel func()
	mu     sync.Mutex
	last   modelOutcome
}

// modelOutcome is what a watch has received.
type modelOutcome struct {
	served    bool // there was a configuration
	lost      int  // errors after it
	err       error
	port      int
	moved     int // changes of the port
	addresses string
}

// Update implements xds.Watcher.
func (w *modelWatch) Update(c *picker.Config) {
	w.mu.Lock()
	defer w.mu.Unlock()
	before := w.last.port
	w.last.served, w.last.err, w.last.port, w.last.addresses = true, nil, 0, ""
	defer func() {
		if w.last.port != before {
			w.last.moved++
		}
	}()
	if len(c.Clusters[0].Leaves) == 0 {
		w.last.err = c.Clusters[0].Err
		return
	}
	var addresses []string
	for _, p := range c.Clusters[0].Leaves[0].Priorities {
		for _, l := range p.Localities {
			for _, e := range l.Endpoints.All() {
				w.last.port = int(e.Addr.Port())
				addresses = append(addresses, e.Addr.Addr().String())
			}
		}
	}
	w.last.addresses = strings.Join(addresses, " ")
}

// Error implements xds.Watcher.
func (w *modelWatch) Error(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.last.err = err; w.last.served {
		w.last.lost++
	}
}

// outcome returns what the watch has received.
func (w *modelWatch) outcome() modelOutcome {
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.last
}

func (w *modelWorld) watch(i int) {
	if w.watches[i] != nil {
		return
	}
	w.watches[i] = &modelWatch{}
	w.watches[i].cancel = w.client.View(nil, "").Watch(modelServices[i], modelServices[i], w.watches[i])
}

func (w *modelWorld) unwatch(i int) {
	if w.watches[i] != nil {
		w.watches[i].cancel()
	}
	w.watches[i] = nil
}

// outcomes returns what the watches have received; nil for a service that is not watched.
func (w *modelWorld) outcomes() (all [len(modelServices)]*modelOutcome) {
	for i, watch := range w.watches {
		if watch != nil {
			o := watch.outcome()
			all[i] = &o
		}
	}
	return all
}

// watched reports whether f returns true for a service that is watched.
func (w *modelWorld) watched(f func(*modelOutcome) bool) bool {
	for _, o := range w.outcomes() {
		if o != nil && f(o) {
			return true
		}
	}
	return false
}

func anyOutcome(*modelOutcome) bool { return true }
