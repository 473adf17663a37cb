// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package ringhash

import (
	"bytes"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/xdslb/xdslb/bench/kit"
)

// arcs returns the share of the circle that belongs to each of n hosts.
func arcs(r *Ring, n int) []float64 {
	shares := make([]float64, n)
	last := r.entries[r.Len()-1].hash()
	for p := range r.Len() {
		hash := r.entries[p].hash()
		shares[hostAt(r, p)] += float64(hash-last) / (1 << 64) // wraps at the first
		last = hash
	}
	return shares
}

// The largest share of a ring relative to the mean falls with the number of
// entries per host; a Maglev table is even. These are the figures to choose by.
func TestBalance(t *testing.T) {
	tests := []struct {
		hosts    int
		size     uint64
		min, max float64
	}{
		{100, 1100, 1.5, 2.6},
		{100, 4100, 1.2, 1.6},
		{100, 65600, 1.05, 1.16},
		{1000, 2000, 3, 6.5},
		{1000, 66000, 1.25, 1.55},
	}
	for _, fn := range funcs {
		for _, test := range tests {
			hosts := benchHosts(test.hosts)
			got := slices.Max(arcs(mustNew(t, hosts, test.size, test.size, fn), test.hosts)) * float64(test.hosts)
			if got < test.min || got > test.max {
				t.Errorf("function %d, %d hosts, size %d: max/mean is %.2f, want %.2f to %.2f", fn, test.hosts, test.size, got, test.min, test.max)
			}
			slots := make([]float64, test.hosts)
			for _, host := range tableOf(mustMaglev(t, hosts, defaultTableSize, fn)) {
				slots[host] += float64(test.hosts) / defaultTableSize
			}
			if got := slices.Max(slots); got > 1.01 {
				t.Errorf("function %d, %d hosts: max/mean of Maglev is %.3f, want at most 1.01", fn, test.hosts, got)
			}
		}
	}
}

// Hosts get the shares of their weights.
func TestWeightedShares(t *testing.T) {
	hosts := []Host{{"a", 1}, {"b", 2}, {"c", 5}, {"d", 12}}
	for _, fn := range funcs {
		for host, share := range arcs(mustNew(t, hosts, 100_000, 100_000, fn), len(hosts)) {
			if want := float64(hosts[host].Weight) / 20; math.Abs(share/want-1) > 0.05 {
				t.Errorf("function %d: share of host %d is %.4f, want %.4f", fn, host, share, want)
			}
		}
	}
}

// moves returns the share of hashes whose host differs between two rings, the later of which
// has the hosts of the earlier under the same indexes, and the share of hashes that move to or
// from the host at index one.
func moves(before, after func(uint64) int, one int) (all, ofOne float64) {
	const n = 1 << 16
	rng := newRand(17)
	for range n {
		hash := rng.Uint64()
		b, a := before(hash), after(hash)
		if b != a {
			all += 1.0 / n
			if b == one || a == one {
				ofOne += 1.0 / n
			}
		}
	}
	return all, ofOne
}

// Adding or removing one host moves only its own requests, if the number of entries of the
// other hosts is unchanged, and its own are about 1/N of all.
func TestRingMovesLittle(t *testing.T) {
	tests := []struct {
		hosts int
		size  uint64
		limit float64 // of the mean of moved requests, in 1/N
	}{
		{101, 4096, 1.3},
		{1001, 65536, 1.3},
	}
	for _, fn := range funcs {
		for _, test := range tests {
			hosts := benchHosts(test.hosts)
			full := mustNew(t, hosts, test.size, sizeLimit, fn)
			mean := 0.0
			const sample = 6
			for i := range sample {
				one := i * 15
				less := slices.Clone(hosts)
				less[one].Weight = 0
				all, ofOne := moves(mustUpdate(t, full, less).Pick, full.Pick, one)
				if all != ofOne {
					t.Errorf("function %d: host %d of %d moves %.4f of requests, only %.4f its own", fn, one, test.hosts, all, ofOne)
				}
				mean += all / sample
			}
			if limit := test.limit / float64(test.hosts); mean > limit || mean < 0.5*limit {
				t.Errorf("function %d: one of %d hosts moves %.5f of requests, want at most %.5f", fn, test.hosts, mean, limit)
			}
		}
	}
}

// If the maximum size makes shares fractional, the odd entries move between hosts after the
// changed one: at most one entry for each host that has one more than other hosts, here 92 of
// 4096. Envoy and grpc-go behave the same.
func TestRingMovesMoreAtMaximum(t *testing.T) {
	hosts := benchHosts(1001)
	for _, fn := range funcs {
		full := mustNew(t, hosts, 4096, 4096, fn)
		less := slices.Clone(hosts)
		less[500].Weight = 0
		all, ofOne := moves(full.Pick, mustUpdate(t, full, less).Pick, 500)
		if got, limit := all-ofOne, 2*92/4096.0; got > limit {
			t.Errorf("function %d: one of 1001 hosts moves %.5f of requests beyond its own, want at most %.5f", fn, got, limit)
		}
	}
}

// A Maglev table moves some requests of other hosts, the price of its balance.
func TestMaglevMovesLittle(t *testing.T) {
	for _, fn := range funcs {
		for _, n := range []int{10, 100, 1000} {
			hosts := benchHosts(n)
			full := mustMaglev(t, hosts, defaultTableSize, fn)
			less := slices.Clone(hosts)
			less[n/2].Weight = 0
			all, ofOne := moves(full.Pick, mustMaglev(t, less, defaultTableSize, fn).Pick, n/2)
			if math.Abs(ofOne*float64(n)-1) > 0.2 {
				t.Errorf("function %d: one of %d hosts moves %.5f of requests of its own", fn, n, ofOne)
			}
			if all-ofOne > 0.008 {
				t.Errorf("function %d: one of %d hosts moves %.5f of requests beyond its own", fn, n, all-ofOne)
			}
		}
	}
}

var update = flag.Bool("update", false, "rewrite the files in testdata")

// goldenHosts has unequal weights, a weight of zero, an IPv6 address, and shares
// that are not whole numbers in the rings below.
var goldenHosts = []Host{
	{"10.0.0.7:8080", 3},
	{"10.0.0.12:8080", 1},
	{"[2001:db8::1]:8080", 7},
	{"10.0.0.3:8080", 0},
	{"statefulset-0", 2},
	{"10.0.0.9:8080", 5},
}

// Placement is shared by all processes of a fleet, of all versions: do NOT change the golden
// files. A moved entry moves the requests of every user on every rollout. The XXH64 files are
// Envoy's and grpc-go's placement too.
func TestGolden(t *testing.T) {
	for fn, name := range map[Func]string{XXH3: "xxh3", XXH64: "xxh64"} {
		var text bytes.Buffer
		for _, size := range []uint64{1, 64, 1000} {
			fmt.Fprintf(&text, "size %d\n", size)
			r := mustNew(t, goldenHosts, size, size, fn)
			for p := range r.Len() {
				fmt.Fprintf(&text, "%016x %s\n", r.entries[p].hash(), goldenHosts[hostAt(r, p)].Key)
			}
		}
		checkGolden(t, "ring_"+name+".txt", text.Bytes())

		text.Reset()
		for _, size := range []uint64{7, 251} {
			fmt.Fprintf(&text, "size %d\n", size)
			for _, host := range tableOf(mustMaglev(t, goldenHosts, size, fn)) {
				fmt.Fprintf(&text, "%s\n", goldenHosts[host].Key)
			}
		}
		checkGolden(t, "maglev_"+name+".txt", text.Bytes())
	}

	var text bytes.Buffer
	for _, key := range []string{"", "user-42", "10.0.0.7:8080_0"} {
		for k := range 4 {
			fmt.Fprintf(&text, "%q %d %016x %016x\n", key, k, Probe(XXH3.Sum(key), k), Probe(XXH64.Sum(key), k))
		}
	}
	checkGolden(t, "probe.txt", text.Bytes())
}

func checkGolden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		kit.Must(t, os.WriteFile(path, got, 0o644))
	}
	want, err := os.ReadFile(path)
	kit.Must(t, err)
	if !bytes.Equal(got, want) {
		t.Errorf("%s does not match the placement:\n%s", path, firstDifference(got, want))
	}
}

func firstDifference(got, want []byte) string {
	g, w := bytes.Split(got, []byte("\n")), bytes.Split(want, []byte("\n"))
	for i := range min(len(g), len(w)) {
		if !bytes.Equal(g[i], w[i]) {
			return fmt.Sprintf("line %d is %q, want %q", i+1, g[i], w[i])
		}
	}
	return fmt.Sprintf("%d lines, want %d", len(g), len(w))
}
