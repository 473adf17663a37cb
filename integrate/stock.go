// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"
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

// buildByVerdict builds the resolver of a channel for which the environment selects stock. If
// stock cannot serve the channel, xdslb does, so that a roll-back is no outage.
func (b *resolverBuilder) buildByVerdict(v *report.RolloutStatus, target resolver.Target, cc resolver.ClientConn, opts resolver.BuildOptions) (resolver.Resolver, error) {
	if _, again := cc.(*stockConn); again {
		return nil, errors.New("xdslb: the resolver of google.golang.org/grpc/xds leads back to xdslb")
	}
	r, err := b.buildStock(v, target, cc, opts)
	rollout.NoteOutcome(target, v, len(b.opts.Overlay) > 0 || os.Getenv("XDSLB_OVERLAY") != "", err, b.opts.Logger)
	if err != nil {
		failed := *v
		failed.Failed = err.Error()
		ours, err := b.build(&failed, target, cc, opts)
		if err == nil {
			return ours, nil
		}
		err = fmt.Errorf("%w; google.golang.org/grpc/xds cannot serve the channel either, although %s: %s", err, v.Why(), failed.Failed)
		return failedResolver(&failed, err, target, cc).start(opts), nil
	}
	if xdstls.UsesXDS(&balancer.BuildOptions{DialCreds: opts.DialCreds, CredsBundle: opts.CredsBundle}) {
		rollout.NoteTLS(target, b.opts.Logger)
	}
	return r.start(opts), nil
}

// buildStock builds grpc-go's resolver.
func (b *resolverBuilder) buildStock(v *report.RolloutStatus, target resolver.Target, cc resolver.ClientConn, opts resolver.BuildOptions) (*stockResolver, error) {
	stock := rollout.Stock()
	if stock == nil {
		return nil, errors.New("the program does not link it: import google.golang.org/grpc/xds")
	}
	r := newStockResolver(target.String(), stockResolver{rollout: v})
	target.URL.Scheme = stock.Scheme()
	var err error
	if r.Resolver, err = stock.Build(target, &stockConn{cc, r.link}, opts); err == nil {
		return r, nil
	}
	r.link.Close()
	if len(b.opts.Bootstrap) > 0 {
		err = fmt.Errorf("%w (it does not use Config.Bootstrap: set GRPC_XDS_BOOTSTRAP or GRPC_XDS_BOOTSTRAP_CONFIG)", err)
	}
	return nil, err
}

// stockResolver is grpc-go's resolver of a channel that was handed over, or the resolver of a
// channel that cannot be served. When the channel leaves idle mode, the environment is read again.
type stockResolver struct {
	resolver.Resolver                       // a noResolver if err is set
	rollout           *report.RolloutStatus // the verdict; nil if err is set
	link              *link.Link            // made with Options.Bypassed
	metrics           *metric.Channel
	err               error // why the channel cannot be served
}

// newStockResolver returns the resolver of a target with a link that is registered.
func newStockResolver(target string, r stockResolver) *stockResolver {
	r.link = link.New(link.Options{Target: target, Canonical: target, Bypassed: true, Resolver: &r})
	r.link.Register()
	return &r
}

// failedResolver returns the resolver of a channel that cannot be served.
func failedResolver(v *report.RolloutStatus, err error, target resolver.Target, cc resolver.ClientConn) *stockResolver {
	r := newStockResolver(target.String(), stockResolver{Resolver: noResolver{}, rollout: v, err: err})
	cc.ReportError(err)
	return r
}

// start confirms the link and starts the metrics.
func (r *stockResolver) start(opts resolver.BuildOptions) *stockResolver {
	r.link.Confirm()
	r.metrics = channelmetrics.Start(r.link.Canonical, opts.MetricsRecorder, nil)
	return r
}

// noResolver is the resolver of a channel that cannot be served.
type noResolver struct{}

// ResolveNow implements resolver.Resolver.
func (noResolver) ResolveNow(resolver.ResolveNowOptions) {}

// Close implements resolver.Resolver.
func (noResolver) Close() {}

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
	s := report.TargetStatus{Time: time.Now(), Channel: r.link.Number(), Target: r.link.Target, EnvironmentErrors: rollout.Problems()}
	if r.rollout != nil {
		verdict := *r.rollout
		s.Rollout = &verdict
	}
	if r.err != nil {
		s.Error, s.Connectivity = r.err.Error(), connectivity.TransientFailure.String()
		return s
	}
	s.Stock = r.rollout.Why()
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
	if r.err != nil {
		return r.err
	}
	return fmt.Errorf("xdslb: channel %q uses google.golang.org/grpc/xds: %s", target, r.rollout.Why())
}

// stockResolverOf returns the resolver of a channel that was handed over; nil for other channels.
func stockResolverOf(cc *grpc.ClientConn) *stockResolver {
	if l := link.OfBypassed(cc); l != nil {
		return l.Resolver.(*stockResolver)
	}
	return nil
}
