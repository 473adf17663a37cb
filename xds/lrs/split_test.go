// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package lrs

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/xdslb/xdslb/picker"
	"github.com/xdslb/xdslb/xds/xdstest"
)

// TestLargeReport: a report that exceeds what a gRPC server accepts in a message, because backends
// have long metric names, is divided: by cluster, and a large cluster by locality. The counts of all
// clusters arrive once, also those without metrics.
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
