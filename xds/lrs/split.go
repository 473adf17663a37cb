// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package lrs

import (
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/protobuf/proto"
)

// maxMessage approximately bounds the size of a message: a quarter of the 4 MiB that gRPC servers
// accept by default. A server that refuses a message ends the stream, and the counts of all
// clusters in the message are lost.
const maxMessage = 1 << 20

// A message is what one LoadStatsRequest reports.
type message struct {
	stats []*endpointv3.ClusterStats
	sent  []clusterReport // reported completely by this message and the ones before
}

// messages divides a report, in its order, into messages of about maxMessage. Only a cluster that
// exceeds maxMessage is divided itself. The result has at least one message, which may be empty.
func messages(report []clusterReport) []message {
	all := []message{{}}
	size := 0
	for _, c := range report {
		for _, part := range parts(c.stats) {
			n := proto.Size(part)
			if size > 0 && size+n > maxMessage {
				all, size = append(all, message{}), 0
			}
			size += n
			m := &all[len(all)-1]
			m.stats = append(m.stats, part)
		}
		m := &all[len(all)-1]
		m.sent = append(m.sent, c)
	}
	return all
}

// parts divides the report of a cluster, which may be nil. The first part has the drops.
func parts(stats *endpointv3.ClusterStats) []*endpointv3.ClusterStats {
	switch {
	case stats == nil:
		return nil
	case proto.Size(stats) <= maxMessage:
		return []*endpointv3.ClusterStats{stats}
	}
	localities := stats.GetUpstreamLocalityStats()
	stats.UpstreamLocalityStats = nil
	all, size := []*endpointv3.ClusterStats{stats}, proto.Size(stats)
	for _, l := range localities {
		n := proto.Size(l)
		if size > 0 && size+n > maxMessage {
			all, size = append(all, &endpointv3.ClusterStats{
				ClusterName:        stats.GetClusterName(),
				ClusterServiceName: stats.GetClusterServiceName(),
				LoadReportInterval: stats.GetLoadReportInterval(),
			}), 0
		}
		size += n
		part := all[len(all)-1]
		part.UpstreamLocalityStats = append(part.UpstreamLocalityStats, l)
	}
	return all
}
