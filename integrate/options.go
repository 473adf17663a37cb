// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate

import (
	"cmp"
	"log/slog"
	"time"
)

// options are the options of one channel: fields of integrate.Config, which documents them.
type options struct {
	FailoverTimeout        time.Duration
	RetireAfter            time.Duration
	OverprovisioningFactor uint32
	IgnoreEndpointWeights  bool
	ReconnectOnTLSChange   bool
	HealthChecks           bool // HealthCheckService is set
	Logger                 *slog.Logger
}

// withDefaults returns the options with the defaults in place of zero values.
func (o options) withDefaults() *options {
	o.FailoverTimeout = cmp.Or(o.FailoverTimeout, 10*time.Second)
	o.RetireAfter = cmp.Or(o.RetireAfter, 15*time.Minute)
	if o.OverprovisioningFactor > 0 {
		o.OverprovisioningFactor = max(o.OverprovisioningFactor, 100)
	}
	return &o
}
