// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"strings"
)

// StockDifference is a feature of a channel or of its resources that google.golang.org/grpc/xds,
// called stock here, rejects, lacks or handles differently: the effect of going back to it. The facts
// are those of grpc-go 1.85.
type StockDifference struct {
	// LosesRPCs is set if stock fails RPCs of the channel. Otherwise it serves them, but differently.
	LosesRPCs bool   `json:"loses_rpcs"`
	Feature   string `json:"feature"`
	// Where lists the users of the feature, such as `Cluster orders` and `route 3 "cart"`, at most 8,
	// and the number of further ones. It is empty for features of the channel.
	Where  []string `json:"where,omitempty"`
	Effect string   `json:"effect"`           // with stock
	Remedy string   `json:"remedy,omitempty"` // before going back
}

// String returns the difference as a sentence.
func (d *StockDifference) String() string {
	text := d.Feature
	if len(d.Where) > 0 {
		text += " (" + strings.Join(d.Where, "; ") + ")"
	}
	text += ": " + d.Effect
	if d.Remedy != "" {
		text += "; before going back, " + d.Remedy
	}
	return text
}

// ShareShift is a cluster whose endpoints get other shares of its RPCs from xdslb than from stock.
type ShareShift struct {
	Cluster string `json:"cluster"`
	// Causes lists the features that stock lacks: "endpoint weights", "zone-aware routing" and
	// others.
	Causes []string `json:"causes"`
	// Moved is the share of the RPCs that go to another endpoint, from 0 to 1.
	Moved float64 `json:"moved"`
	// Endpoints are those with the largest changes, at most 10.
	Endpoints []EndpointShares `json:"endpoints"`
}

// EndpointShares are the shares that an endpoint has of the RPCs to its cluster, with equally loaded
// endpoints.
type EndpointShares struct {
	Address string  `json:"address"`
	Stock   float64 `json:"stock"`
	Xdslb   float64 `json:"xdslb"`
}

// String returns the shift as text.
func (s *ShareShift) String() string {
	var list []string
	for _, e := range s.Endpoints {
		list = append(list, fmt.Sprintf("%s %s -> %s", e.Address, Percent(e.Stock), Percent(e.Xdslb)))
	}
	return fmt.Sprintf("%s of the RPCs go to other endpoints by %s; shares of grpc-go -> xdslb: %s",
		Percent(s.Moved), strings.Join(s.Causes, ", "), strings.Join(list, ", "))
}
