// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package ringhash

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/xdslb/xdslb/bench/kit"
)

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
