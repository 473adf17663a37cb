// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package stage

import (
	"encoding/json"
	"errors"
	"fmt"

	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/serviceconfig"
)

// resolverConn is what a resolver sees of the stage.
type resolverConn struct {
	resolver.ClientConn // nil: there are no addresses to be given
	stage               *Stage
}

// A chosen policy is all that a stage reads of a service config.
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
	return &serviceconfig.ParseResult{Err: errors.New("stage: the service config names no LB policy")}
}

// UpdateState implements resolver.ClientConn.
func (c *resolverConn) UpdateState(state resolver.State) error {
	if state.ServiceConfig == nil {
		return errors.New("stage: no service config")
	}
	if state.ServiceConfig.Err != nil {
		c.stage.fail(state.ServiceConfig.Err)
		return state.ServiceConfig.Err
	}
	choice, ok := state.ServiceConfig.Config.(chosen)
	if !ok {
		return fmt.Errorf("stage: a service config of type %T", state.ServiceConfig.Config)
	}
	return c.stage.update(choice.policy, choice.config, state)
}

// ReportError implements resolver.ClientConn. Resolvers try again by
// themselves.
func (c *resolverConn) ReportError(error) {}
