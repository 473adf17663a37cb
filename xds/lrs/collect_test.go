// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package lrs

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/xdslb/xdslb/picker"
	"github.com/xdslb/xdslb/xds/xdstest"
)

// A ledger is a slow, obvious account of all that happens: one number for each
// thing that can be counted, by name.
type ledger map[string]int

// add enters a report, the way the ledger names things. In progress is not added
// up; progress returns it.
func (l ledger) add(report []clusterReport) (progress ledger) {
	progress = make(ledger)
	for _, r := range report {
		c := r.stats
		name := c.GetClusterName() + "/" + c.GetClusterServiceName()
		for _, z := range c.GetUpstreamLocalityStats() {
			zone := name + "/" + z.GetLocality().GetZone()
			l[zone+" issued"] += int(z.GetTotalIssuedRequests())
			l[zone+" ok"] += int(z.GetTotalSuccessfulRequests())
			l[zone+" failed"] += int(z.GetTotalErrorRequests())
			progress[zone] += int(z.GetTotalRequestsInProgress())
			for _, m := range z.GetLoadMetricStats() {
				l[zone+" metrics"] += int(m.GetNumRequestsFinishedWithMetric())
			}
		}
		for _, d := range c.GetDroppedRequests() {
			l[name+" "+d.GetCategory()] += int(d.GetDroppedCount())
		}
		l[name+" dropped"] += int(c.GetTotalDroppedRequests())
	}
	return progress
}

// diff returns the differences between l and other.
func (l ledger) diff(other ledger) (lines []string) {
	for name := range l {
		if l[name] != other[name] {
			lines = append(lines, fmt.Sprintf("%s: %d, want %d", name, l[name], other[name]))
		}
	}
	for name := range other {
		if _, ok := l[name]; !ok && other[name] != 0 {
			lines = append(lines, fmt.Sprintf("%s: 0, want %d", name, other[name]))
		}
	}
	slices.Sort(lines)
	return lines
}

// user is a user of a Reporter, with random actions.
type user struct {
	name  string // of cluster and service
	load  *picker.ClusterLoad
	stop  func()
	zones []string // in use
	tr    *traffic // to zones
	ends  []func() // of the RPCs in progress
}

// step does something, and enters it.
func (u *user) step(t *testing.T, rng *rand.Rand, truth, progress ledger) {
	all := []string{"a", "b", "c"}
	switch op := rng.IntN(20); {
	case op < 9: // an RPC begins
		if len(u.zones) == 0 {
			return
		}
		z, tr := rng.IntN(len(u.zones)), u.tr
		name := u.name + "/" + u.zones[z]
		tr.begin(z, 1)
		truth[name+" issued"]++
		progress[name]++
		metrics := u.load.Metrics(picker.LocalityID{Zone: u.zones[z]})
		u.ends = append(u.ends, func() {
			progress[name]--
			if rng.IntN(2) == 0 {
				metrics.Add("named_metrics.a", 1)
				truth[name+" metrics"]++
			}
			if rng.IntN(3) == 0 {
				tr.end(z, 1, picker.CallFailed)
				truth[name+" failed"]++
			} else {
				tr.end(z, 1, picker.CallOK)
				truth[name+" ok"]++
			}
		})
	case op < 17: // one ends
		if n := len(u.ends); n > 0 {
			i := rng.IntN(n)
			u.ends[i]()
			u.ends = slices.Delete(u.ends, i, i+1)
		}
	case op == 17:
		u.load.Drop("x").Add()
		truth[u.name+" x"]++
		truth[u.name+" dropped"]++
	case op == 18 && rng.IntN(2) == 0:
		u.load.Overload().Add()
		truth[u.name+" dropped"]++
	case op == 18: // the counts of an RPC were read before its metrics
		if len(u.zones) > 0 {
			u.load.Metrics(picker.LocalityID{Zone: u.zones[0]}).Add("named_metrics.a", 1)
			truth[u.name+"/"+u.zones[0]+" metrics"]++
		}
	default: // the configuration changes
		u.zones = all[:rng.IntN(len(all)+1)]
		retain(u.load, u.zones, []string{"x"}[:rng.IntN(2)])
		u.tr = newTraffic(t, u.load, u.zones...)
	}
}

// T-LRS-3: all counts of sources, also of folded ones, are reported once, for any order in which sources are added,
// count, are configured and stop, and reports are made, sent and lost; the RPCs in progress are
// always accurate; and no state remains.
func TestCollect(t *testing.T) {
	seeds := uint64(40)
	if testing.Short() {
		seeds = 8
	}
	for seed := range seeds {
		rng := rand.New(rand.NewPCG(seed, 1))
		r := NewReporter(offline{}, node, Options{})
		_, stopLast := r.Report("stays", "")
		truth, progress, reported := make(ledger), make(ledger), make(ledger)
		var users []*user
		var read []clusterReport // of the report being made
		for range 5000 {
			switch op := rng.IntN(40); {
			case op == 0 && len(users) < 8:
				c := string(rune('0' + rng.IntN(2)))
				u := &user{name: c + "/s"}
				u.load, u.stop = r.Report(c, "s")
				u.tr = newTraffic(t, u.load)
				users = append(users, u)
			case op == 1 && len(users) > 0:
				i := rng.IntN(len(users))
				u := users[i]
				for _, end := range u.ends {
					end()
				}
				users = slices.Delete(users, i, i+1)
				// With too many stopped already, its counts are folded; but
				// they are lost if it is the cluster's only source.
				if len(r.clusters[key{u.name[:1], "s"}].sources) > 1 && rng.IntN(2) == 0 {
					stopFull(r, u.stop)
				} else {
					u.stop()
				}
			case op == 2 && read == nil:
				read = r.collect(wanted{all: true}, time.Now())
				got := ledger{}.add(read)
				if diff := got.diff(progress); diff != nil {
					t.Fatalf("seed %d: in progress: %q", seed, diff)
				}
			case op == 3 && read != nil:
				reported.add(read)
				r.commit(read)
				read = nil
			case op == 4:
				read = nil // lost
			case op > 4 && len(users) > 0:
				users[rng.IntN(len(users))].step(t, rng, truth, progress)
			}
		}
		for range 2 { // a stopped source may have been seen before its last RPC ended
			read = r.collect(wanted{all: true}, time.Now())
			reported.add(read)
			r.commit(read)
		}
		if diff := reported.diff(truth); diff != nil {
			t.Errorf("seed %d: reported: %q", seed, diff)
		}
		if n, want := censusOf(r), len(users)+1; n.stopped != 0 || n.sources != want || n.clusters > want {
			t.Errorf("seed %d: reporter remembers %+v, want %d sources", seed, n, want)
		}
		stopLast()
		r.Close()
	}
}

// An RPC that turns out never to have been sent after it was reported is subtracted from later
// reports, and one before is not reported.
func TestCollectVoid(t *testing.T) {
	r := NewReporter(offline{}, node, Options{})
	defer r.Close()
	load, _ := r.Report("c", "s")
	tr := newTraffic(t, load, "a")
	for i, tt := range []struct {
		do   func()
		want int // issued
	}{
		{func() { tr.begin(0, 5); tr.end(0, 1, picker.CallNotSent) }, 4},
		{func() { tr.end(0, 3, picker.CallNotSent) }, 0},
		{func() { tr.begin(0, 2) }, 0},
		{func() { tr.begin(0, 4) }, 3},
	} {
		tt.do()
		read := r.collect(wanted{all: true}, time.Now())
		r.commit(read)
		got := make(ledger)
		if got.add(read); got["c/s/a issued"] != tt.want {
			t.Errorf("report %d: %d issued, want %d", i, got["c/s/a issued"], tt.want)
		}
	}
}

// Stopped sources of a cluster that the server does not request are removed, and others are
// not.
func TestUnwanted(t *testing.T) {
	r := NewReporter(offline{}, node, Options{})
	defer r.Close()
	load, _ := r.Report("c", "s")
	tr := newTraffic(t, load, "a")
	tr.rpcs(0, 3, picker.CallOK)
	var stops []func()
	for _, name := range []string{"c", "d", "d"} {
		load, stop := r.Report(name, "s")
		load.Drop("x").Add()
		stops = append(stops, stop)
	}
	stops[0]()
	stopFull(r, stops[1]) // folded into the other
	stops[2]()
	if read := r.collect(wanted{names: map[string]bool{"e": true}}, time.Now()); read != nil {
		t.Errorf("collected %v of clusters that the server does not request", read)
	}
	if got, want := censusOf(r), (census{clusters: 1, sources: 1}); got != want {
		t.Errorf("reporter remembers %+v, want %+v", got, want)
	}
	got := make(ledger)
	read := r.collect(wanted{names: map[string]bool{"c": true}}, time.Now())
	if got.add(read); got["c/s/a ok"] != 3 {
		t.Errorf("%d RPCs collected once the server requests them, want 3", got["c/s/a ok"])
	}
}

// A cluster that is forgotten and comes back while a report of it is on its way
// is not forgotten with the report.
func TestForgetAndReturn(t *testing.T) {
	r := NewReporter(offline{}, node, Options{})
	defer r.Close()
	r.Report("stays", "")
	_, stop := r.Report("c", "s")
	read := r.collect(wanted{all: true}, time.Now())
	stopFull(r, stop)
	load, _ := r.Report("c", "s")
	load.Overload().Add()
	r.commit(read)
	got := make(ledger)
	read = r.collect(wanted{all: true}, time.Now())
	if got.add(read); got["c/s dropped"] != 1 {
		t.Errorf("%d drops reported, want 1", got["c/s dropped"])
	}
}

func BenchmarkCollect(b *testing.B) {
	for _, n := range []int{1, 100} {
		b.Run(fmt.Sprintf("localities=10/sources=%d", n), func(b *testing.B) {
			r := NewReporter(offline{}, node, Options{})
			defer r.Close()
			zones := []string{"0", "1", "2", "3", "4", "5", "6", "7", "8", "9"}
			for i := range n {
				load, _ := r.Report(fmt.Sprint(i%10), "s")
				tr := newTraffic(b, load, zones...)
				for z := range zones {
					tr.begin(z, 1)
				}
			}
			b.ReportAllocs()
			for b.Loop() {
				read := r.collect(wanted{all: true}, time.Now())
				r.commit(read)
			}
		})
	}
}

// TestLargeReport: a report that exceeds the largest message of a gRPC server, because backends
// have long metric names, is divided: by cluster, and a large cluster by locality. The counts of all
// clusters arrive once, also clusters without metrics.
func TestLargeReport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, r, requests := startRecorded(t)
		const zones = 80
		ids := make([]string, zones)
		for i := range ids {
			ids[i] = fmt.Sprint("zone", i)
		}
		var all []*traffic
		for _, name := range []string{"a small one", "hostile", "last", "many0", "many1", "many2", "many3", "many4", "many5"} {
			load, _ := r.Report(name, "")
			n := map[string]int{"a small one": 1, "hostile": zones, "last": 1}[name]
			if n == 0 {
				n = 10
			}
			if n > 1 {
				for _, zone := range ids[:n] {
					for i := range 2000 {
						load.Metrics(picker.LocalityID{Zone: zone}).Add(fmt.Sprint(i, strings.Repeat("m", 200)), 1)
					}
				}
			}
			load.Drop("lb").Add()
			tr := newTraffic(t, load, ids[:n]...)
			for zone := range n {
				tr.rpcs(zone, 3, picker.CallOK)
			}
			all = append(all, tr)
		}
		pass(10 * time.Second)

		total := 0
		for _, req := range requests.reports() {
			size := proto.Size(req)
			total += size
			if size > 1<<20+100<<10 {
				t.Errorf("a message of %d bytes, want at most 1 MiB and a locality", size)
			}
			for _, c := range req.GetClusterStats() {
				if c.GetLoadReportInterval().AsDuration() != 10*time.Second {
					t.Errorf("a message reports %s for %v, want 10 s", c.GetClusterName(), c.GetLoadReportInterval().AsDuration())
				}
			}
		}
		if total < 8<<20 {
			t.Fatalf("the report has %d bytes, too few for this test", total)
		}
		if n := len(requests.reports()); n > 2*total>>20+2 {
			t.Errorf("%d messages for %d bytes", n, total)
		}
		for _, tr := range all {
			tr.rpcs(0, 1, picker.CallOK)
		}
		pass(10 * time.Second)
		for name, n := range map[string]uint64{"a small one": 1, "hostile": zones, "last": 1, "many3": 10} {
			c := s.Loads(name, "")
			if want := (xdstest.LocalityCounts{Issued: 3*n + 1, OK: 3*n + 1}); c.Total != want || c.Dropped != 1 || c.Drops["lb"] != 1 {
				t.Errorf("cluster %s: reported %+v, %d dropped, %v; want %+v and 1 drop", name, c.Total, c.Dropped, c.Drops, want)
			}
		}
		if open, total := s.LoadStreams(); open != 1 || total != 1 {
			t.Errorf("%d of %d streams are open, want one", open, total)
		}
	})
}
