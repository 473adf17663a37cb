// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package hostile

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/xdslb/xdslb/bench/kit"
)

var (
	duration = flag.Duration("hostile", 0, "how long each server sends without a pause; 0 means a few small responses")
	reduced  = flag.Int("hostile.divisor", 8, "the divisor of all sizes without -hostile")
	only     = flag.String("hostile.only", "", "a part of the names of the servers to run")
)

// Bounds that hold for all servers.
const (
	// A client allocates and retains so many bytes for each byte of a response, and slack
	// besides, which is for gRPC and for the test itself.
	usualAllocated = 60
	usualRetained  = 50
	slack          = 4 << 20
	longestLine    = 8 << 10 // of the log
	closing        = 20 * time.Second
	// A mutex is held for so long at most because of a response of 1 MiB, or a smaller one.
	longestLock = 50 * time.Millisecond
)

// TestHostile has each server send versions of an eighth of its size, and limits the bytes that the
// client allocates and retains, the times that it holds mutexes, its lines in the log, and the time
// until it is closed. With -short every eighth server does. With -hostile the versions have their
// size, responses without a pause follow, and the test prints a table.
func TestHostile(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	// The probes of locks must not wait for a processor of the runtime.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(max(4, runtime.GOMAXPROCS(0))))
	divisor, versions := *reduced, 1
	if *duration > 0 {
		divisor, versions = 1, 3
	}
	var table strings.Builder
	table.WriteString(head)
	for i, s := range scenarios() {
		if !strings.Contains(s.name, *only) {
			continue
		}
		if testing.Short() && i%8 != 0 { // TestHostile takes minutes, mostly of waiting
			continue
		}
		t.Run(s.name, func(t *testing.T) {
			if *duration == 0 && s.silent {
				t.Skip("there is no single response")
			}
			divisor, versions := divisor, versions
			if s.large {
				versions = 1
			}
			f := measure(t, s, divisor, versions, *duration)
			f.check(t, s)
			if *duration > 0 && !s.large && f.cpu > worthComparing && f.largest > growing {
				s.checkLinear(t, divisor)
			}
			table.WriteString(f.row(s))
			t.Log("\n" + f.row(s))
		})
	}
	t.Log("\n" + table.String())
}

// Versions that take less CPU time than worthComparing are not compared with others.
const worthComparing = 40 * time.Millisecond

// growing is the least size of versions whose size the divisor changes.
const growing = 64 << 10

// mostForFour is how much more CPU time a version of four times the size takes at most: 16 would be
// quadratic, and collections of garbage are more expensive in a larger heap.
const mostForFour = 8

// checkLinear compares the CPU time for a version with that for a quarter of it. The shortest of several
// times count, since load of the machine and collections of garbage add to them.
func (s *scenario) checkLinear(t *testing.T, divisor int) {
	subjects := []*subject{connect(t, s, divisor), connect(t, s, 4*divisor)}
	least := []cpuSeconds{time.Hour, time.Hour}
	for i := range 8 {
		for k, c := range subjects {
			if cpu := c.step(); i > 0 { // the first is not followed by the work of releasing another
				least[k] = min(least[k], cpu)
			}
		}
		if i > 1 && least[0] < mostForFour*least[1] {
			break
		}
	}
	if least[0] > mostForFour*least[1] {
		t.Errorf("a version takes %v of CPU time, and a quarter of it %v, want %d times more at most", least[0], least[1], mostForFour)
	}
	for _, c := range subjects {
		if err := c.cc.Close(); err != nil {
			t.Error(err)
		}
	}
}

// head begins costs.tsv.
const head = "server\tresponse\tallocated per byte\tretained per byte\theap at the peak, per byte\tCPU for a response\tCPU, of one core\tlongest text\tlock\tclose\n"

// row returns the figures as a row of the table.
func (f *figures) row(s *scenario) string {
	perByte := func(n uint64) string {
		if f.largest < growing {
			return ""
		}
		return fmt.Sprintf(", %.0f", f.perByte(n))
	}
	return fmt.Sprintf("%s\t%s\t%s\t%s\t%s%s\t%.0f ms\t%.0f %%\t%s\t%.0f ms\t%.1f s\n", s.name, size(f.largest), s.bound(s.allocates()), s.bound(s.retains()), size(int64(f.peak)), perByte(f.peak),
		f.cpu.Seconds()*1000, 100*f.share, size(f.longest), f.lock.longest().Seconds()*1000, f.closing.Seconds())
}

// allocates and retains return how many bytes the client allocates and retains at most for each
// byte of a response.
func (s *scenario) allocates() float64 {
	if s.allocated == 0 {
		return usualAllocated
	}
	return s.allocated
}

func (s *scenario) retains() float64 {
	if s.retained == 0 {
		return usualRetained
	}
	return s.retained
}

// longestLock returns for how long the client holds a mutex at most because of a response of a size.
func (s *scenario) longestLock(size int64) cpuSeconds {
	return time.Duration(float64(cmp.Or(s.lock, longestLock)) * max(1, float64(size)/(1<<20)))
}

// bound returns a bound for the table.
func (s *scenario) bound(n float64) string {
	if s.silent {
		return "-"
	}
	return fmt.Sprintf("≤ %.0f", n)
}

// TestTable: costs.tsv has a row for each server, with the bounds that TestHostile checks.
func TestTable(t *testing.T) {
	text, err := os.ReadFile("costs.tsv")
	kit.Must(t, err)
	rows, found := strings.CutPrefix(string(text), head)
	if !found {
		t.Errorf("costs.tsv does not begin with %q", head)
	}
	var got, want []string
	for line := range strings.Lines(rows) {
		if cells := strings.Split(line, "\t"); len(cells) > 4 {
			got = append(got, strings.Join([]string{cells[0], cells[2], cells[3]}, "\t"))
		}
	}
	for _, s := range scenarios() {
		want = append(want, s.name+"\t"+s.bound(s.allocates())+"\t"+s.bound(s.retains()))
	}
	if !slices.Equal(got, want) {
		t.Errorf("servers and bounds are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func size(n int64) string {
	switch {
	case n >= 10<<20:
		return fmt.Sprintf("%d MiB", n>>20)
	case n >= 10<<10:
		return fmt.Sprintf("%d KiB", n>>10)
	}
	return fmt.Sprintf("%d B", n)
}

// check compares the figures with their bounds.
func (f *figures) check(t *testing.T, s *scenario) {
	if limit := s.allocates()*float64(f.bytes) + float64(s.besides*f.responses+slack); float64(f.allocated) > limit && *duration == 0 {
		t.Errorf("%d bytes were allocated for %d of responses (%.0f for each), want %.0f at most", f.allocated, f.bytes, float64(f.allocated)/float64(f.bytes), limit)
	}
	if limit := s.retains()*float64(f.largest) + float64(s.besides+slack); float64(f.retained) > limit {
		t.Errorf("%d bytes are retained for a version of %d (%.0f for each), want %.0f at most", f.retained, f.largest, f.perByte(f.retained), limit)
	}
	if limit := s.longestLock(f.largest); f.lock.longest() > limit {
		t.Errorf("a call waited for the mutex of the XdsClient for %v of CPU time, or for the one of the balancer for %v, want %v at most", f.lock.client, f.lock.balancer, limit)
	}
	if f.kept > 2*slack {
		t.Errorf("%d bytes are kept by a channel that is closed", f.kept)
	}
	if f.longest > longestLine {
		t.Errorf("an error or a line of the log has %d bytes, want %d at most", f.longest, longestLine)
	}
	if f.closing > closing {
		t.Errorf("the channel was closed after %v, want %v at most", f.closing, closing)
	}
}
