// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"cmp"
	"log/slog"
	"time"
)

// Options are the options of one channel: fields of integrate.Config, which documents them.
type Options struct {
	FailoverTimeout       time.Duration
	RetireAfter           time.Duration
	IgnoreEndpointWeights bool
	DefaultMaxRequests    uint32
	ReconnectOnTLSChange  bool
	HealthChecks          bool // HealthCheckService is set
	Logger                *slog.Logger
}

// WithDefaults returns the options with the defaults in place of zero values.
func (o Options) WithDefaults() *Options {
	o.FailoverTimeout = cmp.Or(o.FailoverTimeout, 10*time.Second)
	o.DefaultMaxRequests = cmp.Or(o.DefaultMaxRequests, 1024)
	o.RetireAfter = cmp.Or(o.RetireAfter, 15*time.Minute)
	return &o
}
