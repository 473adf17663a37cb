// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package fakegrpc

import (
	"encoding/json"
	"errors"
	"fmt"

	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/serviceconfig"
)

// resolverConn is the resolver.ClientConn of a Channel.
type resolverConn struct {
	resolver.ClientConn // nil: NewAddress is not called
	channel             *Channel
}

// chosen is the LB policy of a service config, the only field that a Channel uses.
type chosen struct {
	serviceconfig.Config
	policy string
	config json.RawMessage
}

// ParseServiceConfig implements resolver.ClientConn.
func (c *resolverConn) ParseServiceConfig(js string) *serviceconfig.ParseResult {
	var doc struct {
		LoadBalancingConfig []map[string]json.RawMessage `json:"loadBalancingConfig"`
	}
	if err := json.Unmarshal([]byte(js), &doc); err != nil {
		return &serviceconfig.ParseResult{Err: err}
	}
	for _, choice := range doc.LoadBalancingConfig {
		for policy, config := range choice {
			return &serviceconfig.ParseResult{Config: chosen{policy: policy, config: config}}
		}
	}
	return &serviceconfig.ParseResult{Err: errors.New("fakegrpc: service config without an LB policy")}
}

// UpdateState implements resolver.ClientConn.
func (c *resolverConn) UpdateState(state resolver.State) error {
	if state.ServiceConfig == nil {
		return errors.New("fakegrpc: no service config")
	}
	if state.ServiceConfig.Err != nil {
		c.channel.fail(state.ServiceConfig.Err)
		return state.ServiceConfig.Err
	}
	choice, ok := state.ServiceConfig.Config.(chosen)
	if !ok {
		return fmt.Errorf("fakegrpc: a service config of type %T", state.ServiceConfig.Config)
	}
	return c.channel.update(choice.policy, choice.config, state)
}

// ReportError implements resolver.ClientConn. It does nothing, since resolvers retry on their
// own.
func (c *resolverConn) ReportError(error) {}
