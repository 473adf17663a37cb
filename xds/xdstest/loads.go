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

// loads is the LRS service of a Server: it configures the load reports of clients, and sums
// them.
type loads struct {
	lrsv3.UnimplementedLoadReportingServiceServer
	events    *events
	onRequest func(*lrsv3.LoadStatsRequest) // Options.OnLoadRequest

	mu       sync.Mutex
	response *lrsv3.LoadStatsResponse // sent to clients; replaced, never modified
	total    int
	streams  map[*lrsStream]bool // the open streams
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
	Reports    int            // number of reports that include it
	Total      LocalityCounts // the sum over Localities
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

func (l *loads) init(events *events, opts *Options) {
	l.events, l.onRequest = events, opts.OnLoadRequest
	l.streams, l.counts = make(map[*lrsStream]bool), make(map[loadKey]*LoadCounts)
	interval := opts.LoadInterval
	if interval == 0 {
		interval = time.Second
	}
	l.response = &lrsv3.LoadStatsResponse{
		SendAllClusters:       true,
		LoadReportingInterval: durationpb.New(interval),
	}
}

// ConfigureLoads sends resp on all open LRS streams, and on new ones when they open. Nil stops
// sending. The message must not be modified afterwards.
func (s *Server) ConfigureLoads(resp *lrsv3.LoadStatsResponse) {
	l := &s.loads
	l.mu.Lock()
	defer l.mu.Unlock()
	l.response = resp
	for st := range l.streams {
		signal(st.configure)
	}
}

// LoadStreams returns the number of open LRS streams, and the total number so far.
func (s *Server) LoadStreams() (open, total int) {
	s.loads.mu.Lock()
	defer s.loads.mu.Unlock()
	return len(s.loads.streams), s.loads.total
}

// Loads returns the reported load of a cluster and EDS service so far.
func (s *Server) Loads(cluster, service string) LoadCounts {
	l := &s.loads
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.counts[loadKey{cluster, service}]
	if c == nil {
		return LoadCounts{}
	}
	counts := *c
	counts.Localities, counts.Drops = maps.Clone(c.Localities), maps.Clone(c.Drops)
	for _, n := range c.Localities {
		counts.Total.Issued += n.Issued
		counts.Total.OK += n.OK
		counts.Total.Failed += n.Failed
		counts.Total.InProgress += n.InProgress
	}
	return counts
}

// StreamLoadStats handles a stream until it ends.
func (l *loads) StreamLoadStats(stream lrsv3.LoadReportingService_StreamLoadStatsServer) error {
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
			if l.onRequest != nil {
				l.onRequest(req)
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

func (l *loads) breakStreams() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for st := range l.streams {
		signal(st.broken)
	}
}

// add adds the counts of a message.
func (l *loads) add(req *lrsv3.LoadStatsRequest) {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.events.notify()
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
