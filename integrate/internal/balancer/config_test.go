// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"context"
	"log/slog"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/resolver"

	"github.com/xdslb/xdslb/integrate/report"
)

// Config has the fields of integrate.Config that tests of this package set.
type Config struct {
	FailoverTimeout         time.Duration
	RetireAfter             time.Duration
	IgnoreEndpointWeights   bool
	DefaultMaxRequests      uint32
	ReconnectOnTLSChange    bool
	HealthCheckService      string
	Logger                  *slog.Logger
	Idempotent              func(method string) bool
	Bootstrap               []byte
	ControlPlaneDialOptions []grpc.DialOption
	Linger                  time.Duration
	ResourceTimeout         time.Duration
}

func (c Config) options() *Options {
	return Options{
		FailoverTimeout:       c.FailoverTimeout,
		RetireAfter:           c.RetireAfter,
		IgnoreEndpointWeights: c.IgnoreEndpointWeights,
		DefaultMaxRequests:    c.DefaultMaxRequests,
		ReconnectOnTLSChange:  c.ReconnectOnTLSChange,
		HealthChecks:          c.HealthCheckService != "",
		Logger:                c.Logger,
	}.WithDefaults()
}

// Package integrate depends on this package, so its resolver is handed to the tests by
// integrate_test.go, which is in the external test package.
var (
	// BuildResolver builds a resolver of scheme xds for a target.
	BuildResolver func(cfg Config, target resolver.Target, cc resolver.ClientConn, opts resolver.BuildOptions) (resolver.Resolver, error)
	// Channels is that of package integrate.
	Channels func() []Channel
)

// Channel is that of package integrate.
type Channel interface {
	Number() int64
	Status() report.TargetStatus
	Inspect() report.TargetStatus
	Explain(ctx context.Context, method string) (*report.Explanation, error)
}
