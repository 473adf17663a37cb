// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package edf

import (
	"bufio"
	"bytes"
	"flag"
	"fmt"
	"hash/crc32"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/xdslb/xdslb/bench/kit"
)

var update = flag.Bool("update", false, "rewrite testdata/golden.txt")

// A replica, or the next version, that starts at the same place must make the same picks. Do
// not change the golden sequences: that breaks users that rely on replaying them.
//
// A line is a configuration and a colon, then the first picks and a checksum over more. The
// weights of the form n*max are drawn from a fixed seed.
func TestGolden(t *testing.T) {
	const file = "testdata/golden.txt"
	old, err := os.ReadFile(file)
	kit.Must(t, err)
	var now bytes.Buffer
	lines := bufio.NewScanner(bytes.NewReader(old))
	for lines.Scan() {
		line := lines.Text()
		if line == "" || line[0] == '#' {
			fmt.Fprintln(&now, line)
			continue
		}
		config, _, found := strings.Cut(line, ":")
		c, err := parseGolden(config)
		if err != nil || !found {
			t.Fatalf("%s: line %q: %v", file, line, err)
		}
		for n, impl := range impls {
			next, err := impl.new(c)
			kit.Must(t, err)
			got := config + ": " + golden(next)
			if n == 0 {
				fmt.Fprintln(&now, got)
			}
			if got != line && !*update {
				t.Errorf("%s:\n got %s\nwant %s", impl.name, got, line)
			}
		}
	}
	if *update {
		kit.Must(t, os.WriteFile(file, now.Bytes(), 0o644))
	}
}

// golden formats the first 24 picks and the CRC-32 of the first 20 000, 4 bytes each.
func golden(next func() int) string {
	var text strings.Builder
	sum := crc32.NewIEEE()
	for n := range 20_000 {
		i := next()
		if n < 24 {
			fmt.Fprintf(&text, "%d ", i)
		}
		sum.Write([]byte{byte(i), byte(i >> 8), byte(i >> 16), byte(i >> 24)})
	}
	return fmt.Sprintf("%scrc %08x", &text, sum.Sum32())
}

func parseGolden(text string) (Config, error) {
	var c Config
	for _, word := range strings.Fields(text) {
		key, value, _ := strings.Cut(word, "=")
		switch key {
		case "weights":
			var n int
			var most uint32
			if strings.Contains(value, "*") {
				if _, err := fmt.Sscanf(value, "%d*%d", &n, &most); err != nil {
					return c, err
				}
				r := rand.New(rand.NewPCG(uint64(n), uint64(most)))
				for range n {
					c.Weights = append(c.Weights, 1+r.Uint32N(most))
				}
				continue
			}
			for _, w := range strings.Split(value, ",") {
				var weight uint32
				if _, err := fmt.Sscan(w, &weight); err != nil {
					return c, err
				}
				c.Weights = append(c.Weights, weight)
			}
		case "start":
			if _, err := fmt.Sscan(value, &c.Start); err != nil {
				return c, err
			}
		default:
			return c, fmt.Errorf("unknown word %q", word)
		}
	}
	return c, nil
}

// The figures in the package documentation: over one period, the furthest that an endpoint's
// picks get from its share of the picks so far, and the longest run of one endpoint (T-EDF-3).
func TestFairness(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 5))
	upTo := func(n int, most uint32) []uint32 {
		weights := make([]uint32, n)
		for i := range weights {
			weights[i] = 1 + r.Uint32N(most)
		}
		return weights
	}
	for _, test := range []struct {
		name    string
		weights []uint32
		want    string // deviation, run
	}{
		{"10 endpoints of weight 1 to 10", upTo(10, 10), "1.23 1"},
		{"100 endpoints of weight 1 to 1000", upTo(100, 1000), "1.73 1"},
		{"weight 1000 beside 1000 of weight 1", append([]uint32{1000}, slices.Repeat([]uint32{1}, 1000)...), "500.00 1000"},
		{"weight 1000 behind 1000 of weight 1", append(slices.Repeat([]uint32{1}, 1000), 1000), "499.50 999"},
	} {
		h, err := Config{Weights: test.weights}.queue()
		kit.Must(t, err)
		deviation, run := unfairness(h, test.weights)
		if got := fmt.Sprintf("%.2f %d", deviation, run); got != test.want {
			t.Errorf("%s: deviation and run %s, want %s", test.name, got, test.want)
		}
	}
}

// unfairness draws a period from h.
func unfairness(h *queue, weights []uint32) (deviation float64, run int) {
	picks := make([]float64, len(weights))
	share := make([]float64, len(weights))
	for i, w := range weights {
		share[i] = float64(w) / float64(h.total.sum)
	}
	last, length := -1, 0
	for n := range h.total.period() {
		i := h.next()
		picks[i]++
		if i != last {
			last, length = i, 0
		}
		length++
		run = max(run, length)
		for i := range picks {
			deviation = max(deviation, math.Abs(picks[i]-float64(n+1)*share[i]))
		}
	}
	return deviation, run
}
