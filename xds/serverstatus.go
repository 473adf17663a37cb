// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xds

import (
	"fmt"
	"strings"
	"time"

	"github.com/xdslb/xdslb/xds/internal/timing"
	"github.com/xdslb/xdslb/xds/resource"
)

// serverStatus is the status of an xDS server. Counts are since the start of the client.
type serverStatus struct {
	URI string
	// Description is the URI with the types of credentials and the features, since two
	// servers of a bootstrap may differ in these only.
	Description string
	// Key is [bootstrap.Server.Key], which distinguishes servers with the same
	// Description. It must not be logged.
	Key string
	// Variant is the RPC of ADS that the client uses: StreamAggregatedResources (state of the world),
	// or DeltaAggregatedResources.
	Variant string
	// InUse means that the client has a stream to the server or tries to open one.
	// Later servers of a chain are in use while the earlier ones cannot be reached (A71).
	InUse bool
	// Connected is A78's grpc.xds_client.connected: true from the first stream on,
	// false when the server cannot be reached or a stream has ended without a
	// response, and true again with the first response after that. The end of a stream that had a
	// response does not count (A57): the next one follows within a second, or Connected becomes
	// false. With Options.ReconnectSpread it becomes false at the end of the stream.
	Connected bool
	Since     time.Time // when Connected last changed; zero before the first stream

	Err     error     // of the latest stream that failed or could not be opened
	ErrTime time.Time // when Err occurred

	// EndsStreams is when the server was found to end each stream in order, although it is not known
	// that others displace them; zero once a stream has been open for 3 minutes.
	EndsStreams time.Time
	// Displaced is when other streams were found to displace the client's, as behind an agent that
	// accepts one stream; zero once a stream has been open for 3 minutes.
	Displaced time.Time

	// SourceErr is why a Source does not deliver its present resources, so that previous ones stay in use;
	// nil if it does. SourceFailures counts its errors.
	SourceErr      error
	SourceFailures uint64

	Streams uint64 // opened
	// Failures is A78's grpc.xds_client.server_failure: how often Connected became false,
	// or the first stream could not be opened.
	Failures uint64

	Types [resource.NumTypes]typeStatus // by resource.Type
}

// typeStatus counts the messages from and to a server about one resource type.
type typeStatus struct {
	Messages uint64 // responses
	Bytes    uint64 // of responses, as protobuf
	// Valid and Invalid are A78's grpc.xds_client.resource_updates_valid and
	// _invalid: resources that were subscribed to, including unchanged ones.
	Valid, Invalid uint64
	Requests       uint64 // including ACKs and NACKs
	NACKs          uint64
	// Unread is why resources of the latest response were rejected that have no name, another type or a
	// repeated name, so that the error is not in the state of a resource; empty if there are none.
	Unread string
}

// Unread returns typeStatus.Unread of all types.
func (s *serverStatus) Unread() string {
	var list []string
	for typ := range s.Types {
		if text := s.Types[typ].Unread; text != "" {
			list = append(list, fmt.Sprintf("%v: %s", resource.Type(typ), text))
		}
	}
	return strings.Join(list, "; ")
}

// serverStats is the state of a server that outlives its use: it exists as long as the client. Guarded
// by core.mu.
//
//	        streamOpened                     failed
//	new ─────────────────────► connected ──────────────► not connected
//	 │                             ▲                          │   ▲
//	 │            failed           └───────responded──────────┘   │
//	 └────────────────────────────────────────────────────────────┘
type serverStats struct {
	status       serverStatus
	displacement displacement
	gone         bool // not connected, without a failure so far: see away
}

// streamOpened is called when a stream has been opened.
func (r *serverStats) streamOpened() {
	r.status.Streams++
	if r.status.Since.IsZero() {
		r.setConnected(true)
	}
}

// responded is called for the first response of a stream.
func (r *serverStats) responded() {
	if !r.status.Connected {
		r.setConnected(true)
	}
}

// failed is called when the server cannot be reached.
func (r *serverStats) failed() {
	if r.status.Connected || r.gone || r.status.Since.IsZero() {
		r.status.Failures++
		r.setConnected(false)
	}
}

// away is called when a stream that had a response has ended, and the next one may follow late.
func (r *serverStats) away() {
	if r.status.Connected {
		r.setConnected(false)
		r.gone = true
	}
}

func (r *serverStats) setConnected(connected bool) {
	r.gone = false
	r.status.Connected, r.status.Since = connected, time.Now()
}

// ended records the error of a stream that ended or could not be opened, and reports whether it is
// a new one.
func (r *serverStats) ended(err error) (fresh bool) {
	fresh = r.status.Connected || r.status.Err == nil || r.status.Err.Error() != err.Error()
	r.status.Err, r.status.ErrTime = err, time.Now()
	return fresh
}

// displacement is the state of the detection of displaced streams: see displaced.go.
type displacement struct {
	opened  time.Time    // the current or latest stream
	times   int          // streams that ended like displaced ones
	last    time.Time    // when the latest of them ended
	since   time.Time    // when the condition was detected; zero without it
	settled timing.Timer // runs while a stream is open and since is set
}
