// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate

import (
	"context"

	"github.com/xdslb/xdslb/integrate/internal/link"
	"github.com/xdslb/xdslb/integrate/report"
)

// A Channel is a channel of the process that has a resolver of this package, or that the
// environment has handed to google.golang.org/grpc/xds. It is comparable. It is valid until the
// channel goes idle or is closed; its methods then return the last state.
type Channel struct {
	link     *link.Link
	resolver channelResolver
}

// channelResolver is an xdsResolver or a stockResolver.
type channelResolver interface {
	status(detailed bool) report.TargetStatus
	explain(ctx context.Context, method string) (*report.Explanation, error)
}

// Channels returns the channels of the process that are not idle, in the order in which their
// resolvers were built. It does not connect channels.
func Channels() []Channel {
	var all []Channel
	for _, l := range link.All() {
		if r, ok := l.Resolver.(channelResolver); ok {
			all = append(all, Channel{l, r})
		}
	}
	return all
}

// Number identifies the channel in the process: TargetStatus.Channel. It is above 0, and changes
// when the channel goes idle.
func (c Channel) Number() int64 { return c.link.Number() }

// Target returns the channel's target.
func (c Channel) Target() string { return c.link.Target }

// Status returns the channel's status, as StatusOf does.
func (c Channel) Status() report.TargetStatus { return c.resolver.status(false) }

// Inspect returns the channel's status with each route and endpoint.
//
// For a minute after the call, the RPCs of the channel are counted by endpoint. This requires
// an atomic addition when an RPC ends, and less than 100 bytes for each endpoint. Inspect takes
// the channel's mutex for O(endpoints), and O(entries) of hash rings and tables: RPCs go on,
// updates wait. For a channel that was handed over, Inspect returns the same as Status.
func (c Channel) Inspect() report.TargetStatus { return c.resolver.status(true) }

// Explain explains an RPC of the channel: see the function Explain.
func (c Channel) Explain(ctx context.Context, method string) (*report.Explanation, error) {
	if err := checkMethod(method); err != nil {
		return nil, err
	}
	return c.resolver.explain(ctx, method)
}
