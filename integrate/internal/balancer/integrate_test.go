// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package balancer_test

import (
	"google.golang.org/grpc/resolver"

	"github.com/xdslb/xdslb/integrate"
	"github.com/xdslb/xdslb/integrate/internal/balancer"
)

func init() {
	balancer.BuildResolver = func(cfg balancer.Config, target resolver.Target, cc resolver.ClientConn, opts resolver.BuildOptions) (resolver.Resolver, error) {
		builder, err := integrate.NewBuilder(integrate.Config{
			FailoverTimeout:         cfg.FailoverTimeout,
			RetireAfter:             cfg.RetireAfter,
			IgnoreEndpointWeights:   cfg.IgnoreEndpointWeights,
			ReconnectOnTLSChange:    cfg.ReconnectOnTLSChange,
			HealthCheckService:      cfg.HealthCheckService,
			Logger:                  cfg.Logger,
			Idempotent:              cfg.Idempotent,
			Bootstrap:               cfg.Bootstrap,
			ControlPlaneDialOptions: cfg.ControlPlaneDialOptions,
			Linger:                  cfg.Linger,
			Resources:               integrate.ResourceOptions{Timeout: cfg.ResourceTimeout},
		})
		if err != nil {
			return nil, err
		}
		return builder.Build(target, cc, opts)
	}
	balancer.Channels = func() (all []balancer.Channel) {
		for _, c := range integrate.Channels() {
			all = append(all, c)
		}
		return all
	}
}
