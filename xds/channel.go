// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package xds

import (
	"errors"
	"sync"
	"time"

	"google.golang.org/grpc"
	grpcbackoff "google.golang.org/grpc/backoff"
	"google.golang.org/grpc/experimental"
	"google.golang.org/grpc/keepalive"

	"github.com/xdslb/xdslb/xds/bootstrap"
)

// channel is the gRPC channel to one server, shared by its ADS stream and by
// load reporting. Making and closing one calls into gRPC and into credentials,
// so both happen without Client.mu, which guards only users.
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
func (c *Client) channelLocked(cfg *bootstrap.Server) *channel {
	ch := c.channels[cfg.Key()]
	if ch == nil {
		ch = &channel{cfg: cfg, dial: func() (*grpc.ClientConn, func(), error) { return c.dial(cfg) }}
		c.channels[cfg.Key()] = ch
	}
	ch.users++
	return ch
}

// releaseChannelLocked releases a reference to a channel.
func (c *Client) releaseChannelLocked(ch *channel) {
	ch.users--
	if ch.users > 0 {
		return
	}
	delete(c.channels, ch.cfg.Key())
	if c.closed {
		go ch.close() // the user has outlived the client
	} else {
		c.tasks.Go(ch.close)
	}
}

func (ch *channel) conn() (*grpc.ClientConn, error) {
	ch.once.Do(func() { ch.cc, ch.stop, ch.err = ch.dial() })
	return ch.cc, ch.err
}

// close ends the channel. Whoever comes late, as a server's goroutine may that
// was started a moment ago, finds an error.
func (ch *channel) close() {
	ch.once.Do(func() { ch.err = errClosed })
	if ch.cc != nil {
		ch.cc.Close()
		ch.stop()
	}
}

var errClosed = errors.New("xds: the channel is closed")

// maxResponse is the size of the largest response that is read, in bytes, for a
// response in memory is many times as large (LB-SEC-1). It is that of some hundred
// thousand endpoints; Options.DialOptions can set another.
const maxResponse = 64 << 20

// connectFactor is how much longer gRPC waits after each connection that fails: by a fifth, so
// that a wait is about a fifth of an outage, and clients are back soon after it.
const connectFactor = 1.2

// dial makes the channel. It does not connect yet.
func (c *Client) dial(cfg *bootstrap.Server) (*grpc.ClientConn, func(), error) {
	opts, stop, err := cfg.DialOptions()
	if err != nil {
		return nil, nil, err
	}
	opts = append(opts,
		grpc.WithDisableServiceConfig(),
		// A server that vanished without a word is noticed after
		// 5 min 20 s. More frequent pings would be refused by servers with
		// gRPC's default enforcement policy.
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 5 * time.Minute, Timeout: 20 * time.Second}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxResponse)),
		experimental.WithBufferPool(frames),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           grpcbackoff.Config{BaseDelay: c.opts.BackoffBase, Multiplier: connectFactor, Jitter: 0.5, MaxDelay: c.opts.BackoffMax},
			MinConnectTimeout: 20 * time.Second,
		}),
	)
	cc, err := grpc.NewClient(cfg.URI, append(opts, c.opts.DialOptions...)...)
	if err != nil {
		stop()
		return nil, nil, err
	}
	return cc, stop, nil
}
