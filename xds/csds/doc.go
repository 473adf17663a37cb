// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

// Package csds provides the Client Status Discovery Service (A40) for the process's XdsClients:
// the resources that they have received from their control planes, and their errors. grpcdebug
// and control planes' tools read it over gRPC.
//
//	server := grpc.NewServer()
//	if err := csds.Register(server); err != nil { … }
//
// Every client has one ClientConfig. It contains the node as in discovery requests, the targets
// in client_scope (A71), and each resource used by a target in generic_xds_configs:
//
//   - name and type_url, version_info and last_updated of the version in use, and that
//     version in xds_config, byte by byte as it was received, including fields unknown to
//     this module. A resource with patches of an overlay is shown as patched, once for each set of
//     patches, and as received if a target uses it without patches. The protocol has no field for
//     the patches: integrate.Status lists them.
//   - client_status: REQUESTED, ACKED, NACKED, DOES_NOT_EXIST, RECEIVED_ERROR or TIMEOUT
//     (A40, A88). UNKNOWN is for names whose authority is not in the bootstrap, so that
//     no server can be queried.
//   - error_state: why there is no version in use, or why it is not the latest. For
//     NACKED it has the rejected version and its arrival time. It is also set for
//     other states: RECEIVED_ERROR, DOES_NOT_EXIST, TIMEOUT, UNKNOWN, and REQUESTED
//     if no server can be reached. failed_configuration is not set, since rejected bytes
//     are not kept.
//
// A request with exclude_resource_contents gets no xds_config. A request with node_matchers
// fails with INVALID_ARGUMENT. The data is for everyone who may know the configuration; it
// contains no keys, but addresses and names. Register it on an admin port.
//
// # With grpc-go's CSDS
//
// google.golang.org/grpc/xds/csds shows only the clients of google.golang.org/grpc/xds. A
// program that uses both registers one service with both:
//
//	stock, err := stockcsds.NewClientStatusDiscoveryServer()
//	…
//	err = csds.Register(server, stock)
//
// google.golang.org/grpc/admin registers grpc-go's own CSDS, if it is linked, and channelz.
// After it, [Register] returns an error; before it, gRPC terminates the process. In that case
// register channelz with google.golang.org/grpc/channelz/service.
//
// grpcdebug requires exactly one ClientConfig (until its change 26): it works as long as the
// process has one XdsClient, that is, as long as all channels have the same bootstrap and
// options, and not with other servers that have clients. A process without channels has no XdsClient.
//
// # Cost
//
// Importing the package makes clients keep the bytes of resources ([xds.KeepBytes]), which they
// otherwise discard. An RPC copies the requested data; there is no other cost. The kept bytes
// are those of the resource only, not of its response. The package links Envoy's admin and
// bootstrap protos.
//
//	                              without     with
//	an endpoint in the XdsClient     49 B     77 B   address and weight, 27 B on the wire
//	the binary of a client        24.2 MB  26.2 MB   linux/amd64, without symbols
//
// Resources are kept as received: endpoints with metadata cost proportionally more.
package csds
