// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package offline

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/xdslb/xdslb/bench/kit"
)

// TestModel runs random histories of a client whose sources are a control plane and a file, in either order, the
// file alone, or a control plane and the resources that were remembered. Servers fail and come back; files are
// rewritten, half written, spoilt, removed and restored; the names of a STRICT_DNS cluster get other addresses
// and errors; and the client ends, in order or not, and starts again. See modelWorld about what has to hold.
func TestModel(t *testing.T) {
	runs := 100
	if testing.Short() {
		runs = 15
	}
	m := kit.Model{Steps: 60, Run: func(t *kit.Trial) {
		w := newModelWorld(t)
		defer w.end()
		for range t.Steps() {
			w.step()
			w.check()
		}
		if !t.Failed() {
			w.settle()
		}
	}}
	m.Test(t, runs)
}

// TestRememberDeleted: a target that the server has deleted while it was served from remembered resources
// does not keep the resources of other targets from being remembered.
func TestRememberDeleted(t *testing.T) {
	m := kit.Model{Seeds: []uint64{2}, Run: func(t *kit.Trial) {
		w := newModelWorld(t)
		defer w.end()
		for _, killed := range []bool{false, true} {
			w.watch(0)
			w.watch(1)
			w.settle()
			w.stop(killed)
			w.refuse()
			w.start()
		}
		w.watch(0)
		w.watch(1)
		w.settle()
		w.fromServer[0], w.fromServer[1] = w.port(10000), 0
		w.serve()
		w.refused = false
		w.server.Refuse(nil)
		time.Sleep(time.Minute)
		w.stop(false)
		if w.checkMemory(); w.recorded != (modelPorts{w.fromServer[0]}) {
			t.Errorf("ports %v were remembered, want %d", w.recorded, w.fromServer[0])
		}
		w.start()
	}}
	m.Test(t, 0)
}

// TestRememberEveryMinute: the resources in use are remembered a minute after the start, and a change of them
// a minute later, not before.
func TestRememberEveryMinute(t *testing.T) {
	m := kit.Model{Seeds: []uint64{2}, Run: func(t *kit.Trial) {
		begin := time.Now()
		w := newModelWorld(t)
		defer w.end()
		w.watch(0)
		first := w.fromServer[0]
		for _, at := range []struct {
			after time.Duration
			want  int
		}{{59 * time.Second, 0}, {61 * time.Second, first}, {119 * time.Second, first}, {121 * time.Second, first + 1000}} {
			time.Sleep(time.Until(begin.Add(at.after)))
			if w.checkMemory(); w.recorded[0] != at.want {
				t.Errorf("port %d is remembered after %v, want %d", w.recorded[0], at.after, at.want)
			}
			if at.after == 61*time.Second {
				w.fromServer[0] = first + 1000
				w.issued[w.fromServer[0]] = true
				w.serve()
			}
		}
	}}
	m.Test(t, 0)
}

// step takes a step, after which changes of files and of DNS are in use.
func (w *modelWorld) step() {
	i, n := w.t.Rand.IntN(len(modelServices)), w.t.Rand.IntN(100)
	hasFile := w.order("file") >= 0
	switch kind := w.t.Step % 24; {
	case kind < 4:
		w.log("watch", i)
		w.watch(i)
	case kind < 5:
		w.log("cancel", i)
		w.unwatch(i)
	case kind < 6:
		w.log("server down")
		w.refuse()
	case kind < 8:
		w.log("server up")
		if w.refused {
			w.refused, w.outage = false, max(w.outage, time.Since(w.downAt))
		}
		w.server.Refuse(nil)
	case kind < 10:
		w.log("server changes", i)
		w.fromServer[i] = w.port(10000)
		w.serve()
	case kind < 11:
		w.log("server deletes", i)
		w.fromServer[i] = 0
		w.serve()
	case kind < 14 && hasFile:
		w.log("file changes", i)
		ports := w.written
		if ports[i] = w.port(20000); n < 20 {
			ports[i] = 0
		}
		w.write(ports)
	case kind < 15 && hasFile:
		w.log("file is spoilt")
		text := modelText(w.written)
		w.spoil([]string{text[:len(text)*n/100], "", `{"cds": [{"name": 7}]}`, `{"no": "resources"}`}[i])
	case kind < 16 && hasFile:
		w.log("file is removed")
		w.valid = false
		_ = os.Remove(w.file)
	case kind < 17 && hasFile:
		w.log("file is written slowly", i)
		w.writeSlowly(i, time.Duration(n)*6*time.Millisecond)
	case kind < 18:
		w.log("addresses change")
		w.dns.set(n)
	case kind < 19:
		w.log("lookups fail")
		w.dns.set(-1)
	case kind < 20:
		w.log("wait", n)
		time.Sleep(time.Duration(1+n) * time.Second)
	case kind < 21 || kind < 22 && !hasFile:
		w.log("restart", n)
		w.restart(n)
	default:
		w.log("settle")
		w.settle()
	}
	time.Sleep(2 * time.Second)
}

// refuse has the server be out of reach.
func (w *modelWorld) refuse() {
	if !w.refused {
		w.refused, w.downAt = true, time.Now()
	}
	w.server.Refuse(errors.New("down"))
}

// writeSlowly writes the file in two parts, the first of which is valid, and has port 30000.
func (w *modelWorld) writeSlowly(i int, pause time.Duration) {
	ports := w.written
	ports[i] = 30000
	used := w.kept != nil && w.inUse("file")
	w.spoil(modelText(ports))
	time.Sleep(pause)
	if w.watched(func(o *modelOutcome) bool { return o.port == 30000 }) && used {
		w.t.Errorf("a part of a file is in use after %v", pause)
	}
	ports[i] = w.port(20000)
	w.write(ports)
}

// check makes the checks after each step.
func (w *modelWorld) check() {
	for i, o := range w.outcomes() {
		if o == nil {
			continue
		}
		if o.lost > 0 {
			w.t.Errorf("%s was served, and had %d errors: %v", modelServices[i], o.lost, o.err)
		}
		if o.port != 0 && !w.issued[o.port] && o.port != 30000 {
			w.t.Errorf("%s has port %d, which no source had", modelServices[i], o.port)
		}
	}
	switch {
	case !w.inUse("file"):
		w.kept = nil
	case w.valid && w.watched(anyOutcome):
		ports := w.written
		w.kept = &ports
	}
	w.checkAddresses()
	w.checkMemory()
}

// settle waits until changes are in use, and checks that each service has the configuration of the first source
// that can be reached, or the previous one.
func (w *modelWorld) settle() {
	time.Sleep(2 * time.Second)
	w.check()
	if first := w.chain[0]; first == "file" && w.inUse("file") && w.valid {
		w.compare(0, "after 2 s") // a file needs no time to be reached
	}
	time.Sleep(15*time.Second + w.outage/2) // the backoff grows with the outage
	if !w.refused {
		w.outage = 0
	}
	w.check()
	source := -1
	for n := range w.chain {
		if w.content(n) != nil {
			source = n
			break
		}
	}
	w.compare(source, "")
	w.checkStatus(source)
}

// compare compares the outcomes with the content of a source; -1 if none can be reached.
func (w *modelWorld) compare(source int, when string) {
	for i, o := range w.outcomes() {
		if o == nil {
			continue
		}
		want := 0
		if source >= 0 {
			want = w.content(source)[i]
		}
		// Without the first server, what is known of resources, also that they do not exist, stays in use until the
		// next server is used, which only a resource starts that is not known (A71).
		known := o.served || o.err != nil && strings.Contains(o.err.Error(), "not found")
		kept := o.served && want == 0 || known && source > 0 && !w.inUse(w.chain[source])
		switch {
		case kept:
		case want == 0 && (o.served || o.err == nil && (source < 0 || w.chain[source] != "remembered")):
			w.t.Errorf("%s has port %d, error %v; want an error, from source %d of %q %s", modelServices[i], o.port, o.err, source, w.chain, when)
		case want == 0:
		case i == modelDNSService && !w.dns.steady():
			if !o.served {
				w.t.Errorf("%s is not served from source %d of %q: %v %s", modelServices[i], source, w.chain, o.err, when)
			}
		case o.port != want:
			w.t.Errorf("%s has port %d, error %v; want port %d of source %d of %q %s", modelServices[i], o.port, o.err, want, source, w.chain, when)
		}
	}
}

// checkStatus checks which sources are in use, that resources have the name of theirs, and that problems of
// sources in use are reported.
func (w *modelWorld) checkStatus(source int) {
	sent := false // the source has sent something
	for i, watch := range w.watches {
		sent = sent || source >= 0 && watch != nil && w.content(source)[i] != 0
	}
	for n, s := range w.client.Servers() {
		if s.InUse && source >= 0 && n > source && sent {
			w.t.Errorf("source %q is in use, although %q can be reached", s.URI, w.chain[source])
		}
		switch {
		case !s.InUse:
		case strings.HasPrefix(s.URI, "file:") && w.kept != nil && w.watched(anyOutcome) && (s.SourceErr == nil) != w.valid:
			w.t.Errorf("the error of the file is %v, valid = %v", s.SourceErr, w.valid)
		case strings.HasPrefix(s.URI, Remembered) && source == n && (s.SourceErr == nil || !strings.Contains(s.SourceErr.Error(), "ago")):
			w.t.Errorf("remembered resources are in use, and their age is %v", s.SourceErr)
		}
	}
	outcomes := w.outcomes()
	for r := range w.client.Resources() {
		i := modelService(r.Name)
		if i < 0 || outcomes[i] == nil || outcomes[i].port == 0 || !r.Watched {
			continue
		}
		want := w.uri("server")
		if port := outcomes[i].port; i == modelDNSService || port == 30000 {
			continue
		} else if port >= 20000 {
			want = w.uri("file")
		} else if source > 0 && w.chain[source] == "remembered" && w.inUse("remembered") {
			want = w.uri("remembered")
		}
		if r.Server != want && r.Type.String() == "EDS" {
			w.t.Errorf("%v %q with port %d is from %q, want %q", r.Type, r.Name, outcomes[i].port, r.Server, want)
		}
	}
}

// checkAddresses checks that the STRICT_DNS cluster has the latest addresses, also while lookups fail.
func (w *modelWorld) checkAddresses() {
	o := w.outcomes()[modelDNSService]
	if o == nil {
		w.addresses, w.addressesAt = "", 0
		return
	}
	if o.port == 0 {
		return
	}
	switch want := w.dns.list(); {
	case want != "":
		if o.addresses != want {
			w.t.Errorf("addresses %q, want %q", o.addresses, want)
		}
		w.addresses, w.addressesAt, w.moved = want, o.port, o.moved
	case w.addressesAt != o.port || w.moved != o.moved:
		w.addressesAt = 0 // the lookups of another port are other ones, also if it had that port before
	case o.addresses != w.addresses:
		w.t.Errorf("addresses %q while lookups fail, want the previous ones, %q", o.addresses, w.addresses)
	}
}
