// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package report

// Picks are where a number of RPCs went that were picked by resources from a file.
type Picks struct {
	RPCs      int              `json:"rpcs"`
	Endpoints []PickedEndpoint `json:"endpoints"` // of the priorities in use, in the order of the configuration
	// Waiting, Failed and NoRoute count RPCs without an endpoint. Refused counts RPCs that
	// drops or the circuit breaker would have ended.
	Waiting int `json:"waiting"`
	Failed  int `json:"failed"`
	NoRoute int `json:"no_route"`
	Refused int `json:"refused"`
	// Delegated counts RPCs that a child policy would have picked for.
	Delegated int `json:"delegated"`
}

// PickedEndpoint is how many of the RPCs an endpoint got.
type PickedEndpoint struct {
	Cluster string `json:"cluster"`
	Region  string `json:"region,omitempty"`
	Zone    string `json:"zone,omitempty"`
	SubZone string `json:"sub_zone,omitempty"`
	Address string `json:"address"`
	RPCs    int    `json:"rpcs"`
}
