// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"log/slog"
	"time"
)

func init() { Register() }

// Config has the fields of integrate.Config that tests of this package set.
type Config struct {
	FailoverTimeout       time.Duration
	RetireAfter           time.Duration
	IgnoreEndpointWeights bool
	DefaultMaxRequests    uint32
	ReconnectOnTLSChange  bool
	HealthCheckService    string
	Logger                *slog.Logger
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
