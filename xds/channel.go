// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xds

import (
	"sync"
	"time"

	"google.golang.org/grpc"
	grpcbackoff "google.golang.org/grpc/backoff"
	"google.golang.org/grpc/experimental"
	"google.golang.org/grpc/keepalive"

	"github.com/xdslb/xdslb/xds/bootstrap"
	"github.com/xdslb/xdslb/xds/internal/adscodec"
)

// channel is the gRPC channel to one server, shared by its ADS stream and load reports. It exists
// while it has users. Creating and closing it calls gRPC and credentials, so both happen without
// core.mu, which guards only users.
type channel struct {
	cfg   *bootstrap.Server
	users int

	dial func() (*grpc.ClientConn, func(), error)
	once sync.Once
	cc   *grpc.ClientConn
	stop func() // of the credentials
	err  error
}

// channelLocked returns the channel to a server for one more user.
func (p *pool) channelLocked(cfg *bootstrap.Server) *channel {
	ch := p.channels[cfg.Key()]
	if ch == nil {
		ch = &channel{cfg: cfg, dial: func() (*grpc.ClientConn, func(), error) { return p.dial(cfg) }}
		p.channels[cfg.Key()] = ch
	}
	ch.users++
	return ch
}

// releaseChannelLocked releases a reference to a channel.
func (p *pool) releaseChannelLocked(ch *channel) {
	ch.users--
	if ch.users > 0 {
		return
	}
	delete(p.channels, ch.cfg.Key())
	if p.core.ctx.Err() != nil {
		go ch.close() // the user has outlived the client
	} else {
		p.core.tasks.Go(ch.close)
	}
}

func (ch *channel) conn() (*grpc.ClientConn, error) {
	ch.once.Do(func() { ch.cc, ch.stop, ch.err = ch.dial() })
	return ch.cc, ch.err
}

// close closes the channel. Later calls of conn, as by the goroutine of a server that was started a
// moment ago, return an error.
func (ch *channel) close() {
	ch.once.Do(func() { ch.err = errClosed })
	if ch.cc != nil {
		ch.cc.Close()
		ch.stop()
	}
}

// maxResponse bounds the size of a response, in bytes, since a response in memory is many times as
// large (LB-SEC-1). It has room for some hundred thousand endpoints; Options.DialOptions can set
// another bound.
const maxResponse = 64 << 20

// connectFactor is the growth of gRPC's backoff after each failed connection: the backoff is about
// a fifth of the outage then, so clients reconnect soon after it.
const connectFactor = 1.2

// dial creates the gRPC channel, which does not connect yet.
func (p *pool) dial(cfg *bootstrap.Server) (*grpc.ClientConn, func(), error) {
	if cfg.Local() {
		return p.openSource(cfg)
	}
	o := &p.core.opts
	opts, stop, err := cfg.DialOptions()
	if err != nil {
		return nil, nil, err
	}
	opts = append(opts,
		grpc.WithDisableServiceConfig(),
		// A connection that is dead without an error is closed after 5 min 20 s. Servers with
		// gRPC's default enforcement policy would refuse more frequent pings.
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 5 * time.Minute, Timeout: 20 * time.Second}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxResponse)),
		experimental.WithBufferPool(adscodec.Buffers),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           grpcbackoff.Config{BaseDelay: o.BackoffBase, Multiplier: connectFactor, Jitter: 0.5, MaxDelay: o.BackoffMax},
			MinConnectTimeout: 20 * time.Second,
		}),
	)
	cc, err := grpc.NewClient(cfg.URI, append(opts, o.DialOptions...)...)
	if err != nil {
		stop()
		return nil, nil, err
	}
	return cc, stop, nil
}
