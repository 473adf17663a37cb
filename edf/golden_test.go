// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package edf

import (
	"bufio"
	"bytes"
	"flag"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"os"
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
