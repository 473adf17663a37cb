// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate

import (
	"log/slog"
	"time"
)

// options are the options of one channel, with their defaults applied. They are the fields of
// [Config] of the same names, as far as the balancer uses them.
type options struct {
	FailoverTimeout        time.Duration
	RetireAfter            time.Duration
	OverprovisioningFactor uint32 // 0 or at least 100
	IgnoreEndpointWeights  bool
	ReconnectOnTLSChange   bool
	HealthChecks           bool // Config.HealthCheckService is set
	Logger                 *slog.Logger
}

// options returns the options of a channel's balancer.
func (c Config) options() *options {
	c = *c.withDefaults()
	return &options{
		FailoverTimeout:        c.FailoverTimeout,
		RetireAfter:            c.RetireAfter,
		OverprovisioningFactor: c.OverprovisioningFactor,
		IgnoreEndpointWeights:  c.IgnoreEndpointWeights,
		ReconnectOnTLSChange:   c.ReconnectOnTLSChange,
		HealthChecks:           c.HealthCheckService != "",
		Logger:                 c.Logger,
	}
}
