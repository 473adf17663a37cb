// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

// Package kubernetes provides the services and endpoints of a Kubernetes cluster as xDS
// resources, without a control plane. A program imports it for its side effect:
//
//	import _ "github.com/xdslb/xdslb/integrate/kubernetes"
//
// A server_uri of the bootstrap selects it:
//
//	{
//	  "xds_servers": [{"server_uri": "kubernetes:"}],
//	  "node": {"id": "checkout"}
//	}
//
// Channels to xds:///orders.shop:grpc then use the endpoints of port grpc of service orders in
// namespace shop.
//
// # Structure
//
//	API server ── lists and watches ── informers.go    one pair of informers per namespace
//	                                        │
//	        endpoints.go  resources.go ── source.go    which services, and when
//	                                        │
//	                        XdsClient ── register.go   an xds.Source
//
// The translation (endpoints.go) is a pure function of a service, its EndpointSlices and the
// zones of nodes; slowMerge in oracle_test.go is its specification. The XdsClient handles the
// resources as those of any server: validation, caches, overlays and status.
//
// It is a module of its own, so that other programs do not depend on k8s.io/client-go.
package kubernetes
