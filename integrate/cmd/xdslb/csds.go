// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"time"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	statusv3 "github.com/envoyproxy/go-control-plane/envoy/service/status/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/xdslb/xdslb/integrate"
	"github.com/xdslb/xdslb/integrate/debug"
	"github.com/xdslb/xdslb/integrate/internal/offline"
	"github.com/xdslb/xdslb/integrate/report"
	"github.com/xdslb/xdslb/xds/resource"
)

// resources requests the CSDS status. In place of channels, the document has the XdsClients of the
// process with their resources, each followed by the targets of its Listeners with their routes,
// clusters and endpoints. It has no connection states, since CSDS does not contain them.
func (p *remote) resources(ctx context.Context) (*debug.Document, error) {
	creds := insecure.NewCredentials()
	if cfg, err := p.tls.config(); err != nil {
		return nil, err
	} else if cfg != nil {
		creds = credentials.NewTLS(cfg)
	}
	cc, err := grpc.NewClient(p.at, grpc.WithTransportCredentials(creds), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswer)))
	if err != nil {
		return nil, err
	}
	defer func() { _ = cc.Close() }()
	ctx, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	resp, err := statusv3.NewClientStatusDiscoveryServiceClient(cc).FetchClientStatus(ctx, &statusv3.ClientStatusRequest{})
	if err != nil {
		return nil, err
	}
	d := &debug.Document{Time: time.Now()}
	for _, c := range resp.GetConfig() {
		s := integrate.TargetStatus{Time: d.Time, Target: c.GetClientScope(), Node: c.GetNode().GetId()}
		for _, g := range c.GetGenericXdsConfigs() {
			s.Resources = append(s.Resources, resourceStatus(g))
		}
		d.Channels = append(append(d.Channels, s), targetsOf(c, d.Time)...)
	}
	return d, nil
}

func resourceStatus(g *statusv3.ClientConfig_GenericXdsConfig) report.ResourceStatus {
	r := report.ResourceStatus{
		Type: g.GetTypeUrl(), Name: g.GetName(), Version: g.GetVersionInfo(), State: g.GetClientStatus().String(),
		Error: g.GetErrorState().GetDetails(), Refused: g.GetErrorState().GetVersionInfo(),
	}
	if t, ok := resource.TypeOf(g.GetTypeUrl()); ok {
		r.Type = t.String()
	}
	if g.GetLastUpdated() != nil {
		r.Updated = g.GetLastUpdated().AsTime()
	}
	return r
}

// targetsOf returns the expected status of channels to the API listeners of a client.
func targetsOf(c *statusv3.ClientConfig, now time.Time) (list []integrate.TargetStatus) {
	text, err := protojson.MarshalOptions{Resolver: offline.LinkedTypes{}}.Marshal(c)
	if err != nil {
		return nil // show the resources without their contents
	}
	var targets []string
	for _, g := range c.GetGenericXdsConfigs() {
		l := new(listenerv3.Listener)
		if g.GetXdsConfig().UnmarshalTo(l) == nil && l.GetApiListener() != nil {
			targets = append(targets, fullTarget(g.GetName()))
		}
	}
	if targets == nil {
		return nil
	}
	w := integrate.WhatIf{Resources: text}
	w.Config.Resources.AcceptHostnames = true // the process has accepted them
	if list, err = integrate.InspectTargets(w, targets); err != nil {
		for _, target := range targets {
			list = append(list, integrate.TargetStatus{Target: target, Error: err.Error()})
		}
	}
	for i := range list {
		list[i].Time = now
		forgetStates(&list[i])
	}
	return list
}

// forgetStates removes the connection states that InspectTargets assumes.
func forgetStates(s *integrate.TargetStatus) {
	s.Connectivity = ""
	for i := range s.Clusters {
		c := &s.Clusters[i]
		if c.State == "READY" {
			c.State = ""
		}
		for e := range report.Endpoints(c) {
			e.State = ""
		}
		for k := range c.Leaves {
			for n := range c.Leaves[k].Priorities {
				p := &c.Leaves[k].Priorities[n]
				p.Phase, p.State = "", ""
				p.Endpoints = report.EndpointCounts{Total: p.Endpoints.Total, Draining: p.Endpoints.Draining}
			}
		}
	}
}
