// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xds

import (
	"fmt"
	"log/slog"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/xdslb/xdslb/xds/bootstrap"
	"github.com/xdslb/xdslb/xds/internal/sources"
)

// A Source stands for a control plane in this process: it delivers complete sets of resources, by
// type. The client runs it while it uses it. See [RegisterSource].
//
// Experimental: the interface may change in a minor version.
type Source = sources.Source

// A SourceStream connects a [Source] with a client. Names has the names that the client has subscribed to
// by type URL, and Changed reports changes of them. Deliver sets the complete set of resources of a
// type; a name that the set lacks does not exist, unless the source uses Names, which did not return it yet. Fail
// reports an error; resources stay in use.
//
// Experimental: the interface may change in a minor version.
type SourceStream = sources.Stream

// RegisterSource registers the sources of a scheme: a server_uri of a bootstrap with that scheme, in
// xds_servers or in an authority, selects the source that open returns for it, and needs no
// channel_creds. Everything that a source delivers is decoded, validated, cached and reported like
// the resources of a server. As a later server of a chain the source is a fallback (A71). Register
// sources in init functions, before a bootstrap is parsed. RegisterSource panics if the scheme has sources.
//
// Experimental: the interface may change in a minor version.
func RegisterSource(scheme string, open func(uri string) (Source, error)) {
	sources.Register(scheme, open)
}

// openSource returns a channel to a source. It makes no connections.
func (p *pool) openSource(cfg *bootstrap.Server) (*grpc.ClientConn, func(), error) {
	source, err := sources.Of(cfg.URI)(cfg.URI)
	if err != nil {
		return nil, nil, fmt.Errorf("xdslb: source %q: %w", cfg.URI, err)
	}
	serve := sources.Serve(source, p.core.tasks.Go, func(err error, stale bool) { p.sourceFailed(cfg, err, stale) })
	cc, err := grpc.NewClient("passthrough:///source", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDisableServiceConfig(), grpc.WithStreamInterceptor(serve))
	if err != nil {
		return nil, nil, err
	}
	return cc, func() {}, nil
}

// sourceFailed records the error of a source whose previous resources stay in use, or with nil the end
// of the error.
func (p *pool) sourceFailed(cfg *bootstrap.Server, err error, stale bool) {
	p.core.mu.Lock()
	defer p.core.unlock()
	stats := p.serverStatsLocked(cfg)
	of, about := condition{server: cfg, kind: "source"}, logFields{server: cfg, typ: noType, err: err}
	if err == nil {
		stats.status.SourceErr = nil
		p.core.endLocked(of, "xdslb: a source of resources works again", about)
		return
	}
	if before := stats.status.SourceErr; before == nil || before.Error() != err.Error() {
		stats.status.SourceFailures++
		message, level := "xdslb: a source of resources failed, keeping the previous resources", slog.LevelError
		if stale {
			message, level = "xdslb: a source of resources has only earlier resources", slog.LevelWarn
		}
		p.core.log.WriteState(of, message, p.core.line(level, message, about, nil))
	}
	stats.status.SourceErr = err
}
