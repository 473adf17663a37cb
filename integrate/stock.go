// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/serviceconfig"

	"github.com/xdslb/xdslb/integrate/internal/channelmetrics"
	"github.com/xdslb/xdslb/integrate/internal/link"
	"github.com/xdslb/xdslb/integrate/internal/methodconfig"
	"github.com/xdslb/xdslb/integrate/internal/metric"
	"github.com/xdslb/xdslb/integrate/internal/rollout"
	"github.com/xdslb/xdslb/integrate/internal/xdstls"
	"github.com/xdslb/xdslb/integrate/report"
)

// buildStock builds grpc-go's resolver for a channel that is handed over.
func (b *resolverBuilder) buildStock(v *report.RolloutStatus, target resolver.Target, cc resolver.ClientConn, opts resolver.BuildOptions) (resolver.Resolver, error) {
	name, why := target.String(), v.Why()
	stock := rollout.Stock()
	if _, again := cc.(*stockConn); again || stock == nil {
		return nil, fmt.Errorf("xdslb: target %q: %s, so xdslb must not serve it, and no other package serves scheme xds: import google.golang.org/grpc/xds, or change the variable", name, why)
	}
	r := &stockResolver{why: why, rollout: v}
	r.link = link.New(link.Options{Target: name, Canonical: name, Bypassed: true, Resolver: r})
	r.link.Register()
	original := target
	target.URL.Scheme = stock.Scheme()
	var err error
	if r.Resolver, err = stock.Build(target, &stockConn{cc, r.link}, opts); err != nil {
		r.link.Close()
		hint := ""
		if len(b.opts.Bootstrap) > 0 {
			hint = "; it does not use Config.Bootstrap, but reads GRPC_XDS_BOOTSTRAP or GRPC_XDS_BOOTSTRAP_CONFIG"
		}
		return nil, fmt.Errorf("xdslb: target %q is google.golang.org/grpc/xds's, since %s, and its resolver failed%s: %w", name, why, hint, err)
	}
	if xdstls.UsesXDS(&balancer.BuildOptions{DialCreds: opts.DialCreds, CredsBundle: opts.CredsBundle}) {
		rollout.NoteTLS(original, b.opts.Logger)
	}
	r.metrics = channelmetrics.Start(name, opts.MetricsRecorder, nil)
	return r, nil
}

// stockResolver is grpc-go's resolver of a channel that was handed over. When the channel leaves
// idle mode, the environment is read again.
type stockResolver struct {
	resolver.Resolver
	why     string
	rollout *report.RolloutStatus
	link    *link.Link // made with Options.Bypassed
	metrics *metric.Channel
}

// Close implements resolver.Resolver.
func (r *stockResolver) Close() {
	r.metrics.Stop()
	r.link.Close()
	r.Resolver.Close()
}

// stockConn adds the link's entry to grpc-go's service configs. The entry shows the
// interceptors that the channel was handed over. It has no effect on RPCs: grpc-go's resolver
// has a config selector.
type stockConn struct {
	resolver.ClientConn
	link *link.Link
}

// ParseServiceConfig implements resolver.ClientConn.
func (c *stockConn) ParseServiceConfig(text string) *serviceconfig.ParseResult {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal([]byte(text), &fields); err == nil && fields != nil && fields["methodConfig"] == nil {
		if method, err := json.Marshal([]methodconfig.Config{c.link.MethodConfig()}); err == nil {
			fields["methodConfig"] = method
			if named, err := json.Marshal(fields); err == nil {
				text = string(named)
			}
		}
	}
	return c.ClientConn.ParseServiceConfig(text)
}

// status returns the status of a channel that was handed over.
func (r *stockResolver) status(bool) report.TargetStatus {
	rollout := *r.rollout
	s := report.TargetStatus{Time: time.Now(), Channel: r.link.Number(), Target: r.link.Target, Stock: r.why, Rollout: &rollout}
	if cc := r.link.ClientConn(); cc != nil {
		s.Connectivity = cc.GetState().String()
	}
	return s
}

// explain fails: grpc-go does not reveal its decisions.
func (r *stockResolver) explain(context.Context, string) (*report.Explanation, error) {
	return nil, r.unsupportedError(r.link.Target)
}

// unsupportedError returns the error of functions that support only channels of this package.
func (r *stockResolver) unsupportedError(target string) error {
	return fmt.Errorf("xdslb: channel %q is google.golang.org/grpc/xds's, since %s", target, r.why)
}

// stockResolverOf returns the resolver of a channel that was handed over; nil for other channels.
func stockResolverOf(cc *grpc.ClientConn) *stockResolver {
	if l := link.OfBypassed(cc); l != nil {
		return l.Resolver.(*stockResolver)
	}
	return nil
}
