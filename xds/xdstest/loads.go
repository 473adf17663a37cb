// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xdstest

import (
	"maps"
	"sync"
	"time"

	lrsv3 "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"
	"google.golang.org/protobuf/types/known/durationpb"
)

// maxRequests limits the memory of Loads.Requests.
const maxRequests = 4096

// Loads is the LRS service of a Server: it configures the load reports of clients, and sums
// them. It is safe for concurrent use.
type Loads struct {
	events *events

	mu       sync.Mutex
	response *lrsv3.LoadStatsResponse // sent to clients; replaced, never modified
	total    int
	streams  map[*lrsStream]bool // the open streams
	requests []*lrsv3.LoadStatsRequest
	counts   map[loadKey]*LoadCounts
}

// lrsStream is an open stream.
type lrsStream struct {
	configure chan struct{} // capacity 1: a new response must be sent
	broken    chan struct{} // capacity 1
}

type loadKey struct{ cluster, service string }

// LoadCounts is the sum of the load reports of one cluster and EDS service.
type LoadCounts struct {
	Reports    int // number of reports that include it
	Localities map[Place]LocalityCounts
	Dropped    uint64            // total_dropped_requests
	Drops      map[string]uint64 // dropped_requests, by category
	// Interval is the sum of load_report_interval.
	Interval time.Duration
}

// LocalityCounts is the sum of the load reports of one locality. InProgress is a gauge: the
// value of the last report.
type LocalityCounts struct {
	Issued, OK, Failed uint64
	InProgress         uint64
}

// Place names a locality.
type Place struct{ Region, Zone, SubZone string }

func (l *Loads) init(events *events, interval time.Duration) {
	if interval == 0 {
		interval = time.Second
	}
	l.events = events
	l.streams, l.counts = make(map[*lrsStream]bool), make(map[loadKey]*LoadCounts)
	l.Configure(&lrsv3.LoadStatsResponse{
		SendAllClusters:       true,
		LoadReportingInterval: durationpb.New(interval),
	})
}

// Configure sends resp on all open streams, and on new streams when they open. Nil stops
// sending. The message must not be modified afterwards.
func (l *Loads) Configure(resp *lrsv3.LoadStatsResponse) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.response = resp
	for st := range l.streams {
		signal(st.configure)
	}
}

// Streams returns the number of open LRS streams, and the total number so far.
func (l *Loads) Streams() (open, total int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.streams), l.total
}

// Requests returns the latest 4096 received messages, in order; at least the first of each
// stream contains the client's node.
func (l *Loads) Requests() []*lrsv3.LoadStatsRequest {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]*lrsv3.LoadStatsRequest(nil), l.requests...)
}

// Counts returns the reported load of a cluster and EDS service so far.
func (l *Loads) Counts(cluster, service string) LoadCounts {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.counts[loadKey{cluster, service}]
	if c == nil {
		return LoadCounts{}
	}
	counts := *c
	counts.Localities, counts.Drops = maps.Clone(c.Localities), maps.Clone(c.Drops)
	return counts
}

// Sum returns the sum over the localities.
func (c *LoadCounts) Sum() LocalityCounts {
	var sum LocalityCounts
	for _, l := range c.Localities {
		sum.Issued += l.Issued
		sum.OK += l.OK
		sum.Failed += l.Failed
		sum.InProgress += l.InProgress
	}
	return sum
}

// loadService is the service of a Loads.
type loadService struct {
	lrsv3.UnimplementedLoadReportingServiceServer
	*Loads
}

// StreamLoadStats handles a stream until it ends.
func (l loadService) StreamLoadStats(stream lrsv3.LoadReportingService_StreamLoadStatsServer) error {
	st := &lrsStream{configure: make(chan struct{}, 1), broken: make(chan struct{}, 1)}
	l.mu.Lock()
	l.total++
	l.streams[st] = true
	l.mu.Unlock()
	l.events.notify()
	defer func() {
		l.mu.Lock()
		delete(l.streams, st)
		l.mu.Unlock()
		l.events.notify()
	}()

	ended := make(chan error, 1)
	go func() {
		// A client sends first: the node, without load.
		for first := true; ; first = false {
			req, err := stream.Recv()
			if err != nil {
				ended <- err
				return
			}
			l.add(req)
			if first {
				signal(st.configure)
			}
		}
	}()
	for {
		select {
		case <-st.configure:
			l.mu.Lock()
			resp := l.response
			l.mu.Unlock()
			if resp == nil {
				continue
			}
			if err := stream.Send(resp); err != nil {
				return err
			}
		case <-st.broken:
			return errBroken
		case <-ended:
			return nil
		}
	}
}

func (l *Loads) breakStreams() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for st := range l.streams {
		signal(st.broken)
	}
}

// add adds the counts of a message.
func (l *Loads) add(req *lrsv3.LoadStatsRequest) {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.events.notify()
	if len(l.requests) == maxRequests {
		l.requests = append(l.requests[:0:0], l.requests[maxRequests/2:]...)
	}
	l.requests = append(l.requests, req)
	for _, cs := range req.GetClusterStats() {
		key := loadKey{cs.GetClusterName(), cs.GetClusterServiceName()}
		c := l.counts[key]
		if c == nil {
			c = &LoadCounts{Localities: make(map[Place]LocalityCounts), Drops: make(map[string]uint64)}
			l.counts[key] = c
		}
		c.Reports++
		c.Interval += cs.GetLoadReportInterval().AsDuration()
		c.Dropped += cs.GetTotalDroppedRequests()
		for _, d := range cs.GetDroppedRequests() {
			c.Drops[d.GetCategory()] += d.GetDroppedCount()
		}
		for _, ls := range cs.GetUpstreamLocalityStats() {
			id := ls.GetLocality()
			place := Place{id.GetRegion(), id.GetZone(), id.GetSubZone()}
			n := c.Localities[place]
			n.Issued += ls.GetTotalIssuedRequests()
			n.OK += ls.GetTotalSuccessfulRequests()
			n.Failed += ls.GetTotalErrorRequests()
			n.InProgress = ls.GetTotalRequestsInProgress()
			c.Localities[place] = n
		}
	}
}

// signal makes c readable.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
