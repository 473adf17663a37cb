// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate

import (
	"google.golang.org/grpc"

	"github.com/xdslb/xdslb/integrate/internal/balancer"
)

// NewClientWith is NewClient with a configuration, such as one without Linger.
func NewClientWith(cfg Config, target string, opts ...grpc.DialOption) (*grpc.ClientConn, error) {
	return newClient(cfg, target, opts)
}

// ForgetWeightsNoted has the next configuration that has weights logged again, as in a new
// process: another test may have had it logged.
func ForgetWeightsNoted() { balancer.WeightsNoted.Store(false) }
